"""What tables and charts of a run read: a row a class, a row a canary, the formats."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import Manifest
from lmexposure.studies.exposure.parts import (
    BaseCanary,
    BaseClass,
    CanaryResult,
    ClassSummary,
    Extraction,
    ExtractionCount,
    FormatResult,
    GuessCount,
    KindMembership,
    Role,
    SkewNormalFit,
)
from lmexposure.studies.exposure.record import ResultNumbers

Floats = NDArray[np.float64]
AnyRole = Role | Literal["held_out"]  # of a candidate, that its coin left out
CURVES = 6  # of one ROC chart
_WITH_SOME_GIVEN = ("greedy", "beam")


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many secrets of a class were found with a given number of guesses or characters."""

    given: int  # guesses allowed, or characters revealed
    # found, of: found of searched for
    found: int
    of: int
    by_chance: float  # how many guessing alone would find, in expectation


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One format and number of repetitions; all numbers in bits, higher = more memorised."""

    format: str
    role: Role  # "canary" or "control"; a control has repetitions 0
    repetitions: int
    n: int  # how many canaries
    mean: float
    # median, low, high: median exposure with its interval at `level`; `low` or `high` None where
    # too few canaries give no interval
    median: float
    low: float | None
    high: float | None
    level: float
    capped: bool  # the median is a lower bound
    p_value: float | None  # of the permutation test against guessing
    epsilon: float | None  # point value in nats (Jagielski 2023), not a bound; None for controls
    exact: int  # canaries whose rank was counted over all of R
    guesses: tuple[Found, ...]  # secrets found by best-first search within each number of guesses
    # secrets found by greedy search or beam with each number of characters given, the better of
    # both
    revealed: tuple[Found, ...]
    mean_capped: bool = False  # the mean is one, which takes a single exposure that is
    high_capped: bool = False  # `high` is one
    # median of the proven lower bounds of each exposure; None where there are none
    certificate: float | None = None
    # median by extrapolation along the curve through the references
    skew_normal: float | None = None
    skew_normal_doubted: bool = False  # the references do not vouch for it


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
    # base_log_perplexity_bits, base_exposure, calibrated_exposure: beside the base
    base_log_perplexity_bits: float | None = None
    base_exposure: float | None = None
    calibrated_exposure: float | None = None
    # kind, secret_bits: of a chosen text, and bits of the tokens of its secret alone
    kind: str | None = None
    secret_bits: float | None = None


@dataclass(frozen=True, kw_only=True)
class BaseDot:
    """One canary or control beside the base; exposures in bits, by ranks among the references."""

    # role, repetitions: as in the result; a control has repetitions 0
    role: Role
    repetitions: int
    base: float  # under the base; higher = likelier before the training
    calibrated: float  # by log-perplexity minus the base's; higher = more memorised
    capped: bool  # `calibrated` is a lower bound


@dataclass(frozen=True, kw_only=True)
class BaseData:
    """A format beside the base."""

    classes: tuple[BaseClass, ...]  # controls first, then ascending repetitions
    canaries: tuple[BaseDot, ...]  # controls included; those with both exposures


@dataclass(frozen=True, kw_only=True, eq=False)
class FormatData:
    """One format: its canaries, and the references that they were compared with."""

    name: str  # of the format
    pattern: str | None  # its text with holes; None without a manifest
    bits: float  # log2 of the size of the randomness space
    space_size: int  # that size
    references: int  # how many were scored; `exhaustive` where they are all others there are
    exhaustive: bool
    classes: tuple[ClassRow, ...]  # controls first, then ascending repetitions
    canaries: tuple[CanaryRow, ...]  # controls included
    fit: SkewNormalFit | None  # the skew-normal curve through the references; None without
    # of the reference log-perplexities, as the result holds them: least, 1, 5, 25, 50, 75, 95, 99
    # %, largest
    quantiles: tuple[float, ...]
    base: BaseData | None = None  # the same beside the base model; None where none was measured


def format_data(result: ResultNumbers, form: FormatResult, manifest: Manifest | None) -> FormatData:
    """One format: its classes, its canaries, and what they were compared with."""
    pattern = None
    if manifest is not None:
        pattern = manifest.formats[form.name].template
    return FormatData(
        name=form.name,
        pattern=pattern,
        bits=form.bits,
        space_size=form.space_size,
        references=form.references,
        exhaustive=form.exhaustive,
        classes=class_rows(result, form),
        canaries=canary_rows(result, form.name),
        fit=form.skew_normal,
        quantiles=tuple(form.reference_bits_quantiles),
        base=base_data(result, form.name),
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
    rows = [row for row in result.summary if row.format == form.name]
    rows.sort(key=lambda row: (row.role != "control", row.repetitions))
    return tuple(_class_row(row, form) for row in rows)


def base_data(result: ResultNumbers, name: str) -> BaseData | None:
    """One format beside the base; None where none was measured."""
    if result.base is None:
        return None
    rows = [row for row in result.base.classes if row.format == name]
    rows.sort(key=lambda row: (row.role != "control", row.repetitions))
    dots = [
        BaseDot(
            role=canary.role,
            repetitions=canary.repetitions,
            base=before,
            calibrated=value,
            capped=found.capped,
        )
        for canary, under_base in zip(result.canaries, result.base.canaries, strict=True)
        if canary.format == name
        and (before := under_base.exposure.value) is not None
        and (found := canary.calibrated) is not None
        and (value := found.value) is not None
    ]
    return BaseData(classes=tuple(rows), canaries=tuple(dots))


def _class_row(row: ClassSummary, form: FormatResult) -> ClassRow:
    skew_normal = row.other_medians.get("skew_normal")
    return ClassRow(
        format=row.format,
        role=row.role,
        repetitions=row.repetitions,
        n=row.n,
        mean=row.mean,
        median=row.median.value,
        low=row.median.low,
        high=row.median.high,
        level=row.level,
        capped=row.median_capped,
        mean_capped=row.capped > 0,
        high_capped=_high_capped(row, form),
        certificate=row.other_medians.get("certificate"),
        skew_normal=skew_normal,
        skew_normal_doubted=skew_normal is not None and not _vouched_for(row, form),
        p_value=None if row.guessing_test is None else row.guessing_test.p_value,
        epsilon=None if row.epsilon is None else row.epsilon.value,
        exact=row.counted,
        guesses=tuple(_guessed(count, form) for count in row.guesses),
        revealed=_revealed(row.extraction),
    )


def _guessed(count: GuessCount, form: FormatResult) -> Found:
    by_chance = count.of * min(1.0, count.guesses / form.space_size)
    return Found(given=count.guesses, found=count.found, of=count.of, by_chance=by_chance)


def _high_capped(row: ClassSummary, form: FormatResult) -> bool:
    """The interval ends where the references do, and some exposures may be past them."""
    high = row.median.high
    return row.capped > 0 and high is not None and abs(high - math.log2(form.references)) < 0.005


def _vouched_for(row: ClassSummary, form: FormatResult) -> bool:
    """Whether the references bear out the median by the curve."""
    goodness = None if form.skew_normal is None else form.skew_normal.goodness
    fits = goodness is not None and not goodness.warnings
    median, flagged = row.other_medians.get("skew_normal"), row.skew_normal_flagged or 0
    within = median is not None and median <= min(math.log2(form.references), form.bits)
    return fits and within and 2 * flagged < row.n


def _revealed(counts: Iterable[ExtractionCount]) -> tuple[Found, ...]:
    """The better search for each number of characters, next to the better chance of both."""
    by_given: dict[int, list[ExtractionCount]] = {}
    for count in counts:
        if count.method in _WITH_SOME_GIVEN:
            by_given.setdefault(count.revealed, []).append(count)
    return tuple(
        Found(
            given=given,
            found=max(count.found for count in both),
            of=max(count.of for count in both),
            by_chance=max(count.by_chance for count in both),
        )
        for given, both in sorted(by_given.items())
    )


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
        revealed=_fewest_revealed(canary.extraction),
        base_log_perplexity_bits=None if base is None else base.log_perplexity_bits,
        base_exposure=None if base is None else base.exposure.value,
        calibrated_exposure=None if canary.calibrated is None else canary.calibrated.value,
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


def _fewest_revealed(searches: Iterable[Extraction]) -> int | None:
    """Finds that guessing would have made as likely as not count for nothing."""
    given = [
        search.revealed
        for search in searches
        if search.method in _WITH_SOME_GIVEN and search.found and 2 * search.by_chance < 1
    ]
    return min(given, default=None)
