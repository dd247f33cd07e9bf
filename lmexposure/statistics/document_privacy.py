"""What a training by DP-SGD let out about each document, from the gradients it really had.

A claim is of the worst document: one whose gradient is clipped at every step. Most gradients are
smaller than the clip, and the same noise hides them better.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import fraction, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu

_ORDERS = np.concatenate(
    [
        [1.01, 1.02, 1.05],
        np.arange(11, 110) / 10,
        np.arange(11, 64),
        [72, 80, 100, 128, 160, 192, 256, 384, 512],
    ]
)
_RATIO = 1.02  # between neighbouring norms of the grid: rounded up by 1 % in the mean
_LEAST = 1e-3  # of the clip: what is smaller, but not 0, counts as this
_EDGE = 9.0  # standard deviations around what is integrated: 1e-19 is beyond
_MOST_AT_ONCE = 1000  # documents


def document_epsilons(
    norms: ArrayLike,
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps_each: ArrayLike,
    delta: float,
) -> Floats:
    """The epsilon of each document ex post: what this training let out about it.

    Ex post, because it is of the gradients that this training had, where a claim is of all that it
    could have had. Private: a document's epsilon depends on the document, and says something about
    it. Not adaptively composable: stopping because the epsilons are small, or dropping documents
    whose epsilon is large, is covered by none of them. And of gradients measured at R moments: in
    between, they are taken to be as large as at the moment.

    Source: Feldman and Zrnic 2021; Yu et al. 2023. Sampling: Mironov, Talwar and Zhang 2019,
        Section 3.3. From Rényi divergences: Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> norms = [[0.1, 0.25, 0.5, 1.0]]
    >>> found = document_epsilons(
    ...     norms, noise_multiplier=20.0, sample_rate=1.0, steps_each=[100], delta=1e-5
    ... )
    >>> found.round(4).tolist()
    [0.16, 0.4344, 0.9263, 1.9931]
    """
    noise, delta = positive("noise_multiplier", noise_multiplier), fraction("delta", delta)
    if positive("sample_rate", sample_rate) > 1:
        raise SettingsError(f"sample_rate={sample_rate!r} must be above 0 and at most 1")
    clipped, steps = _measured(norms, steps_each)
    if sample_rate == 1:
        mus = np.sqrt(steps @ clipped**2) / noise
        different, equal = np.unique(mus, return_inverse=True)
        return np.array([epsilon_of_mu(mu=float(mu), delta=delta) for mu in different])[equal]
    # The grid's norms that occur, ascending, and the place among them of each, rounded up.
    down = np.floor(np.log(np.clip(clipped, _LEAST, 1.0)) / -np.log(_RATIO) + 1e-9)
    power, flat = np.unique(np.where(clipped > 0, down, np.inf), return_inverse=True)
    grid = np.where(np.isinf(power), 0.0, _RATIO**-power)
    place: NDArray[np.intp] = flat.reshape(clipped.shape)
    table = _divergences(grid / noise, sample_rate)  # (levels, orders)
    parts = np.array_split(place, max(1, -(-place.shape[1] // _MOST_AT_ONCE)), axis=1)
    return np.concatenate([_epsilons(part, steps, table, delta) for part in parts])


def _measured(norms: ArrayLike, steps_each: ArrayLike) -> tuple[Floats, Floats]:
    """Norms, at most 1, of shape (R, N), and steps of shape (R,)."""
    array, steps = np.asarray(norms, dtype=np.float64), np.asarray(steps_each, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise InputError(
            f"norms has shape {array.shape}; give (R, N): at each of R moments, of N documents"
        )
    if steps.shape != array.shape[:1]:
        raise InputError(
            f"steps_each has shape {steps.shape}, and norms {array.shape}; give one number of "
            "steps for each row of norms"
        )
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise InputError("norms holds a number that is below 0 or not finite; measure them again")
    if not np.all(np.isfinite(steps) & (steps >= 0) & (steps == np.floor(steps))):
        raise InputError(f"steps_each={steps.tolist()} must be whole numbers, at least 0")
    return np.minimum(array, 1.0), steps


def _divergences(shifts: Floats, rate: float) -> Floats:
    """Rényi divergences of a step, of shape (levels, orders).

    Of rate N(shift, 1) + (1 - rate) N(0, 1) from N(0, 1); the other way they are smaller (Mironov
    et al. 2019, Theorem 5). The integrands are smooth and fall like a Gaussian, so that sums over
    an even grid are exact to rounding.
    """
    largest = float(shifts.max())
    step = min(1 / 8, 1 / (2 * largest)) if largest else 1 / 8
    columns = []
    for order in _ORDERS:
        x = np.arange(-_EDGE, order * largest + _EDGE + step, step)
        shifted = shifts[:, None] * x - shifts[:, None] ** 2 / 2  # (levels, points)
        ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + shifted)
        density = -(x**2) / 2 - np.log(2 * np.pi) / 2
        power = special.logsumexp(order * ratio + density, axis=1) + np.log(step)
        columns.append(np.maximum(power, 0.0) / (order - 1))
    return np.where(shifts[:, None] > 0, np.stack(columns, axis=1), 0.0)


def _epsilons(place: NDArray[np.intp], steps: Floats, table: Floats, delta: float) -> Floats:
    spent = np.zeros((place.shape[1], len(_ORDERS)))
    for row, times in zip(place, steps, strict=True):
        spent += times * table[row]
    best = spent + np.log1p(-1 / _ORDERS) - (np.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    epsilons = np.maximum(best.min(axis=1), 0.0)
    return np.where(spent.max(axis=1) == 0, 0.0, epsilons)
