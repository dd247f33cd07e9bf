"""Numbers that a file may lack: a missing one is drawn nowhere, never at zero."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["finite", "finite_array"]

_MOST = 1e100  # nothing measured comes near, and the ticks of an axis overflow long after


def finite(value: Any) -> float | None:
    """The number, or None for what is missing, no number, beyond every axis, infinite or NaN.

    >>> finite(1), finite(float("nan")), finite(None), finite("2")
    (1.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        return None
    return float(value) if -_MOST <= value <= _MOST else None


def finite_array(values: Iterable[Any]) -> NDArray[np.float64]:
    """The same for many; None becomes NaN, which no line is drawn through, shape (n,)."""
    found = (finite(value) for value in values)
    return np.array([math.nan if one is None else one for one in found], dtype=np.float64)
