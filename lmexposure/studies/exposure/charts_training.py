"""How the model learned, and how exposure grew meanwhile where that was followed."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import number, short
from lmexposure.core.charts import (
    ACCENT,
    FIT,
    MUTED,
    REFERENCE,
    Chart,
    Style,
    Styles,
    clipped,
    joined,
    key,
    plain_axes,
    series_style,
)
from lmexposure.studies.exposure.files import Evaluation
from lmexposure.studies.exposure.rows import Floats

Rows = Sequence[Evaluation]

_MOST_SERIES = 6
_LOSSES: tuple[tuple[str, Style], ...] = (
    ("training", {"color": REFERENCE, "marker": "s", "linestyle": "--", "markersize": 4}),
    ("validation", {"color": FIT, "marker": "o", "linestyle": "-", "markersize": 4}),
)
_BEST: Style = {"marker": "*", "markersize": 14, "color": ACCENT, "linestyle": "none"}
_GUESSING: Style = {"color": MUTED, "linewidth": 1.2, "linestyle": ":"}


def training_chart(rows: Rows, styles: Styles | None = None) -> Chart | None:
    """Training and validation loss, the best checkpoint, and median exposures, if any."""
    losses = [
        _array(row.train_bits for row in rows),
        _array(row.validation_bits for row in rows),
    ]
    if not any(np.isfinite(values).any() for values in losses):
        return None
    followed = _followed(rows)
    line_styles = [_style(name, place, styles or {}) for place, name in enumerate(followed)]
    return Chart(
        name="training",
        kind="training",
        subject="",
        title="Loss while training" + (", and exposure" if followed else ""),
        caption=(
            "Falling curves are a model that learns; the star is the checkpoint that predicts held "
            "out text best."
        ),
        description=_description(rows, losses[0], losses[1], followed),
        draw=lambda figure: _draw(figure, rows, losses, followed, line_styles),
        legend=lambda: _legend(losses, followed, line_styles),
        height=5.2 if followed else 3.3,
    )


def _array(values: Iterable[float | None]) -> Floats:
    """None becomes NaN, which no line is drawn through; shape (n,)."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _where(rows: Rows) -> tuple[Floats, str]:
    """Epochs where every row has one and they move, else steps, else the row's number."""
    for name, column in (
        ("Epoch", [row.epoch for row in rows]),
        ("Step", [row.step for row in rows]),
    ):
        values = _array(column)
        if np.isfinite(values).all() and values.max() > values.min():
            return values, name
    return np.arange(len(rows), dtype=np.float64), "Evaluation"


def _followed(rows: Rows) -> dict[str, Floats]:
    """Medians in bits by class, shape (rows,); where classes are many, the highest at the end."""
    maps = [dict(row.exposures) for row in rows]
    names = dict.fromkeys(name for medians in maps for name in medians)
    series = {name: _array(medians.get(name) for medians in maps) for name in names}
    known = {name: values for name, values in series.items() if np.isfinite(values).any()}
    chosen = sorted(known, key=lambda name: -_last(known[name]))[:_MOST_SERIES]
    return {name: values for name, values in known.items() if name in chosen}


def _style(name: str, place: int, styles: Styles) -> Style:
    """In the colour of its class, where the name is as "pin, 16 repetitions" or "pin, controls"."""
    number = name.rpartition(", ")[2].partition(" ")[0].replace("controls", "0")
    known = styles.get(int(number)) if number.isdecimal() else None
    return series_style(place) | ({"color": known["color"]} if known else {})


def _last(values: Floats) -> float:
    return float(values[np.isfinite(values)][-1])


def _draw(
    figure: FigureBase,
    rows: Rows,
    losses: Sequence[Floats],
    followed: Mapping[str, Floats],
    line_styles: Sequence[Style],
) -> None:
    where, label = _where(rows)
    panels = 2 if followed else 1
    every = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    _loss(every[0], where, losses)
    if followed:
        _exposures(every[1], where, followed, line_styles)
    every[-1].set_xlabel(label)


def _loss(axes: Axes, where: Floats, losses: Sequence[Floats]) -> None:
    plain_axes(axes)
    for values, (_, style) in zip(losses, _LOSSES, strict=True):
        known = np.isfinite(values)
        axes.plot(where[known], values[known], **style)
    if np.isfinite(losses[1]).any():
        best = int(np.nanargmin(losses[1]))
        axes.axvline(where[best], color=MUTED, linewidth=0.8, linestyle=":")
        axes.plot(where[best], losses[1][best], **_BEST)
    axes.set_ylabel("Bits per token")


def _exposures(
    axes: Axes, where: Floats, followed: Mapping[str, Floats], line_styles: Sequence[Style]
) -> None:
    plain_axes(axes)
    for values, style in zip(followed.values(), line_styles, strict=True):
        known = np.isfinite(values)
        axes.plot(where[known], values[known], **style)
    axes.axhline(1.0, **_GUESSING)
    axes.set_ylabel("Median exposure\n(bits)")


def _legend(
    losses: Sequence[Floats], followed: Mapping[str, Floats], line_styles: Sequence[Style]
) -> list[Artist]:
    known = [np.isfinite(values).any() for values in losses]
    found: list[Artist] = [
        key(name, **style) for (name, style), seen in zip(_LOSSES, known, strict=True) if seen
    ]
    found += [key("lowest validation loss", **_BEST)] if known[1] else []
    found += [key(clipped(n, 34), **style) for n, style in zip(followed, line_styles, strict=True)]
    return found + ([key("median of guessing", **_GUESSING)] if followed else [])


def _description(
    rows: Rows, train: Floats, validation: Floats, followed: Mapping[str, Floats]
) -> str:
    where, label = _where(rows)
    parts = []
    if np.isfinite(validation).any():
        best = int(np.nanargmin(validation))
        first = validation[np.isfinite(validation)][0]
        parts.append(
            f"Validation loss goes from {number(first, 3)} to its lowest, "
            f"{number(validation[best], 3)} bits per token, at {label.lower()} {short(where[best])}"
        )
    if np.isfinite(train).any():
        parts.append(f"training loss ends at {number(_last(train), 3)}")
    text = "; ".join(parts) + "."
    text = text[0].upper() + text[1:]
    ends = [f"{clipped(name)} {number(_last(values))}" for name, values in followed.items()]
    names = {name for row in rows for name, bits in row.exposures if bits is not None}
    more = len(names) - len(followed)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    return text + (f" Median exposure at the end, in bits{rest}: {joined(ends)}." if ends else "")
