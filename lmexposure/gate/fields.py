"""One field of a result, read: a number in its range, plainly missing, or refused.

A number that is not finite passes every comparison unseen, so none gets past here.
"""

import sys
from collections.abc import Mapping
from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.wording import visible

__all__ = ["finite", "table", "truth", "whole"]

_LARGEST = sys.float_info.max
_MOST = 10**15  # of a count; every whole number up to it is a float as well
_SHOWN = 60  # characters


def finite(
    record: Mapping[str, Any],
    key: str,
    *,
    where: str,
    low: float = -_LARGEST,
    high: float = _LARGEST,
) -> float | None:
    """A number of a result; None where it is missing.

    Raises:
        ResultError: something else stands there, or a number that is out of its range.

    >>> finite({"bits": 3}, "bits", where="x")
    3.0
    """
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ResultError(f"{where}: {key}={_shown(value)} is no number; measure again")
    if not low <= value <= high:
        least, most = (
            "any finite number" if abs(end) == _LARGEST else f"{end:g}" for end in (low, high)
        )
        raise ResultError(
            f"{where}: {key}={_shown(value)} must lie from {least} to {most}; measure again"
        )
    return float(value)


def whole(
    record: Mapping[str, Any], key: str, *, low: int, where: str, high: int | None = _MOST
) -> int:
    """A whole number of a result, at least `low`; large ones stand there as decimal strings.

    Raises:
        ResultError: anything else stands there.
    """
    value = record.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4000:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and _fits(value, low, high):
        return value
    bound = "" if high is None else f", at most {high:,}"
    raise ResultError(
        f"{where}: {key}={_shown(value)} must be a whole number, at least {low}{bound}; measure "
        "again"
    )


def _fits(value: int, low: int, high: int | None) -> bool:
    return low <= value and (high is None or value <= high)


def truth(record: Mapping[str, Any], key: str, *, where: str) -> bool:
    """Yes or no; no where it is missing.

    Raises:
        ResultError: something else stands there, which would count as yes.
    """
    value = record.get(key)
    if value is not None and not isinstance(value, bool):
        raise ResultError(f"{where}: {key}={_shown(value)} must be true or false; measure again")
    return bool(value)


def table(value: object, *, where: str) -> Mapping[str, Any]:
    """A table of a result; an empty one where it is missing.

    Raises:
        ResultError: something else stands there.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ResultError(f"{where}: {_shown(value)} is no table; measure again")
    return value


def _shown(value: object) -> str:
    return visible(repr(value))[:_SHOWN]
