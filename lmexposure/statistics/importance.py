"""Exposure from weighted draws: the rank in a space that is too large to count.

Draws go where the model puts its probability, so a few thousand of them reach ranks that uniform
references never meet; weights undo the preference. How far the estimate may be off is bounded by
the largest weight that a fill as cheap as the canary can have, which is known beforehand.

A draw costs a model step for each of its tokens, and the last one tells the costs of all fills that
end there. So what is drawn is a group of fills: its weight is one over the probability of drawing
any of them, and each of its fills counts (Rao and Blackwell: the mean over what is known is never
worse). With q = 1/w the probability of a group under the whole mixture, it is among M draws with
probability pi = 1 - (1 - q)^M. The distinct groups drawn are summed over 1 / pi: what is drawn
almost surely counts for itself and adds no uncertainty, and where hardly any group is drawn twice
the sum is the mean of the weights. Counts are held as log2, for weights pass what float64 can hold.

References, drawn from all fills alike, say the same of cheap and of dear fills; draws say more of
cheap ones. A fill x counts with the share s(x) = M l(x) / (M l(x) + n / N) by the draws, with the
rest by the n references of N fills, where l(x) is the least probability that the mixture can give
to a fill that costs so much. Shares that depend on a fill's cost alone leave the sum unbiased, and
no draw and no reference adds more than 1 / (M l(x) + n / N).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Counts, Flags, Floats, column, finite_or_none
from lmexposure.statistics.results import Estimate

ROUNDING = 1e-3  # bits by which a float32 total may lie off
_TIE = 1e-6  # bits by which sums of the same numbers in another order may, as in exact ranks
WHOLE = 50.0  # counts above 2^50 are not rounded to whole numbers: float64 cannot tell
# Of n references that all count, 3.7 / n of the fills may not (97.5 %); as a variance, by trial.
_ALL_OF_N = 3.5
_SLACK = 0.5  # bits by which rounding may lift a weight above its bound; a wrong unit lifts further
_ASSUMPTIONS = (
    "draws are independent within each component of the mixture, and their weights are one over "
    "the mixture's probability of what was drawn",
    "canary and draws are scored in the same way, behind a token prefix that all secrets share",
    "the interval (gamma, with the largest weight possible) holds for one canary, not for all of "
    "them jointly; its coverage was measured, not proven",
)
_ALIKE = "references are drawn from all secrets that were never inserted, all alike"
_CERTIFIED = "no secret begins another, so that at most 2^bits of them have that many bits or less"


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedDraws:
    """M draws, with replacement, from a mixture of J distributions over G groups of K fills.

    The distribution with limit t goes down the trie of fills to a child with probability
    proportional to h_t(child) = min(fills below it, 2^(t - its bits)), which no number of fills of
    t bits or less below it can pass. t = 0 draws as the model does, t = infinity all fills alike.

    A component's draws are independent of each other. They may be stratified over first tokens,
    where each has many fills behind it; stratified over the fills themselves, more distinct ones
    would be drawn than their weights say, and ranks would come out too high.

    Source: Veach and Guibas 1995 (balance heuristic); Knuth 1975 (weighted descents).
    """

    # of each fill of a group that was drawn, shape (K,); infinite: it is ruled out
    bits: Floats
    groups: Counts  # the number of its group, 0 to G - 1, shape (K,); no fill is in two
    excluded: Flags  # fills that are counted apart, shape (K,): canaries, and what is no null
    # log2 of w = 1 / sum_j pi_j q_j(group), shape (G,); q_j is the distribution of component j
    log2_weights: Floats
    drawn: Counts  # which group each draw is, shape (M,); each of the G at least once
    strata: Counts  # number of the component that each draw came from, shape (M,)
    shares: Floats  # pi_j, of the draws from component j, shape (J,), in (0, 1], together 1
    # t_j in bits, shape (J,), at least 0 or infinite. All infinite where one fill begins another:
    # then nothing is concluded from bits alone.
    limits: Floats
    # log2 of H_j, shape (J,), h summed over nodes of the trie that have every fill below exactly
    # one of them: at most t_j and log2|R|; log2|R| for an infinite limit
    log2_totals: Floats

    def __post_init__(self) -> None:
        self._columns(("bits", "groups", "excluded"), "fill")
        self._columns(("log2_weights",), "group")
        self._columns(("drawn", "strata"), "draw")
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
        every = np.arange(len(self.log2_weights))
        for name in ("groups", "drawn"):
            if not np.array_equal(np.unique(getattr(self, name)), every):
                raise InputError(
                    f"{name} must name each of the {len(every)} groups that have a weight, 0 to "
                    f"{len(every) - 1}, and no other: give secrets and draws of all of them"
                )
        _refuse_mixture(self.shares, self.limits, self.log2_totals)

    def _columns(self, names: tuple[str, ...], entry: str) -> None:
        """Read-only columns of one length."""
        kinds = {"groups": np.int64, "drawn": np.int64, "strata": np.int64, "excluded": np.bool_}
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
        return len(self.drawn)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformDraws:
    """n different fills, drawn alike from a population of N that no canary is in: references.

    Source: Veach and Guibas 1995 (samples of two kinds, each counted in part).
    """

    bits: Floats  # shape (n,), n at least 1
    canary_bits: Floats  # of each canary, scored as these are, shape (c,)
    population: int  # N

    def __post_init__(self) -> None:
        for name in ("bits", "canary_bits"):
            object.__setattr__(self, name, bits_array(name, getattr(self, name)))
        integer("population", self.population, low=len(self.bits))

    @property
    def log2_share(self) -> float:
        """log2 of n / N."""
        return math.log2(len(self.bits)) - math.log2(self.population)


@dataclass(frozen=True, kw_only=True)
class WeightedCount:
    """Number of fills that cost no more than one canary."""

    # value, low, high: as log2
    value: float
    low: float
    high: float
    hits: int  # how many of them were seen
    effective: float  # (sum w)^2 / sum w^2 over the draws, and the references, that saw them

    def more(self, known: int) -> "WeightedCount":
        """With as many fills that are known one by one."""
        if not known:
            return self
        added = log2(known)
        value, low, high = (
            float(np.logaddexp2(counted, added)) for counted in (self.value, self.low, self.high)
        )
        return replace(self, value=value, low=low, high=high)


class WeightedCounts:
    """Draws and references in order of cost, ready to be summed up to any canary's cost."""

    def __init__(self, draws: WeightedDraws, references: UniformDraws | None, level: float) -> None:
        order = np.argsort(draws.bits, kind="stable")
        order = order[~draws.excluded[order]]
        self._draws, self._m, self._tail = draws, len(draws), (1 - level) / 2
        self._log2_share = -math.inf if references is None else references.log2_share
        self._bits, self._groups = draws.bits[order], draws.groups[order]
        # log2 of what each fill counts by the draws, shape (K,)
        self._parts = (
            math.log2(self._m) - draws.log2_bound(self._bits) + self.log2_steps(self._bits)
        )
        # A group is among M draws with probability pi = 1 - (1 - q)^M, q = 1/w.
        # (G,) log2 of 1 / pi and of (1 - pi) / pi, the unseen groups that a seen one speaks for
        self._inverse, self._unseen = _log2_odds(draws.log2_weights, self._m)
        _, self._strata = np.unique(draws.strata, return_inverse=True)
        self._stratum_sizes = np.bincount(self._strata)
        uniform = np.empty(0) if references is None else np.sort(references.bits)
        self._uniform, self._uniform_steps = uniform, self.log2_steps(uniform)

    def log2_steps(self, bits: Floats) -> Floats:
        """log2 of the most that a draw or a reference of such a fill can add, shape (n,)."""
        by_draws = math.log2(self._m) - self._draws.log2_bound(bits)
        return np.asarray(-np.logaddexp2(by_draws, self._log2_share))

    def count(self, tau: float, scored: float, log2_most: float) -> WeightedCount:
        """The fills, counted apart ones left out, that cost at most `tau` bits.

        `scored` is the same cost as the references have theirs.
        """
        # Ties count in full; the same tokens in another order round otherwise.
        hits = int(np.searchsorted(self._bits, tau + _TIE, side="right"))
        # So must references, whose costs round otherwise still.
        alike = int(np.searchsorted(self._uniform, scored + ROUNDING, side="right"))
        step = float(self.log2_steps(np.array([tau]))[0])
        parts: Floats = np.zeros(len(self._inverse))  # what the hits count, by group
        np.add.at(parts, self._groups[:hits], np.exp2(self._parts[:hits]))
        seen = np.flatnonzero(parts)
        # A weight may pass what float64 can hold.
        unit = max(step, float((self._inverse[seen]).max(initial=-math.inf)))
        uniform = np.exp2(self._uniform_steps[:alike] - unit)
        spoken = np.zeros(len(parts))
        spoken[seen] = parts[seen] * np.exp2(self._unseen[seen] - unit)
        each = parts[seen] * np.exp2(self._inverse[seen] - unit)
        variance = self._variance(each, spoken, seen) + self._uniform_variance(uniform)
        least = log2(max(hits, alike))
        unseen = float(spoken.sum() + uniform.sum()) + 2 ** (step - unit)
        more = _log2_gamma(unseen, variance + 4 ** (step - unit), 1 - self._tail, unit)
        high = _whole(float(np.logaddexp2(log2(float(parts.sum())), more)), math.floor)
        high = max(min(max(high, least), log2_most), least)
        if not seen.size and not alike:
            return WeightedCount(value=-math.inf, low=-math.inf, high=high, hits=0, effective=0.0)
        total = float(each.sum() + uniform.sum())
        low = _log2_gamma(total, variance, self._tail, unit)
        low = min(max(_whole(low, math.ceil), least), high)
        return WeightedCount(
            value=min(max(log2(total) + unit, low), high),
            low=low,
            high=high,
            hits=max(hits, alike),
            effective=self._effective(parts, alike),
        )

    def _variance(self, each: Floats, spoken: Floats, seen: NDArray[Any]) -> float:
        """Variance of the draws' part: as if groups came independently, less the covariances.

        Draws of one component exclude each other, so that being drawn is negatively correlated;
        the second term is unbiased for it, from pairs of draws within each component.
        """
        alone = float((each * spoken[seen]).sum())
        by_draw, j = spoken[self._draws.drawn], len(self._stratum_sizes)
        squares = np.bincount(self._strata, by_draw**2, j)
        pairs = np.bincount(self._strata, by_draw, j) ** 2 - squares
        return max(0.0, alone - float((pairs / np.maximum(self._stratum_sizes - 1, 1)).sum()))

    def _uniform_variance(self, each: Floats) -> float:
        """The same of the references' part, which were drawn without replacement."""
        n, squares = len(self._uniform), float((each**2).sum())
        pairs = float(each.sum()) ** 2 - squares
        spared = 1 - 2**self._log2_share
        # Where all of a few count, the next might not.
        least = _ALL_OF_N * squares / (n + 1)
        return spared * max(least, squares - pairs / max(n - 1, 1))

    def _effective(self, parts: Floats, alike: int) -> float:
        with np.errstate(divide="ignore"):  # of a group that no fill counts in
            log2_means = np.log2(parts) + self._draws.log2_weights - math.log2(self._m)
        logs = np.concatenate([log2_means[self._draws.drawn], self._uniform_steps[:alike]])
        weights = np.exp2(logs - logs.max())
        return float(weights.sum() ** 2 / (weights**2).sum())


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
            "secrets alike"
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
    references: UniformDraws | None = None,
    inserted: ArrayLike = False,
    excluded_bits: ArrayLike = (),
    level: float = 0.95,
) -> ImportanceExposure:
    """Exposure of each canary by its rank among all never-inserted fills, estimated from draws.

    Canaries are counted one by one: `excluded` of the draws marks them, and no reference is one.
    Those that are not `inserted` are controls, and of the null; fills of `excluded_bits` are not.

    Source: Horvitz and Thompson 1952 (the estimator; on distinct units: Basu 1958); Veach and
    Guibas 1995 (balance heuristic); Casella and Robert 1996 (Rao-Blackwellised sampling); Fay and
    Feuer 1997 (gamma interval for weighted counts).
    """
    bits = bits_array("canary_bits", canary_bits)
    size = integer("space_size", space_size, low=2)
    level = fraction("level", level)
    is_inserted = _per_canary("inserted", inserted, bits.size).astype(bool)
    scored = bits if references is None else references.canary_bits
    if scored.size != bits.size:
        raise InputError(
            f"references.canary_bits has {scored.size} entries, canary_bits {bits.size}; give one "
            "for each canary"
        )
    _refuse_weights(draws, size)
    cheaper, outside = _others(bits, bits[is_inserted], is_inserted, excluded_bits)
    controls, apart = _others(bits, bits[~is_inserted], ~is_inserted)
    most = draws.log2_most(bits)
    sums = WeightedCounts(draws, references, level)
    counts = [
        sums.count(
            float(bits[i]),
            float(scored[i]),
            _log2_most(float(most[i]), cheaper[i] + controls[i], size - 1 - outside[i] - apart[i]),
        ).more(controls[i])
        for i in range(bits.size)
    ]
    return _result(counts, cheaper, draws, references, size, level)


