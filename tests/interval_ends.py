"""Ends of intervals that tests know to be there, and what a result is in a file.

A missing end fails where it is compared.
"""

import json
import math
from typing import Any

from lmexposure._record import plain


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
