"""Drawings that studies share: lines over steps, scores of two sides, dots with intervals."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import FigureBase
from numpy.typing import ArrayLike, NDArray

from lmexposure._style import number
from lmexposure.core.charts.chart import Chart
from lmexposure.core.charts.style import (
    CONTROL,
    INK,
    LINE,
    MUTED,
    SERIES,
    Style,
    key,
    log_ticks,
    named_rows,
    plain_axes,
)

Points = Sequence[tuple[float, float]]
_MARKERS = ("s", "o", "D", "^", "v", "P")
_BINS = 30
_MARGIN = 1.5  # of a logarithmic axis, beyond the first and the last step
_DOTS_ROW = 0.62  # inches
_DOTS_APART = 0.17  # rows, between two marks of one
_HOLLOW = ("D", "s", "^", "v")  # markers of the series behind the first
SIDES: dict[str, Style] = {
    "in": {"color": SERIES[0], "linewidth": 1.8},
    "not in": {"color": CONTROL, "linewidth": 1.4, "linestyle": "--"},
}


def lines_chart(  # noqa: PLR0913 - what is drawn, and what is said of it
    *,
    name: str,
    title: str,
    caption: str,
    lines: Mapping[str, Points],
    axes: tuple[str, str],
    shown: Callable[[float], str] = number,
    dashed: Collection[str] = (),
    bands: Mapping[str, Points] | None = None,
    logarithmic: bool = False,
) -> Chart:
    """Lines over steps, from 0; one that is dashed has the colour of the line behind it.

    Args:
        name: of the chart's file.
        title: in a line.
        caption: what to see in it.
        lines: each with its points, (step, value), ascending.
        axes: what is across and what is up, with units.
        shown: a value in words.
        dashed: names of lines that are promises, not measurements.
        bands: low and high ends of intervals at the points of a line.
        logarithmic: steps by their size.
    """
    styles = _line_styles(lines, dashed)
    there = {line: points for line, points in lines.items() if points}
    step = axes[0].lower()
    said = (
        f"{line}: {', '.join(f'{step} {at:,g} {shown(value)}' for at, value in points)}"
        for line, points in there.items()
    )
    return Chart(
        name=name,
        kind="lines",
        subject="",
        title=title,
        caption=caption,
        description=f"{'; '.join(said)}.",
        draw=lambda figure: _draw_lines(
            figure, there, styles, axes, bands=bands or {}, logarithmic=logarithmic
        ),
        legend=lambda: [key(line, **styles[line]) for line in there],
        height=3.2,
    )


def _line_styles(lines: Mapping[str, Points], dashed: Collection[str]) -> dict[str, Style]:
    styles: dict[str, Style] = {}
    colour = 0
    for place, line in enumerate(lines):
        styles[line] = {
            "color": SERIES[colour % len(SERIES)],
            "linestyle": "--" if line in dashed else "-",
            "marker": _MARKERS[place % len(_MARKERS)],
            "markersize": 5,
        }
        colour += line not in dashed
    return styles


def _draw_lines(
    figure: FigureBase,
    lines: Mapping[str, Points],
    styles: Mapping[str, Style],
    labels: tuple[str, str],
    *,
    bands: Mapping[str, Points],
    logarithmic: bool,
) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    for line, points in lines.items():
        steps = [at for at, _ in points]
        (drawn,) = axes.plot(steps, [value for _, value in points], **styles[line])
        ends = bands.get(line, ())
        if any(low < high for low, high in ends):
            lows, highs = [low for low, _ in ends], [high for _, high in ends]
            colour = drawn.get_color()
            axes.fill_between(steps, lows, highs, color=colour, alpha=0.15, linewidth=0)
    if logarithmic:
        every = [at for points in lines.values() for at, _ in points]
        log_ticks(axes, "x", min(every) / _MARGIN, max(every) * _MARGIN)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])


def sides_chart(
    *,
    name: str,
    title: str,
    caption: str,
    description: str,
    panels: Mapping[str, tuple[ArrayLike, ArrayLike]],
    kind: str = "sides",
) -> Chart:
    """Scores of those that were in against those that were not, a histogram each.

    Args:
        name: of the chart's file.
        title: in a line.
        caption: what to see in it.
        description: the picture in words.
        panels: what is across, with its unit, and the scores with their coins; both sides there.
        kind: by which a page finds it.
    """
    arrays = {
        across: (np.array(scores, dtype=float), np.array(coins, dtype=bool))
        for across, (scores, coins) in panels.items()
    }
    return Chart(
        name=name,
        kind=kind,
        subject="",
        title=title,
        caption=caption,
        description=description,
        draw=lambda figure: _draw_sides(figure, arrays),
        legend=lambda: [key(side, **style) for side, style in SIDES.items()],
        height=3.0,
    )


def _draw_sides(
    figure: FigureBase, panels: Mapping[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
) -> None:
    every = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, (across, (scores, coins)) in zip(every, panels.items(), strict=True):
        plain_axes(axes)
        edges = np.linspace(scores.min(), scores.max(), _BINS + 1)
        for side, chosen in (("in", coins), ("not in", ~coins)):
            heights, _ = np.histogram(scores[chosen], edges)
            axes.stairs(heights / chosen.sum(), edges, **SIDES[side])
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xlabel(across)
        axes.set_ylim(bottom=0)
    every[0].set_ylabel("Share")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A value with its interval; None: there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    crossed: bool = False  # it does not count


def dots_chart(  # noqa: PLR0913 - what is drawn, and what is said of it
    *,
    name: str,
    title: str,
    caption: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[Mark]]],
    series: Sequence[str],
    axis: str,
    chance: float,
) -> Chart:
    """A row a thing, with a mark of each series and its interval, from 0 to 1.

    Args:
        name: of the chart's file.
        title: in a line.
        caption: what to see in it.
        description: the picture in words.
        rows: names, each with a mark of each series; the first series is full, others hollow.
        series: what the marks are.
        axis: what is across.
        chance: where a line says what chance gives.
    """
    return Chart(
        name=name,
        kind="dots",
        subject="",
        title=title,
        caption=caption,
        description=description,
        draw=lambda figure: _draw_dots(figure, rows, axis, chance),
        legend=lambda: [
            *(key(label, **_dot(place)) for place, label in enumerate(series)),
            key("interval", color=MUTED, linewidth=1.4),
            key("chance", color=LINE, linewidth=1),
        ],
        height=0.8 + _DOTS_ROW * len(rows),
    )


def _dot(place: int, *, crossed: bool = False) -> Style:
    """How a mark of a series looks."""
    mark: Style = {"color": SERIES[min(place, 1)], "linestyle": "none"}
    if place:
        marker = _HOLLOW[(place - 1) % len(_HOLLOW)]
        return {**mark, "markerfacecolor": "none", "marker": marker, "markersize": 6}
    return {**mark, "marker": "x" if crossed else "o", "markersize": 7}


def _draw_dots(
    figure: FigureBase, rows: Sequence[tuple[str, Sequence[Mark]]], axis: str, chance: float
) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    ends: Style = {"color": MUTED, "marker": "|", "markersize": 9, "linewidth": 1.4}
    for place, (label, marks) in enumerate(rows):
        for number_of, mark in enumerate(marks):
            height = place + _DOTS_APART * number_of
            if mark.value is None:
                continue
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [height, height], **ends)
            axes.plot(mark.value, height, **_dot(number_of, crossed=mark.crossed))
        axes.text(chance + 0.01, place - 0.2, label, va="bottom", fontsize=11)
    axes.axvline(chance, color=LINE, linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    named_rows(axes, len(rows))
    axes.set_xlabel(axis)
