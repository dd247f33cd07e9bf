import json
import math

import numpy as np
import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import epsilon_from_median_exposure, sampled_exposure


@pytest.mark.parametrize(
    ("median", "repetitions", "epsilon"),
    # Jagielski 2023 (arXiv 2306.00133): epsilon = ln 2 (median exposure - 1).
    [(1.0, 1, 0.0), (2.0, 1, math.log(2)), (11.0, 1, 6.931472), (5.0, 4, math.log(2)), (0.4, 1, 0)],
)
def test_published_relation(median: float, repetitions: int, epsilon: float) -> None:
    point = epsilon_from_median_exposure(median, repetitions=repetitions)
    assert point.value == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_recovers_the_epsilon_of_the_least_favourable_pair(epsilon: float) -> None:
    # References uniform; canaries with distribution function min(e^eps u, 1 - e^-eps (1 - u)):
    # the most that an eps-private training can differ.
    rng = np.random.default_rng(11)
    v = rng.random(100_000)
    turn = math.exp(epsilon) / (1 + math.exp(epsilon))
    low = np.minimum(v * math.exp(-epsilon), 1)
    canaries = np.where(v <= turn, low, 1 - (1 - v) * math.exp(epsilon))
    median = float(np.median(sampled_exposure(canaries, rng.random(100_000)).value))
    assert epsilon_from_median_exposure(median).value == pytest.approx(epsilon, abs=0.05)


def test_it_says_that_it_is_a_point_value() -> None:
    plain = json.loads(json.dumps(epsilon_from_median_exposure(3.0, repetitions=2).to_dict()))
    assert (plain["validity"], plain["unit"], plain["repetitions"]) == ("point", "nats", 2)
    assert plain["adjacency"] == "add or remove one document"
    assert "not a bound" in plain["assumptions"][0]


def test_refusals() -> None:
    with pytest.raises(InputError, match="median_exposure=inf must be a finite number of bits"):
        epsilon_from_median_exposure(math.inf)
    with pytest.raises(SettingsError, match="repetitions=0 must be a whole number at least 1"):
        epsilon_from_median_exposure(3.0, repetitions=0)
