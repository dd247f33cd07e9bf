"""Exposure against repetitions: every canary, what guessing gives, and where extraction is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch

from lmexposure._style import at_least, class_name, count, number, slug
from lmexposure.core.charts import (
    BAND,
    INK,
    LINE,
    MUTED,
    Chart,
    Style,
    Styles,
    category_ticks,
    class_styles,
    clipped,
    joined,
    key,
    plain_axes,
)
from lmexposure.studies.exposure.rows import AnyRole, CanaryRow, ClassRow, Floats, FormatData

# Exposure under guessing is -log2 of a uniform number: its 5th and 95th percentile, in bits.
GUESSING_LOW, GUESSING_HIGH = 0.0740, 4.3219
_MARKERS: dict[AnyRole, str] = {"canary": "o", "control": "D"}
_MOST_DOTS, _MOST_INTERVALS, _FEW = 2000, 400, 60
_GOLDEN = 0.6180339887498949
_HALF = 0.32  # of a column: as far as dots and the bar of the median reach


@dataclass(frozen=True, kw_only=True)
class _Column:
    """One class: its canaries with an exposure, ascending, and its place on the x-axis."""

    role: AnyRole
    repetitions: int
    rows: tuple[CanaryRow, ...]
    at: int

    @property
    def places(self) -> Floats:
        """Spread by rank, so that neighbours are apart and the same data looks the same, (n,)."""
        spread: Floats = (np.arange(len(self.rows)) * np.float64(_GOLDEN) + 0.5) % 1.0
        return self.at + (2 * spread - 1) * _HALF * min(1.0, len(self.rows) / 8)


def exposure_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """Each canary's exposure with its interval, class by class, controls apart on the left.

    Source: figure 1 and section 4 of Carlini et al. 2019, The Secret Sharer; guessing, Jagielski
    2023, A note on interpreting canary exposure.
    """
    columns = _columns(data.canaries)
    if not columns:
        return None
    by_class = styles or class_styles(column.repetitions for column in columns)
    return Chart(
        name=f"exposure-{slug(data.name)}",
        kind="exposure",
        subject=data.name,
        title=f"Exposure by repetitions, {clipped(data.name)}",
        caption=(
            "Dots above the shaded band are exposed beyond guessing; those at the dashed line an "
            f"attacker finds first.{_left_out(data, columns)}"
        ),
        description=_description(data, columns),
        draw=lambda figure: _draw(figure, data, columns, by_class),
        legend=lambda: _legend(data, columns),
        height=3.7,
    )


def _columns(canaries: Sequence[CanaryRow]) -> list[_Column]:
    groups: dict[tuple[int, AnyRole], list[CanaryRow]] = {}  # controls have repetitions 0
    for canary in canaries:
        if canary.exposure is not None:
            groups.setdefault((canary.repetitions, canary.role), []).append(canary)
    return [
        _Column(
            role=role,
            repetitions=repetitions,
            rows=tuple(sorted(rows, key=lambda row: (row.exposure or 0.0, row.id))),
            at=at,
        )
        for at, ((repetitions, role), rows) in enumerate(sorted(groups.items()))
    ]


def _draw(figure: FigureBase, data: FormatData, columns: Sequence[_Column], styles: Styles) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    axes.axhline(min(GUESSING_HIGH, data.bits), color=MUTED, linewidth=0.8, linestyle=":")
    frame(axes, data.bits)
    shown = [_thinned(column, columns) for column in columns]
    if sum(len(column.rows) for column in shown) <= _MOST_INTERVALS:
        _intervals(axes, shown, data.bits, styles)
    for column in shown:
        _dots(axes, column, styles[column.repetitions]["color"])
    _medians(axes, data.classes, columns)
    category_ticks(axes, [_label(column, len(columns)) for column in columns], 9)
    axes.set_ylabel("Exposure (bits),\nhigher = more memorised")


def frame(axes: Axes, bits: float) -> None:
    """What exposures lie between: the band of guessing and the line of extraction."""
    top = min(GUESSING_HIGH, bits)
    axes.axhspan(min(GUESSING_LOW, top), top, color=BAND, zorder=0.5)
    axes.axhline(bits, color=LINE, linewidth=1.6, linestyle="--")
    axes.set_xlabel("Repetitions in the training data")
    axes.set_ylim(-0.03 * bits, 1.06 * bits)


def frame_keys(bits: float) -> list[Artist]:
    """The same in a legend."""
    extraction = f"extraction, log₂|R| = {number(bits, 1)}"
    return [
        Patch(facecolor=BAND, edgecolor=MUTED, label="middle 90 % of guessing"),
        key(extraction, color=LINE, linestyle="--", linewidth=1.6),
    ]


def _thinned(column: _Column, columns: Sequence[_Column]) -> _Column:
    """Evenly by rank, lowest and highest kept, so that a page stays light."""
    every = sum(len(column.rows) for column in columns)
    keep = max(2, len(column.rows) * _MOST_DOTS // every) if every > _MOST_DOTS else every
    if len(column.rows) <= keep:
        return column
    picked = np.linspace(0, len(column.rows) - 1, keep).round().astype(int)
    rows = tuple(column.rows[i] for i in picked)
    return _Column(role=column.role, repetitions=column.repetitions, rows=rows, at=column.at)


def _intervals(axes: Axes, columns: Sequence[_Column], bits: float, styles: Styles) -> None:
    """One path for all: low to high, and up to the top where a lower bound has no upper end."""
    for column in columns:
        xs, ys = [], []
        for x, row in zip(column.places, column.rows, strict=True):
            value = float(row.exposure or 0.0)
            low = value if row.low is None else row.low
            high = value if row.high is None else row.high
            xs += [x, x, np.nan]
            ys += [low, min(high, bits), np.nan]
        color = styles[column.repetitions]["color"]
        axes.plot(xs, ys, color=color, linewidth=0.9, alpha=0.6, zorder=2)


def _dots(axes: Axes, column: _Column, color: str) -> None:
    capped = np.array([row.capped for row in column.rows])
    values = np.array([row.exposure for row in column.rows], dtype=np.float64)
    hollow = column.role != "canary"
    size = 5.5 if len(column.rows) <= _FEW else 3.5
    for chosen, shape in ((~capped, _MARKERS[column.role]), (capped, "^")):
        if chosen.any():
            axes.plot(
                column.places[chosen],
                values[chosen],
                linestyle="none",
                marker=shape,
                markersize=size,
                color=color,
                markerfacecolor="none" if hollow else color,
                zorder=3,
                clip_on=False,
            )


def _medians(axes: Axes, classes: Sequence[ClassRow], columns: Sequence[_Column]) -> None:
    """Behind few dots, which it would hide; before many, which would hide it."""
    found = {(column.role, column.repetitions): column for column in columns}
    for row in classes:
        column = found.get((row.role, row.repetitions))
        if column is not None:
            order = 2.5 if len(column.rows) <= _FEW else 4
            ends = [column.at - 0.4, column.at + 0.4]
            axes.plot(ends, [row.median, row.median], color=INK, linewidth=2.2, zorder=order)


def _label(column: _Column, columns: int) -> str:
    control = column.role == "control"
    if columns > 6:
        return "0" if control else f"{column.repetitions:,}"
    name = "controls" if control else f"{column.repetitions:,}"
    return f"{name}\nn = {len(column.rows):,}"


def _legend(data: FormatData, columns: Sequence[_Column]) -> list[Artist]:
    roles = {column.role for column in columns}
    words = {"canary": "canary", "control": "control, never inserted"}
    found: list[Artist] = [
        key(words[role], **_dot(INK, marker, hollow=role != "canary"))
        for role, marker in _MARKERS.items()
        if role in roles
    ]
    if any(row.capped for column in columns for row in column.rows):
        found.append(key("lower bound", **_dot(INK, "^", hollow=True)))
    return [*found, key("class median", color=INK, linewidth=2.2), *frame_keys(data.bits)]


def _dot(color: str, marker: str, *, hollow: bool) -> Style:
    return {
        "linestyle": "none",
        "markersize": 6,
        "marker": marker,
        "color": color,
        "markerfacecolor": "none" if hollow else color,
    }


def _description(data: FormatData, columns: Sequence[_Column]) -> str:
    inserted = [row for column in columns if column.role == "canary" for row in column.rows]
    never = sum(len(column.rows) for column in columns if column.role != "canary")
    high = min(GUESSING_HIGH, data.bits)
    above = sum(float(row.exposure or 0) > high for row in inserted)
    return (
        f"Exposure of {count(len(inserted), 'canary', 'canaries')}"
        f"{f' and {never:,} never inserted' if never else ''}, in bits, higher = more memorised: "
        f"{above:,} of {len(inserted):,} canaries lie above {number(high)} bits, where the middle "
        f"90 % of guessing ends, and extraction is at {number(data.bits, 1)} bits."
        f"{_class_medians(data)}{_left_out(data, columns)}"
    )


def _class_medians(data: FormatData) -> str:
    medians = [
        f"{class_name(row.role, row.repetitions)} {at_least(row.median, row.capped)}"
        for row in data.classes
    ]
    return f" Medians: {joined(medians)}." if medians else ""


def _left_out(data: FormatData, columns: Sequence[_Column]) -> str:
    """What the picture does not show, in words."""
    drawn = sum(len(column.rows) for column in columns)
    missing = len(data.canaries) - drawn
    parts = []
    if missing:
        parts.append(f"{missing:,} without an exposure are not drawn")
    if drawn > _MOST_DOTS:
        parts.append(f"of {drawn:,} dots about {_MOST_DOTS:,} are drawn, evenly by rank")
    if drawn > _MOST_INTERVALS:
        parts.append("the intervals of single canaries are left out")
    return f" {'; '.join(parts).capitalize()}." if parts else ""
