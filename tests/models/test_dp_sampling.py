"""Tests of Poisson sampling: their p-values, against slow counts, and what they see."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lmexposure.models import DpBatches
from lmexposure.models.dp_sampling import Drawn, draw, meetings_p, rate_p, sizes_p

Coins = NDArray[np.bool_]


def drawn(coins: Coins) -> Drawn:
    """Of coins of shape (batches, documents)."""
    return Drawn(sizes=coins.sum(1), counts=coins.sum(0), repeated=0)


@pytest.mark.parametrize(
    ("documents", "rate", "batches"), [(64, 1 / 16, 128), (40, 0.5, 60), (1500, 0.004, 60)]
)
def test_p_values_are_seldom_small_for_poisson_samples(
    documents: int, rate: float, batches: int
) -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(400):
        seen = drawn(rng.random((batches, documents)) < rate)
        p = rate_p(seen, documents, rate), sizes_p(seen, documents), meetings_p(seen, documents)[0]
        found.append(p)
    # 400 runs at .05 hold 20 in the mean, and 38 or more with probability 1e-4.
    assert ((np.array(found) < 0.05).sum(0) < 38).all()
    assert ((np.array(found) < 0.05).sum(0) > 4).all()


def test_meetings_are_those_of_a_slow_count() -> None:
    rng = np.random.default_rng(5)
    coins = rng.random((30, 20)) < 0.3
    slow = sum(int((a & b).sum()) for a, b in combinations(coins, 2))
    _, found, expected = meetings_p(drawn(coins), 20)
    assert found == slow
    shuffled = []
    for _ in range(2000):
        each = [rng.permutation(row) for row in coins]
        shuffled.append(sum(a @ b for a, b in combinations(np.array(each, dtype=int), 2)))
    assert expected == pytest.approx(np.mean(shuffled), rel=0.01)


def epochs(rng: Any, documents: int, size: int, count: int) -> Coins:
    """Shuffled ones."""
    coins = []
    for _ in range(count):
        order = rng.permutation(documents).reshape(-1, size)
        coins += [np.isin(np.arange(documents), batch) for batch in order]
    return np.array(coins)


def test_other_ways_of_sampling_are_seen() -> None:
    rng = np.random.default_rng(7)
    shuffled = drawn(epochs(rng, 96, 8, 8))
    assert sizes_p(shuffled, 96) < 1e-9
    assert meetings_p(shuffled, 96)[0] < 1e-9
    in_groups = drawn(np.repeat(rng.random((96, 24)) < 1 / 12, 4, axis=1))
    assert sizes_p(in_groups, 96) < 1e-6
    favoured = drawn(rng.random((96, 96)) < np.where(np.arange(96) < 20, 0.25, 0.04))
    assert meetings_p(favoured, 96)[0] < 1e-9
    part_of_an_epoch = drawn(epochs(rng, 20_000, 50, 1)[:60])
    assert meetings_p(part_of_an_epoch, 20_000)[0] < 1e-3


def test_no_document_ever_and_all_always() -> None:
    for coins in (np.zeros((60, 10), dtype=bool), np.ones((60, 10), dtype=bool)):
        assert sizes_p(drawn(coins), 10) == 0
        assert meetings_p(drawn(coins), 10)[0] == 1
        assert rate_p(drawn(coins), 10, 0.5) < 1e-9


def test_batches_are_drawn_and_counted() -> None:
    given = iter([[0, 1], [], [2, 2, 1], *([[3]] * 57)])
    batches = DpBatches(count=4, batch=list, sample=lambda: next(given))
    found = draw(batches, 0.5)
    assert found.sizes.tolist()[:3] == [2, 0, 3]
    assert found.counts.tolist() == [1, 2, 2, 57]
    assert found.repeated == 1
