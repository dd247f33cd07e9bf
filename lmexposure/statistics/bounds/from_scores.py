"""Epsilon from the scores of canaries that were in and of canaries that were not.

By default one test over all ranks of the two samples. Every rank on a ladder fixed beforehand gives
a local bound on epsilon; the statistic is the best of them, and what it may be by chance is
computed exactly, with the dependence between ranks. Because the statistic does not depend on the
epsilon that is tested, its chance grows with epsilon, and the bound is the epsilon at which that
chance reaches the significance.

Proof of the chance. The event that the statistic is so large is a boundary (`Staircase`): at some
step at most b scores of one sample come before the k-th of the other. Under (epsilon, delta)-DP it
is most likely for the least favourable pair of distributions: others uniform on (0, 1), a point at
0 with probability delta and else uniform on (0, (1 - delta) e^-epsilon). Two samples of fixed
sizes, merged in order, are no independent labels; but every beginning with as many of each is as
likely, so that one number (`_log_prefix_ratio`) corrects a walk of independent labels, whose mass
is carried from step to step, exactly.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, interpolate, special
from scipy.optimize import brentq

from lmexposure._validate import integer
from lmexposure.errors import NumericalError
from lmexposure.statistics.arrays import Counts, Floats, two_samples
from lmexposure.statistics.bounds.bound import SCORES_ALIKE, Terms, group_delta, two_sample_notes
from lmexposure.statistics.bounds.clopper_pearson import OrderStatistics, Threshold, ThresholdRule
from lmexposure.statistics.results import EpsilonBound

# Ranks grow by this factor: finer ladders cost more than they show.
_LADDER = 1.15
# A local bound fails at significance / 10 at the highest rank, and less often at lower ones.
_LOCAL = 0.1
# delta is paid by leaving out ranks that it could fill but for this part of the significance.
_SPARED = 0.02
# Shapes the ladder only: the group's epsilon at which those ranks are counted.
_DESIGN_EPSILON = 2.0
# Where the search for a root begins: this part of a standard deviation from where it should be.
_NEAR = 20
_ROOT_WIDTH = 1e-7
# Normal quantiles are finite from here to there.
_TINY, _BELOW_1 = 1e-300, 1 - 2.0**-53
_TABLE = 65
# Knots of the table are no farther apart than this part of their distance to the curve's pole.
_FINE = 1 / 32
_SHARES = (0.5, 0.9, 0.99)
# Above what the quadrature, the table and the transforms lose together: 1e-9 was the most seen.
_ROUNDING = 1e-7
_MOST_ALIVE = 1 + 1e-6
_OVERLAP = 2.0  # standard deviations of a log ratio between walks that are kept for reuse
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_WIDENINGS = 80
# The integrand is left out where it is below e^-40 of its peak.
_NEGLIGIBLE = 40.0


def epsilon_from_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    threshold: Threshold | None = None,
    seed: int = 0,
) -> EpsilonBound:
    """Lower bound on epsilon from two samples of scores, with the choice of threshold paid for.

    Both attacks count: "above the threshold means in" and "below it means out". A score equal to a
    threshold never counts for the bound.

    Args:
        in_scores: of canaries that were in the training data, shape (n,); higher = more likely
            in, such as a negative log-perplexity.
        out_scores: of canaries that were not, shape (m,).
        significance: in (0, 1).
        delta: of one document, in [0, 1).
        repetitions: copies of each canary, the same for all.
        threshold: how it is chosen; `OrderStatistics()` where nothing is given.
        seed: of the split of `SplitSample`; the other choices draw nothing.

    Returns:
        The bound in nats, class "iid-scores". With `OrderStatistics`, `threshold` is the score
        that decided in an exact joint test of all ranks on the ladder.

    Raises:
        SettingsError: a setting out of range, or a threshold of another type.
        InputError: no scores, a NaN or an infinity, or too few scores to split.

    Source: Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709) for the attack; the joint test of all
    ranks: proof at the top of this module.

    >>> found = epsilon_from_scores([3, 4, 5, 6, 7, 8, 9, 10], [-3, -2, -1, 0, 1, 2])
    >>> 0 < found.value <= found.max_attainable
    True
    """
    ins, outs = two_samples(in_scores, out_scores)
    seed = integer("seed", seed, low=0)
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    if threshold is not None and not isinstance(threshold, OrderStatistics):
        return ThresholdRule(**vars(terms)).bound(ins, outs, threshold, seed)
    found = _best_rank(ins, outs, terms)
    most = max(_max_attainable(ins.size, outs.size, terms), found.value)
    counts = {"positives": ins.size, "negatives": outs.size}
    if found.threshold is not None:
        # From the bottom, what is not guessed to be out is guessed to be in.
        above = found.rank if found.top else ins.size - found.passed
        passed = found.passed if found.top else outs.size - found.rank
        counts |= {"true_positives": above, "false_positives": passed}
    return EpsilonBound(
        method="epsilon_from_scores",
        value=found.value,
        **vars(terms),
        validity="iid-scores",
        counts=counts,
        threshold=found.threshold,
        threshold_choice="best of all ranks on a ladder from both ends, at one exact joint level",
        max_attainable=most,
        assumptions=(SCORES_ALIKE,),
        notes=two_sample_notes(found.value, most, terms.delta, ins, outs),
    )


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The bound, and the rank that had the best local bound."""

    value: float
    top: bool = True
    rank: int = 0  # from the top of the in-scores, from the bottom of the out-scores; 0: none
    passed: int = 0  # of the others, up to this rank and equal to it
    threshold: float | None = None


