"""Charts of a sweep's worst texts, scores of the models with it and without it; and its bounds."""

import numpy as np
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lmexposure._style import count, nats, number, probability, slug, visible
from lmexposure.core.charts import (
    SERIES,
    Ceiling,
    Chart,
    ceilings_chart,
    clipped,
    joined,
    plain_axes,
    rug,
)
from lmexposure.studies.sweep_result import SweepBound, SweepNumbers, WorstText
from lmexposure.studies.sweep_tables import QUESTIONS

Floats = NDArray[np.float64]

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
