"""A result as the gate reads it: classes of canaries, where a missing number is plainly missing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lmexposure._quantiles import ExposureEstimate
from lmexposure.errors import ResultError
from lmexposure.gate.fields import finite, table, truth, whole
from lmexposure.gate.wording import copies, visible
from lmexposure.records import CanaryResult, Result

__all__ = ["Attack", "CanaryClass", "Exposure", "classes_of"]

# An extrapolation or a certificate may be shown, but what was counted or drawn decides.
_DECIDING = ("exact", "importance", "sampled")
_NOT_DECIDING = ("skew_normal", "certificate")
_ALL_METHODS = (*_DECIDING, *_NOT_DECIDING, "exact up to an empirical margin", "bounded")
_ATTACKS = ("best_first", "greedy", "beam")
_SLACK = 1e-6  # bits, for rounding
_LEAST_LEVEL = 1e-9


@dataclass(frozen=True, kw_only=True)
class Exposure(ExposureEstimate):
    """One canary's exposure in bits; `high` is log2|R| where nothing is known."""

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
        shift: bits by which chance alone moves exposures up where part of R was inserted: a rank
            among the N fills left is no larger than N + 1, so that P(exposure >= t) <= 2^(shift -
            t) with shift = log2|R| - log2(N + 1). 0 for ranks among references, whose exposure is
            counted from how many there are.
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
    shift: float
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


def _canaries(result: Result) -> Iterable[CanaryResult]:
    """Those that were inserted; each once."""
    seen: set[str] = set()
    for one in result.canaries:
        if one.id in seen:
            raise ResultError(f"canary {visible(one.id)} stands there twice; measure again")
        seen.add(one.id)
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
    size = whole(row, "space_size", low=2, high=None, where=where)
    canaries = groups[key]
    references = whole(row, "references", low=1, where=where)
    exposures = tuple(_exposure(one, math.log2(size), references) for one in canaries)
    inserted = sum(len(members) for other, members in groups.items() if other[0] == key[0])
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
        references=references,
        exposures=exposures,
        attacks=tuple(_attacks(one) for one in canaries),
        summary=_summary(result, key),
        shift=_shift(exposures, size, inserted, row, where),
        apart=tuple(sorted(unjudged)),
        interrupted=truth(
            table(row.get("search"), where=f"{where}, search"), "interrupted", where=where
        ),
    )


def _shift(
    exposures: Iterable[Exposure | None],
    size: int,
    inserted: int,
    row: Mapping[str, Any],
    where: str,
) -> float:
    """See `CanaryClass`; fills that were inserted or set aside count in no rank."""
    aside = 0 if row.get("set_aside") is None else whole(row, "set_aside", low=0, where=where)
    taken = inserted + aside
    if taken > size:
        raise ResultError(
            f"{where}: {taken:,} fills were inserted or set aside, of {size:,} that there are; "
            "measure again"
        )
    if all(one is None or one.method == "sampled" for one in exposures):
        return 0.0
    return -math.log1p(-(taken - 1) / size) / math.log(2)


def _summary(result: Result, key: tuple[str, int]) -> Mapping[str, Any] | None:
    for row in result.summary:
        if row.get("role") == "canary" and (row.get("format"), row.get("repetitions")) == key:
            return row
    return None


def _exposure(one: CanaryResult, most: float, references: int) -> Exposure | None:
    """The estimate that decides; None where its value or the log-perplexity is missing."""
    where = f"canary {visible(one.id)}"
    row = _deciding(one, where)
    value = finite(row, "value", where=where, low=-1.0, high=most + _SLACK)
    bits = finite(vars(one), "log_perplexity_bits", where=where, low=-_SLACK)
    if value is None or bits is None:
        return None
    method, capped = str(row.get("method")), truth(row, "capped", where=where)
    if method not in _ALL_METHODS:
        raise ResultError(
            f"{where}: exposure by {visible(method)[:60]!r}, which is none of "
            f"{', '.join(_ALL_METHODS)}; measure again"
        )
    low, high = (finite(row, end, where=where) for end in ("low", "high"))
    low = (value if capped else 0.0) if low is None else low
    high = most if high is None else min(high, most)
    if not low - _SLACK <= value <= high + _SLACK:
        raise ResultError(
            f"{where}: exposure {value:g} lies outside its interval {low:g} .. {high:g}; measure "
            "again"
        )
    # An interval of a sample that misses never would have no end.
    widest = 1 - _LEAST_LEVEL if method == "sampled" else 1.0
    level = finite(row, "level", where=where, low=_LEAST_LEVEL, high=widest)
    return Exposure(
        method=method,
        value=value,
        low=low,
        high=high,
        capped=capped,
        level=0.95 if level is None else level,
        bits=bits,
        references=references,
        space_bits=most,
    )


def _deciding(one: CanaryResult, where: str) -> Mapping[str, Any]:
    """The estimate shown, or the best that may decide; empty where there is none."""
    if one.exposure.get("method") not in _NOT_DECIDING:
        return one.exposure
    made = table(one.estimates, where=f"{where}, estimates")
    found = next((made[name] for name in _DECIDING if name in made), None)
    return table(found, where=f"{where}, estimates")


def _attacks(one: CanaryResult) -> tuple[Attack, ...]:
    """Searches with nothing revealed."""
    where = f"extraction of canary {visible(one.id)}"
    rows = [table(row, where=where) for row in one.extraction]
    return tuple(
        _attack(row, where) for row in rows if whole(row, "revealed", low=0, where=where) == 0
    )


def _attack(row: Mapping[str, Any], where: str) -> Attack:
    method, found = row.get("method"), truth(row, "found", where=where)
    if method not in _ATTACKS:
        raise ResultError(
            f"{where}: method={visible(repr(method))[:60]} is none of {', '.join(_ATTACKS)}; "
            "measure again"
        )
    tried = "proven" if method == "best_first" else "width"
    guesses, place = whole(row, tried, low=0, where=where), None
    if row.get("place") is not None:
        place = whole(row, "place", low=1, where=where)
    if place is not None and (not found or place > guesses):
        raise ResultError(
            f"{where}: place={place:,} of {guesses:,} guesses, found={found}; measure again"
        )
    return Attack(
        method=str(method), guesses=guesses, place=guesses if found and place is None else place
    )
