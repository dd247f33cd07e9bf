"""Does any of many texts leave a trace? All are tested at once, by permutation of whole models.

Why the test is exact. A model s has coins C_s (N of them) and scores X_s. Where no text leaves a
trace, scores do not depend on coins, whatever the scores of one model have to do with each other.
The rows C_1, ..., C_M are exchangeable: by independent coins they are independent and alike; and
where each text is in just half of the models, by a random half of its own, numbering the models
anew makes no half likelier than another. So, given the scores, each way of dealing out the rows of
coins to the rows of scores is as likely as the real one, and so is the largest of all N statistics
under it (Westfall and Young 1993, section 2.6). Rows are dealt out whole: what the scores of one
model have in common stays as it is.

Where some texts do leave a trace, let the others be those whose scores, all together, depend on
none of their own coins; the texts with a trace may move them. The argument holds of these others,
and the largest over all texts is no less than the largest over them: that any of them is called is
as rare as the level says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lmexposure._validate import integer
from lmexposure.statistics._rows import column
from lmexposure.statistics._sides import Flags, Floats, coins_of, of_own, of_pairs
from lmexposure.statistics.many_models import coin_matrix, score_matrix

Side = Literal["greater", "two-sided"]

_ROUNDING = 1e-9  # of a statistic
_CELLS = 2**15  # statistics of pairs held at once: what a cache holds


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxTTest:
    """How often chance gives any of all texts, or pairs, so large a studentised difference."""

    # Welch's statistic of each, shape (N,) or (N, V); infinite where both sides are constant and
    # differ; NaN with fewer than two models on a side
    t: Floats
    p: Floats  # paid for by their number, in (0, 1], of the same shape; NaN likewise
    permutations: int  # that were drawn
    side: Side  # "greater": large positive differences count; "two-sided": negative ones too


def memorisation_test(
    scores: ArrayLike, included: ArrayLike, *, permutations: int = 999, seed: int
) -> MaxTTest:
    """Test all texts at once: does any score higher in the models that had it?

    Args:
        scores: as for `counterfactual_memorisation`; texts may be of different scales.
        included: likewise. Rows of coins must be exchangeable: by independent coins, or each text
            in just half of the models by a random half of its own.
        permutations: of models; no p is below 1 / (1 + permutations).
        seed: of the permutations.

    Returns:
        The test, one-sided, one p for each text.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none.
        SettingsError: permutations below 1.

    Source: proof at the top of this module; Westfall and Young 1993, Resampling-based multiple
    testing, section 2.6; studentised as by Janssen 1997, so that spreads may differ.
    """
    x = score_matrix("scores", scores)
    coins = coin_matrix("included", included, x.shape)
    return _tested(x, coins, _own_t, "greater", permutations, seed)


def influence_test(
    others: ArrayLike, included: ArrayLike, *, permutations: int = 999, seed: int
) -> MaxTTest:
    """Test all pairs at once: does any text move the score of another, up or down?

    Source: as `memorisation_test`.
    """
    x = score_matrix("others", others)
    return _tested(x, coins_of(included, len(x)), _pair_t, "two-sided", permutations, seed)


def _own_t(z: Floats, coins: Flags) -> Iterator[Floats]:
    """Of each text, shape (N,)."""
    yield of_own(z, coins).t


def _pair_t(z: Floats, coins: Flags) -> Iterator[Floats]:
    """Of each pair, some texts at a time, shape (n, V)."""
    step = max(1, _CELLS // z.shape[1])
    for start in range(0, coins.shape[1], step):
        yield of_pairs(z, coins[:, start : start + step]).t


def _tested(
    x: Floats,
    coins: Flags,
    statistic: Callable[[Floats, Flags], Iterator[Floats]],
    side: Side,
    permutations: int,
    seed: int,
) -> MaxTTest:
    """The largest statistic of each way of dealing rows of scores to rows of coins."""
    permutations = integer("permutations", permutations, low=1)
    z = x - x.mean(axis=0)
    rng = np.random.default_rng(integer("seed", seed, low=0))
    t = np.concatenate(list(statistic(z, coins)))
    largest = []
    for _ in range(permutations):
        dealt = z[rng.permutation(len(z))]
        largest.append(max(_largest(part, side) for part in statistic(dealt, coins)))
    own = np.abs(t) if side == "two-sided" else t
    # What is equal but for rounding counts as equal, against the text.
    reached = own - _ROUNDING * np.where(np.isfinite(own), np.abs(own), 0.0)
    count = permutations - np.searchsorted(np.sort(largest), reached)
    p = np.where(np.isnan(t), np.nan, (1 + count) / (1 + permutations))
    return MaxTTest(
        t=column(t, np.float64), p=column(p, np.float64), permutations=permutations, side=side
    )


def _largest(t: Floats, side: Side) -> float:
    """Of all texts; minus infinity where none has enough models."""
    known = t[~np.isnan(t)]
    return float((np.abs(known) if side == "two-sided" else known).max(initial=-np.inf))
