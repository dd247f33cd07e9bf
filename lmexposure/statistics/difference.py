"""Is one of two sets of values the higher one, or does chance explain it: tests that know bounds.

A value may be known within ends only. A comparison whose ends overlap is open, and is counted
against whatever the test is to show; so a p-value is never smaller than that of the true values.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

Floats = NDArray[np.float64]

_MOST_CELLS = 2500  # of the table behind an exact rank-sum test: 50 against 50
_SHUFFLES, _AT_ONCE = 9999, 1000


def sign_test(higher: int, lower: int, left_open: int = 0) -> float:
    """How often chance alone makes pairs as one-sided, or more so.

    Args:
        higher, lower: pairs whose second value is surely higher, or lower; ties are in neither.
        left_open: pairs of which that is not known; they go to the side that has fewer.

    Returns:
        The two-sided p-value in (0, 1], exact where each pair is as likely up as down.

    Source: Dixon and Mood 1946, The statistical sign test.

    >>> sign_test(10, 0), sign_test(4, 4), sign_test(1, 0, 2)
    (0.001953125, 1.0, 1.0)
    """
    fewer = min(higher, lower) + left_open
    n = higher + lower + left_open
    return min(1.0, 2 * float(bdtr(min(fewer, n // 2), n, 0.5))) if n else 1.0


def rank_sum_test(higher: int, lower: int, first: int, second: int, *, seed: int = 0) -> float:
    """How often shuffling two groups parts them as far, or farther.

    A pair has one value of each group. Pairs that tie or are open count for neither side, which is
    no more than what they would count if ties were broken at random.

    Args:
        higher, lower: pairs whose value of the second group is surely higher, or lower.
        first, second: values in each group.
        seed: of the shuffles that replace the exact distribution where groups are large.

    Returns:
        The two-sided p-value in (0, 1]; 1 where a group is empty.

    Source: Mann and Whitney 1947, On a test of whether one of two random variables is
    stochastically larger than the other, recursion (5).

    >>> rank_sum_test(9, 0, 3, 3), rank_sum_test(4, 4, 3, 3)
    (0.1, 1.0)
    """
    if not first * second:
        return 1.0
    if first * second > _MOST_CELLS:
        shuffled = _shuffled_pairs(first, second, seed)
        tail = (1 + int((shuffled >= max(higher, lower)).sum())) / (1 + shuffled.size)
    else:
        tail = float(_pair_chances(first, second)[max(higher, lower) :].sum())
    return min(1.0, 2 * tail)


@lru_cache(maxsize=64)
def _pair_chances(first: int, second: int) -> Floats:
    """P(u pairs are higher) under chance for u = 0 .. first * second."""
    row = [np.ones(1)] * (second + 1)
    for i in range(1, first + 1):
        new = [np.ones(1)]
        for j in range(1, second + 1):
            chances = np.zeros(i * j + 1)
            # The largest value is of the second group, above all i of the first, or of the first.
            chances[i:] += j / (i + j) * new[j - 1]
            chances[: (i - 1) * j + 1] += i / (i + j) * row[j]
            new.append(chances)
        row = new
    return row[second]


def _shuffled_pairs(first: int, second: int, seed: int) -> NDArray[np.int64]:
    """Pairs that are higher after each of many shuffles: the rank sum less its least."""
    draw = np.random.default_rng(seed)
    found = []
    for start in range(0, _SHUFFLES, _AT_ONCE):
        shape = min(_AT_ONCE, _SHUFFLES - start), first + second
        ranks = draw.random(shape).argsort(axis=1)[:, :second]
        found.append(ranks.sum(axis=1) - second * (second - 1) // 2)
    return np.concatenate(found)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, each enlarged so that all of them hold together.

    Args:
        p_values: of tests, in any order.

    Returns:
        In the same order: rejecting what is at most alpha errs anywhere with at most alpha.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    >>> holm([0.5, 0.01, 0.03])
    [0.5, 0.03, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    raised = (p_values[place] * (len(order) - rank) for rank, place in enumerate(order))
    adjusted = dict(zip(order, accumulate(raised, max), strict=True))
    return [min(1.0, adjusted[place]) for place in range(len(order))]
