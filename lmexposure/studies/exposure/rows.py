"""What tables and charts of a run read: a row a class, a row a canary, the formats."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lmexposure._style import class_scope
from lmexposure.canaries import Manifest
from lmexposure.studies.exposure.parts import (
    BaseCanary,
    BaseClass,
    CanaryResult,
    ClassSummary,
    ExtractionCount,
    FormatResult,
    KindMembership,
    Role,
)
from lmexposure.studies.exposure.record import ResultNumbers

Floats = NDArray[np.float64]
AnyRole = Role | Literal["held_out"]  # of a candidate, that its coin left out
CURVES = 6  # of one ROC chart
_WITH_SOME_GIVEN = ("greedy", "beam")
_Class = TypeVar("_Class", ClassSummary, BaseClass)


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many secrets of a class were found with a given number of guesses or characters."""

    given: int  # guesses allowed, or characters revealed
    # found, of: found of searched for
    found: int
    of: int
    by_chance: float  # how many guessing alone would find, in expectation


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassRow(ClassSummary):
    """One format and number of repetitions, with what the format says of its numbers."""

    form: FormatResult

    @property
    def scope(self) -> str:
        """The class, as checks name it."""
        return class_scope(self.format, self.repetitions)

    @property
    def p_value(self) -> float | None:
        """Of the permutation test against guessing."""
        return None if self.guessing_test is None else self.guessing_test.p_value

    @property
    def tries(self) -> list[Found]:
        """Secrets found by best-first search within each number of guesses."""
        return [
            Found(
                given=row.guesses,
                found=row.found,
                of=row.of,
                by_chance=row.of * min(1.0, row.guesses / self.form.space_size),
            )
            for row in self.guesses
        ]

    @property
    def revealed(self) -> list[Found]:
        """By greedy search or beam with each number of characters given, the better of both."""
        by_given: dict[int, list[ExtractionCount]] = {}
        for row in self.extraction:
            if row.method in _WITH_SOME_GIVEN:
                by_given.setdefault(row.revealed, []).append(row)
        return [
            Found(
                given=given,
                found=max(row.found for row in both),
                of=max(row.of for row in both),
                by_chance=max(row.by_chance for row in both),
            )
            for given, both in sorted(by_given.items())
        ]

    @property
    def high_capped(self) -> bool:
        """The median's interval ends where the references do; some exposures may be past them."""
        high, most = self.median.high, math.log2(self.form.references)
        return self.capped > 0 and high is not None and abs(high - most) < 0.005

    @property
    def certificate(self) -> float | None:
        """The median of proven lower bounds; None where there are none."""
        return self.other_medians.get("certificate")

    @property
    def skew_normal(self) -> float | None:
        """The median by the curve through the references."""
        return self.other_medians.get("skew_normal")

    @property
    def skew_normal_doubted(self) -> bool:
        """There is a median by the curve, and the references do not vouch for it."""
        median, curve = self.skew_normal, self.form.skew_normal
        if median is None:
            return False
        fits = curve is not None and curve.goodness is not None and not curve.goodness.warnings
        within = median <= min(math.log2(self.form.references), self.form.bits)
        return not (fits and within and 2 * (self.skew_normal_flagged or 0) < self.n)


@dataclass(frozen=True, kw_only=True)
class CanaryRow:
    """One canary or control, or a candidate whose text was chosen; None: missing, or not of it."""

    # id, format, role, repetitions: as in the result; a control has repetitions 0
    id: str
    format: str
    role: AnyRole
    repetitions: int
    log_perplexity_bits: float | None = None  # bits, lower = more memorised
    # exposure, low, high: bits, higher = more memorised
    exposure: float | None = None
    low: float | None = None
    high: float | None = None
    capped: bool = False  # the exposure is a lower bound
    method: str = ""  # how it was estimated
    rank: int | None = None  # 1 + fills never inserted that are as likely
    place: int | None = None  # the rank among all of R, inserted ones too
    # place among all fills in a proven order, at which an attacker finds it who knows the format
    # alone; None where it was not found
    guesses: int | None = None
    guesses_proven: int | None = None  # how many guesses were made in that order
    found_at: int | None = None  # the guess at which the best of the searches finds it
    guesses_tried: int = 0  # by the search that tried most
    # the fewest revealed characters with which it was found by greedy search or beam; None where it
    # was not found, or chance would have
    revealed: int | None = None
    # beside the base; `calibrated_capped`: that exposure is a lower bound
    base_log_perplexity_bits: float | None = None
    base_exposure: float | None = None
    calibrated_exposure: float | None = None
    calibrated_capped: bool = False
    # kind, secret_bits: of a chosen text, and bits of the tokens of its secret alone
    kind: str | None = None
    secret_bits: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FormatData:
    """One format: its canaries, and the references that they were compared with."""

    form: FormatResult
    pattern: str | None  # its text with holes; None without a manifest
    classes: tuple[ClassRow, ...]  # controls first, then ascending repetitions
    canaries: tuple[CanaryRow, ...]  # controls included
    beside_base: tuple[BaseClass, ...] = ()  # the classes beside the base; empty without one


