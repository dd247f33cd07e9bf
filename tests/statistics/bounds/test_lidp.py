import math

import numpy as np
import pytest

from lmexposure.statistics import binomial_interval, lidp_epsilon
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.bounds.many_runs import mean_at_least


def _scores(
    rng: np.random.Generator, models: int, canaries: int, rate: float, shared: float
) -> Floats:
    """1 with probability `rate`; the canaries of a model share their rate, the more so the larger
    `shared` (their correlation)."""
    rates = np.full(models, rate)
    if shared:
        size = 1 / shared - 1
        rates = rng.beta(rate * size, (1 - rate) * size, models)
    return (rng.random((models, canaries)) < rates[:, None]).astype(np.float64)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("shared", [0.0, 0.3, 0.99])
def test_coverage_under_dependence(epsilon: float, shared: float) -> None:
    # Randomised response, whose epsilon is exact, with canaries that move together in a model.
    rng, rate, above = np.random.default_rng(1), 1 / (1 + math.exp(-epsilon)), 0
    for _ in range(200):
        inside = _scores(rng, 60, 16, rate, shared)
        outside = _scores(rng, 60, 16, 1 - rate, shared)
        above += lidp_epsilon(inside, outside, threshold=0.5).value > epsilon
    assert above <= 20


def test_many_canaries_tell_more_than_one() -> None:
    rng, rate = np.random.default_rng(2), 1 / (1 + math.exp(-1))
    inside, outside = _scores(rng, 200, 64, rate, 0), _scores(rng, 200, 64, 1 - rate, 0)
    many = lidp_epsilon(inside, outside, threshold=0.5).value
    one = lidp_epsilon(inside[:, 0], outside[:, 0], threshold=0.5).value
    assert 0.85 < many < 1
    assert many > one + 0.05


def test_one_canary_a_model_is_clopper_pearson() -> None:
    inside, outside = np.arange(40) >= 10, np.arange(50) >= 42
    bound = lidp_epsilon(inside, outside, threshold=0, delta=0.01)
    low = binomial_interval(30, 40, level=0.95).low[0]
    high = binomial_interval(8, 50, level=0.95).high[0]
    two_ways = max(math.log((low - 0.01) / high), math.log((1 - high - 0.01) / (1 - low)))
    assert bound.value == pytest.approx(two_ways)
    assert (bound.counts["in_above"], bound.counts["out_above"]) == (30, 8)


def test_ties_with_the_threshold_are_not_above_it() -> None:
    assert lidp_epsilon(np.ones((50, 3)), np.zeros((50, 3)), threshold=1).value == 0


def test_numbers_of_models_and_canaries_may_differ() -> None:
    bound = lidp_epsilon(np.ones((30, 4)), np.zeros((20, 9)), threshold=0.5)
    assert (bound.counts["out_models"], bound.counts["out_canaries"]) == (20, 180)
    assert bound.value == bound.max_attainable
    assert bound.value > 1


def _naive(values: list[float], significance: float) -> float:
    """The smallest of a grid of means that no bet has ruined, one draw after the other."""
    n, goal = len(values), 1 / significance
    for mean in np.arange(1, 1000) / 1000:
        capital, best, seen, total, squares = 1.0, 1.0, 0, 0.5, 0.25
        for value in values:
            variance = squares / (seen + 1)
            stake = min(math.sqrt(2 * math.log(goal) / (n * variance)), 0.75 / mean)
            capital *= 1 + stake * (value - mean)
            best = max(best, capital)
            seen, total = seen + 1, total + value
            squares += (value - total / (seen + 1)) ** 2
        if best < goal:
            return float(mean)
    return 1.0


@pytest.mark.parametrize("a", [0.3, 2.0, 30.0])
def test_against_a_grid_of_bets(a: float) -> None:
    values = np.random.default_rng(2).beta(a, a / 2, 60)
    found = mean_at_least(values, 0.025)
    assert _naive(values.tolist(), 0.025) - 0.001 <= found <= _naive(values.tolist(), 0.025)


@pytest.mark.parametrize(("p", "spread"), [(0.05, 0.3), (0.5, 0.02), (0.5, 1.0), (0.97, 0.5)])
def test_coverage(p: float, spread: float) -> None:
    rng = np.random.default_rng(3)
    rates = rng.beta(p / spread, (1 - p) / spread, (400, 50))
    above = sum(mean_at_least(row, 0.05) > p for row in rates)
    below = sum(1 - mean_at_least(1 - row, 0.05) < p for row in rates)
    # Binomial(400, .05): more than 36 has probability 3e-4.
    assert above <= 36
    assert below <= 36


def test_narrow_where_the_numbers_vary_little() -> None:
    rng = np.random.default_rng(4)
    steady = mean_at_least(rng.normal(0.5, 0.02, 200), 0.025)
    loose = mean_at_least(rng.binomial(1, 0.5, 200).astype(float), 0.025)
    assert steady > 0.48
    assert loose < 0.47


def test_ends() -> None:
    assert mean_at_least(np.zeros(9), 0.05) == 0
    assert 0.5 < mean_at_least(np.ones(50), 0.05) < 1
    assert mean_at_least(np.ones(1), 0.05) < 0.05 + 1e-9
