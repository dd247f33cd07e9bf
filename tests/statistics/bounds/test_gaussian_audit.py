import json

import numpy as np
import pytest
from scipy import integrate, stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    epsilon_of_mu,
    gaussian_dp_epsilon,
)
from lmexposure.statistics.bounds.gaussian import (
    _fixed_looks,
    _tail,
)


@pytest.mark.parametrize(
    ("mu", "count", "m", "n", "rank"),
    [(0.0, 7, 10, 12, 6), (1.0, 9, 10, 12, 2), (0.5, 60, 80, 300, 150), (2.0, 1, 5, 9, 9)],
)
def test_tail_against_plain_integration(mu: float, count: int, m: int, n: int, rank: int) -> None:
    out = stats.beta(rank, n - rank + 1)

    def density(u: float) -> float:
        chance = stats.norm.cdf(stats.norm.ppf(u) + mu)
        return float(out.pdf(u) * stats.binom.sf(count - 1, m, chance))

    slow = integrate.quad(density, 0, 1, epsabs=1e-10, limit=200)[0]
    assert _tail(mu, count, m, n, rank) == pytest.approx(slow, abs=1e-8)


def test_tail_against_simulation_of_the_gaussian_pair() -> None:
    rng, m, n, rank = np.random.default_rng(1), 30, 40, 8
    inside, outside = rng.normal(0.8, 1, (40_000, m)), rng.normal(0, 1, (40_000, n))
    threshold = np.sort(outside, axis=1)[:, n - rank, None]
    share = np.mean((inside > threshold).sum(axis=1) >= 18)
    assert _tail(0.8, 18, m, n, rank) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("n", [1, 2, 5, 100, 10**6])
def test_looks_spend_the_significance_once(n: int) -> None:
    looks = _fixed_looks(n, 0.05)
    assert sum(look.level for look in looks) == pytest.approx(0.05)
    assert len({look.rank for look in looks}) == len(looks)
    assert all(1 <= look.rank <= n for look in looks)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_coverage(mu: float) -> None:
    rng, above = np.random.default_rng(3), 0
    for _ in range(60):
        bound = gaussian_dp_epsilon(rng.normal(mu, 1, 60), rng.normal(0, 1, 80), delta=1e-5)
        above += bound.mu > mu
    # Binomial(60, .05): more than 9 has probability 1e-3.
    assert above <= 9


def test_it_finds_most_of_a_shift() -> None:
    rng = np.random.default_rng(4)
    bound = gaussian_dp_epsilon(rng.normal(1, 1, 4000), rng.normal(0, 1, 4000), delta=1e-5)
    assert 0.9 < bound.mu < 1
    assert bound.value == pytest.approx(epsilon_of_mu(mu=bound.mu, delta=1e-5))
    halves = gaussian_dp_epsilon(
        rng.normal(1, 1, 4000), rng.normal(0, 1, 4000), delta=1e-5, repetitions=4
    )
    assert halves.mu == pytest.approx(bound.mu / 4, rel=0.1)
    assert "4 copies" in halves.adjacency


def test_a_few_memorised_canaries_show() -> None:
    rng = np.random.default_rng(6)
    inside = np.where(np.arange(1000) < 50, 8.0, rng.normal(size=1000))
    bound = gaussian_dp_epsilon(inside, rng.normal(size=1000), delta=1e-5)
    assert bound.mu > 0.7
    assert bound.counts["out_rank"] <= 10


def test_without_signal_exactly_zero() -> None:
    tied = gaussian_dp_epsilon([2] * 50, [2] * 50, delta=1e-5)
    assert (tied.value, tied.mu) == (0.0, 0.0)
    assert tied.notes == ("no signal beyond chance at this significance: the bound is 0",)
    worse = gaussian_dp_epsilon(range(50), range(50, 100), delta=1e-5)
    assert worse.value == 0
    assert "worse than chance" in worse.notes[0]
    above = gaussian_dp_epsilon([0, 0, 0, 3, 3], [-1, -1, 1, 1, 1], delta=1e-5)  # turned medians
    assert above.notes == ("no signal beyond chance at this significance: the bound is 0",)
    alone = gaussian_dp_epsilon([5], [1], delta=1e-5)
    assert alone.value == alone.max_attainable == 0
    assert "could show nothing" in alone.notes[0]


def test_the_largest_floats_are_only_compared() -> None:
    least, most = [-1.7e308] * 50, [1.7e308] * 50
    with np.errstate(all="raise"):
        assert gaussian_dp_epsilon(most, least, delta=1e-5).value > 1
        assert gaussian_dp_epsilon(most, most, delta=1e-5).value == 0


def test_ties_count_against_the_bound() -> None:
    rng = np.random.default_rng(8)
    inside, outside = rng.normal(1, 1, 300), rng.normal(0, 1, 300)
    exact = gaussian_dp_epsilon(inside, outside, delta=1e-5)
    coarse = gaussian_dp_epsilon(inside.round(), outside.round(), delta=1e-5)
    assert coarse.value <= exact.value


def test_ceiling_and_plain_dictionary() -> None:
    perfect = gaussian_dp_epsilon([1] * 100, [0] * 200, delta=1e-5)
    assert perfect.value == perfect.max_attainable
    plain = json.loads(json.dumps(perfect.to_dict()))
    assert (plain["validity"], plain["counts"]["in"]) == ("gaussian", 100)
    assert plain["mu"] == perfect.mu


def test_refusals() -> None:
    with pytest.raises(InputError, match="in_scores has shape"):
        gaussian_dp_epsilon([], [1.0], delta=1e-5)
    with pytest.raises(InputError, match=r"out_scores\[0\]=inf is not finite"):
        gaussian_dp_epsilon([1.0], [np.inf], delta=1e-5)
    with pytest.raises(SettingsError, match="delta=0 must lie strictly between"):
        gaussian_dp_epsilon([1.0], [1.0], delta=0)
    with pytest.raises(SettingsError, match="significance=1 must lie strictly between"):
        gaussian_dp_epsilon([1.0], [1.0], delta=0.1, significance=1)
    with pytest.raises(SettingsError, match="repetitions=0 must be"):
        gaussian_dp_epsilon([1.0], [1.0], delta=0.1, repetitions=0)
