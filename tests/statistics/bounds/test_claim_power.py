"""What an audit could have shown of a claim, against a slow version and against fresh data."""

import numpy as np
import pytest
from scipy import optimize

from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu
from lmexposure.statistics.bounds.joint import _Simulated, claim_power
from lmexposure.statistics.bounds.one_run import one_run_audit

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
