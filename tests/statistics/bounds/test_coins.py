import math

import numpy as np
import pytest
from scipy import special, stats

from lmexposure.statistics.bounds.from_exposure import CoinRule


def _rule(**changed: float) -> CoinRule:
    settings = {
        "fills": 300,
        "coin": 0.1,
        "rank": 12,
        "significance": 0.05,
        "delta": 0.0,
        "repetitions": 1,
    }
    return CoinRule(**(settings | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("rank", "before"), [(1, 0), (12, 0), (12, 30), (12, 300), (30, 3)])
def test_pure_privacy_solves_the_binomial_equation(rank: int, before: int) -> None:
    epsilon = _rule(rank=rank).epsilon(before)
    odds = 0.1 / 0.9 * math.exp(epsilon)
    chance = stats.binom.sf(rank - 1, rank + before, odds / (1 + odds))
    assert chance >= 0.05 - 1e-9
    assert epsilon == 0 or chance == pytest.approx(0.05, abs=1e-9)


def test_level_over_all_outcomes_of_the_extreme_mechanism() -> None:
    # Each fill is in with chance q, independently, whatever its place: what eps-DP allows at most.
    for epsilon in (0.0, 0.5, 2.0):
        rule = _rule(rank=5)
        q = special.expit(special.logit(0.1) + epsilon)
        chance = sum(
            stats.nbinom.pmf(x, 5, q) for x in range(300) if rule.epsilon(x) > epsilon + 1e-9
        )
        assert chance <= 0.05


def test_delta_lowers_the_bound_until_nothing_is_left() -> None:
    values = [_rule(delta=d).epsilon(10) for d in (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 0.5)]
    assert values == sorted(values, reverse=True)
    assert values[1] == pytest.approx(values[0], abs=1e-3)
    assert values[-1] == 0
    groups = [_rule(delta=1e-5, repetitions=r).epsilon(3) for r in (1, 2, 8)]
    assert groups[0] / 2 > groups[1] > groups[2] > 0


@pytest.mark.parametrize("delta", [0.0, 1e-3, 1e-2])
def test_coverage_where_delta_reveals_coins(delta: float) -> None:
    """Each coin is shown as it is with chance delta, else by randomised response."""
    rng, reps, epsilon = np.random.default_rng(3), 400, 1.0
    rule = _rule(delta=delta, fills=400)
    above = 0
    for _ in range(reps):
        coins = rng.random(400) < 0.1
        honest = rng.random(400) < 1 / (1 + math.exp(-epsilon))
        shown = rng.random(400) < delta
        # Shown canaries come first, fills shown to be out last.
        answer = np.where(shown, np.where(coins, 2, -1), np.where(honest, coins, ~coins))
        order = np.lexsort((rng.random(400), -answer))
        place = np.flatnonzero(coins[order])
        if place.size >= 12:
            above += rule.epsilon(int(place[11]) - 11) > epsilon
    assert above <= stats.binom.isf(2e-5, reps, 0.05)


def test_what_is_given_up_does_not_depend_on_what_is_seen() -> None:
    assert _rule().given_up == 0
    assert 0 < _rule(delta=1e-3, rank=200, fills=10_000).given_up < 100
