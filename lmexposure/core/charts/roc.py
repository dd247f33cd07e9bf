"""The axes of every ROC curve: both logarithmic, since the left end is what counts."""

from collections.abc import Iterable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch

from lmexposure._style import short
from lmexposure.core.charts.style import BAND, MUTED, key, log_ticks, put_legend


def roc_floor(positives: Iterable[int]) -> float:
    """The TPR at the bottom of a chart: none of so few positives, which has no logarithm."""
    return min(0.01, *(0.5 / max(1, count) for count in positives))


def roc_axes(figure: FigureBase, edge: float, floor: float, *, keys: Sequence[Artist] = ()) -> Axes:
    """Log-log axes of a ROC, with guessing, and what no data resolves."""
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
    put_legend(figure, [*keys, guessing, unresolved], place="outside lower left")
    return axes
