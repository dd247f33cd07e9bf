from lmexposure.reporting.charts.words import clipped, joined


def test_lists_count_what_they_leave_out() -> None:
    assert joined(["a", "b", "c"], 2) == "a; b; and 1 more"


def test_long_names_are_cut_and_odd_letters_replaced() -> None:
    assert clipped("a" * 100) == "a" * 47 + "…"
    assert clipped("\ud800") == "\ufffd"
