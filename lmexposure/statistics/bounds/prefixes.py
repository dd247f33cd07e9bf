"""How likely a beginning of two merged samples is, against labels drawn one by one.

Two samples of fixed sizes, merged in order, are no independent labels; but every beginning with as
many of each is as likely, so that one number corrects a walk of independent labels exactly.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_WIDENINGS = 80
_BELOW_1 = 1 - 2.0**-53
# The integrand is left out where it is below e^-40 of its peak.
_NEGLIGIBLE = 40.0


def log_prefix_ratio(
    points: Floats, others: Floats, *, sizes: tuple[int, int], slope: float, theta: float
) -> Floats:
    """Log of the chance of one beginning of the merged order over that by independent labels.

    Points are uniform on (0, 1 / slope), others on (0, 1). A beginning with a points and b others
    whose last is at u has density proportional to
    u^(a+b-1) (1 - u)^(m-b) (1 - slope u)^(n-a), whatever the order of labels within it.

    Args:
        points: a, the points among the beginning, shape (n,).
        others: b, the others among it, shape (n,); a + b >= 1. The last may be a point, or, where
            points remain, an other.
        sizes: (n, m), all points and all others.
        slope: at least 1.
        theta: the chance of a point in the walk of independent labels.

    Returns:
        Shape (n,).
    """
    n, m = sizes
    left_points, left_others, length = n - points, m - others, points + others
    constant = special.gammaln(n + 1) - special.gammaln(left_points + 1)
    constant = constant + special.gammaln(m + 1) - special.gammaln(left_others + 1)
    constant = constant - special.gammaln(length) + points * math.log(slope)
    walk = points * math.log(theta) + others * math.log1p(-theta)
    integral = _log_integral(length - 1, left_others, left_points, slope)
    result: Floats = constant + integral - walk
    return result


def _log_integral(c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """Log of the integral of u^c (1 - u)^d (1 - slope u)^e over (0, 1 / slope); shape (n,).

    The integrand has one peak and falls off on both sides: Gauss's rule between places where it
    has become negligible.
    """

    def height(u: Floats) -> Floats:
        value = special.xlogy(c, u) + special.xlog1py(d, -u)
        return np.asarray(value + special.xlog1py(e, -np.minimum(slope * u, 1.0)))

    end = 1 / slope
    mode = np.minimum(_mode(c, d, e, slope), end)
    peak = height(mode)
    reach = _width(mode, c, d, e, slope)
    for _ in range(_WIDENINGS):
        left, right = np.maximum(mode - reach, 0.0), np.minimum(mode + reach, end)
        short = ((left > 0) & (height(left) > peak - _NEGLIGIBLE)) | (
            (right < end) & (height(right) > peak - _NEGLIGIBLE)
        )
        if not short.any():
            break
        reach = np.where(short, 1.5 * reach, reach)
    half = (right - left) / 2  # (n,)
    nodes = (left + half)[:, None] + half[:, None] * _NODES  # (n, 64)
    logs = c[:, None] * np.log(nodes) + d[:, None] * np.log1p(-nodes)
    logs += e[:, None] * np.log1p(-np.minimum(slope * nodes, _BELOW_1))
    value: Floats = np.log(np.exp(logs - peak[:, None]) @ _WEIGHTS * half) + peak
    return value


def _width(mode: Floats, c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """A first guess of how far the integrand reaches: widened where it is too short.

    Eight standard deviations of a bell curve; where the peak is at an end, 0 or 1 / slope, what it
    takes an exponential to fall off.
    """
    left, right = np.maximum(mode, np.finfo(float).tiny), 1 - mode
    end = 1 - slope * mode
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bend = np.where(c > 0, c / left**2, 0.0) + np.where(d > 0, d / right**2, 0.0)
        bend = bend + np.where(e > 0, e * slope**2 / end**2, 0.0)
        rise = np.where(e > 0, 0.0, c / left - np.where(d > 0, d / right, 0.0))
        steep = np.where(c > 0, np.maximum(rise, 0), d + slope * e)
        width = np.minimum(8 / np.sqrt(bend), _NEGLIGIBLE / steep)
    narrowed: Floats = np.clip(np.nan_to_num(width, nan=1 / slope), 1e-12 / slope, 1 / slope)
    return narrowed


def _mode(c: Floats, d: Floats, e: Floats, slope: float) -> Floats:
    """Where c / u = d / (1 - u) + slope e / (1 - slope u): the smaller root of a quadratic."""
    square = slope * (c + d + e)
    linear = c * (1 + slope) + d + slope * e
    root = np.sqrt(np.maximum(linear**2 - 4 * square * c, 0))
    mode: Floats = 2 * c / np.maximum(linear + root, np.finfo(float).tiny)
    return mode
