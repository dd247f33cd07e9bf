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


def test_an_interval_with_one_end_keeps_the_other() -> None:
    assert style.interval(None, 3) == "n/a .. 3.00"
    assert style.interval(1, 12.3, capped=True) == "1.00 .. ≥ 12.30"
    assert style.interval(0.5, 0.75, 3) == "0.500 .. 0.750"


def test_a_zero_has_no_minus() -> None:
    assert [style.number(-0.0), style.number(-0.004), style.short(-0.0)] == ["0.00", "0.00", "0"]
    assert style.signed(-0.004) == "+0.00"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.0, "1.0000"),
        (1e-4, "0.0001"),
        (0.99e-4, "9.9e-05"),
        (0.00005, "5.0e-05"),
        (1e-300, "1.0e-300"),
        (0.0, "0"),
    ],
)
def test_a_probability_shows_its_size_where_four_decimals_show_nothing(
    value: float, said: str
) -> None:
    assert style.probability(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (999_999_999_999_999, "999,999,999,999,999"),
        (10**40, "1.00e+40"),
        ("9" * 40, "1.00e+40"),
        pytest.param(10**5000, "2^16610", id="5,001 digits"),
        ("not a number", "not a number"),
    ],
)
def test_a_whole_number_is_written_out_or_by_its_size(value: int | str, said: str) -> None:
    assert style.whole(value) == said


def test_large_numbers_do_not_fill_the_page() -> None:
    assert style.number(1e40) == "1.00e+40"
    assert style.number(-math.inf) == "-inf"
    assert style.short(1e40) == "1e+40"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.98, "0.98"), (1234567.0, "1,234,567"), (-2.345, "-2.35"), (2e-10, "2e-10"), (99.96, "100")],
)
def test_short_numbers_have_three_digits(value: float, text: str) -> None:
    assert style.short(value) == text


def test_a_reading_goes_with_its_unit() -> None:
    assert style.reading(1000.0, "guesses") == "1,000 guesses"
    assert style.reading(2.5, "guesses") == "2.50 guesses"
    assert style.reading(1.23456, "nats") == "1.235 nats"
    assert style.reading(0.0125, "") == "0.0125"


def test_what_guessing_would_find_is_in_brackets() -> None:
    assert style.found_of(3, 10, 1e-6) == "3/10"
    assert style.found_of(0, 10, 0.4) == "0/10"
    assert style.found_of(0, 10, 0.5) == "(0/10)"
    assert style.found_of(8, 10, 4.0) == "(8/10)"


def test_names_of_roles_outcomes_and_validity() -> None:
    assert style.class_name("canary", 1600) == "1,600×"
    assert style.class_name("control", 0) == "controls"
    assert style.outcome_word("not tested") == "not tested"
    assert style.validity("of a later version") == "of a later version"
    assert style.percent(0.0995) == "10 %"


def test_a_slug_is_never_empty_nor_long() -> None:
    assert style.slug("../..") == "unnamed"
    assert style.slug("A" * 100) == "a" * 48
