"""Which of two sets of values is the higher one: against slow counting, and without a signal."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, mannwhitneyu

from lmexposure.statistics import holm, rank_sum_test, sign_test


def slow_sign_test(higher: int, lower: int, left_open: int) -> float:
    """The largest p-value that the open ones can give, each by all fair coins."""
    found = []
    for up in range(left_open + 1):
        n, more = higher + lower + left_open, max(higher + up, lower + left_open - up)
        coins = [sum(throw) for throw in product((0, 1), repeat=n)]
        found.append(min(1.0, 2 * sum(heads >= more for heads in coins) / len(coins)))
    return max(found)


@pytest.mark.parametrize(
    "counts", [(5, 0, 0), (3, 1, 0), (2, 2, 0), (6, 1, 2), (0, 7, 1), (1, 0, 4)]
)
def test_the_sign_test_is_the_worst_of_all_that_is_open(counts: tuple[int, int, int]) -> None:
    assert sign_test(*counts) == pytest.approx(slow_sign_test(*counts))


def test_the_sign_test_of_nothing_shows_nothing() -> None:
    assert sign_test(0, 0) == sign_test(0, 0, 3) == sign_test(1, 0) == 1.0


def pairs_of(first: list[float], second: list[float]) -> tuple[int, int, int, int]:
    higher = sum(b > a for a in first for b in second)
    lower = sum(b < a for a in first for b in second)
    return higher, lower, len(first), len(second)


def slow_rank_sum(first: list[float], second: list[float]) -> float:
    """By all ways to part the pooled values, none of which tie."""
    pooled = sorted(first + second)
    seen = max(pairs_of(first, second)[:2])
    every = [
        sum(value > other for value in chosen for other in set(pooled) - set(chosen))
        for chosen in combinations(pooled, len(second))
    ]
    return min(1.0, 2 * sum(pairs >= seen for pairs in every) / len(every))


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 6), (4, 4), (5, 3), (2, 7)])
def test_the_rank_sum_test_is_that_of_all_shuffles(first: int, second: int) -> None:
    draw = np.random.default_rng(first * 10 + second)
    for shift in (0.0, 1.0, 5.0):
        groups = draw.normal(0, 1, first).tolist(), draw.normal(shift, 1, second).tolist()
        assert rank_sum_test(*pairs_of(*groups)) == pytest.approx(slow_rank_sum(*groups))


def test_ties_never_make_it_smaller() -> None:
    """Whatever way ties are broken, what is left of them says no more."""
    draw = np.random.default_rng(4)
    for _ in range(50):
        first, second = draw.integers(0, 4, 5), draw.integers(1, 5, 6)
        tied = rank_sum_test(*pairs_of(first.tolist(), second.tolist()))
        for _ in range(5):
            apart = [
                (group + draw.uniform(0, 0.5, group.size)).tolist() for group in (first, second)
            ]
            assert tied >= slow_rank_sum(*apart) - 1e-12


def test_large_groups_are_shuffled_at_random() -> None:
    draw = np.random.default_rng(6)
    first, second = draw.normal(0, 1, 60), draw.normal(0.35, 1, 80)
    pairs = pairs_of(first.tolist(), second.tolist())
    exact = mannwhitneyu(second, first, method="exact").pvalue
    assert rank_sum_test(*pairs) == pytest.approx(exact, rel=0.25)
    assert rank_sum_test(*pairs) == rank_sum_test(*pairs)
    assert rank_sum_test(4800, 0, 60, 80) == pytest.approx(2 / 10_000)  # never 0


def test_an_empty_group_shows_nothing() -> None:
    assert rank_sum_test(0, 0, 0, 5) == 1.0


def test_without_a_signal_p_is_uniform_or_larger() -> None:
    draw = np.random.default_rng(8)
    values = draw.normal(0, 1, (400, 2, 30))
    found = [rank_sum_test(*pairs_of(a.tolist(), b.tolist())) for a, b in values]
    assert kstest(found, "uniform", alternative="greater").pvalue > 0.001
    rounded = [rank_sum_test(*pairs_of(a.tolist(), b.tolist())) for a, b in values.round()]
    assert kstest(rounded, "uniform", alternative="greater").pvalue > 0.001


def test_holm_rejects_one_after_the_other() -> None:
    p_values = [0.01, 0.04, 0.03, 0.005, 1.0]
    for alpha in (0.02, 0.025, 0.03, 0.05, 0.1, 0.2):
        rejected: set[int] = set()
        for rank, place in enumerate(sorted(range(5), key=lambda place: p_values[place])):
            if p_values[place] * (5 - rank) > alpha:
                break
            rejected.add(place)
        assert {n for n, p in enumerate(holm(p_values)) if p <= alpha} == rejected
    assert holm([]) == []


def test_holm_errs_anywhere_with_at_most_its_level() -> None:
    draw = np.random.default_rng(9)
    errors = sum(min(holm(draw.uniform(0, 1, 4).tolist())) <= 0.05 for _ in range(2000))
    assert binomtest(errors, 2000, 0.05, alternative="greater").pvalue > 0.001
