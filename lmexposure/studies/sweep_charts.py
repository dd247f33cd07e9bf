"""The charts of a sweep: its rates, worst texts, bounds, what single texts change, kinds."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lmexposure._style import (
    count,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    signed,
    slug,
    visible,
)
from lmexposure.core.charts import (
    LINE,
    MUTED,
    SERIES,
    Ceiling,
    Chart,
    Mark,
    RocLine,
    Style,
    ceilings_chart,
    clipped,
    dots_chart,
    joined,
    key,
    named_rows,
    plain_axes,
    roc_lines_chart,
    rug,
)
from lmexposure.studies.sweep_record import (
    CounterfactualText,
    SweepBound,
    SweepCounterfactual,
    SweepNumbers,
    SweepScore,
)
from lmexposure.studies.sweep_tables import (
    GROUPS,
    QUESTIONS,
    by_strength,
    certain,
    group_name,
    primary_rows,
    shares_of,
)

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
    told = [
        f"{bar.name}: {number(bar.value, 3)}"
        + (f" ({interval(bar.low, bar.high, 3)})" if bar.high is not None else "")
        + (f" (at least {number(bar.low, 3)})" if bar.high is None and bar.low else "")
        + (f", by chance {number(bar.chance, 3)}" if bar.high is None else "")
        for bar in bars
    ]
    return Chart(
        name="sweep-beside",
        kind="beside",
        title="The average beside the worst text",
        caption=(
            "A short bar of all texts with a long one of the worst is a leak that the average "
            "hides; rates of worst texts are at no false positive, those of averages allow some."
        ),
        description=f"True-positive rates, higher = more leaks: {joined(told)}.",
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
        axes.text(0.0, place - 0.2, name, va="bottom")
    axes.set_xlim(-0.005, 1.02)
    named_rows(axes, len(bars))
    axes.set_xlabel("True-positive rate, higher = more leaks")


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
    # P(the highest `above` places are of models with it)
    logs = [[math.log((had - k) / (had + lacked - k)) for k in range(a)] for a in range(had + 1)]
    tails = np.array([math.exp(sum(ways)) for ways in logs])
    levels = (np.arange(canaries) + 0.5) / canaries
    return np.array([float(above[tails >= level][-1]) / had for level in levels])


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


_MOST_BINS, _FEWEST_BINS = 40, 5
_IN, _OUT = SERIES[1], SERIES[0]


def worst_chart(result: SweepNumbers, noun: str) -> Chart | None:
    """The scores of the worst canary, or of the worst document, in and out."""
    worst = result.worst if noun == "canary" else result.worst_of_population
    if worst is None:
        return None
    inside, outside = np.array(worst.scores_in), np.array(worst.scores_out)
    name = clipped(visible(worst.id))
    sides = [
        f"{count(side.size, 'model')} {word} it, from {number(float(side.min()))} to "
        f"{number(float(side.max()))}"
        for side, word in ((inside, "with"), (outside, "without"))
        if side.size
    ]
    return Chart(
        name=f"sweep-worst-{slug(noun)}",
        kind="worst",
        title=f"Scores of the worst {noun}, {name}",
        caption=(
            "Each tick is a model. Where the models with the text are all to the right of the "
            "others, any of them tells that it was trained on it."
        ),
        description=(
            f"Raw scores of the worst of {worst.among:,}, higher = more likely in: {joined(sides)}"
            f"{'; all models with it above all without' if worst.separated else ''}. TPR at no "
            f"false positive {number(worst.tpr, 3)}, p {probability(worst.p)}."
        ),
        draw=lambda figure: _draw_worst(figure, inside, outside),
        legend=lambda: [
            Patch(facecolor=_IN, alpha=0.55, label=f"{count(inside.size, 'model')} with it"),
            Patch(facecolor=_OUT, alpha=0.55, label=f"{count(outside.size, 'model')} without it"),
        ],
        height=3.4,
    )


def _draw_worst(figure: FigureBase, inside: Floats, outside: Floats) -> None:
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 0.6])
    plain_axes(axes, ticks=4)
    both = np.concatenate([inside, outside])
    bins = int(np.clip(3 * both.size ** (1 / 3), _FEWEST_BINS, _MOST_BINS))
    edges = np.histogram_bin_edges(both, bins=bins)
    for side, color in ((outside, _OUT), (inside, _IN)):
        counts, _ = np.histogram(side, bins=edges)
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.55)
        axes.stairs(counts, edges, color=color, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylabel("Models")
    axes.tick_params(axis="x", length=0, labelbottom=False)
    rug(below, [("with", inside, _IN), ("without", outside, _OUT)])
    below.set_xlabel("Score, higher = more likely in")


def sweep_bounds_chart(result: SweepNumbers) -> Chart | None:
    """Each bound on epsilon with its ceiling, the primary first."""
    bounds = result.epsilon.bounds
    if not bounds:
        return None
    rows = [
        Ceiling(
            name=_name(row, row == result.epsilon.primary),
            value=row.bound.value,
            most=row.bound.max_attainable,
        )
        for row in bounds
    ]
    parts = [f"{row.name} (max attainable {nats(row.most)})" for row in rows]
    return ceilings_chart(
        name="sweep-bounds",
        kind="sweep_bounds",
        title="Lower bounds on epsilon, and what they could have been",
        caption=(
            "The longer a thick bar, the less private the recipe; its thin line ends where a "
            "perfect attack on these models and canaries would have."
        ),
        description=f"Lower bounds on epsilon in nats, higher = less private: {joined(parts)}.",
        rows=rows,
        axis="Epsilon (nats), higher = less private",
        color=SERIES[0],
        markers=[("lower bound", "o")],
    )


def _name(row: SweepBound, primary: bool) -> str:
    times = f", {row.repetitions}×" if row.repetitions > 1 else ""
    first = "primary: " if primary else ""
    return f"{first}{QUESTIONS[row.question]}{times} ≥ {nats(row.bound.value)}"


_MOST = 500  # texts of a group, the most memorised ones
_LOOKS: dict[str, Style] = {
    "population": {"color": SERIES[0], "marker": "o", "linestyle": "none", "markersize": 5},
    "canaries": {"color": SERIES[1], "marker": "s", "linestyle": "none", "markersize": 5},
}
_NAMES = {"population": "ordinary documents", "canaries": "canaries"}


@dataclass(frozen=True, kw_only=True)
class _Cloud:
    """The texts of a group."""

    group: str  # by name
    known: tuple[CounterfactualText, ...]  # with a number, the most memorised first
    certain: frozenset[str]  # ids of those that chance does not explain

    @property
    def shown(self) -> Sequence[CounterfactualText]:
        """Those that are drawn."""
        return self.known[:_MOST]


def counterfactual_chart(result: SweepNumbers) -> Chart | None:
    """Counterfactual memorisation of each text against its bits in the models without it.

    Source: figure 2 of Zhang et al. 2023, Counterfactual memorization in neural language models.
    """
    found = result.counterfactual
    clouds = [] if found is None else _clouds(found)
    if found is None or not clouds:
        return None
    level = short(found.significance)
    return Chart(
        name="sweep-counterfactual",
        kind="counterfactual",
        title="Memorised, against how hard a text is without it",
        caption=(
            "Each mark is a text. The higher, the more the models that had it gained on it; to the "
            "right are texts that the others find hard. Filled marks are texts that chance does "
            "not explain, all texts of their group taken together."
        ),
        description=_in_words(clouds, level),
        draw=lambda figure: _draw(figure, clouds),
        legend=lambda: [key(_NAMES[cloud.group], **_hollow(cloud.group)) for cloud in clouds],
        height=3.8,
    )


def _clouds(found: SweepCounterfactual) -> list[_Cloud]:
    clouds = []
    for name in GROUPS:
        group = found.group(name)
        known = () if group is None else tuple(t for t in group.texts if t.memorised is not None)
        if group is not None and known:
            sure = frozenset(text.id for text in certain(found, group))
            clouds.append(_Cloud(group=name, known=known, certain=sure))
    return clouds


def _in_words(clouds: Sequence[_Cloud], level: str) -> str:
    parts = []
    for cloud in clouds:
        first = cloud.known[0]
        values = [text.memorised.difference for text in cloud.known if text.memorised is not None]
        parts.append(
            f"{_NAMES[cloud.group]}: largest {signed(values[0], 3)} "
            f"({clipped(visible(first.id), 30)}), median {signed(float(np.median(values)), 3)}, "
            f"{len(cloud.certain):,} of {len(cloud.known):,} with p at most {level}"
        )
    more = sum(len(cloud.known) - len(cloud.shown) for cloud in clouds)
    said = f" The {number(more, 0)} least memorised are not drawn." if more else ""
    return f"Counterfactual memorisation, bits a token, higher = more: {joined(parts)}.{said}"


def _hollow(group: str) -> Style:
    return {**_LOOKS[group], "markerfacecolor": "none"}


def _draw(figure: FigureBase, clouds: Sequence[_Cloud]) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    axes.axhline(0.0, color=MUTED, linewidth=1)
    for cloud in clouds:
        for sure in (False, True):
            means = [
                text.memorised
                for text in cloud.shown
                if text.memorised is not None and (text.id in cloud.certain) == sure
            ]
            look = _LOOKS[cloud.group] if sure else _hollow(cloud.group)
            axes.plot(
                [-mean.mean_out for mean in means], [mean.difference for mean in means], **look
            )
    axes.set_xlabel("Bits a token in the models without the text")
    axes.set_ylabel("Memorised, bits a token")


_MOST_SHARES = 4  # that have a marker of their own


def power_chart(result: SweepNumbers) -> Chart | None:
    """The TPR of each class with its interval, the strongest first, and that of fewer canaries."""
    power = result.power
    rows = [] if power is None else [r for r in by_strength(power) if r.rate.value is not None]
    if power is None or not rows:
        return None
    fewer = shares_of(power)[1 : 1 + _MOST_SHARES]
    found = {(row.group, row.share): row.rate for row in power.rows}
    drawn = []
    for row in rows:
        marks = [Mark(value=row.rate.value, low=row.rate.low, high=row.rate.high)]
        others = (found.get((row.group, share)) for share in fewer)
        marks += [Mark(value=None if rate is None else rate.value) for rate in others]
        drawn.append((f"{clipped(row.group, 40)}: {number(row.rate.value, 3)}", marks))
    told = [
        f"{visible(row.group)} {number(row.rate.value, 3)} "
        f"({interval(row.rate.low, row.rate.high, 3)})"
        for row in rows
    ]
    return dots_chart(
        name="sweep-power",
        title=f"What each kind of canary shows: TPR at FPR {short(power.fpr)}",
        caption=(
            "Each class had as many canaries, in the same models. The farther right, the more of "
            "what the training gives away is seen; hollow marks are models with fewer canaries."
        ),
        description=f"TPR at FPR {short(power.fpr)}: {', '.join(told)}.",
        rows=drawn,
        series=["all canaries", *(f"{percent(share)} of them" for share in fewer)],
        axis="True-positive rate, higher = shows more",
        chance=power.fpr,
    )


# The charts of a sweep by their names.
DRAWN: Mapping[str, Callable[[SweepNumbers], Chart | None]] = {
    "beside": beside_chart,
    "kinds": power_chart,
    "canaries": canaries_chart,
    "worst canary": partial(worst_chart, noun="canary"),
    "worst document": partial(worst_chart, noun="document"),
    "changes": counterfactual_chart,
    "roc": sweep_roc_chart,
    "bounds": sweep_bounds_chart,
}
