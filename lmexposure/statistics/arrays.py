"""What the statistics share: columns, midranks, matrices of models x texts, and their sides.

A shadow is a model that is a reference for others. A shadow is judged by the other shadows, every
other model by all of them. A text has two sides: the models that had it, and those that had not.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array
from lmexposure.errors import InputError

_UNLIKELY = 1e-6
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
_FEWEST = 2  # models on a side; one has no spread
_LEAST = 1e-12  # variance, in units of the text's own over all models, that is taken for none


def column(values: Any, dtype: type) -> NDArray[Any]:
    """A read-only copy of shape (n,), so that a frozen result stays as it was made."""
    array: NDArray[Any] = np.array(values, dtype=dtype, ndmin=1)
    array.setflags(write=False)
    return array


def midranks(values: Floats) -> Floats:
    """Ranks from 1, the least first, shape (n,); equal values have the mean of their ranks.

    >>> midranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[place]


def finite_or_none(value: float) -> float | None:
    """JSON has no infinity: None is written for it, and a warning says why."""
    return float(value) if np.isfinite(value) else None


def score_matrix(name: str, values: ArrayLike, *, may_miss: bool = False) -> Floats:
    """Return finite float64 numbers of shape (M, N), M and N at least 1."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"{name} has shape {array.shape}; give one row a model and one column a canary"
        )
    bad = np.argwhere(np.isinf(array) if may_miss else ~np.isfinite(array))
    if bad.size:
        row, place = (int(i) for i in bad[0])
        raise InputError(
            f"{name}[{row}, {place}]={array[row, place]} is not finite ({len(bad)} of "
            f"{array.size} are not); a missing score cannot be dropped: score it again"
        )
    return array


def coin_matrix(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Flags:
    """Return booleans of this shape: which canary was in the training set of which model."""
    array = np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; give one coin a score, shape {shape}")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(
            f"{name} must hold true (in) and false (out), or 1 and 0, and nothing else"
        )
    return array.astype(bool)


def coin_notes(included: Flags) -> tuple[str, ...]:
    """Say where coins of shape (M, N) cannot have been tossed independently."""
    models, canaries = included.shape
    notes = []
    if _all_alike(included.sum(axis=0), models):
        notes.append(
            "every canary is in the same number of models, so that a model's coins follow from the "
            "other models' coins; toss each canary's coin in each model by itself, or give these "
            "scores to no bound that needs independent coins"
        )
    if _all_alike(included.sum(axis=1), canaries):
        notes.append(
            "every model holds the same number of canaries, so that its coins are not independent "
            "of each other; no bound that needs independent coins holds for them"
        )
    return tuple(notes)


def _all_alike(sums: Counts, trials: int) -> bool:
    """All sums are the same, where independent coins would hardly ever give that."""
    count = int(sums[0])
    if not 0 < count < trials or (sums != count).any():
        return False
    share = count / trials
    # By Stirling's formula no count is likelier than this; the first sum sets what the others are.
    likeliest = min(0.5, 1 / np.sqrt(2 * np.pi * trials * share * (1 - share)))
    return bool((len(sums) - 1) * np.log(likeliest) < np.log(_UNLIKELY))


def scores_and_coins(
    scores: ArrayLike, included: ArrayLike, *, may_miss: bool = False
) -> tuple[Floats, Flags]:
    """Scores and coins of the same models and texts, of shape (M, N) each."""
    x = score_matrix("scores", scores, may_miss=may_miss)
    return x, coin_matrix("included", included, x.shape)


def two_samples(in_scores: ArrayLike, out_scores: ArrayLike) -> tuple[Floats, Floats]:
    """Scores of those in and of those out, ascending."""
    inside, outside = bits_array("in_scores", in_scores), bits_array("out_scores", out_scores)
    return np.sort(inside), np.sort(outside)


def shadow_models(shadows: ArrayLike | None, models: int) -> Flags:
    """Which models are references, shape (M,); None: all."""
    if shadows is None:
        shadows = np.ones(models, dtype=bool)
    array = np.asarray(shadows)
    if array.shape != (models,) or (array.dtype != bool and not np.isin(array, (0, 1)).all()):
        raise InputError(
            f"shadows has shape {array.shape}; give true or false for each of {models} models"
        )
    if array.sum() < 2:
        raise InputError(
            f"shadows holds {int(array.sum())} of {models} models; a model is judged by others: "
            "give at least 2"
        )
    return array.astype(bool)


def alike_texts(
    kinds: Sequence[Hashable], lengths: Sequence[int]
) -> dict[tuple[Hashable, int], NDArray[np.intp]]:
    """The columns of texts of one kind and one length together, in the order in which they come."""
    if not lengths:
        raise InputError("there is no text to be judged; give at least one")
    if isinstance(kinds, str) or len(kinds) != len(lengths):
        raise InputError(
            f"kinds must be a list of {len(lengths)} kinds, one for each text, and is one of "
            f"{len(kinds)}"
        )
    found: dict[tuple[Hashable, int], list[int]] = {}
    for place, key in enumerate(zip(kinds, lengths, strict=True)):
        found.setdefault(key, []).append(place)
    return {key: np.array(places, dtype=np.intp) for key, places in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """Both sides of each text, (N,), or of each pair, (N, V); NaN with too few models."""

    # models_in, models_out: shape (N,) or (N, 1)
    models_in: Counts
    models_out: Counts
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
        return np.asarray(np.sqrt((inside + outside) / free))

    @property
    def t(self) -> Floats:
        """Welch's statistic; of two constant sides infinite where they differ, else 0."""
        difference, error = self.difference, np.sqrt(self.error_in + self.error_out)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = difference / error
        constant = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
        return np.where(np.isnan(difference), np.nan, np.where(error > 0, t, constant))

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
