"""One test over all ranks of two samples: the best local bound, at one joint level.

Every rank on a ladder fixed beforehand gives a local bound on epsilon; the statistic is the best of
them, and what it may be by chance is computed exactly, with the dependence between ranks. Because
the statistic does not depend on the epsilon that is tested, its chance grows with epsilon, and the
bound is the epsilon at which it reaches the significance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import brentq

from lmexposure.statistics.bounds.binomial import least_exceeded
from lmexposure.statistics.bounds.groups import group_delta
from lmexposure.statistics.bounds.staircase import Staircase

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# Ranks grow by this factor: finer ladders cost more than they show.
_LADDER = 1.15
# A local bound fails at significance / 10 at the highest rank, and less often at lower ones.
_LOCAL = 0.1
# delta is paid by leaving out ranks that it could fill but for this part of the significance.
_SPARED = 0.02
# Shapes the ladder only: the group's epsilon at which those ranks are counted.
_DESIGN_EPSILON = 2.0
# Where a root is looked for: this part of a standard deviation from where it should be.
_NEAR = 20
# Normal quantiles are finite from here to there.
_TINY, _BELOW_1 = 1e-300, 1 - 1e-16


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """The bound, and the rank that had the best local bound (`rank` 0: none is above 0).

    From the top, `rank` is of the in-scores and `passed` counts out-scores at or above it; from
    the bottom, `rank` is of the out-scores and `passed` counts in-scores at or below it.
    """

    value: float
    top: bool
    rank: int
    passed: int
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class _End:
    """Looks from one end: at each rank of `size` scores, how many of `others` passed before it."""

    ranks: Counts
    passed: Counts
    size: int
    others: int
    spared: int
    tail: Floats

    def local(self, passed: Counts) -> Floats:
        """Local bounds on epsilon, shape of `ranks`; falls as more pass.

        For independent labels the chance of a point has a beta law; the parameters are stretched
        until the log ratio varies as it does for samples of fixed sizes,
        1/k - 1/n + 1/b - 1/m. This shapes the test only: its level does not rest on it.
        """
        k, n = self.ranks - self.spared, self.size - self.spared
        b, m = passed + 1.0, self.others + 1.0
        points = 1 / (1 / k - 1 / (n + 1))
        others = 1 / (1 / np.minimum(b, m - 0.5) - 1 / m)
        chance = special.betaincinv(points, others, self.tail)
        odds = np.log(chance) - np.log1p(-chance) + np.log(others * k / (points * b))
        value: Floats = odds + math.log(self.others / n)
        return np.where(passed >= self.others, -np.inf, value)

    def staircase(self, least: float, spacing: float) -> Staircase:
        """Where a local bound would be at least `least`; a later step says more, or is left out."""
        low, high = np.full_like(self.ranks, -1), np.full_like(self.ranks, self.others)
        while (high - low > 1).any():
            middle = np.maximum((low + high) // 2, 0)
            reached, open_ = self.local(middle) >= least, high - low > 1
            low, high = (
                np.where(open_ & reached, middle, low),
                np.where(open_ & ~reached, middle, high),
            )
        low = np.where(self.local(self.passed) >= least, np.maximum(low, self.passed), low)
        steps = np.flatnonzero(np.diff(np.maximum.accumulate(low), prepend=-1) > 0)
        return Staircase(
            ranks=tuple(self.ranks[steps].tolist()),
            counts=tuple(low[steps].tolist()),
            size=self.size,
            others=self.others,
            spared=self.spared,
            spacing=spacing,
        )


def order_statistics_bound(
    ins: Floats, outs: Floats, *, significance: float, delta: float, repetitions: int
) -> Deciding:
    """Lower bound on epsilon of one document, from both ends.

    Args:
        ins: scores of canaries that were in, ascending, shape (n,).
        outs: scores of canaries that were not, ascending, shape (m,).
        significance: in (0, 1).
        delta: of one document.
        repetitions: copies of each canary.
    """
    design = group_delta(_DESIGN_EPSILON / repetitions, delta, repetitions)
    top, bottom = (
        _ladder(size, significance, design if delta else 0.0) for size in (ins.size, outs.size)
    )
    above = outs.size - np.searchsorted(outs, ins[ins.size - top[0]], side="left")
    below = np.searchsorted(ins, outs[bottom[0] - 1], side="right")
    ends = (
        _End(
            ranks=top[0],
            passed=above,
            size=ins.size,
            others=outs.size,
            spared=top[1],
            tail=top[2],
        ),
        _End(
            ranks=bottom[0],
            passed=below,
            size=outs.size,
            others=ins.size,
            spared=bottom[1],
            tail=bottom[2],
        ),
    )
    value, first, place = _invert(ends, significance, delta, repetitions)
    if place is None:
        return Deciding(value=0.0, top=True, rank=0, passed=0, threshold=None)
    end = ends[0] if first else ends[1]
    rank = int(end.ranks[place])
    score = ins[ins.size - rank] if first else outs[rank - 1]
    return Deciding(
        value=value,
        top=first,
        rank=rank,
        passed=int(end.passed[place]),
        threshold=float(score),
    )


@lru_cache(maxsize=256)
def order_statistics_ceiling(
    positives: int, negatives: int, *, significance: float, delta: float, repetitions: int
) -> float:
    """The bound when every canary that was in scores above every one that was not."""
    return order_statistics_bound(
        np.arange(negatives, negatives + positives, dtype=np.float64),
        np.arange(negatives, dtype=np.float64),
        significance=significance,
        delta=delta,
        repetitions=repetitions,
    ).value


def _ladder(size: int, significance: float, delta: float) -> tuple[Counts, int, Floats]:
    """Ranks to look at, how many are left out for delta, and how often each local bound fails."""
    spared = least_exceeded(_SPARED * significance, size, delta) if delta else 0
    spared = min(spared, size - 1)
    ranks = [1]
    while ranks[-1] < size:
        ranks.append(min(size, max(ranks[-1] + 1, round(ranks[-1] * _LADDER))))
    found = np.array([rank for rank in ranks if rank > spared], dtype=np.int64)
    return found, spared, _LOCAL * significance * np.sqrt(found / size)


def _invert(
    ends: tuple[_End, _End], significance: float, delta: float, repetitions: int
) -> tuple[float, bool, int | None]:
    """Bound, whether the top end decided, and at which place of its ladder (None: no signal)."""
    local = [end.local(end.passed) for end in ends]
    best = [float(values.max(initial=-np.inf)) for values in local]
    statistic = max(best)
    if statistic <= 0:
        return 0.0, True, None
    first = best[0] >= best[1]
    end, values = (ends[0], local[0]) if first else (ends[1], local[1])
    place = int(values.argmax())
    spread = math.sqrt(1 / int(end.ranks[place]) + 1 / (int(end.passed[place]) + 1))
    stairs = [end.staircase(statistic, spread) for end in ends]

    def chance(epsilon: float, group: float) -> float:
        if group >= 1:
            return 1.0
        return sum(stair.probability(epsilon, group) for stair in stairs)

    # As groups.per_document: the chance grows with epsilon and with delta, one root finds both.
    def chance_of_document(epsilon: float) -> float:
        return chance(repetitions * epsilon, group_delta(epsilon, delta, repetitions))

    value = _root(chance_of_document, significance, statistic / repetitions, spread / repetitions)
    return value, first, place


def _root(
    chance: Callable[[float], float], significance: float, start: float, step: float
) -> float:
    """The largest epsilon >= 0 whose chance does not exceed the significance, else 0."""
    least = float(special.ndtri(significance))

    # As a normal quantile the chance is almost a straight line that rises by 1 in a `step`. The
    # solver asks again for both ends of its interval: a chance is computed once.
    @cache
    def excess(epsilon: float) -> float:
        return float(special.ndtri(np.clip(chance(epsilon), _TINY, _BELOW_1))) - least

    low = high = max(0.0, start - step * excess(start))
    reach = step / _NEAR
    while excess(low) > 0:
        if low == 0:
            return 0.0
        low, high, reach = max(0.0, low - reach), low, 2 * reach
    while excess(high) <= 0:
        low, high, reach = high, high + reach, 2 * reach
    tolerance = 1e-7
    root = brentq(excess, low, high, xtol=tolerance, rtol=1e-12)
    return max(0.0, float(root) - tolerance)
