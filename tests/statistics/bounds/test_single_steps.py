"""Bounds on the mu of a single step: figures, a naive version, no signal, drift, bad input."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics import (
    GaussianEpsilon,
    canife_point,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    guesses_needed,
    step_guesses_epsilon,
    step_noise_epsilon,
    step_rates_epsilon,
)
from lmexposure.statistics.arrays import Flags, Floats

DELTA = 1e-5
BOUNDS = (step_guesses_epsilon, step_rates_epsilon, step_noise_epsilon)
Bound = Callable[..., GaussianEpsilon]


def steps(mu: float, n: int, seed: int, drift: float = 0.0) -> tuple[Floats, Flags]:
    """Scores whose noise has a standard deviation of 1 / mu; what is left of records drifts."""
    draws = np.random.default_rng(seed)
    coins = draws.random(n) < 0.5
    return coins + draws.normal(size=n) / mu + drift * np.linspace(-1, 1, n), coins


def median(bound: Bound, mu: float, n: int) -> float:
    return float(np.median([bound(*steps(mu, n, s), delta=DELTA).mu for s in range(20)]))


# Simulated with 20 repetitions for the same experiment, threshold 1/2 (Nasr et al. 2023).
@pytest.mark.parametrize(
    ("mu", "n", "expected"), [(1.0, 1_000, 0.74), (1.0, 10_000, 0.926), (0.5, 10_000, 0.432)]
)
def test_both_rates_at_a_fixed_threshold_give_the_known_figures(
    mu: float, n: int, expected: float
) -> None:
    assert median(step_rates_epsilon, mu, n) == pytest.approx(expected, rel=0.05)


def test_the_noise_shows_more_than_guesses_and_those_more_than_rates() -> None:
    for n, expected in ((1_000, 0.874), (10_000, 0.955)):  # as of ranks
        found = median(step_guesses_epsilon, 1.0, n)
        assert found == pytest.approx(expected, rel=0.03)
        assert median(step_noise_epsilon, 1.0, n) > found > median(step_rates_epsilon, 1.0, n)


def test_guesses_are_bounded_as_clopper_and_pearson_do() -> None:
    scores, coins = steps(1.3, 300, 5)
    right = int(((scores > 0.5) == coins).sum())
    least = stats.binomtest(right, 300, alternative="greater").proportion_ci(0.95).low
    bound = step_guesses_epsilon(scores, coins, delta=DELTA)
    assert bound.mu == pytest.approx(2 * stats.norm.ppf(least), abs=1e-9)
    assert bound.value == pytest.approx(epsilon_of_mu(mu=bound.mu, delta=DELTA))
    assert bound.counts == {"steps": 300, "correct": right}


def test_rates_are_bounded_as_clopper_and_pearson_do() -> None:
    scores, coins = steps(1.3, 300, 6)
    ends = [
        stats.binomtest(int(wrong.sum()), wrong.size, alternative="less").proportion_ci(0.975).high
        for wrong in (scores[coins] <= 0.5, scores[~coins] > 0.5)
    ]
    expected = -stats.norm.ppf(ends[1]) - stats.norm.ppf(ends[0])
    found = step_rates_epsilon(scores, coins, delta=DELTA)
    assert found.mu == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_lie_above_the_truth_as_rarely_as_they_say(bound: Bound) -> None:
    above = sum(bound(*steps(0.7, 400, seed), delta=DELTA).mu > 0.7 for seed in range(1_000))
    assert above <= stats.binom.ppf(1 - 1e-4, 1_000, 0.05)


def test_guesses_hold_where_steps_drift_and_learn_from_each_other() -> None:
    above = 0
    for seed in range(400):
        draws = np.random.default_rng(seed)
        coins = draws.random(300) < 0.5
        scores, shift = np.empty(300), 0.0
        for step in range(300):  # what is left of the records follows what the steps have shown
            scores[step] = coins[step] + shift + draws.normal() / 0.7
            shift = 0.9 * shift + 0.3 * (scores[step] - 0.5)
        above += step_guesses_epsilon(scores, coins, delta=DELTA).mu > 0.7
    assert above <= stats.binom.ppf(1 - 1e-4, 400, 0.05)


@pytest.mark.parametrize("bound", BOUNDS[:2])
def test_without_a_signal_there_is_no_bound(bound: Bound) -> None:
    draws = np.random.default_rng(0)
    coins = draws.random(2_000) < 0.5
    assert bound(draws.normal(size=2_000), coins, delta=DELTA).mu < 0.1


def test_a_perfect_score_leaves_no_noise() -> None:
    coins = np.arange(64) % 2 == 0
    assert step_noise_epsilon(coins * 1.0, coins, delta=DELTA).mu == math.inf


def test_how_many_steps_it_takes() -> None:
    needed = guesses_needed(1.0, shown=0.9)
    assert median(step_guesses_epsilon, 1.0, needed) == pytest.approx(0.9, abs=0.02)


def naive(inside: list[float], outside: list[float], delta: float) -> float:
    best = 0.0
    for threshold in [*inside, *outside]:
        missed = max(1, sum(score < threshold for score in inside)) / len(inside)
        alarms = max(1, sum(score >= threshold for score in outside)) / len(outside)
        for rate, other in ((missed, alarms), (alarms, missed)):
            if (1 - delta - rate) / other > 1:
                best = max(best, math.log((1 - delta - rate) / other))
    return best


def test_it_is_the_largest_over_all_thresholds() -> None:
    for seed in range(20):
        draws = np.random.default_rng(seed)
        inside, outside = draws.normal(1, 1, 30).tolist(), draws.normal(0, 1, 25).tolist()
        assert canife_point(inside, outside, delta=0.01) == pytest.approx(
            naive(inside, outside, 0.01)
        )


def test_it_saturates_where_the_source_says() -> None:
    assert canife_point([1.0] * 50, [0.0] * 50, delta=1e-5) == pytest.approx(3.89, abs=0.005)


def test_it_lies_above_the_truth_more_often_than_not_and_the_bound_does_not() -> None:
    """At a delta that scores can resolve: 100 of them, mu 1."""
    truth, above, bounds = epsilon_of_mu(mu=1.0, delta=0.05), 0, 0
    for seed in range(200):
        draws = np.random.default_rng(seed)
        inside, outside = draws.normal(1, 1, 50), draws.normal(0, 1, 50)
        above += canife_point(inside, outside, delta=0.05) > truth
        bounds += gaussian_dp_epsilon(inside, outside, delta=0.05).value > truth
    assert above > 100
    assert bounds <= 20
