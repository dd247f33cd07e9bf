"""How exposure grew from checkpoint to checkpoint of a training."""

import math
from collections.abc import Sequence

from lmexposure._style import class_name, number
from lmexposure.core.charts import (
    Chart,
    Line,
    Panel,
    Styles,
    clipped,
    joined,
    panels_chart,
    series_style,
)
from lmexposure.studies.exposure.record import CheckpointClass

_MOST_SERIES = 6


def trajectory_chart(rows: Sequence[CheckpointClass], styles: Styles | None = None) -> Chart | None:
    """Median exposure of each class, with its interval, at each checkpoint."""
    if not rows:
        return None
    names = list(dict.fromkeys(row.checkpoint for row in rows))
    steps = _steps(rows, names)
    lines = _lines(rows, names, steps or range(len(names)), styles or {})
    return panels_chart(
        name="trajectory",
        kind="trajectory",
        title="Exposure from checkpoint to checkpoint",
        caption=(
            "Lines that leave the dotted one are classes that the model has begun to memorise; the "
            "shade is the interval of a median."
        ),
        description=_description(rows, names, lines),
        panels=[Panel(lines=lines, up="Median exposure\n(bits)", chance=1.0)],
        across="Step" if steps else "Checkpoint",
        names=() if steps else names,
    )


def _steps(rows: Sequence[CheckpointClass], names: Sequence[str]) -> list[int]:
    """Of the checkpoints, where each has one of its own; else none."""
    by_name = {row.checkpoint: row.step for row in rows}
    known = [step for name in names if (step := by_name[name]) is not None]
    return known if len(set(known)) == len(names) else []


def _lines(
    rows: Sequence[CheckpointClass], names: Sequence[str], steps: Sequence[int], styles: Styles
) -> list[Line]:
    """The classes that are highest at the end, in the rows' order."""
    kinds = dict.fromkeys((row.format, row.repetitions) for row in rows)
    several = len({form for form, _ in kinds}) > 1
    found = []
    for place, (form, repetitions) in enumerate(kinds):
        here = {r.checkpoint: r for r in rows if (r.format, r.repetitions) == (form, repetitions)}
        known, plain = styles.get(repetitions), series_style(place)
        told_apart = plain | ({"color": known["color"]} if known else {})
        name = class_name("canary" if repetitions else "control", repetitions)
        there = [(at, here[n]) for n, at in zip(names, steps, strict=True) if n in here]
        found.append(
            Line(
                name=f"{form}, {name}" if several else name,
                style=known if known and not several else told_apart,
                points=[(at, row.median) for at, row in there],
                ends=[(_end(row.low), _end(row.high)) for _, row in there],
            )
        )
    chosen = sorted(found, key=lambda line: -line.points[-1][1])[:_MOST_SERIES]
    return [line for line in found if line in chosen]


def _end(end: float | None) -> float:
    return math.nan if end is None else end


def _description(
    rows: Sequence[CheckpointClass], names: Sequence[str], lines: Sequence[Line]
) -> str:
    more = len({(row.format, row.repetitions) for row in rows}) - len(lines)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    ends = [
        f"{clipped(line.name)} from {number(line.points[0][1])} to {number(line.points[-1][1])}"
        for line in lines
    ]
    over = f"Median exposure over {len(names)} checkpoints, in bits{rest}: "
    return f"{over}{joined(ends)}."
