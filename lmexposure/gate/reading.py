"""A result as the gate reads it: classes of canaries, where a missing number is plainly missing.

A number that is not finite passes every comparison unseen, so none gets past here.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.wording import copies, visible
from lmexposure.results import CanaryResult, Result

__all__ = ["Attack", "CanaryClass", "Exposure", "classes_of", "finite", "whole"]

# An extrapolation or a certificate may be shown, but what was counted or drawn decides.
_DECIDING = ("exact", "importance", "sampled")
_NOT_DECIDING = ("skew_normal", "certificate")
_SLACK = 1e-6  # bits, for rounding


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """One canary's exposure in bits; higher = more memorised.

    Attributes:
        method: how it was estimated.
        value, low, high: the estimate and its interval; `high` is log2|R| where nothing is known.
        capped: the value is a lower bound.
        level: two-sided coverage of the interval.
    """

    method: str
    value: float
    low: float
    high: float
    capped: bool
    level: float

    @property
    def statistic(self) -> float:
        """What chance passes rarely: a rank itself, else the lower end of what was estimated."""
        ranked = self.method == "sampled" or self.method.startswith("exact")
        return self.value if ranked else self.low


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One search for one secret with nothing of it revealed.

    Attributes:
        method: "best_first", "greedy" or "beam".
        guesses: how many fills were tried.
        place: at which of them the secret was; None: at none.
    """

    method: str
    guesses: int
    place: int | None


@dataclass(frozen=True, kw_only=True)
class CanaryClass:
    """Canaries of one format and number of repetitions.

    Attributes:
        format, repetitions: which.
        size: |R|, exact.
        references: how many fills were drawn to compare with.
        exposures: one for each canary; None where it, or its log-perplexity, is missing.
        attacks: for each canary the searches for it; empty where there were none.
        summary: its row in the result; None where there is none.
        apart: places, in best-first order, of canaries of this format that are not judged.
        interrupted: somebody ended the search of the format before its time.
    """

    format: str
    repetitions: int
    size: int
    references: int
    exposures: tuple[Exposure | None, ...]
    attacks: tuple[tuple[Attack, ...], ...]
    summary: Mapping[str, Any] | None
    apart: tuple[int, ...]
    interrupted: bool

    @property
    def n(self) -> int:
        """How many canaries."""
        return len(self.exposures)

    @property
    def bits(self) -> float:
        """log2|R|."""
        return math.log2(self.size)

    @property
    def known(self) -> list[Exposure]:
        """The exposures that are there."""
        return [one for one in self.exposures if one is not None]

    @property
    def scope(self) -> str:
        """The class in words."""
        return f"{visible(self.format)}, repetitions {self.repetitions}"

    @property
    def secrets(self) -> str:
        """Its canaries in words: "10 secrets inserted 4 times"."""
        return f"{self.n:,} secret{'s' * (self.n != 1)} inserted {copies(self.repetitions)}"


def classes_of(result: Result, *, most: int | None = None) -> list[CanaryClass]:
    """The classes of inserted canaries, format by format, ascending repetitions.

    Args:
        result: what was measured.
        most: leave out classes of more repetitions.

    Raises:
        ResultError: a canary without a format, a number that is none, parts that contradict.
    """
    formats = {str(row.get("name")): row for row in result.formats}
    groups: dict[tuple[str, int], list[CanaryResult]] = {}
    for one in _canaries(result):
        if one.format not in formats:
            raise ResultError(
                f"canary {visible(one.id)} is of format {visible(one.format)}, which the result "
                "does not describe; measure again"
            )
        copies_of = whole(vars(one), "repetitions", low=1, where=f"canary {visible(one.id)}")
        groups.setdefault((one.format, copies_of), []).append(one)
    order = {name: number for number, name in enumerate(formats)}
    chosen = sorted(groups, key=lambda key: (order[key[0]], key[1]))
    return [
        _class(key, groups, formats[key[0]], result, most)
        for key in chosen
        if most is None or key[1] <= most
    ]


