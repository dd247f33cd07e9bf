"""Charts of a sweep's rates: the average beside the worst text, each canary, the ROC."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lmexposure._style import interval, number, probability, short
from lmexposure.core.charts import (
    LINE,
    MUTED,
    SERIES,
    Chart,
    RocLine,
    Style,
    clipped,
    joined,
    key,
    named_rows,
    plain_axes,
    roc_lines_chart,
)
from lmexposure.studies.sweep_result import SweepNumbers, SweepScore
from lmexposure.studies.sweep_tables import group_name, primary_rows

Floats = NDArray[np.float64]

_ROW = 0.5  # inches
_CURVES = 6
_GROUP_COLORS = {"canaries": SERIES[0], "population": SERIES[2]}
_WORST_COLORS = {"canaries": SERIES[1], "population": SERIES[3]}


@dataclass(frozen=True, kw_only=True)
class _Bar:
    """A rate with an interval, as one row of a chart."""

    name: str
    value: float
    low: float | None
    high: float | None
    color: str
    chance: float  # what guessing gives


def beside_chart(result: SweepNumbers) -> Chart | None:
    """The TPR of the population beside that of its worst text, canaries and documents.

    Source: figure 1 of Aerni, Zhang, Tramèr 2024, Evaluations of machine learning privacy defenses
    are misleading.
    """
    bars = list(_bars(result))
    if not bars:
        return None
    return Chart(
        name="sweep-beside",
        kind="beside",
        subject="",
        title="The average beside the worst text",
        caption=(
            "A short bar of all texts with a long one of the worst is a leak that the average "
            "hides; rates of worst texts are at no false positive, those of averages allow some."
        ),
        description=_bars_in_words(bars),
        draw=lambda figure: _draw_bars(figure, bars),
        legend=lambda: [
            key("guessing", color=LINE, marker="|", linestyle="none", markersize=11),
            key("interval", color=MUTED, linewidth=1.4),
        ],
        height=0.8 + _ROW * len(bars),
    )


def _bars(result: SweepNumbers) -> Iterator[_Bar]:
    worst = {"canaries": result.worst, "population": result.worst_of_population}
    for group, text in worst.items():
        row = result.primary.get(group)
        if row is not None:
            rates = [rate for rate in row.rates if rate.value is not None]
            for rate in rates:
                yield _Bar(
                    name=f"{group_name(group)}, at FPR {short(rate.fpr)}",
                    value=rate.value or 0.0,
                    low=rate.low,
                    high=rate.high,
                    color=_GROUP_COLORS[group],
                    chance=rate.fpr,
                )
        if text is not None and text.tpr is not None:
            yield _Bar(
                name=f"the worst: {clipped(text.id, 30)}, p {probability(text.p)}",
                value=text.tpr,
                low=text.advantage_low,
                high=None,
                color=_WORST_COLORS[group],
                chance=float(_by_chance(result.models, text.among)[0]),
            )


def _draw_bars(figure: FigureBase, bars: Sequence[_Bar]) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    for place, bar in enumerate(bars):
        axes.plot(
            [0, bar.value], [place, place], color=bar.color, linewidth=7, solid_capstyle="butt"
        )
        if bar.low is not None and bar.high is not None:
            ends: Style = {"color": MUTED, "marker": "|", "markersize": 9, "linewidth": 1.4}
            axes.plot([bar.low, bar.high], [place, place], **ends)
        mark: Style = {"marker": "|", "markersize": 12, "markeredgewidth": 2}
        axes.plot(bar.chance, place, color=LINE, linestyle="none", **mark)
        name = f"{bar.name}: {number(bar.value, 3)}"
        axes.text(0.0, place - 0.2, name, va="bottom", fontsize=11)
    axes.set_xlim(-0.005, 1.02)
    named_rows(axes, len(bars))
    axes.set_xlabel("True-positive rate, higher = more leaks")


def _bars_in_words(bars: Sequence[_Bar]) -> str:
    parts = [
        f"{bar.name}: {number(bar.value, 3)}"
        + (f" ({interval(bar.low, bar.high, 3)})" if bar.high is not None else "")
        + (f" (at least {number(bar.low, 3)})" if bar.high is None and bar.low else "")
        + (f", by chance {number(bar.chance, 3)}" if bar.high is None else "")
        for bar in bars
    ]
    return f"True-positive rates, higher = more leaks: {joined(parts)}."


def canaries_chart(result: SweepNumbers) -> Chart | None:
    """The TPR of each canary at no false positive, sorted, beside what chance gives."""
    rates = np.sort([text.tpr for text in result.texts if text.tpr is not None])[::-1]
    if not rates.size:
        return None
    chance = _by_chance(result.models, rates.size)
    low = sum(text.advantage_low > 0 for text in result.texts)
    separated = sum(text.separated for text in result.texts)
    return Chart(
        name="sweep-canaries",
        kind="canaries",
        subject="",
        title="Each canary's own true-positive rate, sorted",
        caption=(
            "Where the line is above what chance gives, canaries give themselves away; a steep "
            "left end is a few that leak whole."
        ),
        description=(
            f"The share of the models with a canary in which it scores higher than in every model "
            f"without it, over {rates.size:,} canaries: largest {number(float(rates[0]), 3)}, "
            f"median {number(float(np.median(rates)), 3)}, by chance {number(float(chance[0]), 3)} "
            f"and {number(float(np.median(chance)), 3)}. {separated:,} are separated, and of "
            f"{low:,} the advantage is above 0 for certain."
        ),
        draw=lambda figure: _draw_canaries(figure, rates, chance),
        legend=lambda: [
            key("canaries", color=SERIES[0], linewidth=1.8),
            key("by chance", color=MUTED, linestyle=":", linewidth=1.4),
        ],
        height=3.2,
    )


def _by_chance(models: int, canaries: int) -> Floats:
    """What the sorted rates are by chance, about: quantiles of a text in half of the models."""
    had = max(1, models // 2)
    lacked = max(1, models - had)
    above = np.arange(had + 1)
    tails = np.array([math.exp(_log_tail(had, lacked, int(a))) for a in above])  # P(>= a)
    levels = (np.arange(canaries) + 0.5) / canaries
    found = [float(above[tails >= level][-1]) / had for level in levels]
    return np.array(found)


def _log_tail(had: int, lacked: int, above: int) -> float:
    """Ln P(the highest `above` places are of models with it)."""
    return sum(math.log((had - k) / (had + lacked - k)) for k in range(above))


def _draw_canaries(figure: FigureBase, rates: Floats, chance: Floats) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    edges = np.arange(rates.size + 1) + 0.5
    few: Style = {"marker": "o", "markersize": 4, "linestyle": "none", "markerfacecolor": "none"}
    axes.stairs(chance, edges, color=MUTED, linestyle=":", linewidth=1.4, baseline=None)
    axes.stairs(rates, edges, color=SERIES[0], linewidth=1.8, baseline=None)
    if rates.size <= 64:
        axes.plot(np.arange(rates.size) + 1, rates, color=SERIES[0], **few)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlim(0.4, rates.size + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlabel("Canaries, the most leaking first")
    axes.set_ylabel("TPR at no false positive")


def sweep_roc_chart(result: SweepNumbers) -> Chart | None:
    """The ROC of each group by its primary score, with its interval."""
    rows = [row for row in primary_rows(result) if row.curve is not None and row.curve.fpr]
    if not rows:
        return None
    more = f" The first {_CURVES} of {len(rows)} curves." if len(rows) > _CURVES else ""
    return roc_lines_chart(
        [_line(row) for row in rows[:_CURVES]],
        name="sweep-roc",
        kind="sweep_roc",
        title="Texts that were in told from those that were not (ROC)",
        caption=(
            "Over all models and texts: the higher a curve at the left end, the more are told "
            "apart with few false positives; a band is an interval, with models as units."
        ),
        description=(
            "True-positive against false-positive rate on logarithmic axes. Area under the curve, "
            f"0.5 = guessing: {{}}.{more}"
        ),
    )


def _line(row: SweepScore) -> RocLine:
    curve = row.curve
    assert curve is not None
    banded = curve.low and row.group in _GROUP_COLORS  # bands of many would hide each other
    return RocLine(
        name=group_name(row.group),
        fpr=np.array(curve.fpr),
        tpr=np.array(curve.tpr),
        # from which these cells resolve anything, and the curve has a point
        edge=min(max(1 / max(2, row.cells_out), curve.fpr[0]), 1.0),
        positives=row.cells_in,
        area=(row.area, row.area_low, row.area_high),
        band=(np.array(curve.low), np.array(curve.high)) if banded else None,
    )
