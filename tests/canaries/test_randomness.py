"""Uniform, stable, separate streams."""

from collections import Counter
from itertools import islice, permutations

import pytest
from scipy.stats import chisquare

from lmexposure.canaries import derive_seed
from lmexposure.canaries.randomness import permutation


def test_streams_are_separate_and_stable() -> None:
    # Pinned: a change would draw other secrets for every plan that people have.
    assert derive_seed(1, "secrets", "pin") == 8263133439030052633
    assert derive_seed(1, "a", "b") != derive_seed(1, "ab")
    assert 0 <= derive_seed(2**62, "x") < 2**63
    assert list(islice(permutation(10**40, 5), 2)) == [
        1918222030110877080864577972949271425404,
        6465853633015946689100132201474313069798,
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 100])
def test_a_permutation_holds_every_number_once(size: int) -> None:
    for seed in range(20):
        assert sorted(permutation(size, seed)) == list(range(size))


def test_every_order_is_equally_likely() -> None:
    """All 24 orders of four numbers over 4,800 seeds."""
    counts = Counter(tuple(permutation(4, seed)) for seed in range(4800))
    assert set(counts) == set(permutations(range(4)))
    assert chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("size", [10, 1000, 10**9, 10**40])
def test_first_and_later_numbers_are_uniform(size: int) -> None:
    drawn = [list(islice(permutation(size, seed), 3)) for seed in range(2000)]
    for place in range(3):
        tenths = Counter(numbers[place] * 10 // size for numbers in drawn)
        assert chisquare([tenths[tenth] for tenth in range(10)]).pvalue > 1e-3


def test_neighbouring_draws_are_independent() -> None:
    pairs = Counter(
        tuple(number * 5 // 10**9 for number in islice(permutation(10**9, seed), 2))
        for seed in range(5000)
    )
    assert len(pairs) == 25
    assert chisquare(list(pairs.values())).pvalue > 1e-3
