"""What DP-SGD promises, against published numbers, closed forms and a second accountant."""

import math
import sys
from collections.abc import Callable
from functools import partial

import pytest
from opacus.accountants import PRVAccountant

from lmexposure.errors import SettingsError
from lmexposure.models import (
    Spent,
    dp_accounting,
    epsilon_at_least,
    epsilon_spent,
    group_epsilon,
    noise_for,
)
from lmexposure.statistics import epsilon_of_mu, sampled_epsilon

# The epsilon at delta 1e-5 of (noise multiplier, rate, steps), of dp-accounting 0.6.0:
# >>> accountant = dp_accounting.pld.PLDAccountant()
# >>> step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
# >>> accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
# >>> accountant.get_epsilon(1e-5)
SECOND_ACCOUNTANT = [
    (2.009, 0.0047, 60, 0.0637),
    (1.897, 0.0641, 611, 4.0099),
    (3.536, 0.1049, 50, 0.8356),
    (3.052, 0.0012, 1439, 0.0446),
    (0.837, 0.1375, 605, 38.5675),
    (0.76, 0.0458, 984, 17.7694),
    (1.928, 0.0089, 4936, 1.3516),
    (0.945, 0.1483, 65, 9.4754),
]


@pytest.mark.parametrize(("noise", "rate", "steps", "epsilon"), SECOND_ACCOUNTANT)
def test_prv_is_within_half_a_per_cent_of_a_second_accountant(
    noise: float, rate: float, steps: int, epsilon: float
) -> None:
    found = epsilon_spent([(noise, rate, steps)], delta=1e-5)
    assert found.prv == pytest.approx(epsilon, rel=0.005, abs=1e-4)
    assert found.rdp > epsilon


def test_published_numbers_of_a_long_training() -> None:
    assert epsilon_spent([(1.5, 0.04, 2249)], delta=1e-5).prv == pytest.approx(6.7774, abs=1e-3)
    assert epsilon_spent([(1.5, 0.04, 2250)], delta=1e-5).rdp == pytest.approx(7.3291, abs=1e-3)


def test_full_batches_follow_the_gaussian_curve() -> None:
    assert epsilon_spent([(1, 1, 1)], delta=1e-5).prv == pytest.approx(4.3772, abs=1e-3)
    found = epsilon_spent([(20.0, 1.0, 60), (40.0, 1.0, 160)], delta=1e-5)
    assert found.prv == pytest.approx(epsilon_of_mu(mu=0.5, delta=1e-5))


def test_what_no_step_saw_spends_nothing() -> None:
    assert epsilon_spent([], delta=1e-5) == Spent(prv=0.0, rdp=0.0)
    assert epsilon_spent([(1.0, 0.1, 0)], delta=1e-5).epsilon == 0
    assert group_epsilon([], delta=1e-5, size=3) == 0


def gives_nan(*_: object, **__: object) -> float:
    return math.nan


def fails(*_: object, **__: object) -> float:
    raise RuntimeError("Cannot compute epsilon")


def test_where_prv_overflows_or_fails_rdp_answers_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = epsilon_spent([(0.1, 0.5, 100)], delta=1e-5)
    assert found.prv is None
    assert (found.epsilon, found.accountant) == (found.rdp, "rdp")
    assert math.isfinite(found.rdp)
    assert "beyond its arithmetic" in found.note
    monkeypatch.setattr(PRVAccountant, "get_epsilon", gives_nan)
    assert "it gave nan" in epsilon_spent([(1.0, 0.1, 12)], delta=1e-5).note
    monkeypatch.setattr(PRVAccountant, "get_epsilon", fails)
    assert "Cannot compute epsilon" in epsilon_spent([(1.0, 0.1, 11)], delta=1e-5).note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [pytest.param(1e-6, 0.25, 1200, marks=pytest.mark.slow), (1 / 3.08, 0.5, 400), (0.02, 0.01, 1)],
)
def test_where_prv_overflows_the_training_spends_at_least_what_more_noise_does(
    noise: float, rate: float, steps: int
) -> None:
    history = [(noise, rate, steps)]
    assert epsilon_spent(history, delta=1e-5).prv is None
    found = epsilon_at_least(history, delta=1e-5)
    assert found > 400
    assert found >= sampled_epsilon(mu=1 / noise, rate=rate, delta=1e-5)
    assert found < epsilon_spent(history, delta=1e-5).rdp


