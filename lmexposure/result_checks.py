"""What every result must keep to, whoever wrote it: the first thing in it that cannot be so.

A number that is out of its range would not look wrong in a report; it would look like a finding.
"""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lmexposure.results import CanaryResult, Result

__all__ = ["ROLES", "ROUNDING", "wrong_part"]

ROLES = ("canary", "control", "excluded", "reference")
ROUNDING = 1e-6  # bits
# The ways to estimate an exposure; only the extrapolation may pass log2|R|, or fall below 0.
_METHODS = (
    "exact",
    "exact up to an empirical margin",
    "bounded",
    "importance",
    "sampled",
    "skew_normal",
    "certificate",
)
_EXTRAPOLATED = "skew_normal"
_MOST_DIGITS = 4000  # of |R|: Python reads no more than 4,300
_QUANTILES = 9


def wrong_part(result: Result) -> str | None:
    """The first part of a result that cannot be read, or cannot be true; None where all can.

    Args:
        result: as `read_result` gave it.
    """
    return (
        _wrong_tables(result)
        or next(filter(None, map(_wrong_format, result.formats)), None)
        or _twice("format", [row["name"] for row in result.formats])
        or _wrong_canaries(result)
    )


def _wrong_tables(result: Result) -> str | None:
    """The first part that is not of its kind."""
    parts: dict[str, Any] = vars(result)
    tables = {"model": dict, "settings": dict, "privacy": dict | None, "warnings": list}
    for name, kind in tables.items():
        if not isinstance(parts[name], kind):
            return f"{name} is no {'list' if kind is list else 'table'}"
    for name in ("formats", "summary"):
        rows = parts[name]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return f"{name} is no list of tables"
    hashes = (name for name in ("manifest_sha256", "inputs_sha256"))
    wrong = next((name for name in hashes if not isinstance(parts[name], str)), None)
    for name in ("scores_sha256", "lmexposure"):
        if not isinstance(parts[name], str | None):
            wrong = name
    return None if wrong is None else f"{wrong} is no text"


def _wrong_format(row: dict[str, Any]) -> str | None:
    name, size = row.get("name"), str(row.get("space_size"))
    if not isinstance(name, str):
        return f"a format has the name {name!r}"
    if not size.isdecimal() or not _finite(row.get("bits")):
        return f"format {name!r} has no size"
    if len(size) > _MOST_DIGITS:
        return f"format {name!r} has a size of {len(size):,} digits, more than {_MOST_DIGITS:,}"
    if int(size) < 1 or abs(math.log2(int(size)) - row["bits"]) > ROUNDING:
        return f"format {name!r} has {row['bits']:g} bits, which is not log2 of its size {size}"
    references = row.get("references")
    if not isinstance(references, int) or isinstance(references, bool):
        return f"format {name!r} has no number of references"
    if not 0 <= references < int(size):
        return f"format {name!r} has {references:,} references among {size} fills"
    return _wrong_quantiles(name, row.get("reference_bits_quantiles"))


def _wrong_quantiles(name: str, known: Any) -> str | None:
    """Old results have none; a list is of so many, ascending."""
    if known is None or known == []:
        return None
    numbers = isinstance(known, list) and len(known) == _QUANTILES and all(map(_finite, known))
    if not numbers or sorted(known) != known:
        return f"format {name!r} has reference_bits_quantiles that are not {_QUANTILES} in order"
    return None


def _wrong_canaries(result: Result) -> str | None:
    """The first canary that cannot be read."""
    formats = {row["name"]: row for row in result.formats}
    for one in result.canaries:
        problem = (
            _wrong_canary(one, formats)
            or _wrong_numbers(one)
            or _wrong_exposure(one.exposure, formats[one.format])
        )
        if problem:
            return f"canary {one.id!r} {problem}"
    return _twice("canary", [one.id for one in result.canaries])


def _wrong_canary(one: CanaryResult, formats: dict[str, Any]) -> str | None:
    parts: dict[str, Any] = vars(one)
    if not isinstance(parts["id"], str):
        return "has an id that is no text"
    if not isinstance(parts["format"], str) or one.format not in formats:
        return f"is of format {one.format!r}, which the result does not have"
    if one.role not in ROLES or not _whole(parts["repetitions"]) or one.repetitions < 0:
        return f"has role {one.role!r} and repetitions {one.repetitions!r}"
    if not isinstance(parts["exposure"], dict) or not isinstance(parts["extraction"], list):
        return "has no table of exposure or no list of extraction"
    return None


def _wrong_numbers(one: CanaryResult) -> str | None:
    """None says that a number is missing, and the gate sees it; NaN would pass every comparison."""
    bits = one.log_perplexity_bits
    numbers = [bits, *(one.exposure.get(name) for name in ("value", "low", "high"))]
    if not all(value is None or _finite(value) for value in numbers):
        return "holds a number that is not finite"
    if bits is not None and bits < -ROUNDING:
        return f"has a log-perplexity of {bits:g} bits, and none is below 0"
    return None


def _wrong_exposure(exposure: dict[str, Any], form: dict[str, Any]) -> str | None:
    method, value = exposure.get("method"), exposure.get("value")
    if value is None:
        return None
    if method not in _METHODS:
        return f"has an exposure by {method!r}, which is none of {', '.join(_METHODS)}"
    if not isinstance(exposure.get("capped"), bool):
        return f"has capped={exposure.get('capped')!r} in its exposure, not true or false"
    least, most = _least(method, form["references"]), form["bits"]
    if method == _EXTRAPOLATED or least - ROUNDING <= value <= most + ROUNDING:
        return None
    return f"has an exposure of {value:g} bits, outside of {least:.4g} to {most:g}"


def _least(method: str, references: int) -> float:
    """What costs more than every reference has the rank n + 1 of n."""
    return math.log2(references / (references + 1)) if method == "sampled" and references else 0.0


def _finite(value: Any) -> bool:
    """Whether it is a number that every float can be held against."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _twice(kind: str, names: Sequence[str]) -> str | None:
    name, times = next(iter(Counter(names).most_common(1)), ("", 0))
    return f"{kind} {name!r} stands there {times} times" if times > 1 else None
