"""Guards for what several trained models give: scores and coins, models x canaries."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure.errors import InputError

_UNLIKELY = 1e-6


def score_matrix(name: str, values: ArrayLike, *, may_miss: bool = False) -> NDArray[np.float64]:
    """Return finite float64 numbers of shape (M, N), M and N at least 1.

    Args:
        name: for messages.
        values: to be looked at.
        may_miss: let NaN pass, as `lira_matrix` gives it; the caller says what becomes of it.

    Raises:
        InputError: another number of dimensions, nothing in it, or a NaN or infinity.
    """
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


def coin_matrix(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return booleans of this shape: which canary was in the training set of which model.

    Raises:
        InputError: another shape, or something that is neither true/false nor 1/0.
    """
    array = np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; give one coin a score, shape {shape}")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(
            f"{name} must hold true (in) and false (out), or 1 and 0, and nothing else"
        )
    return array.astype(bool)


def coin_notes(included: NDArray[np.bool_]) -> tuple[str, ...]:
    """Say where coins of shape (M, N) cannot have been tossed one by one.

    A design that puts each canary into exactly half of the models makes a model's coin a function
    of the others' coins, and a score that uses the other models then reads it.
    """
    models, canaries = included.shape
    notes = []
    if _all_alike(included.sum(axis=0), models):
        notes.append(
            "every canary is in the same number of models, so that a model's coins follow from the "
            "other models' coins; toss each cell's coin by itself, or give these scores to no "
            "bound that needs independent coins"
        )
    if _all_alike(included.sum(axis=1), canaries):
        notes.append(
            "every model holds the same number of canaries, so that its coins are not independent "
            "of each other; no bound that needs independent coins holds for them"
        )
    return tuple(notes)


def _all_alike(sums: NDArray[np.int64], trials: int) -> bool:
    """All sums are the same, where independent coins would hardly ever give that."""
    count = int(sums[0])
    if not 0 < count < trials or (sums != count).any():
        return False
    share = count / trials
    # By Stirling's formula no count is likelier than this; the first sum sets what the others are.
    likeliest = min(0.5, 1 / np.sqrt(2 * np.pi * trials * share * (1 - share)))
    return bool((len(sums) - 1) * np.log(likeliest) < np.log(_UNLIKELY))
