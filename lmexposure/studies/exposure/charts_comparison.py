"""Several runs side by side: the median exposure of each class, one shape and colour a run."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import at_least, class_name, number, slug
from lmexposure.core.charts import (
    INK,
    Chart,
    category_ticks,
    clipped,
    joined,
    key,
    plain_axes,
    series_style,
)
from lmexposure.studies.exposure.charts_exposure import frame, frame_keys
from lmexposure.studies.exposure.parts import Role
from lmexposure.studies.exposure.rows import ClassRow

_CARET: Literal[10] = 10  # matplotlib.markers.CARETUPBASE

Run = tuple[str, Sequence[ClassRow]]


def comparison_chart(format_name: str, bits: float, runs: Sequence[Run]) -> Chart | None:
    """Median exposures with their intervals, class by class, one series a run."""
    classes = sorted({(row.repetitions, row.role) for _, rows in runs for row in rows})
    if not classes:
        return None
    return Chart(
        name=f"compare-{slug(format_name)}",
        kind="compare",
        subject=format_name,
        title=f"Median exposure of {len(runs)} runs, {clipped(format_name)}",
        caption=(
            "The higher a run's mark in a column, the more of that class it memorised; where bars "
            "overlap, chance may explain it."
        ),
        description=_description(bits, runs),
        draw=lambda figure: _draw(figure, bits, runs, classes),
        legend=lambda: _legend(bits, runs),
        height=3.7,
    )


def _draw(
    figure: FigureBase, bits: float, runs: Sequence[Run], classes: Sequence[tuple[int, Role]]
) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    frame(axes, bits)
    offsets = (np.arange(len(runs)) - (len(runs) - 1) / 2) * min(0.2, 0.7 / len(runs))
    for position, ((_, rows), offset) in enumerate(zip(runs, offsets, strict=True)):
        _series(axes, rows, classes, position, float(offset))
    zero = "controls" if len(classes) <= 6 else "0"
    category_ticks(axes, [zero if role == "control" else f"{n:,}" for n, role in classes], 7)
    axes.set_ylabel("Median exposure (bits),\nhigher = more memorised")


def _series(
    axes: Axes,
    rows: Sequence[ClassRow],
    classes: Sequence[tuple[int, Role]],
    position: int,
    offset: float,
) -> None:
    style = series_style(position) | {"linestyle": "none"}
    for row in rows:
        x = classes.index((row.repetitions, row.role)) + offset
        ends = [row.median if end is None else end for end in (row.low, row.high)]
        axes.plot([x, x], ends, color=style["color"], linewidth=1.2)
        axes.plot(x, row.median, **style)
        if row.capped:
            axes.plot(x, max(ends), marker=_CARET, color=INK, markersize=6)


def _legend(bits: float, runs: Sequence[Run]) -> list[Artist]:
    found: list[Artist] = [
        key(clipped(name, 34), **(series_style(position) | {"linestyle": "none"}))
        for position, (name, _) in enumerate(runs)
    ]
    if any(row.capped for _, rows in runs for row in rows):
        found.append(key("lower bound", marker=_CARET, color=INK, linestyle="none"))
    return found + frame_keys(bits)


def _description(bits: float, runs: Sequence[Run]) -> str:
    parts = []
    for name, rows in runs:
        medians = [
            f"{class_name(row.role, row.repetitions)} {at_least(row.median, row.capped)}"
            for row in rows
        ]
        parts.append(f"{clipped(name)}: {', '.join(medians[-4:]) or 'no medians'}")
    return (
        f"Median exposure in bits, higher = more memorised, of the classes repeated most. "
        f"{joined(parts, 6)}. Extraction is at "
        f"{number(bits, 1)} bits, the median of guessing at 1."
    )
