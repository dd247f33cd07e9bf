"""Which order statistics bound a quantile; as in `lmexposure.statistics`, without its imports.

A gate is asked often and answers at once, and scipy takes longer to import than all checks to make.
"""

import math
from collections.abc import Iterator, Sequence

__all__ = ["quantile_ends", "quantile_of"]

_SLACK = 1e-12  # keeps a tail that is exactly reached, such as 2^-n, from being lost to rounding


def quantile_ends(n: int, quantile: float, tail: float) -> tuple[int | None, int | None]:
    """The r-th and the s-th smallest of n draws, each beyond its quantile with so small a chance.

    Args:
        n: draws, at least 1.
        quantile: strictly between 0 and 1.
        tail: the chance that each end may miss with.

    Returns:
        The largest r with P(Bin(n, q) < r) <= tail, and the smallest s with P(Bin(n, q) >= s) <=
        tail; None where no order statistic reaches so far.

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


def _within(n: int, quantile: float, tail: float) -> int:
    """How many counts k = 0, 1 ... have P(Bin(n, q) <= k) <= tail."""
    total = 0.0
    for k, chance in enumerate(_binomial(n, quantile)):
        total += chance
        if total > tail + _SLACK:
            return k
    return n


def _binomial(n: int, quantile: float) -> Iterator[float]:
    """P(Bin(n, q) = k) for k = 0 .. n."""
    hit, miss = math.log(quantile), math.log1p(-quantile)
    for k in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        yield math.exp(ways + k * hit + (n - k) * miss)
