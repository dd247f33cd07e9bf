"""P-values of Poisson sampling and of noise: their level, and what they see."""

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from lmexposure.models import DpBatches
from lmexposure.models.dp_randomness import (
    Drawn,
    Noise,
    copies_p,
    draw,
    extremes_p,
    law_p,
    meetings_p,
    noise_p,
    pair_p,
    rate_p,
    spread_p,
    volume_p,
)

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


STEPS = 24
Floats = NDArray[np.float64]


def noise_of(values: Floats, *sizes: int) -> Noise:
    """Of values of shape (T, N), over weights of these sizes."""
    weight = np.repeat(np.arange(len(sizes)), sizes)
    squares = np.stack([(values[:, weight == w] ** 2).sum(1) for w in range(len(sizes))], axis=1)
    return Noise(squares=squares, sizes=np.array(sizes), kept=values, weight=weight)


@pytest.mark.parametrize("sizes", [(20,), (16, 1), (256, 32)])
def test_p_values_are_seldom_small_for_right_noise(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    found = np.array(
        [
            list(noise_p(noise_of(rng.standard_normal((STEPS, sum(sizes))), *sizes)).values())
            for _ in range(300)
        ]
    )
    # 300 runs at .05 hold 15 in the mean, and 32 or more with probability 6e-5.
    assert ((found < 0.05).sum(0) < 32).all()


def test_noise_that_is_wrong_is_seen() -> None:
    rng = np.random.default_rng(2)
    right = rng.standard_normal((STEPS, 400))
    faint, period, halves = right.copy(), right.copy(), right.copy()
    faint[10:] *= 0.1
    period[10:20] = right[:10]
    halves[:, 200:] = -halves[:, :200]
    mixed = 0.8 * np.repeat(rng.standard_normal((STEPS, 20)), 20, axis=1) + 0.6 * right
    uniform = rng.uniform(-(3**0.5), 3**0.5, right.shape)
    cut = np.clip(rng.standard_normal((STEPS, 4000)), -3, 3)
    planted = {
        "step": faint,
        "pair": period,
        "copies": halves,
        "volume": mixed,
        "law": uniform,
        "tail 3": cut,
    }
    for name, values in planted.items():
        assert noise_p(noise_of(values, values.shape[1]))[name] < 1e-9, name
    assert law_p(np.sign(right)) < 1e-9


def test_no_noise_and_too_few_coordinates_are_nothing_to_compare() -> None:
    assert pair_p(np.zeros((STEPS, 5))) == 1
    assert pair_p(np.ones((STEPS, 1))) == 1
    assert copies_p(np.zeros((STEPS, 5))) == 1
    assert volume_p(np.eye(3, 12)) == 1
