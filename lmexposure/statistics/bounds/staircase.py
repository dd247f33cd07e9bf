"""The exact chance that one sample runs as far ahead of another as a staircase says.

Calibrates looks at many ranks at once without simulation, under the least favourable pair of
distributions that (epsilon, delta)-DP permits.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, interpolate, special

from lmexposure.errors import NumericalError
from lmexposure.statistics.bounds.binomial import chance_of_at_most, chance_of_more
from lmexposure.statistics.bounds.prefixes import log_prefix_ratio

Floats = NDArray[np.float64]

_TABLE = 65
# Knots of the table are no farther apart than this part of their distance to the curve's pole.
_FINE = 1 / 32
_SHARES = (0.5, 0.9, 0.99)
# Above what the quadrature, the table and the transforms lose together: 1e-9 was the most seen.
_ROUNDING = 1e-7
_MOST_ALIVE = 1 + 1e-6
_OVERLAP = 2.0  # standard deviations of a log ratio between walks that are kept for reuse


@dataclass(frozen=True, kw_only=True)
class Staircase:
    """Steps (k, b): the event that for some step at most b of `others` come before the k-th.

    `size` points are compared with `others` points; an earlier place is a higher score. Under
    (epsilon, delta)-DP the event is most likely when others are uniform on (0, 1), and a point is
    at 0 with probability delta and else uniform on (0, (1 - delta) e^-epsilon).

    Attributes:
        ranks: k of each step, ascending, from `spared` + 1 to `size`; none: no event.
        counts: b of each step, ascending, from 0 to `others` - 1.
        size: points, at least 1.
        others: points that they are compared with, at least 1.
        spared: with more points than this at 0 the event counts as having happened.
        spacing: in epsilon, how far apart are the walks that are kept for reuse, at most.
    """

    ranks: tuple[int, ...]
    counts: tuple[int, ...]
    size: int
    others: int
    spared: int = 0
    spacing: float = 0.1
    _walks: dict[tuple[int, float], "_Walk"] = field(
        default_factory=dict, repr=False, compare=False
    )

    def probability(self, epsilon: float, delta: float) -> float:
        """The most likely that an (epsilon, delta)-DP mechanism can make the event.

        The points at 0 are D ~ Bin(size, delta). The event grows with D: a few ranges of D are
        each given the chance that belongs to their upper end.

        Raises:
            NumericalError: a chance that is none, which would be a bug of this module.
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
        """A spacing, halved until the nearest walk has its mass where the wanted one has it.

        That is at the last step: a walk that is kept elsewhere leaves to a weight of e^40 what
        its own mass, or the rounding of its transforms, tells nothing of.
        """
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
    below = chance_of_at_most(np.arange(spared + 1), size, delta)
    ends = sorted({min(int(end), spared) for end in np.searchsorted(below, _SHARES)} | {spared})
    chances = np.diff(below[ends], prepend=0.0).tolist()
    return tuple(zip(ends, chances, strict=True)), chance_of_more(spared, size, delta)


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
        values: Floats = curve(states)
        return values

    def _exact(self, states: Floats, sizes: tuple[int, int], slope: float) -> Floats:
        last = np.full_like(states, self.last)
        points, others = (last, states) if self.at_points else (states, last)
        return log_prefix_ratio(points, others, sizes=sizes, slope=slope, theta=self.theta)


def _knots(first: float, last: float, size: int) -> Floats:
    """States from `first` to `last` between which the log ratio is interpolated, ascending.

    As a function of the state it has a pole one state behind `size`, where the sample is used up:
    there it bends like a logarithm, and even steps were wrong by .04 with 400 scores a side.
    """
    step, distances = (last - first) / (_TABLE - 1), [size + 1 - last]
    while distances[-1] < size + 1 - first:
        distances.append(distances[-1] + max(1.0, min(step, _FINE * distances[-1])))
    return np.unique(np.maximum(first, np.rint(size + 1 - np.array(distances))))


def _run(stops: list[int], bands: list[tuple[int, int]], success: float) -> tuple[int, Floats]:
    """Failures before each success number in `stops`, kept within the bands: mass at the last."""
    start, mass, before = 0, np.ones(1), 0
    for stop, (low, high) in zip(stops, bands, strict=True):
        first, last = _window(stop, success)
        first, last = max(low, first, start), min(high, last)
        if last < first:
            return 0, np.zeros(1)
        grown = _convolve(mass, _failures(stop - before, success, last - start))
        start, mass, before = first, grown[first - start : last - start + 1], stop
    return start, mass


def _window(successes: int, success: float) -> tuple[int, int]:
    """Where failures before so many successes lie but for less than 1e-15 of the time."""
    mean = successes * (1 - success) / success
    reach = 9 * math.sqrt(mean / success)
    return max(0, math.floor(mean - reach)), math.ceil(mean + reach + 45 / success)


def _failures(successes: int, success: float, most: int) -> Floats:
    """Chance of 0, 1, ..., `most` failures before so many successes (negative binomial)."""
    y = np.arange(most + 1)
    logs = special.gammaln(successes + y) - special.gammaln(successes) - special.gammaln(y + 1)
    logs = logs + successes * math.log(success) + special.xlog1py(y, -success)
    chances: Floats = np.exp(logs)
    return chances


def _convolve(one: Floats, other: Floats) -> Floats:
    """Directly where one is short: a transform loses small values."""
    if min(one.size, other.size) <= 300:
        return np.convolve(one, other)
    length = fft.next_fast_len(one.size + other.size - 1, real=True)
    product = fft.irfft(fft.rfft(one, length) * fft.rfft(other, length), length)
    kept: Floats = np.maximum(product[: one.size + other.size - 1], 0)
    return kept
