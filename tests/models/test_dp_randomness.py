"""Tests of Poisson sampling: their p-values, against slow counts, and what they see."""

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from lmexposure.models import DpBatches
from lmexposure.models.dp_randomness import Drawn, draw, extremes_p, meetings_p, rate_p, spread_p

Coins = NDArray[np.bool_]


def drawn(coins: Coins) -> Drawn:
    """Of coins of shape (batches, documents)."""
    return Drawn(sizes=coins.sum(1), counts=coins.sum(0), repeated=0)


def all_p(seen: Drawn, documents: int, rate: float) -> list[float]:
    return [
        rate_p(seen, documents, rate),
        spread_p(seen.sizes, documents, rate),
        extremes_p(seen, documents, rate),
        meetings_p(seen, documents, rate)[0],
    ]


@pytest.mark.parametrize(
    ("documents", "rate", "batches"),
    [(64, 1 / 16, 128), (10, 0.9, 60), (200, 0.1, 80), (500, 0.01, 60)],
)
def test_p_values_are_seldom_small_for_poisson_samples(
    documents: int, rate: float, batches: int
) -> None:
    """At the levels that a check asks for."""
    rng = np.random.default_rng(3)
    found = np.array(
        [all_p(drawn(rng.random((batches, documents)) < rate), documents, rate) for _ in range(400)]
    )
    # 400 runs at .05 hold 20 in the mean, and 38 or more with probability 1e-4.
    assert ((found < 0.05).sum(0) < 38).all()
    assert (found < 0.05).sum(0)[0] > 4
    # 1,600 tests at .0005: .8 in the mean, and 6 or more with probability 2e-4.
    assert (found < 0.0005).sum() < 6


@pytest.mark.parametrize(("trials", "rate", "values"), [(3, 0.3, 4), (2, 0.5, 6), (6, 0.1, 3)])
def test_a_spread_has_no_p_value_below_its_exact_one(trials: int, rate: float, values: int) -> None:
    """Against all outcomes of a few binomial values, one by one."""
    outcomes = np.array(list(product(range(trials + 1), repeat=values)))
    mean, variance = trials * rate, trials * rate * (1 - rate)
    score = (outcomes - mean) ** 2 - (1 - 2 * rate) * (outcomes - mean) - variance
    total, weight = score.sum(1).round(9), binom(trials, rate).pmf(outcomes).prod(1)
    for row in outcomes[:: max(1, len(outcomes) // 200)]:
        at = ((row - mean) ** 2 - (1 - 2 * rate) * (row - mean) - variance).sum().round(9)
        exact = min(weight[total <= at].sum(), weight[total >= at].sum())
        assert spread_p(row, trials, rate) >= min(1.0, 2 * exact) * (1 - 1e-9)


def test_meetings_are_those_of_a_slow_count() -> None:
    rng = np.random.default_rng(5)
    coins = rng.random((30, 20)) < 0.3
    slow = sum(int((a & b).sum()) for a, b in combinations(coins, 2))
    _, found, expected = meetings_p(drawn(coins), 20, 0.3)
    assert found == slow
    assert expected == pytest.approx(20 * 30 * 29 / 2 * 0.09)


def test_batches_that_are_cut_or_filled_are_seen() -> None:
    rng = np.random.default_rng(8)
    sizes = rng.binomial(240, 0.1, 1000)
    counts = np.full(240, 100)
    whole = Drawn(sizes=sizes, counts=counts, repeated=0)
    assert extremes_p(whole, 240, 0.1) > 0.01
    cut = Drawn(sizes=np.minimum(sizes, 32), counts=counts, repeated=0)
    assert extremes_p(cut, 240, 0.1) == pytest.approx(2 * binom(240, 0.1).cdf(32) ** 1000)
    filled = Drawn(sizes=np.maximum(sizes, 16), counts=counts, repeated=0)
    assert extremes_p(filled, 240, 0.1) < 1e-6


def test_no_document_ever_and_all_always() -> None:
    for coins in (np.zeros((60, 10), dtype=bool), np.ones((60, 10), dtype=bool)):
        assert max(all_p(drawn(coins), 10, 0.5)) < 1e-9
    for rate, coin in ((0.0, False), (1.0, True)):
        assert min(all_p(drawn(np.full((60, 10), coin)), 10, rate)) == 1


def test_documents_outside_the_pool_of_a_process_do_not_count() -> None:
    rng = np.random.default_rng(9)
    coins = np.zeros((400, 60), dtype=bool)
    coins[:, ::2] = rng.random((400, 30)) < 0.2
    assert meetings_p(drawn(coins), 30, 0.2)[0] > 0.05
    coins[200:] = np.roll(coins[200:], 1, axis=1)  # another pool
    assert meetings_p(drawn(coins), 30, 0.2)[0] == 1


def test_batches_are_drawn_and_counted() -> None:
    given = iter([[0, 1], [], [2, 2, 1], *([[3]] * 997)])
    batches = DpBatches(count=4, batch=list, sample=lambda: next(given))
    found = draw(batches, 0.5)
    assert found.sizes.tolist()[:3] == [2, 0, 3]
    assert found.counts.tolist() == [1, 2, 2, 997]
    assert found.repeated == 1
