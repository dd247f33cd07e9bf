"""A bound on epsilon from one model and fair coins, if its training trades errors as a Gaussian.

No number of guesses is best for every training, and the best one on the data is no bound. So a
few numbers are fixed beforehand, each is judged at its own part of the significance, and the
largest bound on mu counts: the chance that any of them lies above the truth is at most the sum of
their parts, which is the significance.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import fraction, integer
from lmexposure.statistics.bounds.bound import adjacency
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu
from lmexposure.statistics.bounds.gaussian_audit import GaussianEpsilon
from lmexposure.statistics.bounds.one_run import FAIR_COINS, right_guesses, signal_notes
from lmexposure.statistics.bounds.one_run_fdp import largest_excluded_mu

_ASSUMPTIONS = (
    *FAIR_COINS,
    "the training is mu-GDP: no test tells the neighbours apart better than N(0, 1) from N(mu, 1)",
)
# Guesses as shares of the canaries. A shift of all canaries shows best where few of the clearest
# are guessed, from both ends; the memorisation of a part shows at the top alone. What the top
# costs the former is .1 of epsilon; without it the latter loses 3 (1,000 canaries, 30 % of them).
_BOTH, _TOP = (0.06, 0.15, 0.4), (0.015, 0.04, 0.12)
_WEIGHTS = {"both": 1.0, "top": 0.5}
_FEWEST = 8  # guesses; fewer show nothing at a part of the significance


@dataclass(frozen=True, kw_only=True)
class _Rung:
    """A number of guesses, from both ends in turn or from the top alone, and its significance."""

    end: str
    guesses: int
    level: float

    def correct(self, right: NDArray[np.bool_]) -> int:
        """Right guesses, of all in the order of `reveal`, shape (m,)."""
        along = right if self.end == "both" else right[::2]
        return int(along[: self.guesses].sum())

    def mu(self, canaries: int, correct: int) -> float:
        """The largest mu that so many right guesses exclude; 0 where none."""
        return largest_excluded_mu(canaries, self.guesses, correct, self.level)


def one_run_gaussian_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float,
    repetitions: int = 1,
    seed: int,
) -> GaussianEpsilon:
    """Bound mu, then epsilon at `delta`, with one trained model and fair independent coins.

    What it needs beside `one_run_audit` is the Gaussian trade-off; what it does not need, unlike
    `gaussian_dp_epsilon`, is that scores are independent or alike.

    Args:
        scores: one per canary, shape (m,), finite; higher = more likely in the training data.
        included: whether the canary went in, shape (m,), booleans or 0 and 1.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        delta: at which epsilon is read off the trade-off, for one document; strictly between 0
            and 1: at delta 0 no Gaussian trade-off has an epsilon.
        repetitions: copies of every canary; mu of one document is the r-th part.
        seed: of the order of equal scores, independent of the coins even if they used it too.

    Returns:
        The bound on epsilon in nats, class "gaussian", and the bound on mu that it comes from.

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), the audit of a fixed number of
    guesses under f-DP, here at several numbers with the significance shared out; Dong, Roth and
    Su 2019, Corollary 2.13 and Theorem 2.14 (groups).

    >>> coins = np.random.default_rng(1).random(400) < 0.5
    >>> bound = one_run_gaussian_audit(4 * coins, coins, delta=1e-5, seed=1)
    >>> round(bound.mu, 2), round(bound.value, 2)
    (1.35, 6.24)
    """
    coins, right = right_guesses(scores, included, seed=seed)
    significance, delta = fraction("significance", significance), fraction("delta", delta)
    copies = integer("repetitions", repetitions, low=1)
    rungs = _ladder(coins.size, significance)
    found = [rung.mu(coins.size, rung.correct(right)) for rung in rungs]
    best = rungs[int(np.argmax(found))]
    most = max(rung.mu(coins.size, rung.guesses) for rung in rungs)
    value = epsilon_of_mu(mu=max(found) / copies, delta=delta)
    ceiling = epsilon_of_mu(mu=most / copies, delta=delta)
    return GaussianEpsilon(
        method="one_run_gaussian_audit",
        value=value,
        mu=max(found) / copies,
        significance=significance,
        delta=delta,
        validity="gaussian",
        counts={
            "canaries": coins.size,
            "included": int(coins.sum()),
            "guesses": best.guesses,
            "correct": best.correct(right),
        },
        threshold=None,
        threshold_choice=(
            f"best of {len(rungs)} numbers of guesses, fixed beforehand and all paid for; "
            f"{best.guesses} from {'both ends' if best.end == 'both' else 'the top'} decided"
        ),
        max_attainable=ceiling,
        repetitions=copies,
        adjacency=adjacency(copies),
        assumptions=_ASSUMPTIONS,
        notes=signal_notes(value, ceiling, right),
    )


@lru_cache(maxsize=64)
def _ladder(canaries: int, significance: float) -> tuple[_Rung, ...]:
    """The rungs for so many canaries; all are guessed where every rung would be too short."""
    wanted = [
        (end, round(share * canaries))
        for end, shares in (("both", _BOTH), ("top", _TOP))
        for share in shares
    ]
    long = [rung for rung in wanted if rung[1] >= _FEWEST] or [("both", canaries)]
    whole = sum(_WEIGHTS[end] for end, _ in long)
    return tuple(
        _Rung(end=end, guesses=guesses, level=significance * _WEIGHTS[end] / whole)
        for end, guesses in long
    )
