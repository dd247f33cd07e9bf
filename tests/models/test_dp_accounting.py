"""Epsilon of DP-SGD against published values and closed forms; noise for an epsilon."""

import builtins
import math
import warnings
from typing import Any

import pytest
from scipy import optimize, stats

from lmexposure.errors import SettingsError
from lmexposure.models.dp_accounting import epsilon_spent, noise_for


def of_gaussian(mu: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism of sensitivity mu, by its curve (Balle and Wang 2018)."""

    def above(epsilon: float) -> float:
        low, high = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(stats.norm.cdf(low) - math.exp(epsilon) * stats.norm.cdf(high)) - delta

    return float(optimize.brentq(above, 0, 200))


def test_published_values_are_met() -> None:
    """Opacus' own accountants at sigma 1.5 and a rate of .04, as measured with version 1.6.0."""
    spent = epsilon_spent([(1.5, 0.04, 2249)], delta=1e-5)
    assert spent.prv == pytest.approx(6.7774, abs=1e-3)
    assert epsilon_spent([(1.5, 0.04, 2250)], delta=1e-5).rdp == pytest.approx(7.3291, abs=1e-3)
    assert spent.epsilon == spent.prv


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (4.0, 10), (20.0, 100)])
def test_full_batches_are_the_gaussian_mechanism(noise: float, steps: int) -> None:
    """At mu 1 the curve gives 4.3772 (Dong et al. 2022); the accountant stays within .011 above."""
    exact = of_gaussian(math.sqrt(steps) / noise, 1e-5)
    spent = epsilon_spent([(noise, 1.0, steps)], delta=1e-5)
    assert spent.prv is not None
    assert exact <= spent.prv <= exact + 0.011
    assert spent.rdp >= exact


def test_the_rate_helps_and_steps_cost() -> None:
    one = epsilon_spent([(1.0, 0.01, 100)], delta=1e-5).epsilon
    assert epsilon_spent([(1.0, 0.02, 100)], delta=1e-5).epsilon > one
    halves = epsilon_spent([(1.0, 0.01, 50), (1.0, 0.01, 50)], delta=1e-5).epsilon
    assert halves == pytest.approx(one, rel=0.01)
    assert epsilon_spent([], delta=1e-5).epsilon == 0
    assert epsilon_spent([(1.0, 0.01, 0)], delta=1e-5).epsilon == 0


def test_a_promise_that_is_none_is_quick_and_silent() -> None:
    """The numeric accountant would take minutes (Opacus issue 587)."""
    with warnings.catch_warnings(action="error"):
        spent = epsilon_spent([(0.1, 0.05, 500)], delta=1e-5)
    assert spent.prv is None
    assert spent.epsilon == spent.rdp > 100


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 100.0])
def test_noise_keeps_to_epsilon_and_less_does_not(epsilon: float) -> None:
    noise = noise_for(epsilon, delta=1e-5, sample_rate=0.0625, steps=160)

    def spent(sigma: float) -> float:
        return epsilon_spent([(sigma, 0.0625, 160)], delta=1e-5).epsilon

    assert spent(noise) <= epsilon < spent(noise * 0.997)


def test_an_epsilon_out_of_reach_is_refused_with_the_one_in_reach() -> None:
    with pytest.raises(
        SettingsError,
        match=r"epsilon=1e-09 is reached by no noise in 320 steps at a rate of 0\.0625 and delta "
        r"1e-05; 0\.\d+ would be, by a noise multiplier of 10000: give a larger epsilon",
    ):
        noise_for(1e-9, delta=1e-5, sample_rate=0.0625, steps=320)


def test_without_opacus_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("opacus"):
            raise ImportError(name)
        return found(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"needs opacus; install it: pip install 'lmexposure\["):
        epsilon_spent([(1.0, 0.1, 10)], delta=1e-5)
