"""What a result may lack, and a test knows to be there; what it is in a file.

A missing end fails where it is compared.
"""

import json
import math
from typing import Any, TypeVar

from lmexposure._record import plain

_T = TypeVar("_T")


def known(value: _T | None) -> _T:
    """The value, for it is not None."""
    assert value is not None
    return value


def ends(found: Any) -> tuple[float, float]:
    return found.low, found.high


def holds(found: Any, truth: float) -> bool:
    return bool(found.low <= truth <= found.high)


def binomial_chance(first: int, last: int, n: int, p: float) -> float:
    """P(first <= Bin(n, p) <= last), term by term."""
    terms = (math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(first, last + 1))
    return math.fsum(terms)


def as_json(found: Any) -> Any:
    """As plain JSON, without infinity or NaN."""
    return json.loads(json.dumps(plain(found), allow_nan=False))
