"""What stops a release: thresholds against a result, one verdict, one exit code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.gate.verdict import CHECK_KINDS, check, rows_unknown
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "CHECK_KINDS",
    "check",
    "rows_unknown",
]
