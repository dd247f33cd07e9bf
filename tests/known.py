"""What a result may lack, and a test knows to be there; a missing end fails when compared."""

from typing import Any, TypeVar

_T = TypeVar("_T")


def known(value: _T | None) -> _T:
    """The value, for it is not None."""
    assert value is not None
    return value


def ends(found: Any) -> tuple[float, float]:
    return found.low, found.high


def holds(found: Any, truth: float) -> bool:
    return bool(found.low <= truth <= found.high)
