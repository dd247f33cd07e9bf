"""How exposure grew from checkpoint to checkpoint of a training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import class_name, number
from lmexposure.core.charts import (
    MUTED,
    Chart,
    Style,
    Styles,
    category_ticks,
    clipped,
    joined,
    key,
    plain_axes,
    series_style,
)
from lmexposure.studies.exposure.record import CheckpointClass
from lmexposure.studies.exposure.rows import Floats

_MOST_SERIES = 6
_LONGEST_NAME, _ALL_NAMES = 16, 50  # characters that have room below the axis
_GUESSING: Style = {"color": MUTED, "linewidth": 1.2, "linestyle": ":"}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One class at each checkpoint; NaN where it has no such end."""

    name: str
    style: Style
    # median, low, high: of exposure, in bits, shape (checkpoints,)
    median: Floats
    low: Floats
    high: Floats


def trajectory_chart(rows: Sequence[CheckpointClass], styles: Styles | None = None) -> Chart | None:
    """Median exposure of each class, with its interval, at each checkpoint."""
    if not rows:
        return None
    names = list(dict.fromkeys(row.checkpoint for row in rows))
    lines = _lines(rows, names, styles or {})
    return Chart(
        name="trajectory",
        kind="trajectory",
        subject="",
        title="Exposure from checkpoint to checkpoint",
        caption=(
            "Lines that leave the dotted one are classes that the model has begun to memorise; the "
            "thin bars are the intervals of the medians."
        ),
        description=_description(rows, names, lines),
        draw=lambda figure: _draw(figure, rows, names, lines),
        legend=lambda: _legend(lines),
        height=3.3,
    )


def _lines(rows: Sequence[CheckpointClass], names: Sequence[str], styles: Styles) -> list[_Line]:
    """The classes that are highest at the end, in the rows' order."""
    kinds = dict.fromkeys((row.format, row.repetitions) for row in rows)
    several = len({form for form, _ in kinds}) > 1
    found = []
    for place, (form, repetitions) in enumerate(kinds):
        here = {r.checkpoint: r for r in rows if (r.format, r.repetitions) == (form, repetitions)}
        known, plain = styles.get(repetitions), series_style(place)
        told_apart = plain | ({"color": known["color"]} if known else {})
        name = class_name("canary" if repetitions else "control", repetitions)
        found.append(
            _Line(
                name=f"{form}, {name}" if several else name,
                style=known if known and not several else told_apart,
                median=_column([here[n].median if n in here else None for n in names]),
                low=_column([here[n].low if n in here else None for n in names]),
                high=_column([here[n].high if n in here else None for n in names]),
            )
        )
    chosen = sorted(found, key=lambda line: -line.median[-1])[:_MOST_SERIES]
    return [line for line in found if line in chosen]


def _column(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _where(rows: Sequence[CheckpointClass], names: Sequence[str]) -> tuple[Floats, str]:
    """Steps where each checkpoint has one of its own, else the checkpoint's number."""
    steps = {row.checkpoint: row.step for row in rows}
    known = [step for name in names if (step := steps[name]) is not None]
    if len(set(known)) == len(names):
        return np.array(known, dtype=np.float64), "Step"
    return np.arange(len(names), dtype=np.float64), "Checkpoint"


def _draw(
    figure: FigureBase,
    rows: Sequence[CheckpointClass],
    names: Sequence[str],
    lines: Sequence[_Line],
) -> None:
    axes: Axes = figure.subplots()
    plain_axes(axes)
    where, label = _where(rows, names)
    for line in lines:
        axes.plot(where, line.median, **line.style)
        both = np.isfinite(line.low) & np.isfinite(line.high)
        ends = line.low[both], line.high[both]
        axes.vlines(where[both], *ends, colors=line.style["color"], linewidth=0.8)
    axes.axhline(1.0, **_GUESSING)
    axes.set_ylabel("Median exposure\n(bits)")
    axes.set_xlabel(label)
    if label == "Checkpoint":
        shown = [clipped(name, _LONGEST_NAME) for name in names]
        category_ticks(axes, shown, max(1, _ALL_NAMES // max(map(len, shown))))


def _legend(lines: Sequence[_Line]) -> list[Artist]:
    found: list[Artist] = [key(clipped(line.name, 34), **line.style) for line in lines]
    return [*found, key("median of guessing", **_GUESSING)]


def _description(
    rows: Sequence[CheckpointClass], names: Sequence[str], lines: Sequence[_Line]
) -> str:
    more = len({(row.format, row.repetitions) for row in rows}) - len(lines)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    ends = [
        f"{clipped(line.name)} from {number(float(line.median[0]))} to "
        f"{number(float(line.median[-1]))}"
        for line in lines
    ]
    over = f"Median exposure over {len(names)} checkpoints, in bits{rest}: "
    return f"{over}{joined(ends)}."
