"""The one voice: numbers that are missing, zero, huge or bounds; text that cannot be seen."""

import json
import math
import unicodedata

import pytest

from lmexposure import _style as style
from lmexposure._style import printable, visible

UNSEEN = (
    "\x00\x07\x1b\x7f\x85\u200b\u200e\u202a\u202e\u2028\u2029\u2066\u2069\ufeff\ud800\U000e0041"
)


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


@pytest.mark.parametrize("one", UNSEEN)
def test_what_is_unseen_is_spelled(one: str) -> None:
    spelled = one.encode("unicode_escape").decode()
    assert visible(f"a{one}b") == printable(f"a{one}b") == f"a{spelled}b"
    escaped = printable(json.dumps(f"a{one}b", ensure_ascii=False), json_escapes=True)
    assert escaped.isprintable()
    assert json.loads(escaped) == f"a{one}b"


def test_what_is_seen_stays_as_it_is() -> None:
    text = "Å ≥ é ñ 漢字 عربى 🙂 e\u0301"
    assert visible(text) == printable(text) == text
    blanks = "one\ttwo\r\nthree\u00a0four\u202ffive"
    assert printable(blanks) == blanks
    assert visible("one\ntwo\t") == r"one\ntwo\t"


def test_every_control_and_format_character_is_unseen() -> None:
    kept = {chr(n) for n in range(0x110000) if unicodedata.category(chr(n)) in ("Cc", "Cf")}
    bare = {one for one in kept if printable(one) == one}
    assert bare == set("\t\n\r")
