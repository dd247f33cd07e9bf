import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from lmexposure.statistics import (
    delta_of_epsilon,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    one_run_fdp_epsilon,
    one_run_gaussian_audit,
    sampled_epsilon,
)
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.bounds.gaussian import _fixed_looks, _tail

# Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), Gaussian family, as jax_privacy prints
# them at significance 0.05: (canaries, guesses, correct, delta, epsilon), to 1e-3.
CASES = [
    (100, 80, 70, 1e-6, 3.295589),
    (1000, 10, 10, 1e-5, 1.2276),
    (1000, 40, 40, 1e-5, 3.6233),
    (1000, 268, 255, 1e-5, 4.1797),
    (100, 100, 100, 1e-5, 8.216186),
    (1000, 1000, 500, 1e-5, 0.0),
]
DELTA = 1e-5


def _naive_delta(mu: float, epsilon: float) -> float:
    """The integral of (p - e^epsilon q)_+ with p = N(mu, 1) and q = N(0, 1)."""
    turn = epsilon / mu + mu / 2

    def excess(x: float) -> float:
        p, q = math.exp(-((x - mu) ** 2) / 2), math.exp(epsilon - x * x / 2)
        return (p - q) / math.sqrt(2 * math.pi)

    return float(integrate.quad(excess, turn, turn + 12, epsabs=1e-14, epsrel=1e-11)[0])


def test_published_epsilon_and_delta() -> None:
    # Balle and Wang 2018, Theorem 8; dp_accounting prints the same.
    for mu, delta, epsilon in (
        (0.5, 1e-5, 1.993091),
        (1, 1e-5, 4.377178095681),
        (1, 1e-6, 4.886554117462),
        (2, 1e-5, 9.997256146434),
        (4, 1e-5, 24.381611),
    ):
        assert epsilon_of_mu(mu=mu, delta=delta) == pytest.approx(epsilon, abs=1e-6)
    assert delta_of_epsilon(sigma=1, epsilon=1) == pytest.approx(0.126936737507, abs=1e-12)


@pytest.mark.parametrize(("mu", "delta"), [(0.1, 1e-3), (0.7, 1e-4), (1.5, 0.01), (3.0, 1e-6)])
def test_against_numeric_inversion(mu: float, delta: float) -> None:
    naive = optimize.brentq(lambda e: _naive_delta(mu, e) - delta, 1e-9, 60)
    assert epsilon_of_mu(mu=mu, delta=delta) == pytest.approx(naive, rel=1e-6)
    assert delta_of_epsilon(sigma=1 / mu, epsilon=naive) == pytest.approx(delta, rel=1e-5)


@given(st.floats(1e-4, 1e4), st.floats(1e-12, 0.99))
def test_inverse_of_each_other_and_monotone(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu=mu, delta=delta)
    assert epsilon_of_mu(mu=mu * 1.01, delta=delta) >= epsilon
    assert epsilon_of_mu(mu=mu, delta=delta * 0.99) >= epsilon
    back = delta_of_epsilon(sigma=1 / mu, epsilon=epsilon)
    if epsilon > 0:
        # Phi(-t) with t near mu / 2 loses the digits that epsilon / mu has lost.
        assert back == pytest.approx(delta, rel=1e-6, abs=1e-10)
    else:
        assert back <= delta * (1 + 1e-9)


def test_ends() -> None:
    assert epsilon_of_mu(mu=0, delta=0) == 0.0
    assert epsilon_of_mu(mu=0.1, delta=0) == math.inf
    # delta(0) is the total variation distance, 2 Phi(mu / 2) - 1.
    assert epsilon_of_mu(mu=1, delta=0.3829249226) == 0.0
    assert epsilon_of_mu(mu=1, delta=0.38) > 0
    assert delta_of_epsilon(sigma=1, epsilon=1e4) == 0.0
    assert delta_of_epsilon(sigma=1e-4, epsilon=0) == 1.0
    assert epsilon_of_mu(mu=1e5, delta=1e-5) == pytest.approx(5e9 + 1e5 * 4.26489, rel=1e-9)
    assert epsilon_of_mu(mu=float(np.float32(1)), delta=1e-300) == pytest.approx(37.449, abs=1e-3)


def _naive_sampled_delta(mu: float, rate: float, epsilon: float) -> float:
    """The integral of max(0, (1 - q) phi(x) + q phi(x - mu) - e^epsilon phi(x))."""

    def excess(x: float) -> float:
        out, into = stats.norm.pdf(x), stats.norm.pdf(x - mu)
        return float(max(0.0, (1 - rate) * out + rate * into - math.exp(epsilon) * out))

    turn = (math.log(math.expm1(epsilon) / rate + 1) + mu * mu / 2) / mu
    return float(integrate.quad(excess, turn, turn + 12, epsabs=1e-15, epsrel=1e-10)[0])


