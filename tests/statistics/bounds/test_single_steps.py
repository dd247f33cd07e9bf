"""The bound on the mu of a single step: figures, a naive version, no signal, drift, bad input."""

import math

import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics import (
    canife_point,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    step_guesses_epsilon,
)
from lmexposure.statistics.arrays import Flags, Floats

DELTA = 1e-5


def steps(mu: float, n: int, seed: int, drift: float = 0.0) -> tuple[Floats, Flags]:
    """Scores whose noise has a standard deviation of 1 / mu; what is left of records drifts."""
    draws = np.random.default_rng(seed)
    coins = draws.random(n) < 0.5
    return coins + draws.normal(size=n) / mu + drift * np.linspace(-1, 1, n), coins


def median(mu: float, n: int) -> float:
    found = [step_guesses_epsilon(*steps(mu, n, s), delta=DELTA).mu for s in range(20)]
    return float(np.median(found))


@pytest.mark.parametrize(("n", "expected"), [(1_000, 0.874), (10_000, 0.955)])  # as of ranks
def test_guesses_show_as_much_as_is_known(n: int, expected: float) -> None:
    assert median(1.0, n) == pytest.approx(expected, rel=0.03)


def test_guesses_are_bounded_as_clopper_and_pearson_do() -> None:
    scores, coins = steps(1.3, 300, 5)
    right = int(((scores > 0.5) == coins).sum())
    least = stats.binomtest(right, 300, alternative="greater").proportion_ci(0.95).low
    bound = step_guesses_epsilon(scores, coins, delta=DELTA)
    assert bound.mu == pytest.approx(2 * stats.norm.ppf(least), abs=1e-9)
    assert bound.value == pytest.approx(epsilon_of_mu(mu=bound.mu, delta=DELTA))
    assert bound.counts == {"steps": 300, "correct": right}


def test_the_bound_lies_above_the_truth_as_rarely_as_it_says() -> None:
    found = (step_guesses_epsilon(*steps(0.7, 400, seed), delta=DELTA).mu for seed in range(1_000))
    assert sum(mu > 0.7 for mu in found) <= stats.binom.ppf(1 - 1e-4, 1_000, 0.05)


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


def test_without_a_signal_there_is_no_bound() -> None:
    draws = np.random.default_rng(0)
    coins = draws.random(2_000) < 0.5
    assert step_guesses_epsilon(draws.normal(size=2_000), coins, delta=DELTA).mu < 0.1


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
