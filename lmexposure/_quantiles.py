"""A quantile of estimated exposures with its interval; without scipy, so that a gate answers fast.

All canaries of a format are ranked among the same references (or draws), so that what these leave
open does not average out over canaries. The interval of a quantile therefore has two parts: which
two canaries lie around it (order statistics), and how far the exposure of either is known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_SLACK = 1e-12  # keeps a tail that is exactly reached, such as 2^-n, from being lost to rounding
_STEPS = 100


def fewest_refits(level: float) -> int:
    """Refits of a curve that a percentile interval takes, whose ends are two of them.

    >>> fewest_refits(0.95), fewest_refits(0.99)
    (39, 199)
    """
    return max(39, math.ceil(2 / (1 - level) - 1 - 1e-9))


@dataclass(frozen=True, kw_only=True)
class ExposureEstimate:
    """One canary's exposure in bits, higher = more memorised, with what its error comes from."""

    method: str  # "sampled", "importance", "exact" and so on, as in a result
    # value, low, high: the estimate and its interval
    value: float
    low: float
    high: float
    capped: bool  # the value is a lower bound
    level: float  # two-sided coverage of the interval; 1: it is proven
    bits: float  # the canary's log-perplexity, or anything that orders canaries of a format alike
    references: int  # how many fills were drawn to compare with
    space_bits: float  # log2|R|; infinite where it is not known

    @property
    def drawn(self) -> bool:
        """Whether it rests on a sample, so that its ends can miss."""
        return self.method == "sampled" or (self.method == "importance" and self.level < 1)

    @property
    def statistic(self) -> float:
        """What chance passes rarely: a rank itself, else the lower end of what was estimated."""
        ranked = self.method == "sampled" or self.method.startswith("exact")
        return self.value if ranked else self.low

    def ends(self, tail: float) -> tuple[float, float]:
        """The least and the most that the exposure can be; each end misses with `tail` at most.

        A rank among references is counted again at this tail (Clopper and Pearson 1934). The
        interval of weighted draws is known at its own level only: it is widened as that of a
        gamma variable of more than one effective draw would at most be. What was counted needs
        no tail.
        """
        if self.method == "sampled":
            low, high = self._among_references(tail)
        elif self.method.startswith("exact") and not self.capped:
            low, high = self.value, self.value
        else:
            low, high = self._widened(tail) if self.drawn else (self.low, self.high)
        low, high = max(low, 0.0), min(high, self.space_bits)
        return min(low, self.value), max(high, self.value)

    def _among_references(self, tail: float) -> tuple[float, float]:
        """-log2 of the ends of the share of fills that cost no more, as in `sampled_exposure`."""
        as_low = 0 if self.capped else round(self.references * 2.0**-self.value) - 1
        as_low = min(max(as_low, 0), self.references)
        least, most = proportion_ends(as_low, self.references, tail)
        high = math.inf if least <= 0 else -math.log2(least)
        return -math.log2(most + 2.0**-self.space_bits), high

    def _widened(self, tail: float) -> tuple[float, float]:
        """On the scale of bits a gamma quantile moves no faster than the logarithm of its tail."""
        factor = max(1.0, math.log(tail) / math.log((1 - self.level) / 2))
        if self.capped:
            return self.low - math.log2(factor), self.high
        low = self.value - factor * (self.value - self.low)
        return low, self.value + factor * (self.high - self.value)


def order_tail(estimates: Sequence[ExposureEstimate], tail: float) -> float:
    """What order statistics may spend of the tail: half of it where samples need the other half."""
    return tail / 2 if any(estimate.drawn for estimate in estimates) else tail


def quantile_range(
    estimates: Sequence[ExposureEstimate], quantile: float, tail: float
) -> tuple[float | None, float | None]:
    """The least and the most that a quantile of exposure can be, for canaries drawn like these.

    Canaries are ordered by their bits, and so by their true exposures, whatever references were
    drawn. The r-th lowest and the s-th lowest exposure are beyond the quantile with half of the
    tail each, and each is itself known but for the other half.

    Source: order statistics, David and Nagaraja 2003, section 7.1; Clopper and Pearson 1934.
    """
    half = order_tail(estimates, tail)
    ordered = sorted(estimates, key=lambda estimate: (-estimate.bits, estimate.value))
    r, s = quantile_ends(len(ordered), quantile, half)
    low = None if r is None else ordered[r - 1].ends(half)[0]
    return low, None if s is None else ordered[s - 1].ends(half)[1]