@pytest.mark.parametrize(
    ("mu", "rate", "delta"),
    [(1.0, 0.1, 1e-3), (2.0, 0.5, 1e-5), (3.08, 0.5, 1e-5), (0.5, 0.9, 0.01), (1.0, 0.01, 1e-4)],
)
def test_a_sampled_step_against_plain_integration(mu: float, rate: float, delta: float) -> None:
    """Its mixture has exactly this epsilon, so that no training with the step has less."""
    epsilon = sampled_epsilon(mu=mu, rate=rate, delta=delta)
    assert _naive_sampled_delta(mu, rate, epsilon) == pytest.approx(delta, rel=1e-6)
    assert _naive_sampled_delta(mu, rate, epsilon * 0.99) > delta


def test_a_sampled_step_that_is_always_taken_is_the_step() -> None:
    for mu in (0.3, 1.0, 50.0):
        whole = epsilon_of_mu(mu=mu, delta=1e-5)
        assert sampled_epsilon(mu=mu, rate=1, delta=1e-5) == pytest.approx(whole)
        assert sampled_epsilon(mu=mu, rate=0.2, delta=1e-5) < whole
    assert sampled_epsilon(mu=0.0, rate=0.5, delta=1e-5) == 0.0
    assert sampled_epsilon(mu=9.0, rate=1e-6, delta=1e-5) == 0.0  # the unit is in so rarely
    assert sampled_epsilon(mu=1.0, rate=0.5, delta=0.0) == math.inf
    assert sampled_epsilon(mu=1e3, rate=0.5, delta=1e-5) > 4e5


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


@pytest.mark.parametrize("n", [1, 2, 5, 100, 10**6])
def test_looks_spend_the_significance_once(n: int) -> None:
    looks = _fixed_looks(n, 0.05)
    assert sum(look.level for look in looks) == pytest.approx(0.05)
    assert len({look.rank for look in looks}) == len(looks)
    assert all(1 <= look.rank <= n for look in looks)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_two_sample_coverage(mu: float) -> None:
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


def test_a_few_memorised_canaries_show() -> None:
    rng = np.random.default_rng(6)
    inside = np.where(np.arange(1000) < 50, 8.0, rng.normal(size=1000))
    bound = gaussian_dp_epsilon(inside, rng.normal(size=1000), delta=1e-5)
    assert bound.mu > 0.7
    assert bound.counts["out_rank"] <= 10


def test_turned_medians_are_no_signal_but_not_worse_than_chance() -> None:
    found = gaussian_dp_epsilon([0, 0, 0, 3, 3], [-1, -1, 1, 1, 1], delta=1e-5)
    assert found.notes == ("no epsilon above 0 could be shown: chance would give as much",)


def test_ties_count_against_the_bound() -> None:
    rng = np.random.default_rng(8)
    inside, outside = rng.normal(1, 1, 300), rng.normal(0, 1, 300)
    exact = gaussian_dp_epsilon(inside, outside, delta=1e-5)
    coarse = gaussian_dp_epsilon(inside.round(), outside.round(), delta=1e-5)
    assert coarse.value <= exact.value


def test_published_bounds() -> None:
    for m, k, correct, delta, epsilon in CASES:
        found = one_run_fdp_epsilon(canaries=m, guesses=k, correct=correct, delta=delta)
        assert found.value == pytest.approx(epsilon, abs=1e-3)


def audited(mu: float, m: int, seed: int) -> tuple[Floats, Flags]:
    """Normal scores, of which those in are shifted by mu: mu-GDP."""
    generator = np.random.default_rng([seed, m])
    coins = generator.random(m) < 0.5
    generator.random(m)
    return generator.normal(size=m) + mu * coins, coins


def overflows(canaries: int, guesses: int, correct: int, level: float, mu: float) -> bool:
    """Whether mu is excluded, in lists over all counts: Mahloujifar et al. 2024, Algorithm 3."""
    right, wrong = [0.0] * (correct + 1), [0.0] * (correct + 1)
    right[correct] = level * correct / canaries
    wrong[correct] = level * (guesses - correct) / canaries
    for count in reversed(range(correct)):
        blown_up = stats.norm.cdf(stats.norm.ppf(right[count + 1]) - mu)
        wrong[count] = max(wrong[count + 1], blown_up)
        gained = wrong[count] - wrong[count + 1]
        right[count] = right[count + 1] + count / (guesses - count) * gained
        if right[count] + wrong[count] > guesses / canaries:  # more only adds to it
            return True
    return False


