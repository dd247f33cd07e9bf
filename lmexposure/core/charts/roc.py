"""ROC curves: both axes logarithmic, since the left end is what counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lmexposure._style import interval, number, short
from lmexposure.core.charts.chart import Chart
from lmexposure.core.charts.style import (
    BAND,
    INK,
    MUTED,
    Style,
    clipped,
    joined,
    key,
    log_ticks,
    put_legend,
    series_style,
)

Floats = NDArray[np.float64]
_POINTS = 200
_HULL: Style = {"linestyle": (0, (4, 2)), "linewidth": 1.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class RocLine:
    """A curve, resolved from a false-positive rate on."""

    name: str
    # fpr, tpr: ascending, shape (k,)
    fpr: Floats
    tpr: Floats
    edge: float  # the least rate that its negatives resolve
    positives: int
    area: tuple[float | None, float | None, float | None]  # with the ends of its interval
    color: str | None = None  # of its class; None: by its place
    band: tuple[Floats, Floats] | None = None  # ends of its interval at these rates
    hull: tuple[Floats, Floats] | None = None  # corners of its concave hull

    @property
    def said(self) -> str:
        """Its area in words."""
        value, low, high = self.area
        return f"{number(value, 3)} ({interval(low, high, 3)})"


def roc_lines_chart(
    lines: Sequence[RocLine],
    *,
    name: str,
    kind: str,  # by which a page finds it
    title: str,
    caption: str,
    description: str,  # before the areas and behind them, parted by "{}"
) -> Chart:
    """True positives against false ones on log-log axes, with what no data resolves.

    Source: Carlini et al. 2022, Membership inference attacks from first principles, section 3.
    """
    styles = [
        series_style(place) | ({"color": line.color} if line.color else {})
        for place, line in enumerate(lines)
    ]
    areas = joined([f"{clipped(line.name)} {line.said}" for line in lines])
    return Chart(
        name=name,
        kind=kind,
        title=title,
        caption=caption,
        description=description.replace("{}", areas),
        draw=lambda figure: _draw(figure, lines, styles),
        legend=lambda: [
            key(f"{clipped(line.name, 30)}: AUC {line.said}", **(style | {"linestyle": "-"}))
            for line, style in zip(lines, styles, strict=True)
        ],
        height=4.4,
    )


def _draw(figure: FigureBase, lines: Sequence[RocLine], styles: Sequence[Style]) -> None:
    floor = roc_floor(line.positives for line in lines)
    hulls = any(line.hull is not None for line in lines)
    axes = _axes(figure, min(line.edge for line in lines), floor, hulls=hulls)
    for line, style in zip(lines, styles, strict=True):
        color = style["color"]
        if line.band is not None:
            between = np.geomspace(line.edge, 1.0, _POINTS)
            low, high = (np.maximum(np.interp(between, line.fpr, e), floor) for e in line.band)
            axes.fill_between(between, low, high, color=color, alpha=0.16, linewidth=0)
        if line.hull is not None and line.hull[0].size:
            x, y = on_log_axes(*line.hull, line.edge, floor)
            axes.plot(x, y, color=color, markerfacecolor="none", **_HULL)
        x, y = on_log_axes(line.fpr, line.tpr, line.edge, floor)
        marks: Style = {"marker": style["marker"], "markerfacecolor": "none"}
        axes.plot(x, y, color=color, markevery=0.22, **marks)


def on_log_axes(fpr: Floats, tpr: Floats, edge: float, floor: float) -> tuple[Floats, Floats]:
    """From the resolvable edge on; what is straight between corners is bent on these axes."""
    between = np.geomspace(edge, 1.0, _POINTS)
    x = np.concatenate([fpr[fpr > edge], between])
    y = np.concatenate([tpr[fpr > edge], np.interp(between, fpr, tpr)])
    order = np.lexsort((y, x))
    return x[order], np.maximum(y[order], floor)


def roc_floor(positives: Iterable[int]) -> float:
    """The TPR at the bottom of a chart: none of so few positives, which has no logarithm."""
    return min(0.01, *(0.5 / max(1, count) for count in positives))


def _axes(figure: FigureBase, edge: float, floor: float, *, hulls: bool) -> Axes:
    """Log-log axes, with guessing, and what no data resolves."""
    axes = figure.subplots()
    low = min(edge / 3, 0.03)
    axes.grid(axis="both")
    log_ticks(axes, "x", low, 1.0)
    log_ticks(axes, "y", floor, 1.15)
    axes.axvspan(low, edge, color=BAND, zorder=0.5)
    axes.plot([low, 1], [low, 1], color=MUTED, linestyle=":", linewidth=1.4)
    axes.set_xlabel("False-positive rate")
    axes.set_ylabel("True-positive rate")
    unresolved = Patch(facecolor=BAND, edgecolor=MUTED, label=f"below {short(edge)}: not resolved")
    guessing = key("guessing", color=MUTED, linestyle=":", linewidth=1.4)
    hull = [key("concave hull", **(_HULL | {"color": INK}))] if hulls else []
    put_legend(figure, [*hull, guessing, unresolved], place="outside lower left")
    return axes