def _others(
    bits: Floats, listed: Floats, among: Flags, further: ArrayLike = ()
) -> tuple[list[int], list[int]]:
    """Of listed fills, the canary itself apart, those that cost no more than each, and all."""
    more = np.asarray(further, np.float64)
    more = bits_array("excluded_bits", more) if more.size else more.reshape(-1)
    ordered = np.sort(np.concatenate([more, listed]))
    cheaper = np.searchsorted(ordered, bits, side="right") - among
    return cheaper.tolist(), (ordered.size - among).tolist()


def _log2_most(log2_fills: float, cheaper: int, null: int) -> float:
    """log2 of the most never-inserted fills that can cost as little, the canary apart.

    At most 2^log2_fills fills do, among them the canary and `cheaper` that are counted apart; a
    whole number, if rounding leaves no doubt which; and never more than there are.
    """
    most = log2(null)
    if log2_fills > WHOLE:
        return min(most, log2_fills)
    fills = min(2**log2_fills, math.floor(2 ** (log2_fills + ROUNDING)))
    return min(most, log2(fills - 1 - cheaper))


def _result(
    counts: list[WeightedCount],
    cheaper: list[int],
    draws: WeightedDraws,
    references: UniformDraws | None,
    size: int,
    level: float,
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
    rests_on = [*_ASSUMPTIONS]
    if references is not None:
        rests_on.append(_ALIKE)
    if draws.prefix_free:
        rests_on.append(_CERTIFIED)
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
        assumptions=tuple(rests_on),
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
    # No group is drawn less often than the fills in it must be.
    least = np.full(len(draws.log2_weights), -np.inf)
    np.logaddexp2.at(least, draws.groups, -draws.log2_bound(draws.bits))
    over = draws.log2_weights + least
    worst = int(np.argmax(over))
    if over[worst] > _SLACK:
        raise InputError(
            f"log2_weights[{worst}]={draws.log2_weights[worst]:.3f} is {over[worst]:.3f} bits "
            "above what its secrets' bits, the shares and the limits allow; give log2 of one over "
            "the mixture's probability, bits behind the prefix that all secrets share, and the "
            "shares and limits that were drawn with"
        )
