"""All bounds together: which is the primary one, what each may use, what the joint level costs."""

import numpy as np
import pytest
from scipy import optimize

from lmexposure.statistics import (
    JointBounds,
    epsilon_from_exposure,
    epsilon_from_scores,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    joint_bounds,
    one_run_audit,
    one_run_gaussian_audit,
)
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.joint import _Simulated, claim_power

COINS = np.random.default_rng(1).random(400) < 0.5
SCORES = np.random.default_rng(2).laplace(size=400) + COINS


def laplace(n: int, seed: int) -> Floats:
    return np.random.default_rng(seed).laplace(size=n)


def _why(found: JointBounds) -> dict[str, str]:
    return {bound.method: bound.reason for bound in found.refused}


def test_fair_coins_give_the_one_run_audit_at_half_of_the_significance() -> None:
    found = joint_bounds(SCORES, COINS, inclusion_probability=0.5, seed=3)
    assert found.primary == one_run_audit(SCORES, COINS, significance=0.025, seed=3)
    assert {bound.method for bound in found.others} == {
        "epsilon_from_exposure",
        "epsilon_from_scores",
    }
    assert sum(bound.significance for bound in found.others) == pytest.approx(0.025)


def test_other_coins_give_the_bound_of_their_own_probability() -> None:
    coins = np.random.default_rng(1).random(2_000) < 0.02
    scores = laplace(2_000, 2) + 3 * coins
    found = joint_bounds(scores, coins, inclusion_probability=0.02)
    alone = epsilon_from_exposure(
        -scores[coins], -scores[~coins], inclusion_probability=0.02, significance=0.025
    )
    assert found.primary == alone.bound
    assert found.primary.validity == "any-dp"
    assert _why(found)["one_run_audit"] == "needs fair coins; these are of 0.02"


@pytest.mark.parametrize(("outside", "method"), [(400, "scores"), (4_000, "exposure")])
def test_without_coins_the_numbers_decide_and_coin_bounds_are_refused(
    outside: int, method: str
) -> None:
    included = np.arange(400 + outside) < 400
    found = joint_bounds(laplace(400 + outside, 5) + included, included)
    assert found.primary.method == f"epsilon_from_{method}"
    assert {bound.validity for bound in (found.primary, *found.others)} == {"iid-scores"}
    assert "needs a declared inclusion probability of 0.5" in _why(found)["one_run_audit"]
    assert (
        "needs a declared inclusion probability" in _why(found)["epsilon_from_exposure with coins"]
    )


def test_references_are_used_by_bounds_that_take_scores_for_alike_only() -> None:
    references = laplace(1_000, 7)
    found = joint_bounds(
        SCORES, COINS, references=references, inclusion_probability=0.5, deltas=(0.0, 1e-5)
    )
    share = found.others[0].significance
    everything = np.concatenate([SCORES[~COINS], references])
    by_kind = {(bound.method, bound.validity, bound.delta): bound for bound in found.others}
    two = epsilon_from_scores(SCORES[COINS], everything, significance=share)
    assert by_kind["epsilon_from_scores", "iid-scores", 0.0] == two
    coined = epsilon_from_exposure(
        -SCORES[COINS], -SCORES[~COINS], inclusion_probability=0.5, significance=share
    )
    assert by_kind["epsilon_from_exposure", "any-dp", 0.0] == coined.bound
    gaussian = gaussian_dp_epsilon(SCORES[COINS], everything, significance=share, delta=1e-5)
    assert by_kind["gaussian_dp_epsilon", "gaussian", 1e-5] == gaussian
    tossed = one_run_gaussian_audit(SCORES, COINS, significance=share, delta=1e-5, seed=0)
    assert by_kind["one_run_gaussian_audit", "gaussian", 1e-5] == tossed


def test_there_is_a_bound_of_each_kind_at_each_delta_once() -> None:
    found = joint_bounds(SCORES, COINS, inclusion_probability=0.5, deltas=(0.0, 1e-5))
    kinds = [
        (bound.method, bound.validity, bound.delta) for bound in (found.primary, *found.others)
    ]
    assert len(kinds) == len(set(kinds)) == 4 + 6
    assert found.primary.delta == 0.0
    why = _why(joint_bounds(SCORES, COINS, inclusion_probability=0.5))
    assert "at delta 0" in why["gaussian_dp_epsilon"]
    assert "at delta 0" in why["one_run_gaussian_audit"]


