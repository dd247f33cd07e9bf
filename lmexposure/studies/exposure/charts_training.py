"""How the model learned, and how exposure grew meanwhile where that was followed."""

import math
from collections.abc import Sequence

from lmexposure._style import number, short
from lmexposure.core.charts import (
    FIT,
    REFERENCE,
    Chart,
    Line,
    Panel,
    Points,
    Style,
    Styles,
    clipped,
    joined,
    panels_chart,
    series_style,
)
from lmexposure.studies.exposure.files import Evaluation

Rows = Sequence[Evaluation]

_MOST_SERIES = 6
_TRAINING: Style = {"color": REFERENCE, "marker": "s", "linestyle": "--", "markersize": 4}
_VALIDATION: Style = {"color": FIT, "marker": "o", "linestyle": "-", "markersize": 4}


def training_chart(rows: Rows, styles: Styles | None = None) -> Chart | None:
    """Training and validation loss, the best checkpoint, and median exposures, if any."""
    where, across = _where(rows)
    train = _known(where, [row.train_bits for row in rows])
    validation = _known(where, [row.validation_bits for row in rows])
    if not train and not validation:
        return None
    losses = [
        Line(name=name, points=points, style=style)
        for name, points, style in (
            ("training", train, _TRAINING),
            ("validation", validation, _VALIDATION),
        )
        if points
    ]
    best = min(validation, key=lambda point: point[1], default=None)
    star = None if best is None else ("lowest validation loss", *best)
    followed = _followed(rows, where, styles or {})
    panels = [Panel(lines=losses, up="Bits per token", best=star)]
    if followed:
        panels.append(Panel(lines=followed, up="Median exposure\n(bits)", chance=1.0))
    return panels_chart(
        name="training",
        kind="training",
        title="Loss while training" + (", and exposure" if followed else ""),
        caption=(
            "Falling curves are a model that learns; the star is the checkpoint that predicts held "
            "out text best."
        ),
        description=_description(rows, train, validation, followed, across=across.lower()),
        panels=panels,
        across=across,
    )


def _where(rows: Rows) -> tuple[list[float], str]:
    """Epochs where every row has one and they move, else steps, else the row's number."""
    for name, values in (
        ("Epoch", [row.epoch for row in rows]),
        ("Step", [row.step for row in rows]),
    ):
        known = [float(value) for value in values if value is not None and math.isfinite(value)]
        if len(known) == len(rows) and len(set(known)) > 1:
            return known, name
    return [float(number) for number in range(len(rows))], "Evaluation"


def _known(where: Sequence[float], values: Sequence[float | None]) -> Points:
    """Those that there are, at their places."""
    return [
        (at, value)
        for at, value in zip(where, values, strict=True)
        if value is not None and math.isfinite(value)
    ]


def _followed(rows: Rows, where: Sequence[float], styles: Styles) -> list[Line]:
    """Medians in bits by class; where classes are many, the highest at the end."""
    maps = [dict(row.exposures) for row in rows]
    names = dict.fromkeys(name for medians in maps for name in medians)
    series = {name: _known(where, [medians.get(name) for medians in maps]) for name in names}
    known = {name: points for name, points in series.items() if points}
    chosen = sorted(known, key=lambda name: -known[name][-1][1])[:_MOST_SERIES]
    return [
        Line(name=name, points=known[name], style=_style(name, place, styles))
        for place, name in enumerate(name for name in known if name in chosen)
    ]


def _style(name: str, place: int, styles: Styles) -> Style:
    """In the colour of its class, where the name is as "pin, 16 repetitions" or "pin, controls"."""
    number = name.rpartition(", ")[2].partition(" ")[0].replace("controls", "0")
    known = styles.get(int(number)) if number.isdecimal() else None
    return series_style(place) | ({"color": known["color"]} if known else {})


def _description(
    rows: Rows, train: Points, validation: Points, followed: Sequence[Line], *, across: str
) -> str:
    parts = []
    if validation:
        at, lowest = min(validation, key=lambda point: point[1])
        parts.append(
            f"Validation loss goes from {number(validation[0][1], 3)} to its lowest, "
            f"{number(lowest, 3)} bits per token, at {across} {short(at)}"
        )
    if train:
        parts.append(f"training loss ends at {number(train[-1][1], 3)}")
    text = "; ".join(parts) + "."
    text = text[0].upper() + text[1:]
    ends = [f"{clipped(line.name)} {number(line.points[-1][1])}" for line in followed]
    names = {name for row in rows for name, bits in row.exposures if bits is not None}
    more = len(names) - len(followed)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    return text + (f" Median exposure at the end, in bits{rest}: {joined(ends)}." if ends else "")
