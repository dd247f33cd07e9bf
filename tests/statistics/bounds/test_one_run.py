import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lmexposure.statistics import one_run_audit, one_run_epsilon
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.bounds.one_run import (
    Audit,
    _max_attainable,
    binomial_window,
    critical_counts,
    crossing_probability,
    fixed_rays,
    log_odds_low,
    reveal,
)
from lmexposure.statistics.bounds.one_run_guesses import p_value

Mechanism = Callable[[Flags, float, np.random.Generator], Floats]


def laplace(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
    return generator.laplace(size=coins.size) + epsilon * coins


def randomised_response(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
    """Two scores only: nearly everything is a tie."""
    wrong = generator.random(coins.size) > 1 / (1 + np.exp(-epsilon))
    return np.asarray(coins ^ wrong, dtype=np.float64)


def xor_pairs(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
    """Of every two canaries, whether their coins differ, by randomised response."""
    return np.repeat(randomised_response(coins[::2] ^ coins[1::2], epsilon, generator), 2)


def shared_noise(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
    """A noisy number of canaries for every four, the score of all four."""
    counts = coins.reshape(-1, 4).sum(axis=1)
    return np.repeat(epsilon * counts + generator.laplace(size=counts.size), 4)


def each_revealed(delta: float) -> Mechanism:
    def scores(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
        told = np.where(generator.random(coins.size) < delta, 10.0 * coins - 4.5, 0.0)
        noisy = randomised_response(coins, epsilon, generator)
        return np.where(told == 0, noisy, told)

    return scores


def all_revealed(delta: float) -> Mechanism:
    def scores(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
        if generator.random() < delta:
            return coins.astype(float)
        return randomised_response(coins, epsilon, generator)

    return scores


def values(
    mechanism: Mechanism, epsilon: float, *, m: int, delta: float = 0.0, runs: int = 200
) -> Floats:
    found = []
    for seed in range(runs):
        generator = np.random.default_rng([seed, m])
        coins = generator.random(m) < 0.5
        scores = mechanism(coins, epsilon, generator)
        found.append(one_run_audit(scores, coins, delta=delta, seed=seed).value)
    return np.array(found)


# Of 200 bounds at 0.05, more than 24 lie above the truth in fewer than 2 of 100,000 audits.
MOST = 24


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [(laplace, 0.0), (randomised_response, 1.0), (xor_pairs, 1.0), (shared_noise, 1.0)],
)
def test_coverage(mechanism: Mechanism, epsilon: float) -> None:
    assert np.sum(values(mechanism, epsilon, m=400) > epsilon) <= MOST


def blocks_revealed(coins: Flags, epsilon: float, generator: np.random.Generator) -> Floats:
    """Blocks of 376 coins, each shown as it is with probability .01."""
    shown = np.repeat(generator.random(-(-coins.size // 376)) < 0.01, 376)[: coins.size]
    return np.where(shown, 10.0 * coins - 4.5, randomised_response(coins, epsilon, generator))


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "m", "delta", "runs", "most"),
    [
        (each_revealed(0.02), 1.0, 100, 0.02, 200, MOST),
        (all_revealed(0.02), 1.0, 100, 0.02, 200, MOST),
        (blocks_revealed, 0.45, 10_000, 0.01, 80, 10),  # 4 expected; 5 in 1,000 at the exact level
    ],
)
def test_coverage_with_a_delta(
    mechanism: Mechanism, epsilon: float, m: int, delta: float, runs: int, most: int
) -> None:
    assert np.sum(values(mechanism, epsilon, m=m, delta=delta, runs=runs) > epsilon) <= most


@pytest.mark.parametrize(("m", "runs", "goal"), [(400, 300, 0.70), (2000, 60, 0.84)])
def test_tightness_on_the_laplace_shift(m: int, runs: int, goal: float) -> None:
    """The median over the runs is itself uncertain: by 0.01 at 400 canaries."""
    found = values(laplace, 1.0, m=m, runs=runs)
    assert np.median(found) >= goal
    assert np.mean(found > 1) <= 24 / 200


@pytest.mark.parametrize(
    ("share", "m", "delta", "runs", "goal"),
    [
        (0.3, 2000, 0.0, 30, 3.5),
        (0.3, 1000, 0.0, 40, 2.95),
        (0.03, 1000, 0.0, 80, 0.75),
        (0.1, 1000, 1e-4, 30, 1.9),
    ],
)
def test_memorisation_of_a_part_shows(
    share: float, m: int, delta: float, runs: int, goal: float
) -> None:

    def partly(coins: Flags, share: float, generator: np.random.Generator) -> Floats:
        moved = coins & (generator.random(coins.size) < share)
        return generator.normal(size=coins.size) + 4 * moved

    assert np.median(values(partly, share, m=m, delta=delta, runs=runs)) >= goal


def test_five_canaries_all_guessed_right_are_clopper_pearson() -> None:
    # No other look can be as strong, so that nothing is paid for it: q^5 = 0.05.
    found = one_run_audit([5, 4, 3, 2, 1], [True, True, True, False, False], seed=1)
    q = 0.05**0.2
    assert found.value == pytest.approx(np.log(q / (1 - q)), abs=1e-8)
    assert found.max_attainable == found.value


def test_coins_of_the_same_seed_do_not_order_ties() -> None:
    above = 0
    for seed in range(100):
        coins = np.random.default_rng(seed).random(100) < 0.5
        above += one_run_audit(np.zeros(100), coins, seed=seed).value > 0
    assert above <= 16


def test_the_order_of_canaries_does_not_matter() -> None:
    generator = np.random.default_rng(8)
    coins = generator.random(300) < 0.5
    scores = laplace(coins, 1.0, generator)
    order = generator.permutation(300)
    one = one_run_audit(scores, coins, seed=1)
    assert one_run_audit(scores[order], coins[order], seed=1) == one


def test_max_attainable_is_near_that_of_all_guesses() -> None:
    coins = np.arange(1000) % 2 == 0
    found = one_run_audit(coins, coins, seed=1)
    assert found.value == found.max_attainable
    whole = one_run_epsilon(canaries=1000, guesses=1000, correct=1000).value
    assert whole - 0.8 < found.value <= whole


def test_forgiven_guesses_are_taken_off_once() -> None:
    """The chance of an outcome against walks that are tossed: right guesses less k, paid for k."""
    audit = Audit(canaries=400, significance=0.05, delta=0.01, repetitions=1)
    generator = np.random.default_rng(5)
    right = generator.random(400) < 0.8
    decided = audit.decide(right)
    assert decided.epsilon > 0
    assert decided.forgiven > 0
    q = 1 / (1 + np.exp(-decided.epsilon))
    rays, k = audit.rays, decided.forgiven
    reached = max(float(ray.odds(right, k).max()) for ray in rays)
    walks = generator.random((5_000, 400)) < q
    above = [max(float(ray.odds(walk, 0).max()) for ray in rays) >= reached for walk in walks]
    paid = audit.extra(decided.epsilon) / (k + 1)
    assert np.mean(above) + paid <= 0.05 + 0.009  # three standard errors


@pytest.mark.parametrize("m", [1, 2, 5, 8])
@pytest.mark.parametrize(("significance", "delta"), [(0.05, 0), (0.3, 0), (0.3, 0.01), (0.3, 0.1)])
def test_no_outcome_of_a_small_audit_is_forgotten(
    m: int, significance: float, delta: float
) -> None:
    """All ways to be right and wrong, with their exact probabilities at every epsilon.

    The worst that delta allows: at random, the wrong guesses of a whole audit turn right.
    """
    audit = Audit(canaries=m, significance=significance, delta=delta, repetitions=1)
    outcomes = np.array(list(itertools.product((False, True), repeat=m)))
    bounds = np.array([audit.decide(right).epsilon for right in outcomes])
    for epsilon in [*np.linspace(0, 5, 101), *np.maximum(bounds - 1e-7, 0)]:
        q = 1 / (1 + np.exp(-epsilon))
        chances = (1 - delta) * np.prod(np.where(outcomes, q, 1 - q), axis=1)
        above = chances[bounds > epsilon].sum() + delta * (bounds[-1] > epsilon)
        assert above <= significance + 1e-12
    assert np.all(bounds <= _max_attainable(audit))


@pytest.mark.parametrize("m", [5, 40])
def test_more_right_guesses_never_lower_the_bound(m: int) -> None:
    audit = Audit(canaries=m, significance=0.05, delta=0.0, repetitions=1)
    generator = np.random.default_rng(m)
    right = generator.random(m) < 0.5
    last = audit.decide(right).epsilon
    for place in generator.permutation(np.flatnonzero(~right)):
        right[place] = True
        now = audit.decide(right).epsilon
        assert now >= last - 1e-8
        last = now
    assert last == pytest.approx(_max_attainable(audit))


@pytest.mark.parametrize("canaries", [1, 2, 3, 7, 8, 15, 16, 17, 400, 10**6])
def test_looks_rise_and_stay_within_their_ray(canaries: int) -> None:
    sizes = {"both": canaries, "top": (canaries + 1) // 2, "bottom": canaries // 2}
    for ray in fixed_rays(canaries, 0.05):
        assert ray.looks[0] >= 1
        assert ray.looks[-1] <= sizes[ray.name]
        assert np.all(np.diff(ray.looks) > 0)
        assert np.all((ray.levels > 0) & (ray.levels < 0.05))
    assert fixed_rays(canaries, 0.05)[0].looks[-1] == canaries


@pytest.mark.parametrize("canaries", [1, 2, 5, 8])
def test_reveal_alternates_from_both_ends_and_guesses_every_canary_once(canaries: int) -> None:
    scores = np.array([3.0, 9.0, 1.0, 5.0, 7.0])
    included = np.array([False, True, True, False, True])
    # In the order 9 (in), 1 (out), 7 (in), 3 (out), 5 (in).
    right = reveal(scores, included, np.random.default_rng(0))
    assert right.tolist() == [True, False, True, True, False]
    generator = np.random.default_rng(canaries)
    included = generator.random(canaries) < 0.5
    perfect = reveal(included + generator.random(canaries) / 2, included, generator)
    missed = abs((canaries + 1) // 2 - int(included.sum()))
    assert (perfect.size, int(perfect.sum())) == (canaries, canaries - missed)


def test_critical_counts_are_the_smallest_and_nested() -> None:
    for ray in fixed_rays(60, 0.05):
        last = np.zeros_like(ray.looks)
        for odds in np.linspace(-1, 4, 21):
            found = critical_counts(ray, float(odds))
            for j, look in enumerate(ray.looks.tolist()):
                low = log_odds_low(
                    np.full(look + 1, look), np.arange(look + 1), np.full(look + 1, ray.levels[j])
                )
                enough = np.flatnonzero(low >= odds)
                assert found[j] == (enough[0] if enough.size else look + 1)
            assert np.all(found >= last)
            last = found


def one_by_one(looks: list[int], critical: list[int], q: float) -> float:
    """P(crossing), one guess at a time."""
    alive, crossed = {0: 1.0}, 0.0
    at = dict(zip(looks, critical, strict=True))
    for guess in range(1, looks[-1] + 1):
        following: dict[int, float] = {}
        for count, chance in alive.items():
            following[count] = following.get(count, 0.0) + chance * (1 - q)
            following[count + 1] = following.get(count + 1, 0.0) + chance * q
        stop = at.get(guess, guess + 1)
        crossed += math.fsum(chance for count, chance in following.items() if count >= stop)
        alive = {count: chance for count, chance in following.items() if count < stop}
    return crossed


@given(st.integers(1, 12), st.floats(-3, 6), st.data())
def test_crossing_is_that_of_a_walk_guess_by_guess(
    n: int, odds: float, data: st.DataObject
) -> None:
    looks = sorted({*data.draw(st.sets(st.integers(1, n))), n})
    critical = [data.draw(st.integers(0, look + 1)) for look in looks]
    exact = one_by_one(looks, critical, 1 / (1 + math.exp(-odds)))
    found = crossing_probability(np.array(looks), np.array(critical), odds)
    assert found == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("odds", [0.0, 1.0, 4.0])
def test_crossing_of_a_long_walk(odds: float) -> None:
    looks, q = [24, 50, 100, 250, 700], 1 / (1 + math.exp(-odds))
    critical = [int(look * q + 2 * math.sqrt(look * q * (1 - q))) + 1 for look in looks]
    found = crossing_probability(np.array(looks), np.array(critical), odds)
    assert found == pytest.approx(one_by_one(looks, critical, q), rel=1e-10)


def test_fourier_transforms_agree_with_plain_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = np.array([20_000, 60_000, 100_000])
    critical = np.array([10_150, 30_250, 50_300])
    fast = crossing_probability(looks, critical, 0.0)
    monkeypatch.setattr("lmexposure.statistics.bounds.one_run._SHORT", 10**9)
    assert fast == pytest.approx(crossing_probability(looks, critical, 0.0), abs=1e-13)


@pytest.mark.parametrize(("trials", "odds"), [(0, 1.0), (1, -2.0), (50, 0.3), (10**6, 1.0)])
def test_window_is_the_binomial(trials: int, odds: float) -> None:
    first, chances = binomial_window(trials, odds)
    counts = first + np.arange(chances.size)
    expected = stats.binom.pmf(counts, trials, special.expit(odds))
    assert chances == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert chances.sum() == pytest.approx(1, abs=1e-12)


def test_log_odds_low_solves_the_binomial_tail() -> None:
    looks, counts = np.array([10, 10, 400, 10**6]), np.array([10, 7, 250, 999_990])
    levels = np.array([0.01, 0.05, 0.001, 0.02])
    q = special.expit(log_odds_low(looks, counts, levels))
    assert stats.binom.sf(counts - 1, looks, q) == pytest.approx(levels, rel=1e-6)
    assert log_odds_low(looks, np.array([0, -3, 0, 0]), levels).tolist() == [-math.inf] * 4


# Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846), Theorem 5.2 and Appendix D. The first four rows
# of CASES are published there; jax_privacy and ml_privacy_meter print the others alike.
# (canaries, guesses, correct, epsilon, delta, p-value)
P_VALUES = [
    (100, 100, 75, math.log(3), 0.0, 0.553470823848),
    (1000, 100, 100, 1.0, 1e-5, 0.0005633089841),
    (100, 100, 75, 1.0, 0.0, 0.3827218673),
]
# (canaries, guesses, correct, delta, epsilon) at significance 0.05
CASES = [
    (100, 100, 75, 0.0, 0.70221402),
    (100, 100, 75, 1e-4, 0.699466911),
    (1000, 100, 75, 1e-4, 0.67298473),
    (10000, 10000, 9820, 1e-5, 3.871316849),
    (100, 100, 100, 0.0, 3.492965),
    (100, 100, 90, 0.0, 1.630823),
    (1000, 1000, 600, 1e-5, 0.297227),
    (1000, 1000, 900, 1e-5, 2.020646),
    (1000, 100, 95, 1e-5, 2.165176),
]
CEILINGS = [(16, 1.580323), (100, 3.492965), (1000, 5.809068), (10000, 8.113002)]


def slow_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2, term by term."""
    count = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    most = max(
        (math.fsum(count.pmf(np.arange(correct - i, correct))) / i for i in range(1, correct + 1)),
        default=0.0,
    )
    return min(1.0, float(count.sf(correct - 1)) + 2 * canaries * delta * most)


def test_published_values() -> None:
    for m, k, correct, epsilon, delta, p in P_VALUES:
        assert p_value(m, k, correct, epsilon, delta) == pytest.approx(p, abs=1e-9)
    for m, k, correct, delta, epsilon in CASES:
        bound = one_run_epsilon(canaries=m, guesses=k, correct=correct, delta=delta)
        assert bound.value == pytest.approx(epsilon, abs=1e-6)
    for m, epsilon in CEILINGS:
        bound = one_run_epsilon(canaries=m, guesses=m, correct=m // 2)
        assert bound.max_attainable == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 9.0])
@pytest.mark.parametrize(
    ("guesses", "correct"), [(1, 0), (1, 1), (60, 1), (60, 20), (60, 45), (60, 60), (400, 390)]
)
def test_p_value_term_by_term(guesses: int, correct: int, epsilon: float) -> None:
    found = p_value(500, guesses, correct, epsilon, 2e-4)
    slow = slow_p_value(500, guesses, correct, epsilon, 2e-4)
    assert found == pytest.approx(slow, rel=1e-9, abs=1e-15)


def test_coverage_of_randomised_response() -> None:
    generator = np.random.default_rng(11)
    bounds = [
        one_run_epsilon(canaries=400, guesses=400, correct=int(count)).value
        for count in generator.binomial(400, 1 / (1 + math.exp(-1)), 500)
    ]
    # Above 49 of 500 in fewer than 2 of 100,000 at the exact level.
    assert sum(bound > 1 for bound in bounds) <= 49
