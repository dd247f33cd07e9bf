"""Two groups of documents: the test by shuffling, and what is told apart without the model."""

from itertools import combinations

import numpy as np
import pytest

from lmexposure.statistics import blind_baseline, shuffled_groups_p

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
