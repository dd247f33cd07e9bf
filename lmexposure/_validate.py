"""The guards everyone uses: refuse with name, value and allowed range.

Numpy is imported for arrays alone: its numbers are `numbers.Real` like Python's, and a gate that
reads settings and records answers before numpy would be loaded.
"""

import math
from collections.abc import Sequence
from datetime import date
from numbers import Integral, Real
from typing import TYPE_CHECKING

from lmexposure.errors import InputError, SettingsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

LARGEST_NUMBER = 1e100  # of bits or nats in a result: nothing measured or claimed comes near
LARGEST_SEED = 2**63 - 1
_LEAST = 1e-30  # of a scale: its square is a number in float64, and it is one in float32
LEAST_LEVEL = 1e-9  # of an interval, and how far from 1 that of a sample is at least
MOST_THREADS = 1024  # more than a machine has; of far more, torch takes none or ends the process


def integer(
    name: str,
    value: int,
    *,
    low: int,
    high: int | None = None,
    error: type[InputError] = SettingsError,
) -> int:
    """Return `value` if it is a whole number in [low, high]; bool does not count as a number."""
    allowed = f"at least {low}" if high is None else f"from {low} to {high}"
    if not _is_whole(value) or value < low or (high is not None and value > high):
        raise error(f"{name}={value!r} must be a whole number {allowed}")
    return int(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def of_type(
    name: str,
    value: object,
    kinds: type | tuple[type, ...],
    wanted: str,
    *,
    error: type[InputError] = SettingsError,
) -> None:
    """Refuse what is of another type, and say what to give: the noun phrase `wanted`."""
    if not isinstance(value, kinds):
        raise error(f"{name} is of type {type(value).__name__}; give {wanted}")


def text(name: str, value: str, *, error: type[InputError] = SettingsError) -> str:
    """Return `value` if it is a string with something in it, and no NUL."""
    if not isinstance(value, str) or not value:
        raise error(f"{name}={value!r} must be a string, and not an empty one")
    if "\0" in value:
        raise error(f"{name}={value!r} holds a NUL, and no name does; leave it out")
    return value


def flag(name: str, value: bool, *, error: type[InputError] = SettingsError) -> bool:
    """Return `value` if it is True or False, and no word or number instead."""
    if not isinstance(value, bool):
        raise error(f"{name}={value!r} must be true or false")
    return value


def positive(name: str, value: float) -> float:
    """Return `value` if it is finite and above 0."""
    if not _is_number(value) or not _is_finite(value) or value <= 0:
        raise SettingsError(f"{name}={value!r} must be a finite number above 0")
    if value < _LEAST:
        raise SettingsError(
            f"{name}={value!r} is too small to calculate with; give {_LEAST:g} or more"
        )
    return float(value)


def fraction(name: str, value: float, *, error: type[InputError] = SettingsError) -> float:
    """Return `value` if it lies strictly between 0 and 1."""
    if not _is_number(value) or not 0 < value < 1:
        raise error(f"{name}={value!r} must lie strictly between 0 and 1")
    return float(value)


def coverage(name: str, value: float) -> float:
    """Return `value` if an interval of a sample can have it as its level, and a record hold it."""
    if not _is_number(value) or not LEAST_LEVEL <= value <= 1 - LEAST_LEVEL:
        raise SettingsError(
            f"{name}={value!r} must lie strictly between 0 and 1, at least {LEAST_LEVEL:g} away "
            "from either; 0.95 is usual"
        )
    return float(value)


def one_of(
    name: str, value: str, allowed: Sequence[str], *, error: type[InputError] = SettingsError
) -> str:
    """Return `value` if it is one of the allowed words."""
    if value not in allowed:
        raise error(f"{name}={value!r} must be one of {', '.join(allowed)}")
    return value


def bits_array(name: str, values: "ArrayLike") -> "NDArray[np.float64]":
    """Return finite float64 numbers of shape (n,), n >= 1; a scalar becomes shape (1,)."""
    import numpy as np

    try:
        array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as failure:  # the text of the failure would show a cell
        raise InputError(f"{name} must hold numbers only; give a flat, non-empty list") from failure
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}; give a flat, non-empty list of numbers")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InputError(
            f"{name}[{bad[0]}]={array[bad[0]]} is not finite ({bad.size} of {array.size} are not); "
            "a missing score cannot be dropped: score it again"
        )
    return array


def delta_of_dp(name: str, value: float) -> float:
    """Return `value` if it lies in [0, 1), as the delta of differential privacy must."""
    if not _is_number(value) or not 0 <= value < 1:
        raise SettingsError(f"{name}={value!r} must lie in [0, 1); 0 is pure differential privacy")
    return float(value)


def day(name: str, value: object) -> str:
    """Return `value` if it is a day as YYYY-MM-DD."""
    try:
        if isinstance(value, str) and date.fromisoformat(value).isoformat() == value:
            return value
    except ValueError:
        pass
    raise SettingsError(f"{name}={value!r} must be a day as YYYY-MM-DD, such as 2026-01-31")