def finite(record: Mapping[str, Any], key: str, *, where: str) -> float | None:
    """A number of a result; None where it is missing or not finite.

    Raises:
        ResultError: something else stands there.
    """
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ResultError(f"{where}: {key}={visible(repr(value))[:60]} is no number; measure again")
    return float(value) if math.isfinite(value) else None


def whole(record: Mapping[str, Any], key: str, *, low: int, where: str) -> int:
    """A whole number of a result, at least `low`; large ones stand there as decimal strings.

    Raises:
        ResultError: anything else stands there.
    """
    value = record.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4000:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ResultError(
            f"{where}: {key}={visible(repr(value))[:60]} must be a whole number, at least {low}; "
            "measure again"
        )
    return value


def _canaries(result: Result) -> Iterable[CanaryResult]:
    """Those that were inserted; each once."""
    seen: set[str] = set()
    for one in result.canaries:
        if one.id in seen:
            raise ResultError(f"canary {visible(one.id)} stands there twice; measure again")
        seen.add(one.id)
        if one.role not in ("canary", "control", "excluded"):
            raise ResultError(
                f"canary {visible(one.id)} has role {visible(repr(one.role))}, which is neither "
                "canary nor control; measure again"
            )
        if one.role == "canary":
            yield one


def _class(
    key: tuple[str, int],
    groups: Mapping[tuple[str, int], list[CanaryResult]],
    row: Mapping[str, Any],
    result: Result,
    most: int | None,
) -> CanaryClass:
    where = f"format {visible(key[0])}"
    size = whole(row, "space_size", low=2, where=where)
    canaries = groups[key]
    unjudged = [
        attack.place
        for other, members in groups.items()
        if other[0] == key[0] and most is not None and other[1] > most
        for one in members
        for attack in _attacks(one)
        if attack.method == "best_first" and attack.place is not None
    ]
    return CanaryClass(
        format=key[0],
        repetitions=key[1],
        size=size,
        references=whole(row, "references", low=1, where=where),
        exposures=tuple(_exposure(one, math.log2(size)) for one in canaries),
        attacks=tuple(_attacks(one) for one in canaries),
        summary=_summary(result, key),
        apart=tuple(sorted(unjudged)),
        interrupted=bool((row.get("search") or {}).get("interrupted")),
    )


def _summary(result: Result, key: tuple[str, int]) -> Mapping[str, Any] | None:
    for row in result.summary:
        if row.get("role") == "canary" and (row.get("format"), row.get("repetitions")) == key:
            return row
    return None


def _exposure(one: CanaryResult, most: float) -> Exposure | None:
    """The estimate that decides; None where its value or the log-perplexity is missing."""
    where = f"canary {visible(one.id)}"
    row: Mapping[str, Any] = one.exposure
    if row.get("method") in _NOT_DECIDING:
        row = next((one.estimates[name] for name in _DECIDING if name in one.estimates), {})
    value = finite(row, "value", where=where)
    if value is None or finite(vars(one), "log_perplexity_bits", where=where) is None:
        return None
    low, high = (finite(row, end, where=where) for end in ("low", "high"))
    low = (value if row.get("capped") else 0.0) if low is None else low
    high = most if high is None else high
    if not low - _SLACK <= value <= high + _SLACK:
        raise ResultError(
            f"{where}: exposure {value:g} lies outside its interval {low:g} .. {high:g}; measure "
            "again"
        )
    level = finite(row, "level", where=where)
    return Exposure(
        method=str(row.get("method")),
        value=value,
        low=low,
        high=high,
        capped=bool(row.get("capped")),
        level=0.95 if level is None else level,
    )


def _attacks(one: CanaryResult) -> tuple[Attack, ...]:
    """Searches with nothing revealed."""
    where = f"extraction of canary {visible(one.id)}"
    found = []
    for row in one.extraction:
        if whole(row, "revealed", low=0, where=where) == 0:
            tried = "proven" if row.get("method") == "best_first" else "width"
            guesses = whole(row, tried, low=0, where=where)
            place = None
            if row.get("place") is not None:
                place = whole(row, "place", low=1, where=where)
            elif row.get("found"):
                place = guesses
            found.append(Attack(method=str(row.get("method")), guesses=guesses, place=place))
    return tuple(found)