def format_data(result: ResultNumbers, form: FormatResult, manifest: Manifest | None) -> FormatData:
    """One format: its classes, its canaries, and what they were compared with."""
    beside = () if result.base is None else _in_order(result.base.classes, form.name)
    return FormatData(
        form=form,
        pattern=None if manifest is None else manifest.formats[form.name].template,
        classes=class_rows(result, form),
        canaries=canary_rows(result, form.name),
        beside_base=tuple(beside),
    )


def reference_bits(result: ResultNumbers, name: str) -> Floats:
    """Of all fills that canaries were compared with, candidates held out among them; (n,), bits."""
    scores = result.scores
    if scores is None:
        return np.empty(0)
    never = (scores.roles == "reference") | (scores.roles == "held_out")
    bits: Floats = scores.log_perplexity_bits[never & (scores.formats == name)]
    return bits


def class_rows(result: ResultNumbers, form: FormatResult) -> tuple[ClassRow, ...]:
    """The classes of one format: controls first, then by ascending repetitions."""
    rows = _in_order(result.summary, form.name)
    return tuple(ClassRow(**vars(row), form=form) for row in rows)


def _in_order(rows: Iterable[_Class], name: str) -> list[_Class]:
    of_format = (row for row in rows if row.format == name)
    return sorted(of_format, key=lambda row: (row.role != "control", row.repetitions))


def canary_rows(result: ResultNumbers, name: str) -> tuple[CanaryRow, ...]:
    """The canaries and controls of one format, in the result's order."""
    beside = {} if result.base is None else {canary.id: canary for canary in result.base.canaries}
    return tuple(
        _canary_row(canary, beside.get(canary.id))
        for canary in result.canaries
        if canary.format == name
    )


def secrets_of(manifest: Manifest) -> dict[str, str]:
    """What fills the holes, by the canary's id."""
    forms = manifest.formats
    return {
        entry.id: " ".join(forms[entry.format].fills(entry.index))
        for entry in manifest.entries
        if entry.format in forms
    }


def _canary_row(canary: CanaryResult, base: BaseCanary | None) -> CanaryRow:
    exposure, blind = canary.exposure, canary.blind_searches
    guesses, proven = _guesses_of(canary)
    # Finds that guessing would have made as likely as not count for nothing.
    given = [
        search.revealed
        for search in canary.extraction
        if search.method in _WITH_SOME_GIVEN and search.found and 2 * search.by_chance < 1
    ]
    return CanaryRow(
        id=canary.id,
        format=canary.format,
        role=canary.role,
        repetitions=canary.repetitions,
        log_perplexity_bits=canary.log_perplexity_bits,
        exposure=exposure.value,
        low=exposure.low,
        high=exposure.high,
        capped=exposure.capped,
        method=exposure.method,
        rank=exposure.rank,
        place=exposure.place,
        guesses=guesses,
        guesses_proven=proven,
        found_at=min((s.found_at for s in blind if s.found_at is not None), default=None),
        guesses_tried=max((s.tried for s in blind), default=0),
        revealed=min(given, default=None),
        base_log_perplexity_bits=None if base is None else base.log_perplexity_bits,
        base_exposure=None if base is None else base.exposure.value,
        calibrated_exposure=None if canary.calibrated is None else canary.calibrated.value,
        calibrated_capped=canary.calibrated is not None and canary.calibrated.capped,
    )


def chosen_rows(kinds: Iterable[KindMembership]) -> Iterator[CanaryRow]:
    """Candidates whose texts were chosen, which have none of the numbers of ranks."""
    for row in kinds:
        for candidate in row.candidates:
            yield CanaryRow(
                id=candidate.id,
                format=row.format,
                role="canary" if candidate.included else "held_out",
                repetitions=row.repetitions,
                kind=row.kind,
                secret_bits=candidate.secret_bits,
            )


def _guesses_of(canary: CanaryResult) -> tuple[int | None, int | None]:
    """(guesses that find it, guesses of the best-first search); a rank knows the first."""
    shown = canary.exposure
    counted = shown.place if shown.method == "exact" and not shown.capped else None
    for search in canary.blind_searches:
        if search.method == "best_first":
            return search.place if search.found else counted, search.proven or None
    return counted, None
