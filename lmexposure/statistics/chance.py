"""Does chance explain it? Canaries against references, and two sets of values against each other.

`guessing_test` asks whether canaries can be told from references at all, by permutation.
`sign_test` and `rank_sum_test` ask which of two sets of values is the higher one, where a value may
be known within ends only: a comparison whose ends overlap is open, and is counted against whatever
the test is to show, so that a p-value is never smaller than that of the true values.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaln

from lmexposure._validate import bits_array, integer, one_of
from lmexposure.statistics.arrays import Counts, Floats
from lmexposure.statistics.results import GuessingTest

_ASSUMPTIONS = ("without memorisation canaries and references of a group are exchangeable",)
_CHUNK = 1024

_MOST_CELLS = 2500  # of the table behind an exact rank-sum test: 50 against 50
_SHUFFLES, _AT_ONCE = 9999, 1000


def guessing_test(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    seed: int,
    permutations: int = 9999,
    alternative: Literal["memorised", "different"] = "memorised",
) -> GuessingTest:
    """Test that canaries come from the same distribution as the references.

    Source: Phipson and Smyth 2010, permutation p-values should never be zero;
    p = (1 + as extreme) / (1 + permutations).
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = bits_array("reference_bits", reference_bits)
    seed = integer("seed", seed, low=0)
    permutations = integer("permutations", permutations, low=1)
    one_of("alternative", alternative, ("memorised", "different"))
    generator = np.random.default_rng(seed)
    pool = np.concatenate([canaries, references])
    order = np.argsort(pool, kind="stable")
    # Of the sorted pool: how many are <= each place's number, and the canaries' places.
    ends = np.searchsorted(pool[order], pool[order], side="right")  # (n + m,)
    chosen = np.flatnonzero(order < canaries.size)
    observed = float(_total_exposure(ends[chosen][None, :], references.size)[0])
    chance = _permuted(ends, canaries.size, permutations, generator)
    return GuessingTest(
        p_value=_p_value(observed, chance, alternative),
        statistic=observed / canaries.size,
        n=canaries.size,
        references=references.size,
        groups=1,
        alternative=alternative,
        permutations=permutations,
        seed=seed,
        assumptions=_ASSUMPTIONS,
    )


def _total_exposure(ends: Counts, references: int) -> Floats:
    """Sum of exposures in bits for each row of chosen ends, ascending within a row: (B, n) -> (B,).

    References <= a canary = all <= it less the chosen <= it; of equal chosen ones the last counts
    for all, so that ties count against the canary as in `sampled_exposure`.
    """
    n = ends.shape[1]
    last = np.where(np.diff(ends, axis=1, append=ends[:, -1:] + 1) > 0, np.arange(1, n + 1), n)
    chosen = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]  # (B, n) chosen ones <= it
    return np.asarray(np.sum(math.log2(references) - np.log2(1 + ends - chosen), axis=1))


def _permuted(ends: Counts, n: int, permutations: int, generator: np.random.Generator) -> Floats:
    """Sums of exposures of n places drawn without replacement, shape (permutations,)."""
    totals = np.empty(permutations)
    for start in range(0, permutations, _CHUNK):
        count = min(_CHUNK, permutations - start)
        places = np.stack(
            [generator.choice(ends.size, n, replace=False, shuffle=False) for _ in range(count)]
        )
        places.sort(axis=1)
        totals[start : start + count] = _total_exposure(ends[places], ends.size - n)
    return totals


def _p_value(observed: float, chance: Floats, alternative: str) -> float:
    """Share of permutations at least as extreme; sums equal but for rounding count as equal."""
    slack = 1e-9 * max(1.0, abs(observed))
    above = (1 + int((chance >= observed - slack).sum())) / (1 + chance.size)
    if alternative == "memorised":
        return above
    below = (1 + int((chance <= observed + slack).sum())) / (1 + chance.size)
    return min(1.0, 2 * min(above, below))


def sign_test(higher: int, lower: int, left_open: int = 0) -> float:
    """How often chance alone makes pairs as one-sided, or more so.

    Source: Dixon and Mood 1946, The statistical sign test.

    >>> sign_test(10, 0), sign_test(4, 4), sign_test(1, 0, 2)
    (0.001953125, 1.0, 1.0)
    """
    fewer = min(higher, lower) + left_open
    n = higher + lower + left_open
    return min(1.0, 2 * float(bdtr(min(fewer, n // 2), n, 0.5))) if n else 1.0


def median_test(values: ArrayLike, others: ArrayLike) -> tuple[float, float]:
    """How often shuffling two groups puts as many values of the first above the common median.

    Where the two are exchangeable, every choice of places among all values is as likely for the
    first group. So of the values that are above the median of all (below it), the first group has a
    hypergeometric number, given all values: exact, ties and all.

    Source: Mood 1950, Introduction to the Theory of Statistics, section 16.4, with Fisher's exact
    distribution.

    >>> [round(p, 4) for p in median_test([8, 9, 10], [1, 2, 3, 4, 5, 6, 7])]
    [0.1667, 1.0]
    """
    first, second = bits_array("values", values), bits_array("others", others)
    middle = np.median(np.concatenate([first, second]))
    tails = []
    for sign in (1, -1):
        own, rest = (int((sign * (group - middle) > 0).sum()) for group in (first, second))
        total, marked, chosen = first.size + second.size, own + rest, first.size
        found = np.arange(own, min(marked, chosen) + 1)  # at least `own` of those marked are chosen
        logs = _log_ways(marked, found) + _log_ways(total - marked, chosen - found)
        possible = chosen - found <= total - marked
        tail = float(np.exp(logs[possible] - _log_ways(total, chosen)).sum())
        tails.append(min(1.0, 2 * tail))
    return tails[0], tails[1]


def _log_ways(n: int, k: Counts | int) -> Floats:
    """Log of n over k."""
    return np.asarray(-np.log1p(n) - betaln(n - k + 1, k + 1))


def rank_sum_test(higher: int, lower: int, first: int, second: int, *, seed: int = 0) -> float:
    """How often shuffling two groups parts them as far, or farther.

    A pair has one value of each group. Pairs that tie or are open count for neither side, which is
    no more than what they would count if ties were broken at random.

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


def _shuffled_pairs(first: int, second: int, seed: int) -> Counts:
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

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    >>> holm([0.5, 0.01, 0.03])
    [0.5, 0.03, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    raised = (p_values[place] * (len(order) - rank) for rank, place in enumerate(order))
    adjusted = dict(zip(order, accumulate(raised, max), strict=True))
    return [min(1.0, adjusted[place]) for place in range(len(order))]