def quantile_ends(n: int, quantile: float, tail: float) -> tuple[int | None, int | None]:
    """The r-th and the s-th smallest of n draws, each rarely beyond its quantile.

    Source: David and Nagaraja 2003, Order Statistics, section 7.1.

    >>> quantile_ends(6, 0.5, 0.025)
    (1, 6)
    """
    below = _within(n, quantile, tail)
    above = _within(n, 1 - quantile, tail)
    return below or None, n + 1 - above if above else None


def quantile_of(values: Sequence[float], quantile: float) -> float:
    """The quantile of a sample, linear between neighbours.

    >>> quantile_of([1.0, 2.0, 4.0, 8.0], 0.5)
    3.0
    """
    ordered = sorted(values)
    place = quantile * (len(ordered) - 1)
    left = math.floor(place)
    right = min(left + 1, len(ordered) - 1)
    return ordered[left] + (place - left) * (ordered[right] - ordered[left])


@lru_cache(maxsize=4096)  # canaries of one rank, and quantiles that meet at one canary
def proportion_ends(count: int, trials: int, tail: float) -> tuple[float, float]:
    """The ends of Clopper and Pearson's interval; each misses with the tail at most.

    >>> [round(end, 6) for end in proportion_ends(0, 100, 0.05)]
    [0.0, 0.029513]
    """
    misses = trials - count
    low = _share(_least_logit(count, trials, tail)) if count else 0.0
    return low, _share(-_least_logit(misses, trials, tail)) if misses else 1.0


def _share(logit: float) -> float:
    """The share p of ln(p / (1 - p)); to all its digits, near 0 and near 1."""
    return 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))


def _least_logit(count: int, trials: int, tail: float) -> float:
    """ln(p / (1 - p)) of the share p with P(Bin(trials, p) >= count) = tail, by Newton's steps.

    The logarithm of that chance is concave in this logit, so that from the first step on every
    step ends below the root. The start is Chernoff's bound of a bell curve.
    """
    rest = trials - count + 1
    spread = math.sqrt(1 / count + 1 / rest)  # of the logit, about
    logit = math.log(count / rest) - spread * math.sqrt(-2 * math.log(tail))
    for _ in range(_STEPS):
        share = _share(logit)
        fraction = _beta_fraction(count, rest, share)
        chance = _log_chance(count, trials, share) + math.log1p(-share) + math.log(fraction)
        step = (math.log(tail) - chance) * fraction / count
        logit += step
        if abs(step) < 1e-9 * spread:  # the next one would be about the square of it
            break
    return logit


def _beta_fraction(a: int, b: int, x: float) -> float:
    """I_x(a, b) a B(a, b) / (x^a (1 - x)^b), a continued fraction, by Lentz; x < about a / (a + b).

    Source: Digital Library of Mathematical Functions, 8.17.22; it ends with the 2b-th term.
    """
    below = total = 1 / (1 - (a + b) * x / (a + 1))
    above = 1.0
    for m in range(1, b + 1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below, above = 1 / (1 + even * below), 1 + even / above
        total *= below * above
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        below, above = 1 / (1 + odd * below), 1 + odd / above
        total *= below * above
        if abs(below * above - 1) < 1e-15:
            break
    return total


def _within(n: int, quantile: float, tail: float) -> int:
    """How many counts k = 0, 1 ... have P(Bin(n, q) <= k) <= tail."""
    total = 0.0
    for k in range(n + 1):
        total += math.exp(_log_chance(k, n, quantile))
        if total > tail + _SLACK:
            return k
    return n


def _log_chance(k: int, n: int, share: float) -> float:
    """The natural logarithm of P(Bin(n, share) = k)."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + k * math.log(share) + (n - k) * math.log1p(-share)


def unseen_share(canaries: int) -> float:
    """The largest share of secrets that may leak where none of these canaries did, at 95 %.

    Source: Clopper and Pearson 1934 for a count of none, one-sided: 1 - 0.05^(1 / n).

    >>> [round(unseen_share(n), 2) for n in (10, 29, 299)]
    [0.26, 0.1, 0.01]
    """
    return float(1 - 0.05 ** (1 / canaries))
