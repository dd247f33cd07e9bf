"""What the estimates share: read-only columns, midranks, and numbers that JSON can hold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def column(values: Any, dtype: type) -> NDArray[Any]:
    """A read-only copy of shape (n,), so that a frozen result stays as it was made."""
    array: NDArray[Any] = np.array(values, dtype=dtype, ndmin=1)
    array.setflags(write=False)
    return array


def midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1, the least first, shape (n,); equal values have the mean of their ranks.

    >>> midranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (counts.cumsum() - (counts - 1) / 2)[place]
    return ranks


def finite_or_none(value: float) -> float | None:
    """JSON has no infinity: None is written for it, and a warning says why."""
    return float(value) if np.isfinite(value) else None
