"""Which of two sets of values is the higher one: against slow counting, and without a signal."""

import itertools
from dataclasses import asdict
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest, kstest, mannwhitneyu

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    GUESSING,
    GuessingBaseline,
    guessing_test,
    holm,
    mean_difference,
    median_test,
    rank_sum_test,
    rate_difference,
    sampled_exposure,
    sign_test,
)


def _exact(canaries: list[float], references: list[float]) -> float:
    """The p-value over every split of the pool, by plain counting."""
    pool, n = canaries + references, len(canaries)
    observed = sampled_exposure(canaries, references).value.mean()
    splits = list(itertools.combinations(range(len(pool)), n))
    as_high = 0
    for split in splits:
        own = [pool[i] for i in split]
        rest = [pool[i] for i in range(len(pool)) if i not in split]
        as_high += sampled_exposure(own, rest).value.mean() >= observed - 1e-9
    return as_high / len(splits)


@pytest.mark.parametrize(
    ("canaries", "references"),
    [
        ([1.0, 2.5, 4.0], [2.0, 3.0, 5.0, 6.0, 7.0]),
        ([1.0, 1.0, 3.0], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]),  # ties within and across
        ([9.0], [1.0, 2.0, 3.0]),
    ],
)
def test_agrees_with_every_split_counted(canaries: list[float], references: list[float]) -> None:
    found = guessing_test(canaries, references, seed=1)
    assert found.p_value == pytest.approx(_exact(canaries, references), abs=0.02)
    expected = sampled_exposure(canaries, references).value.mean()
    assert found.statistic == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("alternative", ["memorised", "different"])
@pytest.mark.parametrize("grid", [None, 3.0])  # a grid makes many ties
def test_size_under_the_null(
    alternative: Literal["memorised", "different"], grid: float | None
) -> None:
    rng, rejected = np.random.default_rng(4), 0
    for seed in range(500):
        scores = rng.normal(size=60)
        scores = scores if grid is None else np.round(scores * grid)
        found = guessing_test(
            scores[:12], scores[12:], seed=seed, permutations=99, alternative=alternative
        )
        rejected += found.p_value <= 0.05
    # Binomial(500, .05): above 45 in 1e-4 of runs.
    assert rejected <= 45
    if grid is None:
        assert rejected >= 8  # and the level is used


def test_low_exposures_are_different_but_not_memorised() -> None:
    rng = np.random.default_rng(8)
    canaries, references = rng.normal(1.5, size=30), rng.normal(size=300)
    assert guessing_test(canaries, references, seed=0, permutations=999).p_value > 0.9
    options: Any = {"permutations": 999, "alternative": "different"}
    two_sided = guessing_test(canaries, references, seed=0, **options)
    assert two_sided.p_value == pytest.approx(2 / 1000)


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(10)
    canaries, references = rng.normal(size=10), rng.normal(size=90)
    one, again, other = (
        guessing_test(canaries, references, seed=seed, permutations=1500) for seed in (3, 3, 4)
    )
    assert one == again != other
    assert (one.n, one.references, one.permutations) == (10, 90, 1500)
    assert guessing_test([2.0] * 5, [2.0] * 20, seed=0, permutations=99).p_value == 1.0


@pytest.mark.parametrize("n", [1, 2, 20, 101, 5000])
def test_the_baseline_is_that_of_every_rank_once(n: int) -> None:
    """A canary that nothing is known of takes each of the n + 1 places as often."""
    for size in (None, n + 7):
        own, rest = np.arange(n + 1) + 0.5, np.arange(1, n + 1)
        made = sampled_exposure(own, rest, space_size=size, exhaustive=size is not None)
        exposures = made.value
        found = GuessingBaseline.among(n, space_size=size)
        assert found.mean == pytest.approx(exposures.mean(), abs=1e-9)
        assert found.median == pytest.approx(np.median(exposures), abs=1e-9)
        assert found.upper_quartile == pytest.approx(np.quantile(exposures, 0.75), abs=1e-9)


def test_the_baseline_nears_its_limit() -> None:
    few, many = GuessingBaseline.among(20), GuessingBaseline.among(10**9)
    assert few.mean == pytest.approx(1.204, abs=5e-4)
    assert GuessingBaseline.among(100).mean == pytest.approx(1.382, abs=5e-4)
    assert asdict(many) == pytest.approx(asdict(GUESSING), abs=1e-7)


def slow_sign_test(higher: int, lower: int, left_open: int) -> float:
    """The largest p-value that the open ones can give, each by all fair coins."""
    found = []
    for up in range(left_open + 1):
        n, more = higher + lower + left_open, max(higher + up, lower + left_open - up)
        coins = [sum(throw) for throw in product((0, 1), repeat=n)]
        found.append(min(1.0, 2 * sum(heads >= more for heads in coins) / len(coins)))
    return max(found)


@pytest.mark.parametrize(
    "counts",
    [(0, 0, 0), (0, 0, 3), (1, 0, 0), (5, 0, 0), (3, 1, 0), (2, 2, 0), (6, 1, 2), (0, 7, 1)],
)
def test_the_sign_test_is_the_worst_of_all_that_is_open(counts: tuple[int, int, int]) -> None:
    assert sign_test(*counts) == pytest.approx(slow_sign_test(*counts))


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


def test_the_median_test_is_that_of_all_choices() -> None:
    values = [3.0, 3.0, 1.0, 7.0, 5.0, 2.0, 3.0]
    middle = np.median(values)

    def above(own: tuple[int, ...], sign: int) -> int:
        return sum(bool(sign * (values[i] - middle) > 0) for i in own)

    chosen = list(combinations(range(7), 3))
    for own in chosen:
        found = median_test([values[i] for i in own], [values[i] for i in range(7) if i not in own])
        for p, sign in zip(found, (1, -1), strict=True):
            seen = above(own, sign)
            share = np.mean([above(one, sign) >= seen for one in chosen])
            assert p == pytest.approx(min(1.0, 2 * share))


def test_the_median_test_of_one_law_seldom_rejects_and_sees_a_shift() -> None:
    draw = np.random.default_rng(4)
    shuffled = [median_test(draw.normal(size=30), draw.normal(size=300)) for _ in range(400)]
    p_values = np.array(shuffled)
    assert (p_values.min(axis=1) <= 0.05).mean() <= 0.07
    higher, lower = median_test(draw.normal(1, 1, 60), draw.normal(size=600))
    assert higher < 1e-6
    assert lower == 1


def test_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        counts = rng.binomial(60, [0.9, 0.5])
        ends = [(k / 60, *stats.binomtest(k, 60).proportion_ci()) for k in counts]
        found = rate_difference(*ends)
        hits += found.low <= 0.4 <= found.high
    assert hits >= 280


def test_means_by_welch() -> None:
    # R 4.3: t.test(sleep$extra[1:10], sleep$extra[11:20]): -3.3654832 to 0.2054832.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = mean_difference(first, second)
    assert found.value == pytest.approx(-1.58)
    assert (found.low, found.high) == pytest.approx((-3.3654832, 0.2054832), abs=1e-6)


def test_means_without_spread_or_numbers() -> None:
    same = mean_difference([2.0, 2.0], [2.0, 2.0, 2.0])
    assert (same.value, same.low, same.high) == (0, 0, 0)
    with pytest.raises(InputError, match="second has one number, which has no spread"):
        mean_difference([1.0, 2.0], [1.0])
    with pytest.raises(SettingsError, match="level"):
        mean_difference([1.0, 2.0], [1.0, 3.0], level=1.0)
