"""Exposure from weighted draws: the rank in a space that is too large to count.

Draws go where the model puts its probability, so a few thousand of them reach ranks that uniform
references never meet; weights undo the preference. How far the estimate may be off is bounded by
the largest weight that a fill as cheap as the canary can have, which is known beforehand.

With q = 1/w the probability of a fill under the whole mixture, it is among M draws with probability
pi = 1 - (1 - q)^M. The distinct fills drawn are summed over 1 / pi: a fill that is drawn almost
surely counts for itself and adds no uncertainty, and where hardly any fill is drawn twice the sum
is the mean of the weights. Counts are held as log2, for weights pass what float64 can hold.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Counts, Flags, Floats, column, finite_or_none
from lmexposure.statistics.results import Estimate

ROUNDING = 1e-3  # bits by which a float32 total may lie off
WHOLE = 50.0  # counts above 2^50 are not rounded to whole numbers: float64 cannot tell
_SLACK = 0.5  # bits by which rounding may lift a weight above its bound; a wrong unit lifts further
_ASSUMPTIONS = (
    "draws are independent within each component of the mixture, and their weights are one over "
    "the mixture's probability of the fill",
    "canary and draws are scored in the same way, behind a token prefix that all fills share",
    "the interval (gamma, with the largest weight possible) holds for one canary, not for all of "
    "them jointly; its coverage was measured, not proven",
)
_CERTIFIED = "no fill begins another, so that at most 2^bits fills cost that many bits or less"


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedDraws:
    """M draws, with replacement, from a mixture of J distributions over the fills of one format.

    The distribution with limit t goes down the trie of fills to a child with probability
    proportional to h_t(child) = min(fills below it, 2^(t - its bits)), which no number of fills of
    t bits or less below it can pass. t = 0 draws as the model does, t = infinity all fills alike.

    A component's draws are independent of each other. They may be stratified over first tokens,
    where each has many fills behind it; stratified over the fills themselves, more distinct ones
    would be drawn than their weights say, and ranks would come out too high.

    Source: Veach and Guibas 1995 (balance heuristic); Knuth 1975 (weighted descents).
    """

    # of each drawn fill behind the prefix that all share, shape (M,); infinite: it is ruled out
    bits: Floats
    # log2 of w = 1 / sum_j pi_j q_j(x), shape (M,); q_j is the distribution of component j
    log2_weights: Floats
    fills: Counts  # labels, shape (M,); equal for equal fills
    strata: Counts  # number of the component that each draw came from, shape (M,)
    excluded: Flags  # draws that are not of the null, shape (M,): inserted canaries, and the like
    shares: Floats  # pi_j, of the draws from component j, shape (J,), in (0, 1], together 1
    # t_j in bits, shape (J,), at least 0 or infinite. All infinite where one fill begins another:
    # then nothing is concluded from bits alone.
    limits: Floats
    # log2 of H_j, shape (J,), h summed over nodes of the trie that have every fill below exactly
    # one of them: at most t_j and log2|R|; log2|R| for an infinite limit
    log2_totals: Floats

    def __post_init__(self) -> None:
        self._columns(("bits", "log2_weights", "fills", "strata", "excluded"), "draw")
        self._columns(("shares", "limits", "log2_totals"), "component")
        for name, bad in (
            ("bits", np.isnan(self.bits) | (self.bits < 0)),
            ("log2_weights", ~np.isfinite(self.log2_weights)),
        ):
            if bad.any():
                raise InputError(
                    f"{name}[{np.flatnonzero(bad)[0]}] is no usable number ({int(bad.sum())} of "
                    f"{bad.size} are not): bits are at least 0 or infinite, log2_weights finite; "
                    "score the draws again"
                )
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

    def log2_bound(self, bits: Floats) -> Floats:
        """log2 of the largest weight that a fill of at most `bits` bits can have, shape (n,)."""
        mixture = np.logaddexp2.reduce(np.log2(self.shares) + self._least(bits), axis=1)
        return np.asarray(-mixture)

    def log2_most(self, bits: Floats) -> Floats:
        """log2 of the most fills that can cost at most `bits` bits, proven, shape (n,).

        No component draws one of them with less than its least probability, so that there are at
        most one over it; 2^bits (Kraft's inequality) and |R| are never below.
        """
        return np.asarray(-self._least(bits).max(axis=1))

    def _least(self, bits: Floats) -> Floats:
        """log2 of the least q_j(x) of a fill x of at most `bits` bits, shape (n, J).

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
    """Number of fills that cost no more than one canary."""

    # value, low, high: as log2
    value: float
    low: float
    high: float
    hits: int  # how many of them were drawn
    effective: float  # (sum w)^2 / sum w^2 over these draws


class WeightedCounts:
    """The draws in order of cost, ready to be summed up to any canary's cost."""

    def __init__(self, draws: WeightedDraws, level: float) -> None:
        order = np.argsort(draws.bits, kind="stable")
        order = order[~draws.excluded[order]]
        self._m, self._tail = len(draws), (1 - level) / 2
        self._bits, self._fills = draws.bits[order], draws.fills[order]
        self._weights = draws.log2_weights[order]
        # A fill is among M draws with probability pi = 1 - (1 - q)^M, q = 1/w.
        # (M,) log2 of 1 / pi and of (1 - pi) / pi, the unseen fills that a seen one speaks for
        self._inverse, self._unseen = _log2_odds(self._weights, self._m)
        self._first = np.zeros(len(order), bool)
        self._first[np.unique(self._fills, return_index=True)[1]] = True
        _, strata = np.unique(draws.strata, return_inverse=True)
        self._strata, self._drawn = strata[order], np.bincount(strata)

    def count(self, tau: float, own: int, log2_bound: float, log2_most: float) -> WeightedCount:
        """The fills that cost at most `tau` bits, the canary itself left out."""
        hits = np.arange(np.searchsorted(self._bits, tau, side="right"))
        hits = hits[self._fills[hits] != own]
        distinct = hits[self._first[hits]]
        least = log2(distinct.size)
        high = max(self._high(hits, distinct, log2_bound - math.log2(self._m)), least)
        high = max(min(high, log2_most), least)
        if not hits.size:
            return WeightedCount(value=-math.inf, low=-math.inf, high=high, hits=0, effective=0.0)
        unit = float(self._inverse[distinct].max())  # a weight may pass what float64 can hold
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
        """Upper limit, as log2: those seen, and the most that can be unseen."""
        # `log2_step` is log2(B / M), B the largest weight possible: what one more hit could add.
        unit = max(log2_step, float(self._inverse[distinct].max(initial=-math.inf)))
        step = 2 ** (log2_step - unit)
        unseen = float(np.exp2(self._unseen[distinct] - unit).sum()) + step
        variance = self._variance(hits, distinct, unit) + step**2
        more = _log2_gamma(unseen, variance, 1 - self._tail, unit)
        return float(np.logaddexp2(log2(distinct.size), _whole(more, math.floor)))


def _log2_odds(log2_weights: Floats, m: int) -> tuple[Floats, Floats]:
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


def _refuse_mixture(shares: Floats, limits: Floats, log2_totals: Floats) -> None:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportanceExposure:
    """Exposures from weighted draws, in bits; higher = more memorised; columns of shape (n,)."""

    value: Floats  # log2(space_size) - log2(rank)
    low: Floats
    high: Floats
    rank: tuple[int, ...]  # where `capped` the most that the interval leaves open
    place: tuple[int, ...]  # counts the excluded fills too
    capped: Flags  # no draw came as low: `value` = `low`, to be shown with ">="
    effective_draws: Floats  # (sum w)^2 / sum w^2: draws of equal weight that would say as much
    draws: int
    level: float
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def canary(self, i: int) -> Estimate:
        """The i-th canary alone; the draws' own steps are added by who drew."""
        capped = bool(self.capped[i])
        return Estimate(
            method="importance",
            value=finite_or_none(self.value[i]),
            low=finite_or_none(self.low[i]),
            high=finite_or_none(self.high[i]),
            level=self.level,
            rank=self.rank[i],
            capped=capped,
            place=self.place[i],
            draws=self.draws,
            effective_draws=float(self.effective_draws[i]),
            assumptions=self.assumptions,
            warnings=(_cap_warning(self.draws),) if capped else (),
        )


def importance_exposure(
    canary_bits: ArrayLike,
    draws: WeightedDraws,
    *,
    space_size: int,
    inserted: ArrayLike = False,
    own: ArrayLike = -1,
    excluded_bits: ArrayLike = (),
    level: float = 0.95,
) -> ImportanceExposure:
    """Exposure of each canary by its rank among all never-inserted fills, estimated from draws.

    Source: Horvitz and Thompson 1952 (the estimator; on distinct units: Basu 1958); Veach and
    Guibas 1995 (balance heuristic); Fay and Feuer 1997 (gamma interval for weighted counts).
    """
    bits = bits_array("canary_bits", canary_bits)
    size = integer("space_size", space_size, low=2)
    level = fraction("level", level)
    labels = _per_canary("own", own, bits.size)
    is_inserted = _per_canary("inserted", inserted, bits.size).astype(bool)
    _refuse_weights(draws, size)
    cheaper, outside = _excluded(bits, is_inserted, excluded_bits)
    bounds, most = draws.log2_bound(bits), draws.log2_most(bits)
    sums = WeightedCounts(draws, level)
    counts = [
        sums.count(
            float(bits[i]),
            int(labels[i]),
            float(bounds[i]),
            _log2_most(float(most[i]), cheaper[i], size - 1 - outside[i]),
        )
        for i in range(bits.size)
    ]
    return _result(counts, cheaper, draws, size, level)


def _excluded(bits: Floats, inserted: Flags, further: ArrayLike) -> tuple[list[int], list[int]]:
    """Other fills outside the null, for each canary: those that cost no more, and all of them."""
    more = np.asarray(further, np.float64)
    more = bits_array("excluded_bits", more) if more.size else more.reshape(-1)
    ordered = np.sort(np.concatenate([more, bits[inserted]]))
    cheaper = np.searchsorted(ordered, bits, side="right") - inserted
    return cheaper.tolist(), (ordered.size - inserted).tolist()


def _log2_most(log2_fills: float, cheaper: int, null: int) -> float:
    """log2 of the most never-inserted fills that can cost as little, the canary apart.

    At most 2^log2_fills fills do, among them the canary and `cheaper` excluded ones; a whole
    number, if rounding leaves no doubt which; and never more than there are.
    """
    most = log2(null)
    if log2_fills > WHOLE:
        return min(most, log2_fills)
    fills = min(2**log2_fills, math.floor(2 ** (log2_fills + ROUNDING)))
    return min(most, log2(fills - 1 - cheaper))


def _result(
    counts: list[WeightedCount], cheaper: list[int], draws: WeightedDraws, size: int, level: float
) -> ImportanceExposure:
    """Counts of other fills to ranks and exposures."""
    space_bits = math.log2(size)
    capped = [count.hits == 0 and count.high > -math.inf for count in counts]
    found = [c.high if cap else c.value for c, cap in zip(counts, capped, strict=True)]
    values, low, high = (
        np.maximum(space_bits - np.logaddexp2(0.0, np.array(logs)), 0.0) + 0.0  # no -0.0
        for logs in (found, [c.high for c in counts], [c.low for c in counts])
    )
    rank = tuple(min(1 + _round(log), size) for log in found)
    count = sum(capped)
    warnings = (f"{count} of {len(counts)} canaries: {_cap_warning(len(draws))}",) if count else ()
    return ImportanceExposure(
        value=column(values, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        rank=rank,
        place=tuple(r + others for r, others in zip(rank, cheaper, strict=True)),
        capped=column(capped, np.bool_),
        effective_draws=column([count.effective for count in counts], np.float64),
        draws=len(draws),
        level=level,
        assumptions=(*_ASSUMPTIONS, _CERTIFIED) if draws.prefix_free else _ASSUMPTIONS,
        warnings=warnings,
    )


def _round(log2_count: float) -> int:
    """2^x as a whole number, also beyond what float64 can hold."""
    if log2_count == -math.inf:
        return 0
    shift = max(0, math.floor(log2_count) - 52)
    return round(2 ** (log2_count - shift)) << shift


def _cap_warning(draws: int) -> str:
    return (
        f"none of {draws} draws costs as little as the canary: the exposure is at least the value "
        "shown, the lower end of its interval; more draws, or an exact search, could show more"
    )


def _per_canary(name: str, values: ArrayLike, n: int) -> NDArray[Any]:
    """One entry for each canary, shape (n,); a single entry holds for all."""
    array = np.asarray(values)
    if array.shape not in ((), (1,), (n,)):
        raise InputError(f"{name} has shape {array.shape}; give one entry for each of {n} canaries")
    return np.broadcast_to(array, (n,))


def _refuse_weights(draws: WeightedDraws, size: int) -> None:
    """Weights or totals that the space does not allow would make every interval too narrow."""
    uniform, size_bits = np.isinf(draws.limits), math.log2(size)
    off = np.where(uniform, np.abs(draws.log2_totals - size_bits), draws.log2_totals - size_bits)
    if (off > ROUNDING).any():
        raise InputError(
            f"log2_totals={draws.log2_totals.tolist()} do not fit space_size, of {size_bits:.3f} "
            "bits: that of an infinite limit is log2 of it, and none is above; give the size of "
            "the space that was drawn from"
        )
    over = draws.log2_weights - draws.log2_bound(draws.bits)
    worst = int(np.argmax(over))
    if over[worst] > _SLACK:
        raise InputError(
            f"log2_weights[{worst}]={draws.log2_weights[worst]:.3f} is {over[worst]:.3f} bits "
            "above what its bits, the shares and the limits allow; give log2 of one over the "
            "mixture's probability, bits behind the prefix that all fills share, and the shares "
            "and limits that were drawn with"
        )
