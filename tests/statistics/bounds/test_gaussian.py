import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize

from lmexposure.errors import SettingsError
from lmexposure.statistics import (
    delta_of_epsilon,
    epsilon_of_mu,
)


def _naive_delta(mu: float, epsilon: float) -> float:
    """The integral of (p - e^epsilon q)_+ with p = N(mu, 1) and q = N(0, 1)."""
    turn = epsilon / mu + mu / 2

    def excess(x: float) -> float:
        p, q = math.exp(-((x - mu) ** 2) / 2), math.exp(epsilon - x * x / 2)
        return (p - q) / math.sqrt(2 * math.pi)

    return float(integrate.quad(excess, turn, turn + 12, epsabs=1e-14, epsrel=1e-11)[0])


# Balle and Wang 2018, Theorem 8; dp_accounting prints the same.
@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        (0.5, 1e-5, 1.993091),
        (1, 1e-5, 4.377178095681),
        (1, 1e-6, 4.886554117462),
        (2, 1e-5, 9.997256146434),
        (4, 1e-5, 24.381611),
    ],
)
def test_published_epsilon(mu: float, delta: float, epsilon: float) -> None:
    assert epsilon_of_mu(mu=mu, delta=delta) == pytest.approx(epsilon, abs=1e-6)


def test_published_delta() -> None:
    # Balle and Wang 2018, Theorem 8, at sigma = epsilon = 1.
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


def test_refusals() -> None:
    with pytest.raises(SettingsError, match="mu=-1 must be a finite number, at least 0"):
        epsilon_of_mu(mu=-1, delta=0.1)
    with pytest.raises(SettingsError, match=r"delta=1 must lie in \[0, 1\)"):
        epsilon_of_mu(mu=1, delta=1)
    with pytest.raises(SettingsError, match="sigma=0 must be a finite number above 0"):
        delta_of_epsilon(sigma=0, epsilon=1)
    with pytest.raises(SettingsError, match="epsilon=nan must be a finite number, at least 0"):
        delta_of_epsilon(sigma=1, epsilon=math.nan)
