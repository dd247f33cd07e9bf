"""Ends of intervals that tests know to be there: a missing one fails where it is compared."""

from typing import Any


def ends(found: Any) -> tuple[float, float]:
    return found.low, found.high


def holds(found: Any, truth: float) -> bool:
    return bool(found.low <= truth <= found.high)
