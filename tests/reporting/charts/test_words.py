import pytest

from lmexposure.reporting.charts.words import class_name, listed, number, short, slug


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.98, "0.98"), (1234567.0, "1,234,567"), (-2.345, "-2.35"), (2e-10, "2e-10")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_lists_count_what_they_leave_out() -> None:
    assert listed(["a", "b", "c"], 2) == "a; b; and 1 more"


def test_classes_have_names() -> None:
    assert class_name("control", 0) == "controls"
    assert class_name("canary", 1) == "1 repetition"


def test_long_names_are_cut_and_odd_letters_replaced() -> None:
    assert short("a" * 100) == "a" * 47 + "…"
    assert short("\ud800") == "\ufffd"
    assert slug("../..") == "unnamed"
    assert slug("A" * 100) == "a" * 48