@pytest.mark.slow
def test_what_is_spent_at_least_is_never_above_what_is_spent() -> None:
    for noise, rate, steps in ((1.0, 0.05, 300), (50.0, 0.01, 1), (1e4, 0.1, 2)):
        history = [(noise, rate, steps)]
        least, most = epsilon_at_least(history, delta=1e-5), epsilon_spent(history, delta=1e-5)
        assert 0 <= least <= most.epsilon + 1e-9
        assert least >= sampled_epsilon(mu=1 / noise, rate=rate, delta=1e-5)
    one = epsilon_at_least([(0.5, 0.25, 1)], delta=1e-5)
    assert one == pytest.approx(sampled_epsilon(mu=2.0, rate=0.25, delta=1e-5), abs=0.03)


def test_without_prv_a_single_step_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PRVAccountant, "get_epsilon", fails)
    monkeypatch.setattr(dp_accounting, "_MORE_NOISE", 10.0)  # in few tries
    found = epsilon_at_least([(0.7, 0.3, 13), (0.4, 0.1, 7)], delta=1e-5)
    steps = [sampled_epsilon(mu=1 / s, rate=q, delta=1e-5) for s, q in ((0.7, 0.3), (0.4, 0.1))]
    assert found == max(steps) > 0


@pytest.mark.slow
def test_noise_is_the_smallest_that_keeps_epsilon() -> None:
    noise = noise_for(4.0, delta=1e-5, sample_rate=0.05, steps=200)
    assert epsilon_spent([(noise, 0.05, 200)], delta=1e-5).epsilon <= 4
    assert epsilon_spent([(noise / 1.002, 0.05, 200)], delta=1e-5).epsilon > 4


@pytest.mark.parametrize(("epsilon", "noise"), [(4.3771781, 1.0), (0.5, None), (40.0, None)])
def test_noise_of_full_batches_inverts_the_gaussian_curve(
    epsilon: float, noise: float | None
) -> None:
    found = noise_for(epsilon, delta=1e-5, sample_rate=1.0, steps=1)
    assert epsilon_of_mu(mu=1 / found, delta=1e-5) <= epsilon
    assert epsilon_of_mu(mu=1.001 / found, delta=1e-5) >= epsilon
    assert noise is None or found == pytest.approx(noise, rel=1e-3)


def test_a_group_in_full_batches_is_one_document_of_less_noise() -> None:
    found = group_epsilon([(40.0, 1.0, 100)], delta=1e-5, size=4)
    assert found == pytest.approx(epsilon_of_mu(mu=1.0, delta=1e-5))


@pytest.mark.slow
def test_larger_groups_are_hidden_less_and_a_group_of_one_is_a_document() -> None:
    history = [(2.0, 0.01, 1000)]
    sizes = [group_epsilon(history, delta=1e-5, size=k) for k in (1, 2, 5)]
    assert sizes[0] == pytest.approx(epsilon_spent(history, delta=1e-5).epsilon)
    assert sizes[0] < sizes[1] < sizes[2]


STEP, SPENT = [(1.0, 0.1, 1)], partial(epsilon_spent, delta=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SPENT([(0.0, 0.1, 1)]), "noise_multiplier=0.0 must be a finite"),
        (lambda: SPENT([(1.0, 0.0, 1)]), "sample_rate=0.0 must be a finite numb"),
        (lambda: SPENT([(1.0, 1.5, 1)]), "sample_rate=1.5 must be above 0 and a"),
        (lambda: SPENT([(1.0, 0.5, -1)]), "steps=-1 must be a whole number at le"),
        (lambda: epsilon_spent(STEP, delta=0), "delta=0 must lie strictly between 0 and 1"),
        (lambda: noise_for(-1, delta=0.1, sample_rate=0.1, steps=1), "epsilon=-1 must be a finite"),
        (
            lambda: group_epsilon(STEP, delta=0.1, size=0),
            "size=0 must be a whole number at least 1",
        ),
        (
            lambda: noise_for(0.01, delta=1e-5, sample_rate=1.0, steps=100_000_000),
            r"epsilon=0\.01 is not reached by 100000000 steps .* 4\.377",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(call: Callable[[], float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        call()


def test_without_opacus_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(SettingsError, match=r"pip install 'lmexposure\[dp\]'"):
        epsilon_spent([(1.0, 0.1234, 1)], delta=1e-5)
