"""Chart of canaries in gradients: scores of those that were in against those that were not."""

import numpy as np
from numpy.typing import NDArray

from lmexposure._style import count, number
from lmexposure.core.charts import Chart, sides_chart
from lmexposure.records import WhiteBoxAudit
from lmexposure.reporting.data import Floats

Coins = NDArray[np.bool_]


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
    return sides_chart(
        name="white-box",
        kind="white_box",
        title="What the noise leaves of canaries in the gradients",
        caption=(
            "The noisy gradients along each canary, of those that were in and of those that were "
            "not, the same height together. The less the two lines cover each other, the less the "
            "noise hides."
        ),
        description=" ".join(_in_words(name, *pair) for name, pair in shown.items()),
        panels={f"{name} (clips)": pair for name, pair in shown.items()},
    )


def _in_words(name: str, scores: Floats, coins: Coins) -> str:
    inside, outside = scores[coins], scores[~coins]
    return (
        f"{name}: {count(inside.size, 'canary', 'canaries')} in, mean score "
        f"{number(float(inside.mean()), 2)}; {outside.size:,} not in, mean "
        f"{number(float(outside.mean()), 2)}, standard deviation "
        f"{number(float(outside.std()), 2)}."
    )
