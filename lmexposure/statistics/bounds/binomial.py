"""Tails of a binomial count to full relative accuracy, without the import of all of scipy.stats."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy import special

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def chance_of_at_most(counts: Counts, trials: int, share: float) -> Floats:
    """P[Bin(trials, share) <= counts]; counts from 0 to trials - 1, any shape."""
    chances: Floats = special.betaincc(counts + 1, trials - counts, share)
    return chances


def chance_of_more(count: int, trials: int, share: float) -> float:
    """P[Bin(trials, share) > count]; count from 0 to trials - 1."""
    return float(special.betainc(count + 1, trials - count, share))


def least_exceeded(chance: float, trials: int, share: float) -> int:
    """The least count in [0, trials] that Bin(trials, share) exceeds with at most this chance.

    >>> least_exceeded(0.05, 10, 0.5)  # 9 and 10 come 11 times in 1,024
    8
    """
    return bisect_left(
        range(trials), True, key=lambda count: chance_of_more(count, trials, share) <= chance
    )
