"""Charts of a sweep's worst texts, scores of the models with it and without it; and its bounds."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lmexposure._style import count, nats, number, probability, slug
from lmexposure._text import visible
from lmexposure.core.charts import (
    MUTED,
    SERIES,
    Chart,
    Style,
    clipped,
    joined,
    key,
    named_rows,
    plain_axes,
)
from lmexposure.studies.sweep_result import SweepBound, SweepNumbers, WorstText
from lmexposure.studies.sweep_tables import QUESTIONS

Floats = NDArray[np.float64]

_ROW = 0.5  # inches
_MOST_BINS, _FEWEST_BINS = 40, 5
_IN, _OUT = SERIES[1], SERIES[0]


def worst_chart(result: SweepNumbers, noun: str) -> Chart | None:
    """The scores of the worst canary, or of the worst document, in and out."""
    worst = result.worst if noun == "canary" else result.worst_of_population
    if worst is None:
        return None
    inside, outside = np.array(worst.scores_in), np.array(worst.scores_out)
    name = clipped(visible(worst.id))
    return Chart(
        name=f"sweep-worst-{slug(noun)}",
        kind="worst",
        subject="",
        title=f"Scores of the worst {noun}, {name}",
        caption=(
            "Each tick is a model. Where the models with the text are all to the right of the "
            "others, any of them tells that it was trained on it."
        ),
        description=_worst_in_words(worst, inside, outside),
        draw=lambda figure: _draw_worst(figure, inside, outside),
        legend=lambda: [
            Patch(facecolor=_IN, alpha=0.55, label=f"{count(inside.size, 'model')} with it"),
            Patch(facecolor=_OUT, alpha=0.55, label=f"{count(outside.size, 'model')} without it"),
        ],
        height=3.4,
    )


def _worst_in_words(worst: WorstText, inside: Floats, outside: Floats) -> str:
    separated = "; all models with it above all without" if worst.separated else ""
    sides = [
        f"{count(side.size, 'model')} {word} it, from {number(float(side.min()))} to "
        f"{number(float(side.max()))}"
        for side, word in ((inside, "with"), (outside, "without"))
        if side.size
    ]
    return (
        f"Raw scores of the worst of {worst.among:,}, higher = more likely in: {joined(sides)}"
        f"{separated}. TPR at no false positive {number(worst.tpr, 3)}, p {probability(worst.p)}."
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
    _rug(below, [("with", inside, _IN), ("without", outside, _OUT)])
    below.set_xlabel("Score, higher = more likely in")


def _rug(axes: Axes, rows: Sequence[tuple[str, Floats, str]]) -> None:
    """A line of ticks a side; the sides are apart, so that colour does not tell them alone."""
    for at, (_, scores, color) in enumerate(rows):
        xs = np.repeat(scores, 3)
        ys = np.tile([at - 0.34, at + 0.34, np.nan], scores.size)
        axes.plot(xs, ys, color=color, linewidth=1.2)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([name for name, *_ in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)


def sweep_bounds_chart(result: SweepNumbers) -> Chart | None:
    """Each bound on epsilon with its ceiling, the primary first."""
    bounds = result.epsilon.bounds
    if not bounds:
        return None
    names = [_name(row, row == result.epsilon.primary) for row in bounds]
    ends = [nats(row.bound.max_attainable) for row in bounds]
    parts = [f"{name} (max attainable {end})" for name, end in zip(names, ends, strict=True)]
    dot: Style = {"color": SERIES[0], "marker": "o", "linestyle": "none", "markersize": 8}
    mark: Style = {"color": MUTED, "marker": "|", "linestyle": "none", "markersize": 11}
    keys: list[Artist] = [key("lower bound", **dot), key("max attainable", **mark)]
    return Chart(
        name="sweep-bounds",
        kind="sweep_bounds",
        subject="",
        title="Lower bounds on epsilon, and what they could have been",
        caption=(
            "The longer a thick bar, the less private the recipe; its thin line ends where a "
            "perfect attack on these models and canaries would have."
        ),
        description=(f"Lower bounds on epsilon in nats, higher = less private: {joined(parts)}."),
        draw=lambda figure: _draw_bounds(figure, bounds, names),
        legend=lambda: keys,
        height=0.8 + _ROW * len(bounds),
    )


def _name(row: SweepBound, primary: bool) -> str:
    times = f", {row.repetitions}×" if row.repetitions > 1 else ""
    first = "primary: " if primary else ""
    return f"{first}{QUESTIONS[row.question]}{times} ≥ {nats(row.bound.value)}"


def _draw_bounds(figure: FigureBase, rows: Sequence[SweepBound], names: Sequence[str]) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    most = [row.bound.max_attainable or row.bound.value for row in rows]
    for place, (row, name, end) in enumerate(zip(rows, names, most, strict=True)):
        axes.plot([row.bound.value, end], [place, place], color=MUTED, linewidth=1.0)
        mark: Style = {"marker": "|", "markersize": 11, "markeredgewidth": 2}
        axes.plot(end, place, color=MUTED, **mark)
        axes.plot(
            [0, row.bound.value],
            [place, place],
            color=SERIES[0],
            linewidth=4.0,
            solid_capstyle="butt",
        )
        axes.plot(row.bound.value, place, marker="o", color=SERIES[0], clip_on=False, zorder=3)
        weight = "normal" if place else "bold"
        axes.text(0.0, place - 0.2, name, va="bottom", fontsize=11, fontweight=weight)
    axes.set_xlim(0, 1.06 * max(0.05, *most))
    named_rows(axes, len(rows))
    axes.set_xlabel("Epsilon (nats), higher = less private")
