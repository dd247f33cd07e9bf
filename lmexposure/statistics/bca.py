"""The bootstrap interval of a mean that allows for skew: bias-corrected and accelerated (BCa)."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from lmexposure._validate import bits_array, fraction, integer

_MOST = 10_000  # beyond it the skew of a mean is too small to be worth n * resamples draws
_CELLS = 2**22  # resampled values held at once
_FEW = 20  # below it the interval covers noticeably less often than its level


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """A mean with an approximate interval, over canaries drawn like these.

    `method` is "bca", "normal" (more than 10,000 values), or "none" where `low` and `high` are
    None; `note` says what is to be known of it. `resamples` is 0 where none were drawn.
    """

    value: float
    low: float | None
    high: float | None
    level: float
    method: Literal["bca", "normal", "none"]
    resamples: int
    seed: int
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self)


def mean_interval(
    values: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> MeanInterval:
    """The mean, with its BCa bootstrap interval.

    Approximate: the level is reached as n grows. On exposures of guessing, 95 % intervals held
    the truth in 67 % of samples of 3, 79 % of 5, 89 % of 10, 92 % of 20 and 94 % of 200.

    Args:
        values: independent draws, one or shape (n,), finite.
        level: two-sided coverage wanted.
        resamples: bootstrap samples, at least 100; 0 for none: the interval is then normal.
        seed: of the resamples.

    Returns:
        The mean and its interval; no interval for fewer than 3 values or equal ones, and the
        normal one, without resamples, for more than 10,000.

    Raises:
        InputError: no values, or one that is not finite.
        SettingsError: a setting out of range.

    Source: Efron 1987, Better bootstrap confidence intervals, section 4; the acceleration is
    the jackknife's, which a mean has in closed form.

    >>> mean_interval([1.0, 2.0]).method
    'none'
    """
    array = bits_array("values", values)
    level, seed = fraction("level", level), integer("seed", seed, low=0)
    resamples = integer("resamples", resamples, low=0)
    if 0 < resamples < 100:
        integer("resamples", resamples, low=100)
    method, note = _way(array, resamples)
    low, high = None, None
    if method == "bca":
        low, high = _bca(array, level, _resampled(array, resamples, seed))
    elif method == "normal":
        half = float(ndtri((1 + level) / 2) * array.std(ddof=1) / np.sqrt(array.size))
        low, high = float(array.mean()) - half, float(array.mean()) + half
    return MeanInterval(
        value=float(array.mean()),
        low=low,
        high=high,
        level=level,
        method=method,
        resamples=resamples if method == "bca" else 0,
        seed=seed,
        note=note,
    )


def _way(
    values: NDArray[np.float64], resamples: int
) -> tuple[Literal["bca", "normal", "none"], str | None]:
    """Which interval these values allow, and what to say of it."""
    n = values.size
    if n < 3:
        return "none", f"{n} values give no interval of a mean; it takes at least 3"
    if np.ptp(values) == 0:
        return "none", f"{n} equal values show no spread to make an interval from"
    if n > _MOST:
        return "normal", f"normal interval: {n} values are more than the {_MOST} for a bootstrap"
    if resamples == 0:
        return "normal", "normal interval: no bootstrap was asked for"
    if n < _FEW:
        return "bca", (
            f"the bootstrap interval of the mean is rough with {n} values: it covers less often "
            f"than its level below about {_FEW}"
        )
    return "bca", None


def _resampled(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Means of samples of n drawn with replacement, shape (resamples,)."""
    generator, n = np.random.default_rng(seed), values.size
    chunk = max(1, _CELLS // n)
    means = [
        values[generator.integers(0, n, (min(chunk, resamples - start), n), np.int32)].mean(axis=1)
        for start in range(0, resamples, chunk)
    ]
    return np.concatenate(means)


def _bca(
    values: NDArray[np.float64], level: float, means: NDArray[np.float64]
) -> tuple[float, float]:
    centred = values - values.mean()
    # Means equal but for rounding count half, as equal ones do.
    slack = 1e-12 * float(np.abs(values).max())
    gap = means - values.mean()
    below = float(np.mean(gap < -slack) + np.mean(np.abs(gap) <= slack) / 2)
    bias = ndtri(np.clip(below, 0.5 / means.size, 1 - 0.5 / means.size))
    acceleration = np.sum(centred**3) / (6 * np.sum(centred**2) ** 1.5)
    z = bias + ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    # Efron 1987, equation 4.1 with the two levels of the interval.
    low, high = np.quantile(means, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)
