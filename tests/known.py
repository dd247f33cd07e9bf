"""What a result may lack, and a test knows to be there."""

from typing import TypeVar

_T = TypeVar("_T")


def known(value: _T | None) -> _T:
    """The value, for it is not None."""
    assert value is not None
    return value
