import pytest
from matplotlib.figure import Figure

from lmexposure.reporting.charts.looks import (
    key,
    legend_lines,
    log_ticks,
    put_legend,
    series_style,
    some_ticks,
)


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
    some_ticks(axes, [str(i) for i in range(10)], 7)
    assert [one.get_text() for one in axes.get_xticklabels()] == ["0", "2", "4", "6", "8"]
