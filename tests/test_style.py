"""The one voice: what its functions do where a number is missing, zero, huge or a lower bound."""

import math

import pytest

from lmexposure import _style as style


@pytest.mark.parametrize("missing", [None, math.nan])
def test_what_is_missing_looks_the_same_wherever_it_is(missing: float | None) -> None:
    written = {
        style.number(missing),
        style.signed(missing),
        style.at_least(missing, capped=True),
        style.interval(missing, missing, capped=True),
        style.probability(missing),
        style.short(missing),
        style.bits(missing),
        style.nats(missing),
        style.reading(missing, "guesses"),
        style.setting_value(None),
        style.whole(None),
    }
    assert written == {"n/a"}


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (style.interval(None, 3), "n/a .. 3.00"),
        (style.interval(1, 12.3, capped=True), "1.00 .. ≥ 12.30"),
        (style.interval(0.5, 0.75, 3), "0.500 .. 0.750"),
        # A zero has no minus.
        (style.number(-0.0), "0.00"),
        (style.number(-0.004), "0.00"),
        (style.short(-0.0), "0"),
        (style.signed(-0.004), "+0.00"),
        # A probability shows its size where four decimals show nothing.
        (style.probability(1.0), "1.0000"),
        (style.probability(1e-4), "0.0001"),
        (style.probability(0.99e-4), "9.9e-05"),
        (style.probability(0.00005), "5.0e-05"),
        (style.probability(1e-300), "1.0e-300"),
        (style.probability(0.0), "0"),
        # A whole number is written out, or by its size.
        (style.whole(0), "0"),
        (style.whole(999_999_999_999_999), "999,999,999,999,999"),
        (style.whole(10**40), "1.00e+40"),
        (style.whole("9" * 40), "1.00e+40"),
        (style.whole(10**5000), "2^16610"),
        (style.whole("not a number"), "not a number"),
        # Large numbers do not fill the page.
        (style.number(1e40), "1.00e+40"),
        (style.number(-math.inf), "-inf"),
        (style.short(1e40), "1e+40"),
        # Short numbers have three digits.
        (style.short(0.98), "0.98"),
        (style.short(1234567.0), "1,234,567"),
        (style.short(-2.345), "-2.35"),
        (style.short(2e-10), "2e-10"),
        (style.short(99.96), "100"),
        # A reading goes with its unit.
        (style.reading(1000.0, "guesses"), "1,000 guesses"),
        (style.reading(2.5, "guesses"), "2.50 guesses"),
        (style.reading(1.23456, "nats"), "1.235 nats"),
        (style.reading(0.0125, ""), "0.0125"),
        # What guessing would find is in brackets.
        (style.found_of(3, 10, 1e-6), "3/10"),
        (style.found_of(0, 10, 0.4), "0/10"),
        (style.found_of(0, 10, 0.5), "(0/10)"),
        (style.found_of(8, 10, 4.0), "(8/10)"),
        (style.class_name("canary", 1600), "1,600×"),
        (style.class_name("control", 0), "controls"),
        (style.outcome_word("not tested"), "not tested"),
        (style.validity("of a later version"), "of a later version"),
        (style.percent(0.0995), "10 %"),
        # A slug is never empty nor long.
        (style.slug("../.."), "unnamed"),
        (style.slug("A" * 100), "a" * 48),
    ],
)
def test_what_is_shown(shown: str, said: str) -> None:
    assert shown == said
