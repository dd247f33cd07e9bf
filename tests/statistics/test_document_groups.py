"""Runs of documents: the test by shuffling, its level and power, and which documents are named."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from clean_looks import OF_LENGTHS, halves, of_lengths
from scipy import stats

from lmexposure.statistics import (
    blind_baseline,
    centred,
    conformal_p,
    false_shares,
    length_strata,
    longer_runs,
    shuffled_groups_p,
)

runs: Any = longer_runs  # documents that can be compared are known to be there


def drawn(seed: int, longer: int, leaks: int = 0) -> tuple[Any, Any, Any]:
    """40 documents against 40, those of the first group `longer` times as long."""
    draws = np.random.default_rng(seed)
    sides = np.arange(80) < 40
    lengths = draws.integers(10, 60, size=80) * np.where(sides, longer, 1)
    strata = length_strata(lengths)
    kept = [int(lengths[strata == group].min()) for group in strata]
    scores = np.array([draws.geometric(0.5, size=n).max() for n in kept], dtype=float)
    scores[:leaks] += 40
    return centred(scores, strata), sides, strata


@pytest.mark.parametrize("longer", [1, 2])
def test_without_memory_it_rejects_as_rarely_as_it_says(longer: int) -> None:
    rejected = named = 0
    for seed in range(300):
        scores, sides, strata = drawn(seed, longer)
        found = runs(scores, sides, strata, permutations=199, seed=seed)
        rejected += found.p <= 0.1
        named += bool((false_shares(conformal_p(scores[sides], scores[~sides])) <= 0.1).any())
    assert stats.binom.sf(rejected - 1, 300, 0.1) >= 0.01
    assert stats.binom.sf(named - 1, 300, 0.1) >= 0.01


@pytest.mark.parametrize("name", OF_LENGTHS)
def test_no_null_case_is_above_its_level(name: str) -> None:
    times = 40 if "2,000" in name else 200
    rejected = 0
    for seed in range(times):
        split = OF_LENGTHS[name](np.random.default_rng([seed, 4]))
        found = runs(*split, permutations=99, seed=seed)
        rejected += found.p <= 0.1
    assert stats.binom.sf(rejected - 1, times, 0.1) >= 0.001


@pytest.mark.parametrize(("size", "leaks", "level"), [(60, 8, 0.01), (60, 6, 0.05)])
def test_far_longer_documents_are_found_as_by_shuffled_means(
    size: int, leaks: int, level: float
) -> None:
    """Ranks alone found less than half as many."""
    new = old = 0
    for seed in range(40):
        split = of_lengths(np.random.default_rng([seed, 9]), halves(size), leaks=leaks)
        found = runs(*split, permutations=499, seed=seed)
        scores, sides, _ = split
        new += found.p <= level
        old += shuffled_groups_p(-scores[sides], -scores[~sides], permutations=499) <= level
    assert new >= 0.8 * old > 20


def test_the_three_statistics_are_slow_counts() -> None:
    draws = np.random.default_rng(2)
    scores, sides = draws.integers(0, 6, size=12).astype(float), np.arange(12) < 5
    found = runs(scores, sides, np.zeros(12), permutations=20_000)
    ranks = stats.rankdata(scores)
    splits = [list(chosen) for chosen in combinations(range(12), 5)]
    for p, numbers in ((found.p_rank_sum, ranks), (found.p_mean, scores)):
        exact = np.mean([numbers[split].sum() >= numbers[sides].sum() - 1e-9 for split in splits])
        assert p == pytest.approx(exact, abs=0.015)


@pytest.mark.slow
def test_as_many_leaks_as_a_clean_look_says_are_found() -> None:
    """In 19 of 20 looks, of documents drawn at random; fewer than 188 of 200 would be short of it.

    The leaks themselves spread the shuffled sums of scores: without that nine of ten were found.
    """
    hits = 0
    for seed in range(200):
        draws = np.random.default_rng([seed, 9])
        scores, sides, strata = of_lengths(draws, halves(60))
        clean = runs(scores, sides, strata, permutations=999, seed=seed)
        some = next(count for count, p in clean.seen if p <= 0.01)
        scores[draws.choice(np.flatnonzero(sides), some, replace=False)] = scores.max() + 1e-3
        hits += runs(scores, sides, strata, permutations=999, seed=seed).p <= 0.01
    assert hits >= 188


def test_few_documents_are_promised_no_more_than_shuffling_can_show() -> None:
    """Five beside five: in one of 252 shuffles all five are on one side."""
    found = runs(np.arange(10) % 7, np.arange(10) < 5, np.zeros(10))
    assert min(p for _, p in found.seen) == pytest.approx(1 / 252, rel=0.3)


def test_a_few_that_are_far_longer_are_seen() -> None:
    for seed in range(10):
        found = runs(*drawn(seed, 1, leaks=14), permutations=999, seed=seed)
        assert found.p <= 0.01
        assert next(k for k, p in found.seen if p <= 0.01) <= 20


def test_one_of_forty_documents_takes_3999_held_out_ones() -> None:
    for held_out, named in ((3_999, True), (3_998, False)):
        shares = false_shares(conformal_p([9.0, *[0.0] * 39], np.zeros(held_out)))
        assert bool(shares[0] <= 0.01) is named


def test_equal_scores_and_groups_apart_say_nothing() -> None:
    sides = np.arange(20) < 10
    found = runs(np.zeros(20), sides, np.zeros(20), permutations=99)
    assert found.p == 1.0
    assert runs(np.arange(20), sides, sides.astype(int)) is None


WORDS = [
    *("salt", "rope", "harbour", "night", "lamp", "grey", "seven"),
    *("under", "willow", "iron", "cloth", "answer", "river", "low"),
]


def documents(count: int, seed: int, words: list[str] = WORDS) -> list[str]:
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(words, size=draws.integers(8, 30))) for _ in range(count)]


def test_shuffling_is_near_the_exact_test() -> None:
    first, second = [1.0, 2.0, 4.0], [3.0, 5.0, 6.0, 7.0]
    every = first + second
    sums = [sum(some) for some in combinations(every, 3)]
    exact = np.mean([s <= sum(first) for s in sums])
    assert shuffled_groups_p(first, second, permutations=20_000) == pytest.approx(exact, abs=0.01)


def test_equal_documents_are_never_apart() -> None:
    assert shuffled_groups_p([2.0] * 5, [2.0] * 7) == 1.0


def test_without_a_difference_p_is_uniform() -> None:
    draws = np.random.default_rng(1)
    found = [
        shuffled_groups_p(draws.normal(size=12), draws.normal(size=9), permutations=199, seed=n)
        for n in range(300)
    ]
    assert np.mean(np.array(found) <= 0.05) <= 0.085
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)


def test_one_source_is_told_apart_as_rarely_as_chance_says() -> None:
    found = [blind_baseline(documents(40, n), documents(35, 100 + n), seed=n) for n in range(40)]
    assert sum(one.apart for one in found) <= 5
    assert np.mean([one.p for one in found]) == pytest.approx(0.5, abs=0.12)
    assert all(one.enough for one in found)
    assert np.mean([one.auc for one in found]) == pytest.approx(0.5, abs=0.05)


def test_another_source_is_told_apart() -> None:
    others = [word.upper() if n % 3 else word for n, word in enumerate(WORDS)]
    found = blind_baseline(documents(40, 1), documents(40, 2, others))
    assert found.apart
    assert found.auc > 0.9


def test_what_a_reference_model_says_is_read_too() -> None:
    draws = np.random.default_rng(2)
    bits = draws.normal(2, 0.1, size=40), draws.normal(4, 0.1, size=40)
    texts = documents(40, 3), documents(40, 4)
    assert not blind_baseline(*texts).apart
    assert blind_baseline(*texts, more=bits).apart


def test_few_documents_say_nothing() -> None:
    assert not blind_baseline(documents(10, 1), documents(12, 2)).enough
