"""The value of the source for a round: what it is, and why it is no bound."""

import math

import numpy as np
import pytest

from lmexposure.statistics import canife_point, epsilon_of_mu, gaussian_dp_epsilon


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