def test_the_best_of_the_numbers_of_guesses_as_a_plain_recursion_has_it() -> None:
    scores, coins = audited(2.0, 200, 1)
    order = np.argsort(-scores)
    found = one_run_gaussian_audit(scores, coins, delta=DELTA, seed=1)
    counts = []
    for guesses in (12, 30, 80):  # half of them from each end
        half = guesses // 2
        counts.append((guesses, int(coins[order[:half]].sum() + (~coins[order[-half:]]).sum()), 2))
    counts += [(guesses, int(coins[order[:guesses]].sum()), 1) for guesses in (8, 24)]
    whole = sum(weight for _, _, weight in counts)
    levels = [(k, correct, 0.05 * weight / whole) for k, correct, weight in counts]
    assert any(overflows(200, *rung, found.mu) for rung in levels)
    assert not any(overflows(200, *rung, found.mu + 1e-6) for rung in levels)
    assert found.value == epsilon_of_mu(mu=found.mu, delta=DELTA)


def test_all_guesses_right_gives_what_the_longest_rung_gives_by_itself() -> None:
    # 160 of 400 guesses at a weight of 2 in 8; one_run_fdp_epsilon is held to published values.
    coins = np.random.default_rng(3).random(400) < 0.5
    found = one_run_gaussian_audit(coins, coins, delta=DELTA, seed=1)
    alone = one_run_fdp_epsilon(
        canaries=400, guesses=160, correct=160, delta=DELTA, significance=0.0125
    )
    assert found.value == found.max_attainable == alone.value
    counts = {"canaries": 400, "included": int(coins.sum()), "guesses": 160, "correct": 160}
    assert found.counts == counts


@pytest.mark.parametrize("m", [20, 400, 2_000])
def test_no_signal_gives_exactly_zero_and_says_so(m: int) -> None:
    found = [
        one_run_gaussian_audit(*audited(0.0, m, seed), delta=DELTA, seed=seed) for seed in range(20)
    ]
    assert np.median([bound.value for bound in found]) == 0.0
    assert all("no epsilon above 0 could" in bound.notes[0] for bound in found if bound.value == 0)


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_coverage(mu: float) -> None:
    bounds = [
        one_run_gaussian_audit(*audited(mu, 100, seed), delta=DELTA, seed=seed).mu
        for seed in range(200)
    ]
    assert np.sum(np.array(bounds) > mu) <= 24  # fewer than 2 in 100,000 exceed that at the level
    assert np.max(bounds) > 0


@pytest.mark.parametrize("m", [1, 2, 7, 19])
def test_few_canaries_are_all_guessed_or_eight_of_them(m: int) -> None:
    coins = np.arange(m) % 2 == 0
    found = one_run_gaussian_audit(coins, coins, delta=DELTA, seed=1)
    assert found.counts["guesses"] == min(m, 8)
    assert found.value == found.max_attainable
    if m < 3:
        assert "too few to show any epsilon" in found.notes[0]


def test_ties_are_ordered_without_the_coins() -> None:
    coins = np.random.default_rng(6).random(2_000) < 0.5
    same = [one_run_gaussian_audit(np.zeros(2_000), coins, delta=DELTA, seed=s) for s in range(40)]
    assert sum(bound.value > 0 for bound in same) <= 8  # 2 expected at most


def test_a_mu_whose_epsilon_the_delta_pays_for_is_not_called_no_signal() -> None:
    rng = np.random.default_rng(3)
    high, low = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
    scores, coins = audited(1.5, 400, 5)
    samples = gaussian_dp_epsilon(high, low, delta=0.3)
    audit = one_run_gaussian_audit(scores, coins, delta=0.4, seed=1)
    for found in (samples, audit):
        assert found.mu > 0 == found.value < found.max_attainable  # type: ignore[operator]
        assert found.notes == (
            f"no epsilon above 0 could be shown: mu is at least {found.mu:.3g}, and this delta "
            "allows that",
        )
    guesses = one_run_fdp_epsilon(canaries=100, guesses=100, correct=70, delta=0.5)
    assert guesses.value == 0
    assert "mu is at least 0.283" in guesses.notes[0]
    nothing = gaussian_dp_epsilon(np.ones(10), np.zeros(10), delta=0.8)
    assert nothing.mu > 0 == nothing.max_attainable
    assert "too few to show any epsilon" in nothing.notes[0]
