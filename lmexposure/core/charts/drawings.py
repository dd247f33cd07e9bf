"""Drawings that studies share: lines over steps, scores of two sides, dots with intervals, bounds.

Lower bounds are bars, each with the most that it could have been, beside what is claimed.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from numpy.typing import ArrayLike, NDArray

from lmexposure._style import number, short
from lmexposure.core.charts.chart import Chart, Words
from lmexposure.core.charts.style import (
    ACCENT,
    CONTROL,
    INK,
    LINE,
    MUTED,
    SERIES,
    Style,
    category_ticks,
    clipped,
    key,
    log_ticks,
    named_rows,
    plain_axes,
)

Points = Sequence[tuple[float, float]]
_MARKERS = ("s", "o", "D", "^", "v", "P")
_BINS = 30
_MARGIN = 1.5  # of a logarithmic axis, beyond the first and the last step
_STEP_NAME, _STEP_NAMES = 16, 50  # characters of one and of all that have room below the axis
_BEST: Style = {"marker": "*", "markersize": 14, "color": ACCENT, "linestyle": "none"}
_CHANCE: Style = {"color": MUTED, "linewidth": 1.2, "linestyle": ":"}
_DOTS_ROW = 0.62  # inches
_DOTS_APART = 0.17  # rows, between two marks of one
_HOLLOW = ("D", "s", "^", "v")  # markers of the series behind the first
SIDES: dict[str, Style] = {
    "in": {"color": SERIES[0], "linewidth": 1.8},
    "not in": {"color": CONTROL, "linewidth": 1.4, "linestyle": "--"},
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A value at each of some steps, ascending."""

    name: str
    points: Points  # (step, value)
    style: Style
    ends: Points = ()  # low and high end of the interval at each point; NaN: there is none


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines that share an axis."""

    lines: Sequence[Line]
    up: str  # what is up, with its unit
    chance: float | None = None  # what guessing gives, dotted across
    best: tuple[str, float, float] | None = None  # a point that is starred: its name and place
    from_zero: bool = False


def panels_chart(
    *,
    kind: str,  # by which a page finds it
    panels: Sequence[Panel],  # from the top
    across: str,  # what the steps are
    names: Sequence[str] = (),  # of steps 0, 1, ..., where these are no numbers
    logarithmic: bool = False,  # steps by their size
    **words: Unpack[Words],
) -> Chart:
    """Panels of lines over the same steps, one below the other."""
    return Chart(
        **words,
        kind=kind,
        draw=lambda figure: _draw_panels(figure, panels, across, names, logarithmic=logarithmic),
        legend=lambda: list(_panel_keys(panels)),
        height=3.2 + 2.0 * (len(panels) - 1),
    )


def _draw_panels(
    figure: FigureBase,
    panels: Sequence[Panel],
    across: str,
    names: Sequence[str],
    *,
    logarithmic: bool,
) -> None:
    every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, panels, strict=True):
        _draw_panel(axes, panel)
    if logarithmic:
        steps = [at for panel in panels for line in panel.lines for at, _ in line.points]
        log_ticks(every[-1], "x", min(steps) / _MARGIN, max(steps) * _MARGIN)
    if names:
        shown = [clipped(name, _STEP_NAME) for name in names]
        category_ticks(every[-1], shown, max(1, _STEP_NAMES // max(map(len, shown))))
    every[-1].set_xlabel(across)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    plain_axes(axes)
    for line in panel.lines:
        steps, values = zip(*line.points, strict=True)
        axes.plot(steps, values, **line.style)
        if any(low < high for low, high in line.ends):
            lows, highs = zip(*line.ends, strict=True)
            color = line.style["color"]
            axes.fill_between(steps, lows, highs, color=color, alpha=0.15, linewidth=0)
            axes.vlines(steps, lows, highs, colors=color, linewidth=0.8)  # of one alone, too
    if panel.best is not None:
        _, at, value = panel.best
        axes.axvline(at, color=MUTED, linewidth=0.8, linestyle=":")
        axes.plot(at, value, **_BEST)
    if panel.chance is not None:
        axes.axhline(panel.chance, **_CHANCE)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(panel.up)


def _panel_keys(panels: Sequence[Panel]) -> Iterator[Artist]:
    for panel in panels:
        yield from (key(clipped(line.name, 30), **line.style) for line in panel.lines)
        if panel.best is not None:
            yield key(panel.best[0], **_BEST)
    if any(panel.chance is not None for panel in panels):
        yield key("median of guessing", **_CHANCE)


def lines_chart(  # noqa: PLR0913 - what is drawn, and what is said of it
    *,
    name: str,
    title: str,
    caption: str,
    lines: Mapping[str, Points],  # (step, value), ascending
    axes: tuple[str, str],  # what is across and what is up, with units
    shown: Callable[[float], str] = number,
    dashed: Collection[str] = (),  # promises, not measurements
    bands: Mapping[str, Points] | None = None,  # ends of intervals at the points of a line
    logarithmic: bool = False,  # steps by their size
) -> Chart:
    """Lines over steps, from 0; one that is dashed has the colour of the line behind it."""
    styles, bands = _line_styles(lines, dashed), bands or {}
    drawn = [
        Line(name=line, points=points, style=styles[line], ends=bands.get(line, ()))
        for line, points in lines.items()
        if points
    ]
    step = axes[0].lower()
    said = (
        f"{line.name}: {', '.join(f'{step} {at:,g} {shown(value)}' for at, value in line.points)}"
        for line in drawn
    )
    return panels_chart(
        name=name,
        kind="lines",
        title=title,
        caption=caption,
        description=f"{'; '.join(said)}.",
        panels=[Panel(lines=drawn, up=axes[1], from_zero=True)],
        across=axes[0],
        logarithmic=logarithmic,
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


def sides_chart(
    *,
    panels: Mapping[str, tuple[ArrayLike, ArrayLike]],  # across, with its unit -> scores and coins
    kind: str = "sides",  # by which a page finds it
    **words: Unpack[Words],
) -> Chart:
    """Scores of those that were in against those that were not, a histogram each."""
    arrays = {
        across: (np.array(scores, dtype=float), np.array(coins, dtype=bool))
        for across, (scores, coins) in panels.items()
    }
    return Chart(
        **words,
        kind=kind,
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


def dots_chart(
    *,
    rows: Sequence[tuple[str, Sequence[Mark]]],  # a mark of each series; the first is full
    series: Sequence[str],  # what the marks are
    axis: str,
    chance: float,  # where a line says what chance gives
    most: float = 1.0,  # the end of the axis
    **words: Unpack[Words],
) -> Chart:
    """A row a thing, with a mark of each series and its interval, from 0."""
    return Chart(
        **words,
        kind="dots",
        draw=lambda figure: _draw_dots(figure, rows, axis, chance, most),
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
    figure: FigureBase,
    rows: Sequence[tuple[str, Sequence[Mark]]],
    axis: str,
    chance: float,
    most: float,
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
        axes.text(chance + 0.01 * most, place - 0.2, label, va="bottom")
    axes.axvline(chance, color=LINE, linewidth=1)
    axes.set_xlim(-0.02 * most, 1.02 * most)
    named_rows(axes, len(rows))
    axes.set_xlabel(axis)


_ROW = 0.5  # inches


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """A lower bound."""

    name: str  # with its number
    value: float
    most: float | None = None  # what a perfect attack would have shown; None: not known
    marker: str = "o"  # by the kind of training that it holds for


def ceilings_chart(
    *,
    kind: str,  # by which a page finds it
    rows: Sequence[Ceiling],
    axis: str,  # what is across, with its unit
    color: str,
    markers: Sequence[tuple[str, str]],  # words, and the marker that they are of
    claimed: float | None = None,  # in the unit of the bounds
    **words: Unpack[Words],
) -> Chart:
    """A row a bound, the one to quote first."""
    return Chart(
        **words,
        kind=kind,
        draw=lambda figure: _draw_ceilings(figure, rows, axis, color, claimed),
        legend=lambda: list(_legend(rows, markers, claimed)),
        height=0.8 + _ROW * len(rows),
    )


def _draw_ceilings(
    figure: FigureBase, rows: Sequence[Ceiling], axis: str, color: str, claimed: float | None
) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    limit = farthest(rows, claimed)
    for place, row in enumerate(rows):
        _most(axes, row, place, limit)
        _bar(axes, row, place, color)
    if claimed is not None:
        # A line across all bars that leaves out the names between them.
        xs = [claimed, claimed, math.nan] * len(rows)
        ys = [y for place in range(len(rows)) for y in (place - 0.16, place + 0.36, math.nan)]
        axes.plot(xs, ys, color=LINE, linewidth=2.0)
    axes.set_xlim(0, 1.06 * limit)
    named_rows(axes, len(rows))
    axes.set_xlabel(axis)


def farthest(rows: Sequence[Ceiling], claimed: float | None) -> float:
    """Twice what is to be read at most: one far end must not press the rest together."""
    values = [row.value for row in rows]
    most = sorted(row.most for row in rows if row.most is not None)
    typical = most[len(most) // 2] if most else 0.0
    read = max([*values, claimed or 0.0, typical, 0.05])
    return min(2 * read, max([read, *most])) if most else read


def _most(axes: Axes, row: Ceiling, place: int, limit: float) -> None:
    """A thin way up to the most that could have been; beyond the axes it ends in an arrow."""
    if row.most is None:
        return
    end, marker = (row.most, "|") if row.most <= limit else (limit, ">")
    axes.plot([row.value, end], [place, place], color=MUTED, linewidth=1.0)
    size = 11 if marker == "|" else 6
    axes.plot(end, place, marker=marker, markersize=size, color=MUTED, markeredgewidth=2)


def _bar(axes: Axes, row: Ceiling, place: int, color: str) -> None:
    """A thick way up to the value, the name above."""
    axes.plot([0, row.value], [place, place], color=color, linewidth=4.0, solid_capstyle="butt")
    axes.plot(
        row.value, place, marker=row.marker, markersize=8, color=color, clip_on=False, zorder=3
    )
    weight = "normal" if place else "bold"
    axes.text(0.0, place - 0.2, row.name, va="bottom", fontweight=weight)


def _legend(
    rows: Sequence[Ceiling], markers: Sequence[tuple[str, str]], claimed: float | None
) -> list[Artist]:
    dots: Style = {"linestyle": "none", "markersize": 8, "color": INK}
    found: list[Artist] = [key(words, **(dots | {"marker": marker})) for words, marker in markers]
    if any(row.most is not None for row in rows):
        mark: Style = {"marker": "|", "color": MUTED, "markersize": 11, "markeredgewidth": 2}
        found.append(key("max attainable", **(mark | {"linestyle": "none"})))
    if claimed is not None:
        found.append(key(f"claimed: {short(claimed)}", color=LINE, linewidth=2.0))
    return found
