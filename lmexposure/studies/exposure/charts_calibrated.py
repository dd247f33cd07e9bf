"""Calibrated exposure by exposure under the base: what was added, and what was likely anyway."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch

from lmexposure._style import at_least, class_name, count, number, slug
from lmexposure.core.charts import (
    BAND,
    INK,
    LINE,
    MUTED,
    Chart,
    Styles,
    class_styles,
    clipped,
    joined,
    key,
    plain_axes,
)
from lmexposure.studies.exposure.charts_exposure import GUESSING_HIGH, GUESSING_LOW
from lmexposure.studies.exposure.rows import BaseDot, FormatData

_MOST_DOTS = 2000


def calibrated_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """Each canary's calibrated exposure, by its exposure before the training.

    Source: Jagielski 2023, A note on interpreting canary exposure.
    """
    if data.base is None or not data.base.canaries:
        return None
    shown = _shown(data.base.canaries)
    by_class = styles or class_styles(dot.repetitions for dot in shown)
    return Chart(
        name=f"calibrated-{slug(data.name)}",
        kind="calibrated",
        subject=data.name,
        title=f"Calibrated exposure beside the base, {clipped(data.name)}",
        caption=(
            "Dots above the shaded band were memorised; dots far to the right were likely before "
            "the training, whatever their exposure is now."
        ),
        description=_description(data, shown),
        draw=lambda figure: _draw(figure, data, shown, by_class),
        legend=lambda: _legend(data, shown, by_class),
        height=3.7,
    )


def _shown(dots: Sequence[BaseDot]) -> list[BaseDot]:
    """Of very many evenly by calibrated exposure, lowest and highest kept."""
    known = sorted(dots, key=lambda dot: dot.calibrated)
    if len(known) <= _MOST_DOTS:
        return known
    return [known[i] for i in np.linspace(0, len(known) - 1, _MOST_DOTS).round().astype(int)]


def _most(data: FormatData) -> float:
    """The most that ranks among the references show; all of R where they are all others."""
    return data.bits if data.exhaustive else math.log2(data.references)


def _draw(figure: FigureBase, data: FormatData, shown: Sequence[BaseDot], styles: Styles) -> None:
    axes, most = figure.subplots(), _most(data)
    plain_axes(axes, grid="both")
    top = min(GUESSING_HIGH, most)
    axes.axhspan(min(GUESSING_LOW, top), top, color=BAND, zorder=0.5)
    axes.axhline(most, color=LINE, linewidth=1.6, linestyle="--")
    for repetitions in sorted({dot.repetitions for dot in shown}):
        color = styles[repetitions]["color"]
        for capped in (False, True):
            own = [d for d in shown if (d.repetitions, d.capped) == (repetitions, capped)]
            axes.plot(
                [dot.base for dot in own],
                [dot.calibrated for dot in own],
                linestyle="none",
                marker="^" if capped else "o" if repetitions else "D",
                markersize=5.5,
                color=color,
                markerfacecolor=color if repetitions else "none",
                zorder=3,
                clip_on=False,
            )
    axes.set_xlim(-0.03 * most, 1.06 * most)
    axes.set_ylim(-0.03 * most, 1.06 * most)
    axes.set_xlabel("Exposure under the base (bits)")
    axes.set_ylabel("Calibrated exposure (bits),\nhigher = more memorised")


def _legend(data: FormatData, shown: Sequence[BaseDot], styles: Styles) -> list[Artist]:
    classes = sorted({(dot.repetitions, dot.role) for dot in shown})
    colors = {repetitions: styles[repetitions]["color"] for repetitions, _ in classes}
    found: list[Artist] = [
        key(
            class_name(role, repetitions),
            linestyle="none",
            marker="o" if repetitions else "D",
            markersize=6,
            color=colors[repetitions],
            markerfacecolor=colors[repetitions] if repetitions else "none",
        )
        for repetitions, role in classes
    ]
    if any(dot.capped for dot in shown):
        found.append(key("lower bound", linestyle="none", marker="^", color=INK, markersize=6))
    return [
        *found,
        Patch(facecolor=BAND, edgecolor=MUTED, label="middle 90 % of guessing"),
        key(f"most among references, {number(_most(data), 1)}", color=LINE, linestyle="--"),
    ]


def _description(data: FormatData, shown: Sequence[BaseDot]) -> str:
    inserted = [dot for dot in shown if dot.role == "canary"]
    above = sum(dot.calibrated > GUESSING_HIGH for dot in inserted)
    before = sum(dot.base > GUESSING_HIGH for dot in inserted)
    rows = () if data.base is None else data.base.classes
    medians = [
        f"{class_name(row.role, row.repetitions)} "
        f"{at_least(row.calibrated.value, row.calibrated_capped)}"
        for row in rows
    ]
    return (
        f"Of {count(len(inserted), 'canary', 'canaries')}, {above:,} have a calibrated exposure "
        f"above {number(GUESSING_HIGH)} bits, where the middle 90 % of guessing ends, and "
        f"{before:,} lay above that before the training. Medians: {joined(medians)}."
    )
