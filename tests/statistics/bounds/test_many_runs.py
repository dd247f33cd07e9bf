"""Bounds on epsilon from many models: proofs hold on mechanisms of a known epsilon."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from lmexposure.statistics import (
    EpsilonBound,
    binomial_interval,
    lidp_epsilon,
    lira_matrix,
    one_run_audit,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)
from lmexposure.statistics.arrays import Flags, Floats
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


RUNS = 40  # of a mechanism; P(Bin(40, .05) > 9) = 2e-5
MOST = 9


def _coins(rng: np.random.Generator, models: int = 8, texts: int = 16) -> Flags:
    return rng.random((models, texts)) < 0.5


def _kinds(x: Floats) -> list[str]:
    return ["pin"] * x.shape[1]


def _randomised_response(rng: np.random.Generator, coins: Flags) -> Floats:
    """Says each coin, and lies with 1 / (1 + e): epsilon 1, the extreme case."""
    honest = rng.random(coins.shape) < 1 / (1 + np.exp(-1))
    return np.where(honest, coins, ~coins).astype(float)


def _of_unequal_texts(rng: np.random.Generator, coins: Flags) -> Floats:
    """The same, on texts whose scores are of other sizes."""
    sizes = rng.normal(0, 50, coins.shape[1])
    found: Floats = sizes + _randomised_response(rng, coins) * np.abs(sizes)
    return found


def _xor(rng: np.random.Generator, coins: Flags) -> Floats:
    """Texts in pairs: both scores say whether their coins differ. No coin shows by itself."""
    differ: Flags = coins[:, ::2] ^ coins[:, 1::2]
    found: Floats = np.repeat(differ, 2, axis=1) + 0.0 * rng.random(coins.shape)
    return found


def _ties(rng: np.random.Generator, coins: Flags) -> Floats:
    return np.zeros(coins.shape)


def _whole_models(rng: np.random.Generator, coins: Flags) -> Floats:
    """Every model has a level of its own, which says nothing."""
    return _randomised_response(rng, coins) + rng.normal(0, 9, (len(coins), 1))


MECHANISMS: list[tuple[Callable[[np.random.Generator, Flags], Floats], float]] = [
    (_of_unequal_texts, 1.0),
    (_whole_models, 1.0),
    (_xor, 0.0),
    (_ties, 0.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "truth"), MECHANISMS)
def test_no_bound_lies_above_the_truth_too_often(
    mechanism: Callable[[np.random.Generator, Flags], Floats], truth: float
) -> None:
    above = np.zeros(3)
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, 7])
        coins = _coins(rng)
        x = mechanism(rng, coins)
        cells = lira_matrix(x, coins).scores
        bounds = (
            together_epsilon(x, coins, kinds=_kinds(x), seed=seed),
            per_model_epsilon(cells, coins, seed=seed).bound,
            per_text_epsilon(x, coins, seed=seed).bound,
        )
        above += [bound.value > truth for bound in bounds]
    assert above.max() <= MOST


def test_a_leak_is_seen_and_ceilings_are_said() -> None:
    rng = np.random.default_rng(1)
    coins = _coins(rng, 64, 40)
    leak = np.where(coins, 5.0, 0) + rng.normal(size=coins.shape) + rng.normal(0, 9, 40)
    cells = lira_matrix(leak, coins).scores
    together = together_epsilon(leak, coins, kinds=_kinds(leak), seed=1)
    model = per_model_epsilon(cells, coins, seed=1)
    text = per_text_epsilon(leak, coins, seed=1)
    for bound in (together, model.bound, text.bound):
        assert bound.max_attainable is not None
        assert 0 < bound.value <= bound.max_attainable
        assert bound.significance == 0.05
        assert bound.validity == "any-dp"
    assert together.value > max(model.bound.value, text.bound.value)
    assert "largest of 64 models" in model.bound.threshold_choice
    assert "largest of 40 texts" in text.bound.threshold_choice
    assert (model.chosen_from, text.chosen_from) == (64, 40)


def test_the_best_of_several_is_an_audit_at_its_share() -> None:
    rng = np.random.default_rng(2)
    coins = _coins(rng, 40, 5)
    x = rng.normal(size=coins.shape)
    x[:, 3] += 9 * coins[:, 3]
    found = per_text_epsilon(x, coins, seed=3)
    assert found.number == 3
    slow = [one_run_audit(x[:, i], coins[:, i], significance=0.01, seed=3).value for i in range(5)]
    assert found.bound.value == pytest.approx(max(slow), abs=1e-9)
    alone = [one_run_audit(x[:, i], coins[:, i], seed=3).value for i in range(5)]
    np.testing.assert_allclose(found.values, alone, atol=1e-9)


def test_cells_without_a_score_are_left_out_of_their_row() -> None:
    rng = np.random.default_rng(3)
    coins = _coins(rng, 6, 60)
    x = 4.0 * coins + rng.normal(size=coins.shape)
    holed = x.copy()
    holed[2, 5] = np.nan
    found = per_model_epsilon(holed, coins, seed=1)
    kept = np.arange(60) != 5
    slow = one_run_audit(x[2, kept], coins[2, kept], seed=1).value
    assert found.values[2] == pytest.approx(slow, abs=1e-9)


def test_repetitions_and_a_delta_are_paid_for() -> None:
    rng = np.random.default_rng(4)
    coins = _coins(rng, 16, 40)
    x = 6.0 * coins + rng.normal(size=coins.shape)
    bounds: list[EpsilonBound] = [
        together_epsilon(x, coins, kinds=_kinds(x), repetitions=r, delta=d, seed=1)
        for r, d in ((1, 0.0), (4, 0.0), (1, 1e-3))
    ]
    assert bounds[1].value == pytest.approx(bounds[0].value / 4, rel=1e-6)
    assert bounds[2].value < bounds[0].value
    assert per_text_epsilon(x, coins, delta=1e-6, seed=1).bound.delta == 1e-6
