"""The skew-normal curve: a log-cdf that is right far in the tail, and the likeliest fit."""

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array
from lmexposure.errors import InputError

_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
_B2 = 2 / math.pi  # squared mean of |Z|, Z standard normal
# The mean of the standardised curve, r = b delta / sqrt(1 - b^2 delta^2), at infinite shape.
_R_MAX = math.sqrt(_B2 / (1 - _B2))
_R_FLOOR = 1e-4
_ETA_MAX = 8.0  # shape about 4,000: beyond it the curve no longer changes
_STARTS = (-4.0, -1.5, -0.3, 0.3, 1.5, 4.0)
_FEWEST = 20
_STEPS = 200
_FLAT = 1e-8  # largest slope of the mean loss at which a search has arrived
_FIRST_INVERSE = np.diag([1.0, 0.5, 6.0])  # of the Hessian at the normal curve
_TAIL = 1e-6  # below this, cancellation in Owen's formula costs more digits than quadrature
_DROP = 40.0  # nats by which the integrand has fallen where quadrature stops: e^-40 = 4e-18
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


@dataclass(frozen=True, kw_only=True)
class SkewNormal:
    """The density 2 phi(z) Phi(shape z) / scale with z = (x - location) / scale, x in bits."""

    location: float
    scale: float
    shape: float

    def log_cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Natural logarithm of P(X <= x), shape of x."""
        z = (np.asarray(x, np.float64) - self.location) / self.scale
        return skew_normal_log_cdf(z, self.shape)

    def exposure(self, x: ArrayLike) -> NDArray[np.float64]:
        """-log2 P(X <= x) in bits, shape of x; higher = further into the low tail."""
        return np.maximum(-self.log_cdf(x) / math.log(2), 0.0)

    def sample(self, n: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Draw n independent numbers, shape (n,).

        Source: Henze 1986, A probabilistic representation of the skew-normal distribution.
        """
        delta = self.shape / math.hypot(1, self.shape)
        half, whole = np.abs(generator.standard_normal(n)), generator.standard_normal(n)
        return self.location + self.scale * (delta * half + math.sqrt(1 - delta**2) * whole)

    def to_dict(self) -> dict[str, float]:
        """Plain Python values."""
        return asdict(self)


def skew_normal_log_cdf(z: ArrayLike, shape: float) -> NDArray[np.float64]:
    """Logarithm of P(Z <= z) of the standard skew-normal, to about 1e-9 however far to the left.

    Owen's formula, F = Phi(z) - 2 T(z, shape), loses all digits to cancellation in the left tail;
    there the density is integrated relative to its value at z, so that nothing underflows.

    Source: Azzalini 1985, A class of distributions which includes the normal ones, section 2.

    >>> float(skew_normal_log_cdf(-40.0, 0.0).round(4))
    -804.6084
    """
    if not math.isfinite(shape):
        raise InputError(f"shape={shape} must be a finite number; fit the curve again")
    z = np.asarray(z, np.float64)
    direct = special.ndtr(z) - 2 * special.owens_t(z, shape)
    far = (direct < _TAIL) & (_slope(z, shape) > 1)
    result = np.empty(z.shape)
    result[far] = _tail_log_cdf(z[far], shape)
    result[~far] = np.log(np.minimum(direct[~far], 1.0))
    return result