def test_a_gaussian_bound_from_coins_needs_fair_ones() -> None:
    for coins, reason in (
        (None, "needs a declared inclusion probability of 0.5"),
        (0.45, "these are of 0.45"),
    ):
        found = joint_bounds(SCORES, COINS, inclusion_probability=coins, deltas=(1e-5,))
        assert reason in _why(found)["one_run_gaussian_audit"]
        assert "one_run_gaussian_audit" not in {bound.method for bound in found.others}


def test_all_bounds_hold_together() -> None:
    """Share of 60 audits of a mechanism of epsilon 1 in which any of the bounds is above 1."""
    above = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 11])
        coins = rng.random(200) < 0.5
        found = joint_bounds(
            rng.laplace(size=200) + coins, coins, inclusion_probability=0.5, seed=seed
        )
        above += max(bound.value for bound in (found.primary, *found.others)) > 1
    assert above <= 9  # 3 expected at most; binomial tail 1e-3


def test_coins_that_kept_no_candidate_out_leave_the_references() -> None:
    found = joint_bounds(
        [1.0, 2.0, 3.0], [1, 1, 1], references=laplace(100, 1), inclusion_probability=0.9
    )
    assert _why(found)["epsilon_from_exposure with coins"] == "no coin kept a candidate out"


TERMS = Terms(significance=0.025, delta=1e-5, repetitions=1)
PURE = Terms(significance=0.025, delta=0.0, repetitions=1)


@pytest.mark.parametrize("terms", [TERMS, PURE])
@pytest.mark.parametrize("leak", [0.5, 1.5])
def test_one_bound_stands_for_all(terms: Terms, leak: float) -> None:
    uniforms = np.random.default_rng(1).random((20, 2, 120))
    made = _Simulated(terms=terms, coin=0.5, uniforms=uniforms)
    slow = sorted(made._bound(*made.scores(leak, place)) for place in range(20))
    assert made.shown(leak, 0.8) == pytest.approx(slow[4], abs=0.02)


def mu_of(epsilon: float) -> float:
    return float(optimize.brentq(lambda mu: epsilon_of_mu(mu=mu, delta=1e-5) - epsilon, 0, 64))


@pytest.mark.parametrize(("claim", "terms", "size"), [(1.0, PURE, 200), (0.5, TERMS, 100)])
def test_contradicts_as_often_as_said(claim: float, terms: Terms, size: int) -> None:
    epsilon = claim_power(claim, terms, candidates=size, seed=1).refutable_from or 0.0
    generator, often = np.random.default_rng(7), 0
    for seed in range(200):
        coins = generator.random(size) < 0.5
        if terms.delta:  # a Gaussian mechanism
            scores = generator.normal(size=size) + mu_of(epsilon) * coins
        else:  # randomised response
            truth = generator.random(size) < 1 / (1 + np.exp(-epsilon))
            scores = np.where(truth, coins, ~coins).astype(float)
        bound = one_run_audit(scores, coins, significance=0.025, delta=terms.delta, seed=seed)
        often += bound.value > claim
    assert often / 200 == pytest.approx(0.8, abs=0.08)


def test_more_candidates_show_more_and_larger_claims_need_more() -> None:
    found = [claim_power(1.0, TERMS, candidates=m, simulations=40) for m in (60, 120, 240)]
    needed = [row.refutable_from or np.inf for row in found]
    assert sorted(needed, reverse=True) == needed
    assert sorted(row.could_show for row in found) == [row.could_show for row in found]
    larger = claim_power(1.5, TERMS, candidates=240, simulations=40).refutable_from
    assert 1.0 < needed[-1] < (larger or 0.0)


@pytest.mark.parametrize("coin", [0.5, 0.2])
def test_a_claim_above_the_ceiling_and_no_signal(coin: float) -> None:
    found = claim_power(9.0, TERMS, candidates=100, inclusion_probability=coin, simulations=20)
    assert found.refutable_from is None
    assert 0 < found.could_show < 9.0
    uniforms = np.random.default_rng(2).random((20, 2, 100))
    assert _Simulated(terms=TERMS, coin=coin, uniforms=uniforms).shown(0.0, 0.8) == 0
    again = claim_power(9.0, TERMS, candidates=100, inclusion_probability=coin, simulations=20)
    assert again == found
