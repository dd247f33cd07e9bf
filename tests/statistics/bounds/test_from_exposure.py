import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lmexposure.statistics import (
    epsilon_from_exposure,
    epsilon_from_median_exposure,
    sampled_exposure,
)
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.bounds.from_exposure import CoinRule


def _least_favourable(rng: np.random.Generator, size: int, epsilon: float) -> Floats:
    """Distribution function min(e^eps u, 1 - e^-eps (1 - u)), references being uniform."""
    v = rng.random(size)
    turn = math.exp(epsilon) / (1 + math.exp(epsilon))
    return np.where(v <= turn, v * math.exp(-epsilon), 1 - (1 - v) * math.exp(epsilon))


def test_published_relation() -> None:
    # Jagielski 2023 (arXiv 2306.00133): epsilon = ln 2 (median exposure - 1).
    for median, copies, bits in ((1.0, 1, 0), (2.0, 1, 1), (11.0, 1, 10), (5.0, 4, 1), (0.4, 1, 0)):
        point = epsilon_from_median_exposure(median, repetitions=copies)
        assert point.value == pytest.approx(bits * math.log(2), abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_recovers_the_epsilon_of_the_least_favourable_pair(epsilon: float) -> None:
    rng = np.random.default_rng(11)
    canaries, references = _least_favourable(rng, 100_000, epsilon), rng.random(100_000)
    median = float(np.median(sampled_exposure(canaries, references).value))
    assert epsilon_from_median_exposure(median).value == pytest.approx(epsilon, abs=0.05)
    for quantile in (0.25, 0.5):
        point = epsilon_from_exposure(canaries, references, quantile=quantile).point
        assert point.value == pytest.approx(epsilon, abs=0.05)


def test_upper_quartile_of_exposure() -> None:
    # Jagielski 2023: the 75th percentile E of exposure gives ln 2 (E - 2).
    canaries, references = np.arange(1, 9), np.arange(2, 1026)
    point = epsilon_from_exposure(canaries + 0.5, references, quantile=0.25).point
    exposure = sampled_exposure([2.5], references).value[0]
    assert point.median_exposure == pytest.approx(exposure)
    assert point.value == pytest.approx(math.log(2) * (exposure - 2))


def test_ten_canaries_above_ten_thousand_references() -> None:
    found = epsilon_from_exposure(
        np.zeros(10), np.arange(1, 10_001), quantile=1, inclusion_probability=10 / 10_010
    ).bound
    # logit(0.05^(1/10)) - logit(10 / 10,010), by hand.
    expected = math.log(0.05**0.1 / (1 - 0.05**0.1)) + math.log(1000)
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.value == pytest.approx(7.9596, abs=1e-3)


@pytest.mark.parametrize(("k", "m", "n", "x"), [(3, 6, 40, 2), (1, 1, 9, 0), (6, 6, 100, 20)])
@pytest.mark.parametrize("delta", [0.0, 0.01, 0.2])
def test_independent_bound_solves_its_equation(
    k: int, m: int, n: int, x: int, delta: float
) -> None:
    canaries = np.arange(m) + 10.5
    references = np.concatenate([np.arange(x) * 0.01, 100.0 + np.arange(n - x)])
    bound = epsilon_from_exposure(
        canaries, references, quantile=k / m, delta=delta, significance=0.1
    )
    assert (bound.bound.counts["rank"], bound.bound.counts["references_before"]) == (k, x)
    v = stats.beta(k, m - k + 1).ppf((np.arange(100_000) + 0.5) / 100_000)

    def chance(epsilon: float) -> float:
        shares = np.maximum(v - delta, 0) * math.exp(-epsilon)
        return float(stats.binom.cdf(x, n, shares).mean())

    value = bound.bound.value
    assert chance(value) >= 0.1 - 1e-4
    assert value == 0 or chance(value) == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize(
    ("k", "m", "x", "n", "delta"),
    [
        (1, 1, 0, 10**6, 0.0),
        (32, 64, 30, 10**5, 0.0),
        (4, 4, 10, 10**6, 0.3),
        (10, 20, 1000, 10**6, 0.3),  # Gauss's rule on panels that miss the step finds 0.7167
    ],
)
def test_the_chance_at_the_bound_where_there_are_many_references(
    k: int, m: int, x: int, n: int, delta: float
) -> None:
    """The same mean taken over the step: P(Bin(n, s) <= x) = P(s <= W), W ~ Beta(x + 1, n - x)."""
    references = np.concatenate([np.arange(x) * 1e-6, 1e6 + np.arange(n - x)])
    value = epsilon_from_exposure(
        np.arange(m) + 10.5, references, quantile=k / m, delta=delta
    ).bound.value
    w = stats.beta(x + 1, n - x).ppf((np.arange(100_000) + 0.5) / 100_000)
    chance = stats.beta(k, m - k + 1).cdf(w * math.exp(value) + delta).mean()
    assert chance == pytest.approx(0.05, rel=3e-4)


@pytest.mark.parametrize("coins", [None, 0.05])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_coverage(coins: float | None, epsilon: float) -> None:
    rng, reps, fills = np.random.default_rng(12), 300, 800
    found = []
    for _ in range(reps):
        m = 40 if coins is None else max(1, rng.binomial(fills, coins))
        canaries, references = _least_favourable(rng, m, epsilon), rng.random(fills - m)
        found.append(
            epsilon_from_exposure(canaries, references, inclusion_probability=coins).bound.value
        )
    assert (np.array(found) > epsilon).sum() <= stats.binom.isf(2e-5, reps, 0.05)
    if epsilon >= 1:
        assert np.median(found) > epsilon - 0.75


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.sampled_from([0.1, 0.5, 1]),
)
def test_ties_count_against_the_bound(canaries: list[int], references: list[int], q: float) -> None:
    bound = epsilon_from_exposure(canaries, references, quantile=q).bound
    at = sorted(canaries)[bound.counts["rank"] - 1]
    assert bound.counts["references_before"] == sum(r <= at for r in references)
    assert bound.value >= 0
    assert bound.max_attainable is not None
    assert bound.value <= bound.max_attainable + 1e-9


def test_too_few_canaries_or_references_say_so() -> None:
    lost = epsilon_from_exposure([5.0] * 3, range(6, 43), inclusion_probability=0.25).bound
    assert (lost.value, lost.threshold) == (0, None)
    assert "3 canaries went in, fewer than the rank 5" in lost.notes[0]
    # A thousand canaries are not too few: the single reference is.
    lonely = epsilon_from_exposure(range(1000), [2000.0]).bound
    assert lonely.max_attainable == 0
    assert "these canaries and references are too few to show any epsilon" in lonely.notes[0]


def test_the_rank_with_coins_is_fixed_by_the_design() -> None:
    # 0.1 of 41 + 259 fills: 30 canaries expected, whatever number went in; 0.1 of 30 is 3.
    found = epsilon_from_exposure(
        range(41), range(41, 300), quantile=0.1, inclusion_probability=0.1
    ).bound
    assert found.counts["rank"] == 3
    assert epsilon_from_exposure(range(30), range(40), quantile=0.1).bound.counts["rank"] == 3


def _rule(**changed: float) -> CoinRule:
    terms = {"significance": 0.05, "delta": 0.0, "repetitions": 1}
    return CoinRule(**({"fills": 300, "coin": 0.1, "rank": 12} | terms | changed))  # type: ignore[arg-type]


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