def _best_rank(ins: Floats, outs: Floats, terms: Terms) -> _Best:
    """Lower bound on epsilon of one document, from both ends."""
    top, bottom = _End.of(ins.size, outs.size, terms), _End.of(outs.size, ins.size, terms)
    above = outs.size - np.searchsorted(outs, ins[ins.size - top.ranks], side="left")
    below = np.searchsorted(ins, outs[bottom.ranks - 1], side="right")
    ends = replace(top, passed=above), replace(bottom, passed=below)
    local = [end.local(end.passed) for end in ends]
    best = [float(values.max(initial=-np.inf)) for values in local]
    if max(best) <= 0:
        return _Best(value=0.0)
    first = best[0] >= best[1]
    end, values = (ends[0], local[0]) if first else (ends[1], local[1])
    place = int(values.argmax())
    rank, passed = int(end.ranks[place]), int(end.passed[place])
    spread = math.sqrt(1 / rank + 1 / (passed + 1))
    return _Best(
        value=_invert(ends, max(best), spread, terms),
        top=first,
        rank=rank,
        passed=passed,
        threshold=float(ins[ins.size - rank] if first else outs[rank - 1]),
    )


@lru_cache(maxsize=256)
def _max_attainable(positives: int, negatives: int, terms: Terms) -> float:
    """The bound when every canary that was in scores above every one that was not."""
    ins = np.arange(negatives, negatives + positives, dtype=np.float64)
    return _best_rank(ins, np.arange(negatives, dtype=np.float64), terms).value


