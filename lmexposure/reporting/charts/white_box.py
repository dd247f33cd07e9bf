"""Chart of canaries in gradients: scores of those that were in against those that were not."""

import numpy as np
from matplotlib.figure import FigureBase
from numpy.typing import NDArray

from lmexposure._style import count, number
from lmexposure.core.charts import CONTROL, INK, SERIES, Chart, Style, key, plain_axes
from lmexposure.records import WhiteBoxAudit
from lmexposure.reporting.data import Floats

Coins = NDArray[np.bool_]
_BINS = 30
SCORES: dict[str, Style] = {
    "in": {"color": SERIES[0], "linewidth": 1.8},
    "not in": {"color": CONTROL, "linewidth": 1.4, "linestyle": "--"},
}


def white_box_chart(audit: WhiteBoxAudit | None) -> Chart | None:
    """What the noise leaves of the canaries, of the whole training and of single steps."""
    if audit is None:
        return None
    panels: dict[str, tuple[Floats, Coins]] = {
        "Score, whole training": (np.array(audit.scores), np.array(audit.coins)),
        "Score, single steps": (np.array(audit.step_scores), np.array(audit.step_coins)),
    }
    panels = {name: (scores, coins.astype(bool)) for name, (scores, coins) in panels.items()}
    shown = {name: pair for name, pair in panels.items() if 0 < pair[1].sum() < pair[1].size}
    if not shown:
        return None
    return Chart(
        name="white-box",
        kind="white_box",
        subject="",
        title="What the noise leaves of canaries in the gradients",
        caption=(
            "The noisy gradients along each canary, of those that were in and of those that were "
            "not, the same height together. The less the two lines cover each other, the less the "
            "noise hides."
        ),
        description=" ".join(_in_words(name, *pair) for name, pair in shown.items()),
        draw=lambda figure: draw_scores(figure, shown, "clips"),
        legend=lambda: [key(name, **style) for name, style in SCORES.items()],
        height=3.0,
    )


def draw_scores(figure: FigureBase, panels: dict[str, tuple[Floats, Coins]], unit: str) -> None:
    """Histograms of scores with and without a canary, a panel each."""
    every = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, (name, (scores, coins)) in zip(every, panels.items(), strict=True):
        plain_axes(axes)
        edges = np.linspace(scores.min(), scores.max(), _BINS + 1)
        for label, chosen in (("in", coins), ("not in", ~coins)):
            heights, _ = np.histogram(scores[chosen], edges)
            axes.stairs(heights / chosen.sum(), edges, **SCORES[label])
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xlabel(f"{name} ({unit})")
        axes.set_ylim(bottom=0)
    every[0].set_ylabel("Share")


def _in_words(name: str, scores: Floats, coins: Coins) -> str:
    inside, outside = scores[coins], scores[~coins]
    return (
        f"{name}: {count(inside.size, 'canary', 'canaries')} in, mean score "
        f"{number(float(inside.mean()), 2)}; {outside.size:,} not in, mean "
        f"{number(float(outside.mean()), 2)}, standard deviation "
        f"{number(float(outside.std()), 2)}."
    )
