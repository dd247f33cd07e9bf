"""A result whose parts do not fit is refused in words, whichever step of a report trips over it."""

from collections.abc import Iterator
from contextlib import contextmanager

from jinja2 import UndefinedError

from lmexposure._text import visible
from lmexposure.errors import LmexposureError, ResultError

__all__ = ["refused"]

_TRIPPED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UndefinedError)
_LONGEST = 200  # characters of the reason


@contextmanager
def refused(name: str) -> Iterator[None]:
    """Turn what a damaged result trips into an error that says whose result it is.

    Args:
        name: of the run, or of the runs.

    Raises:
        ResultError: a part of the result is missing, of another kind, or beyond every range.
    """
    try:
        yield
    except LmexposureError:
        raise
    except _TRIPPED as failure:
        reason = visible(f"{type(failure).__name__}: {failure}"[:_LONGEST])
        raise ResultError(
            f"the result of {visible(name)!r} lacks or adds fields ({reason}); measure again"
        ) from failure
