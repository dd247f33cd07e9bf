"""How many fills cost no more than a limit, estimated from weighted draws, with an interval.

With q = 1/w the probability of a fill under the whole mixture, it is among M draws with
probability pi = 1 - (1 - q)^M. The distinct fills drawn are summed over 1 / pi: one that is drawn
almost surely counts for itself and adds no uncertainty, and where hardly any fill is drawn twice
the sum is the mean of the weights. Counts are held as log2, for weights pass what float64 can hold.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics._rows import column

ROUNDING = 1e-3  # bits by which a float32 total may lie off
WHOLE = 50.0  # counts above 2^50 are not rounded to whole numbers: float64 cannot tell


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedDraws:
    """M draws, with replacement, from a mixture of J distributions over the fills of one format.

    The distribution with limit t goes down the trie of fills to a child with probability
    proportional to h_t(child) = min(fills below it, 2^(t - its bits)), which no number of fills of
    t bits or less below it can pass. t = 0 draws as the model does, t = infinity all fills alike.

    A component's draws are independent of each other. They may be stratified over first tokens,
    where each has many fills behind it; stratified over the fills themselves, more distinct ones
    would be drawn than their weights say, and ranks would come out too high.

    Args:
        bits: cost of each drawn fill behind the token prefix that all fills share, shape (M,);
            lower = more memorised; infinity where the model rules a fill out.
        log2_weights: log2 of w = 1 / sum_j pi_j q_j(x), shape (M,); q_j is the distribution of
            component j.
        fills: labels, shape (M,); equal for equal fills.
        strata: number of the component that each draw came from, shape (M,).
        excluded: draws that are not part of the null, shape (M,): inserted canaries, fills that
            are set aside.
        shares: pi_j, the share of the draws that came from component j, shape (J,), in (0, 1],
            together 1.
        limits: t_j in bits, shape (J,), at least 0 or infinite. All infinite where one fill begins
            another: then nothing is concluded from bits alone.
        log2_totals: log2 of H_j, shape (J,), h summed over nodes of the trie that have every fill
            below exactly one of them: at most t_j and log2|R|; log2|R| for an infinite limit.

    Raises:
        InputError: shapes that differ, a NaN, or a total above its limit.
        SettingsError: a share or a limit out of range.
    """

    bits: NDArray[np.float64]
    log2_weights: NDArray[np.float64]
    fills: NDArray[np.int64]
    strata: NDArray[np.int64]
    excluded: NDArray[np.bool_]
    shares: NDArray[np.float64]
    limits: NDArray[np.float64]
    log2_totals: NDArray[np.float64]

    def __post_init__(self) -> None:
        self._columns(("bits", "log2_weights", "fills", "strata", "excluded"), "draw")
        self._columns(("shares", "limits", "log2_totals"), "component")
        _refuse_numbers("bits", np.isnan(self.bits) | (self.bits < 0))
        _refuse_numbers("log2_weights", ~np.isfinite(self.log2_weights))
        _refuse_mixture(self.shares, self.limits, self.log2_totals)

    def _columns(self, names: tuple[str, ...], entry: str) -> None:
        """Read-only columns of one length."""
        kinds = {"fills": np.int64, "strata": np.int64, "excluded": np.bool_}
        first = np.shape(getattr(self, names[0]))
        for name in names:
            array = column(getattr(self, name), kinds.get(name, np.float64))
            object.__setattr__(self, name, array)
            if array.shape != first or array.ndim != 1 or not array.size:
                raise InputError(
                    f"{name} has shape {array.shape}, {names[0]} {first}: give one entry per "
                    f"{entry}, and at least one {entry}"
                )

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def prefix_free(self) -> bool:
        """Whether no fill begins another; only then is there a finite limit to draw with."""
        return bool(np.isfinite(self.limits).any())

    def log2_bound(self, bits: NDArray[np.float64]) -> NDArray[np.float64]:
        """log2 of the largest weight that a fill of at most so many bits can have, shape (n,)."""
        mixture = np.logaddexp2.reduce(np.log2(self.shares) + self._least(bits), axis=1)
        return np.asarray(-mixture)

    def log2_most(self, bits: NDArray[np.float64]) -> NDArray[np.float64]:
        """log2 of the most fills that can cost at most so many bits, proven, shape (n,).

        No component draws one of them with less than its least probability, so that there are at
        most one over it; 2^bits (Kraft's inequality) and |R| are never below.
        """
        return np.asarray(-self._least(bits).max(axis=1))

    def _least(self, bits: NDArray[np.float64]) -> NDArray[np.float64]:
        """log2 of the least q_j(x) of a fill x of at most so many bits, shape (n, J).

        It is min(1, 2^(t - bits)) / H: the fills below a node's children are those below it, and
        2^-bits of the children sum to at most that of the node, so that the children's h sum to at
        most the node's. The product of h(child) / (sum of h over its siblings and itself) along a
        path is therefore at least h(x) / h(start), and a start is drawn with h(start) / H.

        Source: Kraft's inequality (Cover and Thomas 2006, theorem 5.2.1); Knuth 1975, "Estimating
        the efficiency of backtrack programs" (weighted descents that measure a tree).
        """
        below = self.limits - np.where(np.isinf(self.limits), 0.0, np.reshape(bits, (-1, 1)))
        return np.asarray(np.minimum(below, 0.0) - self.log2_totals)


@dataclass(frozen=True, kw_only=True)
class WeightedCount:
    """Number of fills that cost no more than one canary; `value`, `low`, `high` as log2.

    `hits` is how many of them were drawn, `effective` (sum w)^2 / sum w^2 over these draws.
    """

    value: float
    low: float
    high: float
    hits: int
    effective: float


class WeightedCounts:
    """The draws in order of cost, ready to be summed up to any canary's cost.

    With q = 1/w, a fill is among M draws with probability pi = 1 - (1 - q)^M. Sums run in units of
    a power of two, because a weight may pass what float64 can hold.
    """

    def __init__(self, draws: WeightedDraws, level: float) -> None:
        order = np.argsort(draws.bits, kind="stable")
        order = order[~draws.excluded[order]]
        self._m, self._tail = len(draws), (1 - level) / 2
        self._bits, self._fills = draws.bits[order], draws.fills[order]
        self._weights = draws.log2_weights[order]
        # (M,) log2 of 1 / pi and of (1 - pi) / pi, the unseen fills that a seen one speaks for
        self._inverse, self._unseen = _log2_odds(self._weights, self._m)
        self._first = np.zeros(len(order), bool)
        self._first[np.unique(self._fills, return_index=True)[1]] = True
        _, strata = np.unique(draws.strata, return_inverse=True)
        self._strata, self._drawn = strata[order], np.bincount(strata)

    def count(self, tau: float, own: int, log2_bound: float, log2_most: float) -> WeightedCount:
        """The fills that cost at most `tau` bits, the canary itself left out.

        Args:
            tau: bits of the canary.
            own: its label among the draws, -1 where it has none.
            log2_bound: log2 of the largest weight that a fill of at most `tau` bits can have.
            log2_most: log2 of the most fills that can count; -infinity where none can.
        """
        hits = np.arange(np.searchsorted(self._bits, tau, side="right"))
        hits = hits[self._fills[hits] != own]
        distinct = hits[self._first[hits]]
        least = log2(distinct.size)
        high = max(self._high(hits, distinct, log2_bound - math.log2(self._m)), least)
        high = max(min(high, log2_most), least)
        if not hits.size:
            return WeightedCount(value=-math.inf, low=-math.inf, high=high, hits=0, effective=0.0)
        unit = float(self._inverse[distinct].max())
        total = float(np.exp2(self._inverse[distinct] - unit).sum())
        low = _log2_gamma(total, self._variance(hits, distinct, unit), self._tail, unit)
        low = min(max(_whole(low, math.ceil), least), high)
        weights = np.exp2(self._weights[hits] - self._weights[hits].max())
        return WeightedCount(
            value=min(max(log2(total) + unit, low), high),
            low=low,
            high=high,
            hits=distinct.size,
            effective=float(weights.sum() ** 2 / (weights**2).sum()),
        )

    def _variance(self, hits: NDArray[Any], distinct: NDArray[Any], unit: float) -> float:
        """Variance of the estimated count: as if fills came independently, less the covariances.

        Draws of one component exclude each other, so that being drawn is negatively correlated;
        the second term is unbiased for it, from pairs of draws within each component.
        """
        alone = np.exp2(self._inverse[distinct] + self._unseen[distinct] - 2 * unit).sum()
        spoken = np.exp2(self._unseen[hits] - unit)
        strata, j = self._strata[hits], len(self._drawn)
        pairs = np.bincount(strata, spoken, j) ** 2 - np.bincount(strata, spoken**2, j)
        return max(0.0, float(alone - (pairs / np.maximum(self._drawn - 1, 1)).sum()))

    def _high(self, hits: NDArray[Any], distinct: NDArray[Any], log2_step: float) -> float:
        """Upper limit, as log2: those seen, and at most so many unseen.

        `log2_step` is log2(B / M), B the largest weight possible: what one more hit could add.
        """
        unit = max(log2_step, float(self._inverse[distinct].max(initial=-math.inf)))
        step = 2 ** (log2_step - unit)
        unseen = float(np.exp2(self._unseen[distinct] - unit).sum()) + step
        variance = self._variance(hits, distinct, unit) + step**2
        more = _log2_gamma(unseen, variance, 1 - self._tail, unit)
        return float(np.logaddexp2(log2(distinct.size), _whole(more, math.floor)))


def _log2_odds(
    log2_weights: NDArray[np.float64], m: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log2 of 1 / pi and (1 - pi) / pi for pi = 1 - (1 - 1/w)^m, shape (M,) each."""
    rare = log2_weights - math.log2(m)  # where pi is m / w to all digits, w may not fit a float
    with np.errstate(divide="ignore"):
        expected = m * np.log1p(-np.minimum(np.exp2(-log2_weights), 1.0))  # ln(1 - pi)
        inverse = -np.log2(-np.expm1(expected))
        unseen = expected / math.log(2) + inverse
    return np.where(rare > WHOLE, rare, inverse), np.where(rare > WHOLE, rare, unseen)


def _log2_gamma(mean: float, variance: float, p: float, unit: float) -> float:
    """log2 of a gamma quantile of this mean and variance, both in units of 2^unit and 4^unit."""
    if variance <= 0:
        return log2(mean) + unit
    quantile = variance / mean * float(special.gammaincinv(mean**2 / variance, p))
    return log2(quantile) + unit


def log2(x: float) -> float:
    """log2 of a count; -infinity for 0, and for what an impossible bound leaves."""
    return math.log2(x) if x > 0 else -math.inf


def _whole(log2_count: float, rounded: Any) -> float:
    """A count is a whole number: its bound moves inwards to one, where float64 can hold it."""
    if log2_count > WHOLE:
        return log2_count
    slack = 1e-9 if rounded is math.floor else -1e-9
    return log2(rounded(2**log2_count * (1 + slack)))


def _refuse_numbers(name: str, bad: NDArray[np.bool_]) -> None:
    if bad.any():
        raise InputError(
            f"{name}[{np.flatnonzero(bad)[0]}] is no usable number ({int(bad.sum())} of {bad.size} "
            "are not): bits are at least 0 or infinite, log2_weights finite; score the draws again"
        )


def _refuse_mixture(
    shares: NDArray[np.float64], limits: NDArray[np.float64], log2_totals: NDArray[np.float64]
) -> None:
    if not ((shares > 0).all() and math.isclose(shares.sum(), 1, abs_tol=1e-9)):
        raise SettingsError(
            f"shares={shares.tolist()} must lie in (0, 1] and add up to 1: give the share of the "
            "draws that each component made, and leave out a component that made none"
        )
    if not (limits >= 0).all():
        raise SettingsError(
            f"limits={limits.tolist()} must each be at least 0 bits, or infinite to draw from all "
            "fills alike"
        )
    if not (np.isfinite(log2_totals) & (log2_totals <= limits + ROUNDING)).all():
        raise InputError(
            f"log2_totals={log2_totals.tolist()} must be finite and at most the limits, "
            f"{limits.tolist()}: give log2 of the sum, in bits"
        )
