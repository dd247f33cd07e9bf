"""What holds of every bound on epsilon, whatever it is computed from."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from known import as_json

from lmexposure.statistics import (
    Bonferroni,
    EpsilonBound,
    FixedThreshold,
    GaussianEpsilon,
    OrderStatistics,
    SplitSample,
    clopper_pearson_epsilon,
    epsilon_from_exposure,
    epsilon_from_scores,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    joint_beta_epsilon,
    lidp_epsilon,
    one_run_audit,
    one_run_epsilon,
    one_run_fdp_epsilon,
    one_run_gaussian_audit,
    step_guesses_epsilon,
    step_rates_epsilon,
)
from lmexposure.statistics.arrays import Floats

HALF = 0.5  # scores above it guess that a canary was in
UP, DOWN = np.ones(100), np.zeros(100)
EVEN = np.repeat([0.0, 1.0], 50)


def of_scores(threshold: Any) -> Any:
    return partial(epsilon_from_scores, threshold=threshold)


def by_coins(bound: Any) -> Any:
    def of_both(inside: Floats, outside: Floats, **terms: Any) -> EpsilonBound:
        coins = np.arange(inside.size + outside.size) < inside.size
        found: EpsilonBound = bound(np.append(inside, outside), coins, **terms)
        return found

    return of_both


def by_guesses(bound: Any) -> Any:
    def of_both(inside: Floats, outside: Floats, **terms: Any) -> EpsilonBound:
        number = inside.size + outside.size
        correct = int((inside > HALF).sum() + (outside <= HALF).sum())
        found: EpsilonBound = bound(canaries=number, guesses=number, correct=correct, **terms)
        return found

    return of_both


def exposure(inside: Floats, outside: Floats, **terms: Any) -> EpsilonBound:
    return epsilon_from_exposure(-inside, -outside, **terms).bound


def rates(inside: Floats, outside: Floats, **terms: Any) -> EpsilonBound:
    caught, alarms = int((inside > HALF).sum()), int((outside > HALF).sum())
    return clopper_pearson_epsilon(
        caught, inside.size, alarms, outside.size, **{"significance": 0.05, **terms}
    )


def joint_beta(inside: Floats, outside: Floats, **terms: Any) -> EpsilonBound:
    return joint_beta_epsilon(
        false_negatives=int((inside <= HALF).sum()),
        false_positives=int((outside > HALF).sum()),
        true_negatives=int((outside <= HALF).sum()),
        true_positives=int((inside > HALF).sum()),
        **terms,
    )


OF_ANY_DELTA: dict[str, tuple[Any, str]] = {
    "order statistics": (of_scores(OrderStatistics()), "iid-scores"),
    "fixed threshold": (of_scores(FixedThreshold(value=HALF)), "iid-scores"),
    "split sample": (of_scores(SplitSample()), "iid-scores"),
    "bonferroni": (of_scores(Bonferroni()), "iid-scores"),
    "values": (of_scores(Bonferroni(grid=(0.0, 0.5, 1.0), by="value")), "iid-scores"),
    "exposure": (exposure, "iid-scores"),
    "coined exposure": (partial(exposure, inclusion_probability=0.5), "any-dp"),
    "rates": (rates, "iid-scores"),
    "joint beta": (joint_beta, "bayesian"),
    "lidp": (partial(lidp_epsilon, threshold=HALF), "any-dp"),
    "audit": (by_coins(partial(one_run_audit, seed=1)), "any-dp"),
    "guesses": (by_guesses(one_run_epsilon), "any-dp"),
}
GAUSSIAN: dict[str, tuple[Any, str]] = {
    "two samples": (partial(gaussian_dp_epsilon, delta=1e-5), "gaussian"),
    "gaussian audit": (by_coins(partial(one_run_gaussian_audit, delta=1e-5, seed=1)), "gaussian"),
    "gaussian guesses": (by_guesses(partial(one_run_fdp_epsilon, delta=1e-5)), "gaussian"),
    "step guesses": (by_coins(partial(step_guesses_epsilon, delta=1e-5)), "gaussian"),
    "step rates": (by_coins(partial(step_rates_epsilon, delta=1e-5)), "gaussian"),
}
BOUNDS = OF_ANY_DELTA | GAUSSIAN
STEPS = {"step guesses", "step rates"}
every = pytest.mark.parametrize("name", BOUNDS)


@every
def test_without_a_signal_it_is_exactly_0(name: str) -> None:
    for found in (BOUNDS[name][0](EVEN, EVEN), BOUNDS[name][0](UP, UP)):
        assert found.value == 0
        assert name in STEPS or "no epsilon above 0 could" in found.notes[0]


@every
def test_scores_the_wrong_way_round_give_0_and_say_so(name: str) -> None:
    found = BOUNDS[name][0](DOWN, UP)
    assert found.value == 0
    if name not in STEPS and "exposure" not in name:
        assert "higher scores must mean in" in found.notes[0] or "wrong dir" in found.notes[0]


@every
def test_a_perfect_attack_shows_what_is_attainable(name: str) -> None:
    bound, validity = BOUNDS[name]
    found = bound(UP, DOWN)
    assert found.value == pytest.approx(found.max_attainable, abs=1e-6)
    assert (found.value > 2, found.notes, found.validity) == (True, (), validity)
    weaker = bound(np.append(UP[:90], DOWN[:10]), np.append(DOWN[:90], UP[:10]))
    assert 0 < weaker.value < weaker.max_attainable == pytest.approx(found.max_attainable)
    told = as_json(found)
    assert (told["value"], told["validity"], told["unit"]) == (found.value, validity, "nats")


def test_an_exposure_s_point_is_plain_too() -> None:
    told = as_json(epsilon_from_exposure([1], [2, 3]))
    assert told["bound"]["method"] == "epsilon_from_exposure"
    assert (told["point"]["validity"], told["point"]["unit"]) == ("point", "nats")


@every
def test_so_few_canaries_can_show_nothing(name: str) -> None:
    count = 2 if name == "split sample" else 1
    few = BOUNDS[name][0](UP[:count], DOWN[:count])
    assert few.value == few.max_attainable == 0
    assert name in STEPS or "too few to show any epsilon" in few.notes[0]


@every
def test_copies_share_a_bound(name: str) -> None:
    if name in STEPS:
        return
    bound = BOUNDS[name][0]
    once, four = bound(UP, DOWN), bound(UP, DOWN, repetitions=4)
    assert (four.repetitions, "by group privacy" in four.adjacency) == (4, True)
    if name in GAUSSIAN:
        assert 0 < four.value < once.value / 4
        if isinstance(once, GaussianEpsilon):
            assert four.value == pytest.approx(epsilon_of_mu(mu=once.mu / 4, delta=1e-5))
    else:
        assert four.value == pytest.approx(once.value / 4, abs=1e-7)
        once, four = (bound(UP, DOWN, delta=1e-3, repetitions=n).value for n in (1, 4))
        assert 0 < four < once / 4
        assert bound(UP, DOWN, delta=0.1, repetitions=4).value < four  # at times for nothing


@pytest.mark.parametrize("name", OF_ANY_DELTA)
def test_a_delta_is_paid_for(name: str) -> None:
    found = [OF_ANY_DELTA[name][0](UP, DOWN, delta=delta) for delta in (0.0, 1e-4, 0.01, 0.99)]
    values = [bound.value for bound in found]
    assert values[0] > values[1] > values[2] >= values[3] == 0
    assert "too few to show any epsilon" in found[3].notes[0]


@every
def test_the_largest_floats_are_only_compared(name: str) -> None:
    if name in STEPS:  # whose noise is measured
        return
    with np.errstate(over="raise", invalid="raise"):
        assert BOUNDS[name][0](1.7e308 * UP, -1.7e308 * UP).value > 1
