"""Gaussian differential privacy in epsilon and delta: what a shift of mu standard deviations costs.

mu-GDP says that telling a neighbour apart is no easier than telling N(0, 1) from N(mu, 1).
"""

import math

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr, ndtri

from lmexposure._validate import delta_of_dp, positive
from lmexposure.errors import SettingsError


def epsilon_of_mu(*, mu: float, delta: float) -> float:
    """The epsilon, in nats, of a mu-GDP mechanism at a delta; infinite at delta 0 unless mu is 0.

    Args:
        mu: shift in standard deviations, at least 0; higher = less private.
        delta: in [0, 1).

    Returns:
        The smallest epsilon >= 0 with delta(epsilon) <= delta.

    Raises:
        SettingsError: `mu` or `delta` out of range.

    Source: Dong, Roth and Su 2019, Corollary 2.13; Balle and Wang 2018, Theorem 8.

    >>> round(epsilon_of_mu(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    mu, delta = _at_least_zero("mu", mu), delta_of_dp("delta", delta)
    if delta >= _delta(mu, 0.0):
        return 0.0
    if delta == 0:
        return math.inf
    # delta(epsilon) < P(N(0, 1) < mu / 2 - epsilon / mu), which is delta at this epsilon.
    most = mu * (mu / 2 - float(ndtri(delta)))
    return float(brentq(lambda epsilon: _delta(mu, epsilon) - delta, 0.0, most, xtol=1e-13))


def delta_of_epsilon(*, sigma: float, epsilon: float) -> float:
    """The delta of the Gaussian mechanism with sensitivity 1 at an epsilon; higher = less private.

    Args:
        sigma: standard deviation of the noise in units of the sensitivity, above 0.
        epsilon: in nats, at least 0.

    Raises:
        SettingsError: `sigma` or `epsilon` out of range.

    Source: Balle and Wang 2018, Theorem 8.

    >>> round(delta_of_epsilon(sigma=1.0, epsilon=1.0), 9)
    0.126936738
    """
    return _delta(1 / positive("sigma", sigma), _at_least_zero("epsilon", epsilon))


def _delta(mu: float, epsilon: float) -> float:
    """Phi(-t) - e^epsilon Phi(-t - mu), where t = epsilon / mu - mu / 2.

    e^epsilon phi(t + mu) = phi(t), so that with Mills' ratio the second term is phi(t) M(t + mu):
    nothing overflows, and t + mu >= mu / 2 keeps the ratio finite.
    """
    if mu == 0:
        return 0.0
    t = epsilon / mu - mu / 2
    density = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    if t <= 0:
        return float(ndtr(-t)) - density * _mills(t + mu)
    return density * (_mills(t) - _mills(t + mu))


def _mills(t: float) -> float:
    """Phi(-t) / phi(t) for t >= 0."""
    return math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))


def _at_least_zero(name: str, value: float) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    try:
        return positive(name, value)
    except SettingsError:
        raise SettingsError(f"{name}={value!r} must be a finite number, at least 0") from None
