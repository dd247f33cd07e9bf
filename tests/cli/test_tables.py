import math

from made_results import canary, class_row, exact, form

from lmexposure.cli.tables import _found, _size
from lmexposure.records.result import ExtractionCount


def test_what_guessing_would_find_stands_in_brackets() -> None:
    rows = (
        ExtractionCount(method="beam", revealed=0, found=4, of=4, by_chance=0.4),
        ExtractionCount(method="beam", revealed=1, found=4, of=4, by_chance=4.0),
        ExtractionCount(method="greedy", revealed=0, found=0, of=4, by_chance=0.1),
    )
    row = class_row([canary(i, exact(1.0)) for i in range(4)], extraction=rows)
    assert _found(row, "beam", 2) == ["4/4", "(4/4)", ""]
    assert _found(row, "greedy", 0) == ["0/4"]


def test_a_space_too_large_for_a_float_is_a_power_of_two() -> None:
    assert _size(form()) == "1e+09"
    assert _size(form(size=16**1000)) == f"2^{math.log2(16) * 1000:.0f}"
