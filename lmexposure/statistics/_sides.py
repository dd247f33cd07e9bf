"""Scores in models that had a text beside those in models that had not: means, Welch's t."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure.errors import InputError
from lmexposure.statistics.many_models import coin_matrix

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_FEWEST = 2  # models on a side; one has no spread
_LEAST = 1e-12  # variance, in units of the text's own over all models, that is taken for none


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """Both sides of each text, (N,), or of each pair, (N, V); NaN with too few models."""

    # models_in, models_out: shape (N,) or (N, 1)
    models_in: NDArray[np.int64]
    models_out: NDArray[np.int64]
    # mean_in, mean_out: of scores less their mean over all models
    mean_in: Floats
    mean_out: Floats
    # error_in, error_out: variance of each mean, 0 where a side is constant
    error_in: Floats
    error_out: Floats

    @classmethod
    def of(
        cls, z: Floats, in_sum: Floats, in_squares: Floats, coins: Flags, pairs: bool
    ) -> "Sides":
        """From sums over the models with each text."""
        m, n = coins.sum(axis=0), (~coins).sum(axis=0)
        if pairs:
            m, n = m[:, None], n[:, None]
        enough = (m >= _FEWEST) & (n >= _FEWEST)
        in_, out = np.where(enough, m, np.nan), np.where(enough, n, np.nan)
        squares = (z * z).sum(axis=0)
        least = _LEAST * squares / max(len(z), 1)
        mean_in, mean_out = in_sum / in_, (z.sum(axis=0) - in_sum) / out
        return cls(
            models_in=m,
            models_out=n,
            mean_in=mean_in,
            mean_out=mean_out,
            error_in=_error(in_squares, mean_in, in_, least),
            error_out=_error(squares - in_squares, mean_out, out, least),
        )

    @property
    def difference(self) -> Floats:
        """Mean in less mean out."""
        return self.mean_in - self.mean_out

    @property
    def spread(self) -> Floats:
        """Standard deviation of a score on its side, both sides together."""
        inside = self.error_in * self.models_in * (self.models_in - 1)
        outside = self.error_out * self.models_out * (self.models_out - 1)
        free = np.maximum(self.models_in + self.models_out - 2, 1)
        spread: Floats = np.sqrt((inside + outside) / free)
        return spread

    @property
    def t(self) -> Floats:
        """Welch's statistic; of two constant sides infinite where they differ, else 0."""
        difference, error = self.difference, np.sqrt(self.error_in + self.error_out)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = difference / error
        constant = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
        found: Floats = np.where(np.isnan(difference), np.nan, np.where(error > 0, t, constant))
        return found

    def ends(self, level: float) -> tuple[Floats, Floats]:
        """Welch 1947, with Satterthwaite's degrees of freedom; both sides constant: no width."""
        error = self.error_in + self.error_out
        parts = self.error_in**2 / np.maximum(self.models_in - 1, 1)
        parts = parts + self.error_out**2 / np.maximum(self.models_out - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            free = np.where(parts > 0, error**2 / parts, 1.0)
        half = special.stdtrit(free, (1 + level) / 2) * np.sqrt(error)
        return self.difference - half, self.difference + half


def _error(squares: Floats, mean: Floats, models: Floats, least: Floats) -> Floats:
    """Variance of a mean; rounding of a constant side is no variance."""
    variance = (squares - models * mean * mean) / (models - 1)
    error: Floats = np.where(variance > least, variance, np.where(np.isnan(variance), np.nan, 0.0))
    return error / models


def of_own(z: Floats, coins: Flags) -> Sides:
    """Each text's own score, shape (N,)."""
    inside = np.where(coins, z, 0.0)
    return Sides.of(z, inside.sum(axis=0), (inside * z).sum(axis=0), coins, pairs=False)


def of_pairs(z: Floats, coins: Flags) -> Sides:
    """The scores of others, shape (N, V)."""
    had = coins.T.astype(np.float64)
    return Sides.of(z, had @ z, had @ (z * z), coins, pairs=True)


def coins_of(included: ArrayLike, models: int) -> Flags:
    """Coins of as many models, of any number of texts."""
    array = np.asarray(included)
    if array.ndim != 2 or len(array) != models or array.size == 0:
        raise InputError(
            f"included has shape {array.shape}; give one row a model, {models} of them, and one "
            "column a text"
        )
    return coin_matrix("included", array, array.shape)