@dataclass(frozen=True, kw_only=True)
class _End:
    """Looks from one end: at each rank, how many of the others passed before it."""

    ranks: Counts
    passed: Counts
    size: int
    others: int
    spared: int  # ranks that are left out for delta
    tail: Floats  # by which each local bound fails

    @classmethod
    def of(cls, size: int, others: int, terms: Terms) -> "_End":
        """The ranks to look at, before any score is seen."""
        delta = group_delta(_DESIGN_EPSILON / terms.repetitions, terms.delta, terms.repetitions)
        spared = _least_exceeded(_SPARED * terms.significance, size, delta) if delta else 0
        spared = min(spared, size - 1)
        steps = [1]
        while steps[-1] < size:
            steps.append(min(size, max(steps[-1] + 1, round(steps[-1] * _LADDER))))
        ranks = np.array([rank for rank in steps if rank > spared], dtype=np.int64)
        return cls(
            ranks=ranks,
            passed=np.zeros_like(ranks),
            size=size,
            others=others,
            spared=spared,
            tail=_LOCAL * terms.significance * np.sqrt(ranks / size),
        )

    def local(self, passed: Counts) -> Floats:
        """Local bounds on epsilon, shape of `ranks`; falls as more pass."""
        k, n = self.ranks - self.spared, self.size - self.spared
        b, m = passed + 1.0, self.others + 1.0
        points = 1 / (1 / k - 1 / (n + 1))
        others = 1 / (1 / np.minimum(b, m - 0.5) - 1 / m)
        chance = special.betaincinv(points, others, self.tail)
        odds = np.log(chance) - np.log1p(-chance) + np.log(others * k / (points * b))
        value: Floats = odds + math.log(self.others / n)
        return np.where(passed >= self.others, -np.inf, value)

    def staircase(self, least: float, spacing: float) -> "Staircase":
        """Where a local bound would be at least `least`; a later step says more, or is left out."""
        low, high = np.full_like(self.ranks, -1), np.full_like(self.ranks, self.others)
        while (high - low > 1).any():
            middle = np.maximum((low + high) // 2, 0)
            reached, open_ = self.local(middle) >= least, high - low > 1
            low = np.where(open_ & reached, middle, low)
            high = np.where(open_ & ~reached, middle, high)
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


def _invert(ends: tuple[_End, _End], statistic: float, spread: float, terms: Terms) -> float:
    """The largest epsilon at which so large a statistic is too rare, for one document."""
    stairs = [end.staircase(statistic, spread) for end in ends]
    start, step = statistic / terms.repetitions, spread / terms.repetitions
    least = float(special.ndtri(terms.significance))

    # As a normal quantile the chance is almost a straight line that rises by 1 in a `step`. The
    # solver asks again for both ends of its interval: a chance is computed once.
    @cache
    def excess(epsilon: float) -> float:
        # As `per_document`: the chance grows with epsilon and with delta, one root finds both.
        group, odds = (
            group_delta(epsilon, terms.delta, terms.repetitions),
            epsilon * terms.repetitions,
        )
        chance = sum(stair.probability(odds, group) for stair in stairs) if group < 1 else 1.0
        return float(special.ndtri(np.clip(chance, _TINY, _BELOW_1))) - least

    low = high = max(0.0, start - step * excess(start))
    reach = step / _NEAR
    while excess(low) > 0:
        if low == 0:
            return 0.0
        low, high, reach = max(0.0, low - reach), low, 2 * reach
    while excess(high) <= 0:
        low, high, reach = high, high + reach, 2 * reach
    root = brentq(excess, low, high, xtol=_ROOT_WIDTH, rtol=1e-12)
    return max(0.0, float(root) - _ROOT_WIDTH)


@dataclass(frozen=True, kw_only=True)
class Staircase:
    """Steps (k, b): the event that for some step at most b of `others` come before the k-th.

    `size` points are compared with `others` points; an earlier place is a higher score. Under
    (epsilon, delta)-DP the event is most likely when others are uniform on (0, 1), and a point is
    at 0 with probability delta and else uniform on (0, (1 - delta) e^-epsilon).
    """

    ranks: tuple[int, ...]  # k of each step, ascending, from `spared` + 1 to `size`; none: no event
    counts: tuple[int, ...]  # b of each step, ascending, from 0 to `others` - 1
    size: int  # points, at least 1
    others: int  # points that they are compared with, at least 1
    spared: int = 0  # with more points than this at 0 the event counts as having happened
    spacing: float = 0.1  # in epsilon, how far apart are the walks that are kept for reuse, at most
    _walks: dict[tuple[int, float], "_Walk"] = field(
        default_factory=dict, repr=False, compare=False
    )

    def probability(self, epsilon: float, delta: float) -> float:
        """The most likely that an (epsilon, delta)-DP mechanism can make the event.

        The points at 0 are D ~ Bin(size, delta). The event grows with D: a few ranges of D are
        each given the chance that belongs to their upper end.
        """
        if not self.ranks:
            return 0.0
        if delta == 0:
            return self._given(0, epsilon)
        ranges, total = _ranges(self.size, delta, self.spared)
        for end, chance in ranges:
            total += chance * self._given(end, epsilon - math.log1p(-delta))
        return min(1.0, total)

    def _given(self, spared: int, log_slope: float) -> float:
        """Chance of the event when exactly `spared` points are at 0."""
        spacing = self._overlapping(spared, log_slope)
        kept = round(log_slope / spacing) * spacing
        if (spared, kept) not in self._walks:
            self._walks[spared, kept] = self._walk(spared, kept)
        walk = self._walks[spared, kept]
        log_ratio = walk.log_ratio((self.size - spared, self.others), math.exp(log_slope))
        # No event: the walk is alive after the last step, weighted to what it truly is.
        with np.errstate(over="ignore", invalid="ignore"):
            alive = float(walk.alive @ np.exp(log_ratio))
        if not math.isfinite(alive):
            return 1.0  # nothing is known of it, and so nothing is rejected
        if not 0 <= alive <= _MOST_ALIVE:
            raise NumericalError(
                f"the chance of no event is {alive:.9g} with {self.size} points, {self.others} "
                f"others, {len(self.ranks)} steps and a log slope of {log_slope:g}; it lies in "
                "[0, 1], so this is a bug of lmexposure: please report these numbers"
            )
        return min(1.0, max(0.0, 1 - alive) + _ROUNDING)

    def _overlapping(self, spared: int, log_slope: float) -> float:
        """A spacing, halved until the nearest walk has its mass where the wanted one has it."""
        size, spacing = self.size - spared, self.spacing
        odds = math.exp(log_slope) * size / self.others
        if self.others <= size:
            share = (1 + odds) / (self.ranks[-1] - spared)  # 1 / points + 1 / others
        else:
            share = (1 + 1 / odds) / (self.counts[-1] + 1)
        halvings = math.ceil(math.log2(spacing / (_OVERLAP * math.sqrt(share))))
        return spacing / float(2 ** max(0, halvings))

    def _walk(self, spared: int, log_slope: float) -> "_Walk":
        """Independent labels, stepping along the shorter of the two samples' state spaces."""
        size = self.size - spared
        odds = math.exp(log_slope) * size / self.others
        theta = odds / (1 + odds)
        ranks = [k - spared for k in self.ranks]
        if self.others <= size:
            bands = [(b + 1, self.others) for b in self.counts]
            start, alive = _run(ranks, bands, theta)
            return _Walk(start, alive, ranks[-1], theta, at_points=True)
        # At most b others before the k-th point: k points before the (b + 1)-th other.
        stops = [b + 1 for b in self.counts]
        start, alive = _run(stops, [(0, k - 1) for k in ranks], 1 - theta)
        return _Walk(start, alive, stops[-1], theta, at_points=False)


@lru_cache(maxsize=1024)
def _ranges(size: int, delta: float, spared: int) -> tuple[tuple[tuple[int, float], ...], float]:
    """Upper ends of ranges of D ~ Bin(size, delta) with their chances; the chance of more."""
    counts = np.arange(spared + 1)
    below = special.betaincc(counts + 1, size - counts, delta)  # P[Bin(size, delta) <= counts]
    ends = sorted({min(int(end), spared) for end in np.searchsorted(below, _SHARES)} | {spared})
    chances = np.diff(below[ends], prepend=0.0).tolist()
    more = float(special.betainc(spared + 1, size - spared, delta))
    return tuple(zip(ends, chances, strict=True)), more


@dataclass(frozen=True)
class _Walk:
    """Mass alive at the last step: of `start + i` others before the `last` point, or reversed."""

    start: int
    alive: Floats
    last: int
    theta: float
    at_points: bool

    def log_ratio(self, sizes: tuple[int, int], slope: float) -> Floats:
        """What each state's mass is to be multiplied by, as a log; long ranges are interpolated."""
        states = self.start + np.arange(self.alive.size, dtype=np.float64)
        if states.size <= 2 * _TABLE:
            return self._exact(states, sizes, slope)
        knots = _knots(states[0], states[-1], sizes[1 if self.at_points else 0])
        curve = interpolate.make_interp_spline(knots, self._exact(knots, sizes, slope), k=5)
        return np.asarray(curve(states))

    def _exact(self, states: Floats, sizes: tuple[int, int], slope: float) -> Floats:
        last = np.full_like(states, self.last)
        points, others = (last, states) if self.at_points else (states, last)
        return _log_prefix_ratio(points, others, sizes=sizes, slope=slope, theta=self.theta)


def _knots(first: float, last: float, size: int) -> Floats:
    """States from `first` to `last` between which the log ratio is interpolated, ascending."""
    step, distances = (last - first) / (_TABLE - 1), [size + 1 - last]
    while distances[-1] < size + 1 - first:
        distances.append(distances[-1] + max(1.0, min(step, _FINE * distances[-1])))
    return np.unique(np.maximum(first, np.rint(size + 1 - np.array(distances))))


def _run(stops: list[int], bands: list[tuple[int, int]], success: float) -> tuple[int, Floats]:
    """Failures before each success number in `stops`, kept within the bands: mass at the last."""
    start, mass, before = 0, np.ones(1), 0
    for stop, (low, high) in zip(stops, bands, strict=True):
        # But for less than 1e-15 of the time there are as many failures before these successes.
        mean = stop * (1 - success) / success
        reach = 9 * math.sqrt(mean / success)
        first = max(low, math.floor(mean - reach), start)
        last = min(high, math.ceil(mean + reach + 45 / success))
        if last < first:
            return 0, np.zeros(1)
        grown = _convolve(mass, _failures(stop - before, success, last - start))
        start, mass, before = first, grown[first - start : last - start + 1], stop
    return start, mass


def _failures(successes: int, success: float, most: int) -> Floats:
    """Chance of 0, 1, ..., `most` failures before these successes (negative binomial)."""
    y = np.arange(most + 1)
    logs = special.gammaln(successes + y) - special.gammaln(successes) - special.gammaln(y + 1)
    logs = logs + successes * math.log(success) + special.xlog1py(y, -success)
    return np.asarray(np.exp(logs))


def _convolve(first: Floats, second: Floats) -> Floats:
    """Directly where either is short: a transform loses small values."""
    if min(first.size, second.size) <= 300:
        return np.convolve(first, second)
    length = fft.next_fast_len(first.size + second.size - 1, real=True)
    product = fft.irfft(fft.rfft(first, length) * fft.rfft(second, length), length)
    return np.asarray(np.maximum(product[: first.size + second.size - 1], 0))


def _log_prefix_ratio(
    points: Floats, others: Floats, *, sizes: tuple[int, int], slope: float, theta: float
) -> Floats:
    """Log of the chance of one beginning of the merged order over that by independent labels.

    Points are uniform on (0, 1 / slope), others on (0, 1). A beginning with a points and b others
    whose last is at u has density proportional to
    u^(a+b-1) (1 - u)^(m-b) (1 - slope u)^(n-a), whatever the order of labels within it.
    """
    n, m = sizes
    left_points, left_others, length = n - points, m - others, points + others
    constant = special.gammaln(n + 1) - special.gammaln(left_points + 1)
    constant = constant + special.gammaln(m + 1) - special.gammaln(left_others + 1)
    constant = constant - special.gammaln(length) + points * math.log(slope)
    walk = points * math.log(theta) + others * math.log1p(-theta)
    integral = _log_integral(length - 1, left_others, left_points, slope)
    return np.asarray(constant + integral - walk)


def _log_integral(c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """Log of the integral of u^c (1 - u)^d (1 - slope u)^e over (0, 1 / slope); shape (n,)."""

    def height(u: Floats) -> Floats:
        value = special.xlogy(c, u) + special.xlog1py(d, -u)
        return np.asarray(value + special.xlog1py(e, -np.minimum(slope * u, 1.0)))

    end = 1 / slope
    mode = np.minimum(_mode(c, d, e, slope), end)
    peak = height(mode)
    reach = _first_reach(mode, c, d, e, slope)
    for _ in range(_WIDENINGS):
        left, right = np.maximum(mode - reach, 0.0), np.minimum(mode + reach, end)
        short = ((left > 0) & (height(left) > peak - _NEGLIGIBLE)) | (
            (right < end) & (height(right) > peak - _NEGLIGIBLE)
        )
        if not short.any():
            break
        reach = np.where(short, 1.5 * reach, reach)
    half = (right - left) / 2  # (n,)
    nodes = (left + half)[:, None] + half[:, None] * _NODES  # (n, 64)
    logs = c[:, None] * np.log(nodes) + d[:, None] * np.log1p(-nodes)
    logs += e[:, None] * np.log1p(-np.minimum(slope * nodes, _BELOW_1))
    return np.log(np.exp(logs - peak[:, None]) @ _WEIGHTS * half) + peak


def _first_reach(mode: Floats, c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """A first guess of how far the integrand reaches, to be widened where it is too short."""
    left, right = np.maximum(mode, np.finfo(float).tiny), 1 - mode
    end = 1 - slope * mode
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bend = np.where(c > 0, c / left**2, 0.0) + np.where(d > 0, d / right**2, 0.0)
        bend = bend + np.where(e > 0, e * slope**2 / end**2, 0.0)
        rise = np.where(e > 0, 0.0, c / left - np.where(d > 0, d / right, 0.0))
        steep = np.where(c > 0, np.maximum(rise, 0), d + slope * e)
        # Eight deviations of a bell curve; at an end, 0 or 1 / slope, the fall of an exponential.
        width = np.minimum(8 / np.sqrt(bend), _NEGLIGIBLE / steep)
    return np.asarray(np.clip(np.nan_to_num(width, nan=1 / slope), 1e-12 / slope, 1 / slope))


def _mode(c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """Where c / u = d / (1 - u) + slope e / (1 - slope u): the smaller root of a quadratic."""
    square = slope * (c + d + e)
    linear = c * (1 + slope) + d + slope * e
    root = np.sqrt(np.maximum(linear**2 - 4 * square * c, 0))
    return 2 * c / np.maximum(linear + root, np.finfo(float).tiny)


def _least_exceeded(chance: float, trials: int, share: float) -> int:
    """The least count in [0, trials] that Bin(trials, share) exceeds with at most this chance.

    >>> _least_exceeded(0.05, 10, 0.5)  # 9 and 10 come 11 times in 1,024
    8
    """

    def rare(count: int) -> bool:
        return bool(special.betainc(count + 1, trials - count, share) <= chance)

    return bisect_left(range(trials), True, key=rare)
