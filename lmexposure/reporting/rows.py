"""The rows of a report: classes and canaries, as the result holds them, ready to be read."""

import math
from collections.abc import Iterable

from lmexposure.canaries import (
    Manifest,
)
from lmexposure.records import (
    CanaryResult,
    ClassSummary,
    Extraction,
    ExtractionCount,
    FormatResult,
    Result,
)
from lmexposure.reporting.data import CanaryRow, ClassRow, Found

_WITH_SOME_GIVEN = ("greedy", "beam")


def class_rows(result: Result, form: FormatResult) -> tuple[ClassRow, ...]:
    """The classes of one format: controls first, then by ascending repetitions.

    Args:
        result: the result.
        form: one of its formats.
    """
    rows = [row for row in result.summary if row.format == form.name]
    rows.sort(key=lambda row: (row.role != "control", row.repetitions))
    return tuple(_class_row(row, form) for row in rows)


def _class_row(row: ClassSummary, form: FormatResult) -> ClassRow:
    skew_normal = row.other_medians.get("skew_normal")
    return ClassRow(
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
        guesses=tuple(
            Found(
                given=count.guesses,
                found=count.found,
                of=count.of,
                by_chance=count.of * min(1.0, count.guesses / form.space_size),
            )
            for count in row.guesses
        ),
        revealed=_revealed(row.extraction),
    )


def _high_capped(row: ClassSummary, form: FormatResult) -> bool:
    """The interval ends where the references do, and some exposures may be past them."""
    high = row.median.high
    return row.capped > 0 and high is not None and abs(high - math.log2(form.references)) < 0.005


def _vouched_for(row: ClassSummary, form: FormatResult) -> bool:
    """Whether the references bear out the median by the curve; older results flag no canaries."""
    fits = form.skew_normal is not None and not form.skew_normal.goodness.warnings
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


def canary_rows(
    result: Result, name: str, secrets_of: Manifest | None = None
) -> tuple[CanaryRow, ...]:
    """The canaries and controls of one format, in the result's order.

    Args:
        result: the result.
        name: of the format.
        secrets_of: the manifest, where the secrets are to be shown.
    """
    secrets = {} if secrets_of is None else _secrets(secrets_of, name)
    return tuple(
        _canary_row(canary, secrets.get(canary.id))
        for canary in result.canaries
        if canary.format == name
    )


def _secrets(manifest: Manifest, name: str) -> dict[str, str]:
    """What stands in the holes, by the canary's id."""
    form = manifest.formats[name]
    drawn = (one for one in manifest.entries if one.format == name)
    return {one.id: " ".join(form.fills(one.index)) for one in drawn}


def _canary_row(canary: CanaryResult, secret: str | None) -> CanaryRow:
    exposure = canary.exposure
    found, tried = _guesses(canary)
    return CanaryRow(
        id=canary.id,
        role=canary.role,
        repetitions=canary.repetitions,
        log_perplexity_bits=canary.log_perplexity_bits,
        exposure=exposure.value,
        low=exposure.low,
        high=exposure.high,
        capped=exposure.capped,
        method=exposure.method,
        rank=None if exposure.rank is None else str(exposure.rank),
        guesses=found,
        guesses_tried=tried,
        revealed=_fewest_revealed(canary.extraction),
        secret=secret,
    )


def _guesses(canary: CanaryResult) -> tuple[int | None, int | None]:
    """(guesses that find it, guesses that best-first search made); a counted rank knows the first.

    The search stops where its guesses are spent; who goes on in the same order finds the secret at
    the place that an exact count gives it.
    """
    shown = canary.exposure
    counted = shown.place if shown.method == "exact" and not shown.capped else None
    for search in canary.extraction:
        if search.method == "best_first" and search.revealed == 0:
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
