"""Colours, ticks, legends and short words of all charts."""

import pytest
from matplotlib.figure import Figure

from lmexposure.core.charts import (
    category_ticks,
    clipped,
    joined,
    key,
    legend_lines,
    log_ticks,
    series_style,
    style,
)
from lmexposure.core.charts.style import put_legend


def test_series_are_told_apart_without_colour() -> None:
    looks = [(s["marker"], s["linestyle"]) for s in map(series_style, range(18))]
    assert len(set(looks)) == 18
    pairs = [(s["marker"], s["color"]) for s in map(series_style, range(36))]
    assert len(set(pairs)) == 36


def test_a_legend_has_as_many_columns_as_fit() -> None:
    assert legend_lines([]) == 0
    assert legend_lines([key("a"), key("b"), key("c")]) == 1
    assert legend_lines([key("a name of some length " * 2)] * 3) == 3
    assert legend_lines([key("half as long as that")] * 4) == 2
    figure = Figure()
    put_legend(figure, [])
    assert figure.legends == []


@pytest.mark.parametrize(("low", "high"), [(1e-9, 1.0), (0.7, 2.5e6), (0.5, 20.0)])
def test_a_log_axis_has_few_ticks(low: float, high: float) -> None:
    axes = Figure().subplots()
    log_ticks(axes, "y", low, high)
    ticks = axes.yaxis.get_majorticklocs()
    assert 1 <= len(ticks) <= 5
    assert low <= min(ticks) <= max(ticks) <= high


def test_of_many_names_every_second_one() -> None:
    axes = Figure().subplots()
    category_ticks(axes, [str(i) for i in range(10)], 7)
    assert [one.get_text() for one in axes.get_xticklabels()] == ["0", "2", "4", "6", "8"]


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_part_has_a_colour_and_a_variable_of_its_own() -> None:
    assert len(set(style.VARIABLES.values())) == len(style.VARIABLES) == 23
    assert style.PAPER not in style.VARIABLES


def test_what_carries_data_stands_out_from_white() -> None:
    for color in set(style.VARIABLES) - {style.GRID, style.BAND}:
        assert contrast(color, style.PAPER) >= 3
    assert contrast(style.INK, style.PAPER) >= 7


def test_the_classes_get_darker_by_steps_that_an_eye_without_colour_sees() -> None:
    steps = [contrast(color, style.PAPER) for color in style.CLASSES]
    assert steps == sorted(steps)
    assert steps[-1] > 2.5 * steps[0]


def test_lists_count_what_they_leave_out() -> None:
    assert joined(["a", "b", "c"], 2) == "a; b; and 1 more"


def test_long_names_are_cut_and_odd_letters_replaced() -> None:
    assert clipped("a" * 100) == "a" * 47 + "…"
    assert clipped("\ud800") == "\ufffd"