def _log_density(z: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = math.log(2) - _LOG_SQRT_TAU - z**2 / 2 + special.log_ndtr(shape * z)
    return logs


def _slope(z: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    """Derivative of the log-density at z; positive to the left of the mode."""
    with np.errstate(over="ignore"):  # erfcx is infinite far to the right, where its share is 0
        mills = math.sqrt(2 / math.pi) / special.erfcx(-shape * z / math.sqrt(2))
    slope: NDArray[np.float64] = -z + shape * mills
    return slope


def _tail_log_cdf(z: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    """Gauss-Legendre over [z - length, z], shape (n,); beyond it lies a share below e^-40.

    The log-density is concave with curvature -1 at most, so that u to the left of z it has
    fallen by slope u + u^2 / 2 at least; `length` solves this for a fall of 40 nats.
    """
    slope = _slope(z, shape)
    length = 2 * _DROP / (slope + np.sqrt(slope**2 + 2 * _DROP))  # (n,)
    u = length[:, None] * (_NODES + 1) / 2  # (n, nodes)
    at_z = _log_density(z, shape)
    relative = np.exp(_log_density(z[:, None] - u, shape) - at_z[:, None])
    logs: NDArray[np.float64] = at_z + np.log(length / 2 * (relative @ _WEIGHTS))
    return logs


def fit_skew_normal(bits: ArrayLike) -> SkewNormal:
    """The skew-normal curve of the largest likelihood.

    The search runs over mean, log standard deviation and a smooth function of the skewness, for
    in location, scale and shape the likelihood is stationary at shape 0 whatever the data
    (Azzalini 1985), and near-symmetric data would stop there.

    Source: Azzalini 1985 (parameters); Nocedal and Wright 2006, algorithm 6.1 (the search).
    """
    x = bits_array("reference_bits", bits)
    if x.size < _FEWEST:
        raise InputError(
            f"reference_bits holds {x.size} numbers; a curve needs at least {_FEWEST}: "
            "score more references"
        )
    mean, deviation = float(x.mean()), float(x.std())
    if not deviation > 1e-9 * max(1.0, abs(mean)):
        raise InputError(
            f"reference_bits are all {mean:g}: there is no curve to fit; use sampled_exposure"
        )
    z = (x - mean) / deviation
    moments = math.atanh(float(np.clip((z**3).mean() / 0.9953, -0.95, 0.95)))
    best = min((_search(z, eta) for eta in (moments, *_STARTS)), key=lambda found: found[0])
    return _curve(best[1], mean, deviation)


def refit(bits: NDArray[np.float64], near: SkewNormal) -> SkewNormal:
    """The likeliest curve of a sample drawn from `near`, searched from there only."""
    mean, deviation = float(bits.mean()), float(bits.std())
    delta = near.shape / math.hypot(1, near.shape)
    r = math.sqrt(_B2) * delta / math.sqrt(1 - _B2 * delta**2)
    eta = math.atanh(max(-0.999999, min(0.999999, (r / _R_MAX) ** 3)))
    return _curve(_search((bits - mean) / deviation, eta)[1], mean, deviation)


def _search(z: NDArray[np.float64], eta: float) -> tuple[float, NDArray[np.float64]]:
    """Loss and parameters (mean, log deviation, eta) at the minimum nearest to `eta`, z (n,).

    BFGS with halved steps (Nocedal and Wright 2006, algorithm 6.1). scipy's L-BFGS-B calls a
    threaded library for its 3 x 3 systems: on a busy machine it was seen to take ten times longer.
    """
    theta, inverse = np.array([0.0, 0.0, eta]), _FIRST_INVERSE.copy()
    loss, slope = _loss(theta, z)
    for _ in range(_STEPS):
        step = -inverse @ slope
        step *= min(1.0, 1.0 / float(np.abs(step).max()))
        found = _halve(theta, step, loss, float(slope @ step), z)
        if found is None:
            break
        step, loss, new = found
        change = new - slope
        theta, slope = theta + step, new
        if float(np.abs(slope).max()) < _FLAT:
            break
        inverse = _bfgs(inverse, step, change)
    return loss, theta


def _halve(
    theta: NDArray[np.float64],
    step: NDArray[np.float64],
    loss: float,
    descent: float,
    z: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float, NDArray[np.float64]] | None:
    """The step, halved until the loss falls (Armijo), with loss and gradient there; or None."""
    for _ in range(30):
        new, slope = _loss(theta + step, z)
        if new < loss + 1e-4 * descent:
            return step, new, slope
        step, descent = step / 2, descent / 2
    return None


def _bfgs(
    inverse: NDArray[np.float64], step: NDArray[np.float64], change: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Equation 6.17; a step along which the slope does not rise starts the estimate anew."""
    rise = float(step @ change)
    if rise <= 1e-20:
        return _FIRST_INVERSE.copy()
    side = np.eye(3) - np.outer(step, change) / rise
    updated: NDArray[np.float64] = side @ inverse @ side.T + np.outer(step, step) / rise
    return updated


def _root(eta: float) -> float:
    """The standardised mean r; r^3 is proportional to the skewness and to tanh(eta)."""
    r = _R_MAX * float(np.cbrt(math.tanh(max(-_ETA_MAX, min(_ETA_MAX, eta)))))
    return math.copysign(max(abs(r), _R_FLOOR), r)


def _direct(theta: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """(location, scale, shape, r) of (mean, log deviation, eta); Azzalini 1985."""
    mean, deviation, r = float(theta[0]), math.exp(theta[1]), _root(theta[2])
    shape = r / math.sqrt(_B2 - (1 - _B2) * r**2)
    return mean - deviation * r, deviation * math.hypot(1, r), shape, r


def _loss(theta: NDArray[np.float64], x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Mean negative log-likelihood in nats, and its gradient by the chain rule, shape (3,)."""
    location, scale, shape, r = _direct(theta)
    z = (x - location) / scale  # (n,)
    log_phi_cdf = special.log_ndtr(shape * z)
    mills = np.exp(-((shape * z) ** 2) / 2 - _LOG_SQRT_TAU - log_phi_cdf)
    loss = math.log(scale) + _LOG_SQRT_TAU - math.log(2) + (z @ z / 2 - log_phi_cdf.sum()) / x.size
    zm = z @ mills / x.size
    by_location = -(z.mean() - shape * mills.mean()) / scale
    by_scale = -(z @ z / x.size - 1 - shape * zm) / scale
    deviation, by_r = math.exp(theta[1]), _B2 / (_B2 - (1 - _B2) * r**2) ** 1.5 * -zm
    by_r += -deviation * by_location + deviation * r / math.hypot(1, r) * by_scale
    by_log_deviation = deviation * (math.hypot(1, r) * by_scale - r * by_location)
    by_eta = by_r * _R_MAX**3 / math.cosh(theta[2]) ** 2 / (3 * r**2)
    return float(loss), np.array([by_location, by_log_deviation, by_eta])


def _curve(theta: NDArray[np.float64], mean: float, deviation: float) -> SkewNormal:
    """The fit to standardised numbers, back in bits."""
    location, scale, shape, _ = _direct(theta)
    return SkewNormal(location=mean + deviation * location, scale=deviation * scale, shape=shape)
