"""Who was in, and whether coins that somebody declares can have fallen so."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure.errors import InputError

# An honest audit is refused once in a million.
_UNLIKELY = 1e-6


def refuse_unlikely_coins(included: int, candidates: int, probability: float) -> None:
    """Refuse a number of canaries that such coins would hardly ever give.

    A bound that rests on coins which were never tossed can be anything. To refuse cannot raise the
    share of bounds above the truth.

    Args:
        included: candidates that went in.
        candidates: all of them.
        probability: declared, of each to go in.

    Raises:
        InputError: a probability below 1e-6, both tails counted.
    """
    below = float(special.bdtr(included, candidates, probability))
    above = float(special.bdtrc(included - 1, candidates, probability)) if included else 1.0
    chance = 2 * min(below, above)
    if chance < _UNLIKELY:
        raise InputError(
            f"{included} of {candidates} candidates went in, which coins of {probability:g} give "
            f"with probability {chance:.1g}; declare the coins that were tossed, or none: use "
            "epsilon_from_scores, or epsilon_from_exposure without coins"
        )


def true_or_false(included: ArrayLike) -> NDArray[np.bool_]:
    """Booleans of shape (m,), from booleans or from numbers that are 0 or 1."""
    given = np.atleast_1d(np.asarray(included))
    if given.ndim != 1 or given.size == 0:
        raise InputError(f"included has shape {given.shape}; give a flat list, one per canary")
    if given.dtype.kind not in "biuf" or not np.all((given == 0) | (given == 1)):
        raise InputError("included must hold True and False (or 1 and 0) only, one per canary")
    return given.astype(np.bool_)
