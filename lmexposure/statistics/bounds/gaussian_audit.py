"""A lower bound on mu from two samples of scores, and the epsilon that a Gaussian trade-off adds.

The shape of the trade-off carries the bound from the error rates that a sample can resolve to a
small delta that it cannot: more is assumed, and more is said.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.optimize import brentq

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.statistics.bounds.beta_mean import beta_nodes, beta_quantiles
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu

Floats = NDArray[np.float64]

_ASSUMPTIONS = (
    "the training is mu-GDP: no test tells the neighbours apart better than N(0, 1) from N(mu, 1)",
    "scores are independent, and alike within each sample, given the model",
    "the two samples differ by the insertion only",
)
# Share of the out-scores above the threshold, and its share of the significance. Where the shift
# is the same for all canaries the middle tells most; a few that are memorised show in the corners.
_LOOKS = (
    (0.5, 0.5),
    (0.2, 0.1),
    (0.8, 0.1),
    (0.05, 0.1),
    (0.95, 0.05),
    (0.01, 0.075),
    (0.99, 0.025),
    (0.0, 0.05),
)


@dataclass(frozen=True, kw_only=True)
class GaussianEpsilon(EpsilonBound):
    """A lower bound on epsilon under a Gaussian trade-off.

    Attributes:
        mu: lower bound on the mu of one document; higher = less private; 0 without signal.
    """

    mu: float


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One threshold: the `rank`-th highest out-score, priced with `level`."""

    rank: int
    level: float


def gaussian_dp_epsilon(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float,
    repetitions: int = 1,
) -> GaussianEpsilon:
    """Lower confidence bound on mu, then epsilon at `delta`.

    Under mu-GDP an in-score passes a threshold that out-scores pass with probability u with
    probability Phi(Phi^-1(u) + mu) at most. With the threshold at the r-th highest of n
    out-scores, u is Beta(r, n - r + 1) and the count of in-scores above it is binomial given u:
    an exact test of every mu. Eight thresholds at ranks fixed beforehand share the significance.

    Args:
        in_scores: scores of inserted canaries, shape (m,); higher = more likely in.
        out_scores: scores of canaries left out, shape (n,).
        significance: how often, at most, the bound may lie above the truth.
        delta: of the claim, strictly between 0 and 1: at delta 0 no Gaussian trade-off has an
            epsilon.
        repetitions: copies of each canary; mu of one document is the r-th part.

    Returns:
        The bound on epsilon in nats, and the bound on mu that it comes from.

    Raises:
        InputError: an empty sample, or a score that is not finite.
        SettingsError: a setting out of range.

    Source: Dong, Roth and Su 2019, Corollary 2.13 and Theorem 2.14 (groups); order statistics as
    in David and Nagaraja 2003, section 2.3. Ties count against the bound.
    """
    inside, outside = bits_array("in_scores", in_scores), bits_array("out_scores", out_scores)
    level, delta = fraction("significance", significance), fraction("delta", delta)
    copies = integer("repetitions", repetitions, low=1)
    looks = _looks(outside.size, level)
    inside, outside = np.sort(inside), np.sort(outside)
    thresholds = outside[[outside.size - look.rank for look in looks]]
    above = inside.size - np.searchsorted(inside, thresholds, side="right")  # (looks,)
    bounds = [
        _least_mu(int(count), inside.size, outside.size, look)
        for count, look in zip(above, looks, strict=True)
    ]
    best = int(np.argmax(bounds))
    most = max(_least_mu(inside.size, inside.size, outside.size, look) for look in looks)
    return GaussianEpsilon(
        method="gaussian_dp_epsilon",
        value=epsilon_of_mu(mu=bounds[best] / copies, delta=delta),
        mu=bounds[best] / copies,
        significance=level,
        delta=delta,
        validity="gaussian",
        counts={
            "in": inside.size,
            "out": outside.size,
            "in_above": int(above[best]),
            "out_rank": looks[best].rank,
        },
        threshold=float(thresholds[best]),
        threshold_choice=f"best of {len(looks)} ranks of the out-scores fixed beforehand",
        max_attainable=epsilon_of_mu(mu=most / copies, delta=delta),
        repetitions=copies,
        adjacency=adjacency(copies),
        assumptions=_ASSUMPTIONS,
        notes=_notes(bounds[best], most, inside, outside),
    )


def _looks(n: int, significance: float) -> list[_Look]:
    """The ranks for n out-scores; those that fall together add up their shares."""
    levels: dict[int, float] = {}
    for share, price in _LOOKS:
        rank = min(max(round(share * (n + 1)), 1), n)
        levels[rank] = levels.get(rank, 0.0) + price * significance
    return [_Look(rank=rank, level=level) for rank, level in levels.items()]


@lru_cache(maxsize=4096)
def _least_mu(count: int, m: int, n: int, look: _Look) -> float:
    """The smallest mu under which `count` of m or more above the rank is no rarer than `level`."""
    if count == 0 or _tail(0.0, count, m, n, look.rank) > look.level:
        return 0.0
    high = 1.0
    while _tail(high, count, m, n, look.rank) <= look.level:
        high *= 2
    low = 0.0 if high == 1 else high / 2
    return float(
        brentq(lambda mu: _tail(mu, count, m, n, look.rank) - look.level, low, high, xtol=1e-10)
    )


def _tail(mu: float, count: int, m: int, n: int, rank: int) -> float:
    """P(count or more in-scores above the rank-th highest out-score) under the Gaussian pair."""
    steps = special.ndtr(special.ndtri(beta_quantiles(count, m - count + 1)) - mu)
    u = beta_nodes(rank, n - rank + 1, steps)
    chance = special.ndtr(special.ndtri(u.value) + mu)
    return float(u.weight @ special.betainc(count, m - count + 1, chance))


def _notes(mu: float, most: float, inside: Floats, outside: Floats) -> tuple[str, ...]:
    """What the reader must know; both samples ascending."""
    if mu > 0:
        return ()
    if most == 0:
        return ("so few canaries cannot show any epsilon above 0, however good the attack",)
    below, up_to = (
        np.searchsorted(outside, inside, side=side).mean() for side in ("left", "right")
    )
    if below + up_to < outside.size:  # the area under the curve, ties as halves
        return (
            "worse than chance: the in-scores lie more often below the out-scores than above; if "
            "low scores mean in, turn the scores round",
        )
    return ("no signal beyond chance at this significance",)
