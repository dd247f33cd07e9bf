"""The skew-normal curve: a log-cdf that is right far in the tail, and the likeliest fit."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array
from lmexposure.errors import InputError

_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
_B2 = 2 / math.pi  # squared mean of |Z|, Z standard normal
_LARGEST_SHAPE = 1e4  # a half-normal; scipy's search runs on without an end
_FEWEST = 20
_TAIL = 1e-6  # below this, cancellation in Owen's formula costs more digits than quadrature
_DROP = 40.0  # nats by which the integrand has fallen where quadrature stops: e^-40 = 4e-18
_Parameters = tuple[float, float, float]  # shape, location, scale: scipy's order
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
    """The skew-normal curve of the largest likelihood, of five searches by scipy.

    From scipy's own start the search ends at a lesser summit in one of ten small samples, for at
    shape 0 the likelihood is stationary whatever the data.

    Source: Azzalini 1985, A class of distributions which includes the normal ones.
    """
    x = bits_array("reference_bits", bits)
    if x.size < _FEWEST:
        raise InputError(
            f"reference_bits holds {x.size} numbers; a curve needs at least {_FEWEST}: "
            "score more references, where the format has as many fills"
        )
    mean, deviation = float(x.mean()), float(x.std())
    if not deviation > 1e-9 * max(1.0, abs(mean)):
        raise InputError(
            f"reference_bits are all {mean:g}: there is no curve to fit; use sampled_exposure"
        )
    from scipy import stats  # brings most of scipy: only for a fit

    z = (x - mean) / deviation
    fits = [_search(z), *(_search(z, start) for start in _starts(z))]
    return _in_bits(min(fits, key=lambda fit: float(stats.skewnorm.nnlf(fit, z))), mean, deviation)


def refit(bits: NDArray[np.float64]) -> SkewNormal:
    """The likeliest curve of a sample that follows one: there the moments' start suffices."""
    mean, deviation = float(bits.mean()), float(bits.std())
    return _in_bits(_search((bits - mean) / deviation), mean, deviation)


def _search(z: NDArray[np.float64], start: _Parameters | None = None) -> _Parameters:
    """What scipy's search finds from `start`, or from the sample's moments."""
    from scipy import stats

    if start is None:
        shape, location, scale = stats.skewnorm.fit(z, optimizer=_simplex)
    else:
        shape, location, scale = stats.skewnorm.fit(
            z, start[0], loc=start[1], scale=start[2], optimizer=_simplex
        )
    if abs(shape) > _LARGEST_SHAPE:
        fixed = math.copysign(_LARGEST_SHAPE, shape)
        shape, location, scale = stats.skewnorm.fit(z, fa=fixed, loc=location, scale=scale)
    return float(shape), float(location), float(scale)


def _simplex(
    _scipys: object, start: NDArray[np.float64], *, args: tuple[NDArray[np.float64]], disp: int
) -> NDArray[np.float64]:
    """The search that scipy makes, step for step, with a likelihood in a third of the time."""
    from scipy import optimize

    found: NDArray[np.float64] = optimize.fmin(_minus_log_likelihood, start, args=args, disp=disp)
    return found


def _minus_log_likelihood(parameters: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """As scipy's, without its checks and penalties at each of hundreds of steps."""
    shape, location, scale = parameters
    if not (scale > 0 and math.isfinite(shape)):
        return math.inf
    total = _log_density((x - location) / scale, shape).sum()
    return float(x.size * math.log(scale) - total)


def _starts(z: NDArray[np.float64]) -> Iterator[_Parameters]:
    """For mean 0 and deviation 1, to either side: nearly symmetric, and nearly a half-normal."""
    for shape, end in ((1.5, float(z.min())), (-1.5, float(z.max()))):
        delta = shape / math.hypot(1, shape)
        scale = 1 / math.sqrt(1 - _B2 * delta**2)
        yield shape, -scale * delta * math.sqrt(_B2), scale
        yield math.copysign(50, shape), end, math.sqrt(float(np.mean((z - end) ** 2)))


def _in_bits(fit: _Parameters, mean: float, deviation: float) -> SkewNormal:
    """The fit to standardised numbers, back in bits."""
    shape, location, scale = fit
    return SkewNormal(location=mean + deviation * location, scale=deviation * scale, shape=shape)
