"""Lower bounds as bars, each with the most that it could have been, and what is claimed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import short
from lmexposure.core.charts.chart import Chart
from lmexposure.core.charts.style import INK, LINE, MUTED, Style, key, named_rows, plain_axes

_ROW = 0.5  # inches


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """A lower bound."""

    name: str  # with its number
    value: float
    most: float | None = None  # what a perfect attack would have shown; None: not known
    marker: str = "o"  # by the kind of training that it holds for


def ceilings_chart(  # noqa: PLR0913 - what is drawn, and what is said of it
    *,
    name: str,
    kind: str,  # by which a page finds it
    title: str,
    caption: str,
    description: str,  # the picture in words
    rows: Sequence[Ceiling],
    axis: str,  # what is across, with its unit
    color: str,
    markers: Sequence[tuple[str, str]],  # words, and the marker that they are of
    claimed: float | None = None,  # in the unit of the bounds
) -> Chart:
    """A row a bound, the one to quote first."""
    return Chart(
        name=name,
        kind=kind,
        subject="",
        title=title,
        caption=caption,
        description=description,
        draw=lambda figure: _draw(figure, rows, axis, color, claimed),
        legend=lambda: list(_legend(rows, markers, claimed)),
        height=0.8 + _ROW * len(rows),
    )


def _draw(
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
    axes.text(0.0, place - 0.2, row.name, va="bottom", fontsize=11, fontweight=weight)


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
