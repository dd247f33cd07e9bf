import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    epsilon_of_mu,
    one_run_audit,
    one_run_fdp_epsilon,
    one_run_gaussian_audit,
)

DELTA = 1e-5


def audited(
    mu: float, m: int, seed: int, *, part: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Normal scores, of which those in are shifted by mu (a part of them): mu-GDP."""
    generator = np.random.default_rng([seed, m])
    coins = generator.random(m) < 0.5
    moved = coins & (generator.random(m) < part)
    return generator.normal(size=m) + mu * moved, coins


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
    assert found.counts == {
        "canaries": 400,
        "included": int(coins.sum()),
        "guesses": 160,
        "correct": 160,
    }


@pytest.mark.parametrize("m", [20, 400, 2_000])
def test_no_signal_gives_exactly_zero_and_says_so(m: int) -> None:
    found = [
        one_run_gaussian_audit(*audited(0.0, m, seed), delta=DELTA, seed=seed) for seed in range(20)
    ]
    assert np.median([one.value for one in found]) == 0.0
    assert all("no signal" in one.notes[0] for one in found if one.value == 0)


def test_it_tells_more_than_the_bound_for_every_training() -> None:
    """Medians over 15 audits at mu 1 (epsilon 4.38): what a Gaussian trade-off adds."""
    found = []
    for seed in range(15):
        scores, coins = audited(1.0, 1_000, seed)
        settings = {"delta": DELTA, "seed": seed}
        gaussian = one_run_gaussian_audit(scores, coins, **settings).value  # type: ignore[arg-type]
        found.append((gaussian, one_run_audit(scores, coins, **settings).value))  # type: ignore[arg-type]
    medians = np.median(found, axis=0)
    assert medians[0] > 2.1
    assert medians[1] < 1.7


def test_the_memorisation_of_a_part_shows() -> None:
    found = [
        one_run_gaussian_audit(*audited(4.0, 1_000, seed, part=0.3), delta=DELTA, seed=seed)
        for seed in range(10)
    ]
    assert np.median([one.value for one in found]) > 3.5
    assert "from the top decided" in found[0].threshold_choice


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_coverage(mu: float) -> None:
    bounds = [
        one_run_gaussian_audit(*audited(mu, 100, seed), delta=DELTA, seed=seed).mu
        for seed in range(200)
    ]
    assert np.sum(np.array(bounds) > mu) <= 24  # fewer than 2 in 100,000 exceed that at the level
    assert np.max(bounds) > 0


def test_copies_divide_mu() -> None:
    scores, coins = audited(2.0, 400, 5)
    one, four = (
        one_run_gaussian_audit(scores, coins, delta=DELTA, repetitions=r, seed=1) for r in (1, 4)
    )
    assert four.mu == one.mu / 4
    assert four.value == epsilon_of_mu(mu=four.mu, delta=DELTA)
    assert "group privacy" in four.adjacency


@pytest.mark.parametrize("m", [1, 2, 7, 19])
def test_few_canaries_are_all_guessed_or_eight_of_them(m: int) -> None:
    coins = np.arange(m) % 2 == 0
    found = one_run_gaussian_audit(coins, coins, delta=DELTA, seed=1)
    assert found.counts["guesses"] == min(m, 8)
    assert found.value == found.max_attainable
    if m < 3:
        assert "could show nothing" in found.notes[0]


def test_ties_are_ordered_without_the_coins() -> None:
    coins = np.random.default_rng(6).random(2_000) < 0.5
    same = [one_run_gaussian_audit(np.zeros(2_000), coins, delta=DELTA, seed=s) for s in range(40)]
    assert sum(one.value > 0 for one in same) <= 8  # 2 expected at most


def test_scores_in_the_wrong_direction_say_so() -> None:
    scores, coins = audited(2.0, 400, 5)
    found = one_run_gaussian_audit(-scores, coins, delta=DELTA, seed=1)
    assert found.value == 0
    assert "wrong direction" in found.notes[0]


def test_what_the_bound_says_of_itself() -> None:
    found = one_run_gaussian_audit(*audited(2.0, 400, 5), delta=DELTA, seed=1)
    assert (found.method, found.validity) == ("one_run_gaussian_audit", "gaussian")
    assert 0 < found.value < found.max_attainable  # type: ignore[operator]
    assert any("mu-GDP" in sentence for sentence in found.assumptions)
    assert any("fair coin" in sentence for sentence in found.assumptions)
    assert "fixed beforehand and all paid for" in found.threshold_choice
    assert found.to_dict()["mu"] == found.mu


@pytest.mark.parametrize(
    ("scores", "included", "message"),
    [
        ([], [], r"scores has shape \(0,\)"),
        ([1.0, np.nan], [True, False], "scores.1.=nan is not finite"),
        ([1.0, 2.0], [True], "included has 1 entries for 2 scores"),
        (list(range(30)), [True] * 30, "30 of 30 candidates went in, which coins of 0.5 give"),
    ],
)
def test_bad_input(scores: list[float], included: list[bool], message: str) -> None:
    with pytest.raises(InputError, match=message):
        one_run_gaussian_audit(scores, included, delta=DELTA, seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 0.0}, "delta=0.0 must lie strictly between 0 and 1"),
        ({"significance": 1.0}, "significance=1.0"),
        ({"repetitions": 0}, "repetitions=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        one_run_gaussian_audit(
            [1.0, 2.0],
            [True, False],
            **({"delta": DELTA, "seed": 1} | settings),  # type: ignore[arg-type]
        )
