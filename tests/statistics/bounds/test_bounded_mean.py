import math

import numpy as np
import pytest

from lmexposure.statistics.bounds.lidp import mean_at_least


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
