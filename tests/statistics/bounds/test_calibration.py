import itertools

import numpy as np
import pytest

from lmexposure.statistics.bounds.one_run import Audit, _max_attainable, _odds


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
    reached = max(float(_odds(ray, right, k).max()) for ray in rays)
    walks = generator.random((5_000, 400)) < q
    above = [max(float(_odds(ray, walk, 0).max()) for ray in rays) >= reached for walk in walks]
    paid = audit.extra(decided.epsilon) / (k + 1)
    assert np.mean(above) + paid <= 0.05 + 0.009  # three standard errors


@pytest.mark.parametrize("m", [1, 2, 5, 8])
@pytest.mark.parametrize("significance", [0.05, 0.3])
def test_no_outcome_of_a_small_audit_is_forgotten(m: int, significance: float) -> None:
    """All ways to be right and wrong, with their exact probabilities at every epsilon."""
    audit = Audit(canaries=m, significance=significance, delta=0.0, repetitions=1)
    outcomes = np.array(list(itertools.product((False, True), repeat=m)))
    bounds = np.array([audit.decide(right).epsilon for right in outcomes])
    for epsilon in [*np.linspace(0, 5, 101), *np.maximum(bounds - 1e-7, 0)]:
        q = 1 / (1 + np.exp(-epsilon))
        chances = np.prod(np.where(outcomes, q, 1 - q), axis=1)
        assert chances[bounds > epsilon].sum() <= significance + 1e-12
    assert np.all(bounds <= _max_attainable(audit))


@pytest.mark.parametrize("delta", [0.01, 0.1])
def test_no_outcome_of_a_small_audit_with_a_delta(delta: float) -> None:
    """The worst that delta allows: at random, the wrong guesses of a whole audit turn right."""
    m, significance = 6, 0.3
    audit = Audit(canaries=m, significance=significance, delta=delta, repetitions=1)
    outcomes = np.array(list(itertools.product((False, True), repeat=m)))
    bounds = np.array([audit.decide(right).epsilon for right in outcomes])
    for epsilon in [*np.linspace(0, 3, 61), *np.maximum(bounds - 1e-7, 0)]:
        q = 1 / (1 + np.exp(-epsilon))
        chances = (1 - delta) * np.prod(np.where(outcomes, q, 1 - q), axis=1)
        assert chances[bounds > epsilon].sum() + delta * (bounds[-1] > epsilon) <= significance


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
