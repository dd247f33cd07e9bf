"""The data step: a run on the disk becomes all that a report shows, as plain data."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import of_type
from lmexposure.canaries import Manifest
from lmexposure.core import Thresholds
from lmexposure.errors import ManifestError, SettingsError
from lmexposure.gate import check, rows_unknown
from lmexposure.reporting.data import (
    BaseData,
    BaseDot,
    CanaryRow,
    ClassRow,
    FormatData,
    Found,
    ReportData,
    RocData,
)
from lmexposure.reporting.facts import (
    command_of,
    model_facts,
    scored_in,
    setting_facts,
    where_of,
)
from lmexposure.studies import (
    CanaryResult,
    ClassSummary,
    Extraction,
    ExtractionCount,
    FormatResult,
    GuessCount,
    Result,
    RunFiles,
    Scores,
)

_WITH_SOME_GIVEN = ("greedy", "beam")


def report_data(
    run: RunFiles,
    *,
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
    manifest: Manifest | None = None,
) -> ReportData:
    """Everything that a report of a run shows."""
    run = replace(run, manifest=_manifest(run, manifest, show_secrets))
    limits = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", limits, Thresholds, "Thresholds(...)")
    result, scores, in_memory = run.result, run.scores(), run.result_path is None
    return ReportData(
        title=run.name,
        verdict=check(run, limits),
        provenance=run.provenance,
        model=model_facts(run),
        formats=tuple(_format(run, form, scores, show_secrets) for form in result.formats),
        privacy=result.privacy,
        roc=_roc(run, scores),
        training=run.curve,
        settings=setting_facts(run, show_seeds=show_secrets),
        command=None if in_memory else command_of(run, show_seeds=show_secrets),
        where="" if in_memory else where_of(run),
        warnings=(*result.warnings, *run.notes, *_of_look(run)),
        significance=limits.significance,
        redacted=not show_secrets,
        trajectory=tuple(result.trajectory),
        scored="" if result.context is None else scored_in(result.context),
        rows_unknown=rows_unknown(result),
        kinds=tuple(result.kinds),
        promise=None if (learned := result.model.validation) is None else learned.claim,
        white_box=run.white_box(),
        memorised=run.look,
    )


def _of_look(run: RunFiles) -> Iterator[str]:
    for warning in () if run.look is None else run.look.warnings:
        yield f"memorised text: {warning}"


def _manifest(run: RunFiles, given: Manifest | None, show_secrets: bool) -> Manifest | None:
    if given is not None and given.sha256 != run.result.manifest_sha256:
        raise ManifestError(
            f"the manifest given has sha256 {given.sha256[:16]}, but {run.place} was made "
            f"from {run.result.manifest_sha256[:16]}; give the manifest that was measured"
        )
    manifest = given or run.manifest
    if show_secrets and manifest is None:
        raise SettingsError(
            f"no manifest next to {run.place}, and only a manifest holds the secrets; give "
            "the manifest too, or leave the secrets out"
        )
    return manifest


def _format(
    run: RunFiles, form: FormatResult, scores: Scores | None, show_secrets: bool
) -> FormatData:
    name, manifest = form.name, run.manifest
    return FormatData(
        name=name,
        pattern=None if manifest is None else manifest.formats[name].template,
        bits=form.bits,
        space_size=str(form.space_size),
        references=form.references,
        exhaustive=form.exhaustive,
        classes=class_rows(run.result, form),
        canaries=canary_rows(run.result, name, manifest if show_secrets else None),
        reference_bits=np.empty(0) if scores is None else _reference_bits(scores, name),
        fit=form.skew_normal,
        quantiles=tuple(form.reference_bits_quantiles),
        base=base_data(run.result, name),
    )


def _reference_bits(scores: Scores, name: str) -> NDArray[np.float64]:
    """Of all fills that canaries were compared with: candidates held out are among them."""
    never = (scores.roles == "reference") | (scores.roles == "held_out")
    bits: NDArray[np.float64] = scores.log_perplexity_bits[never & (scores.formats == name)]
    return bits


def _roc(run: RunFiles, scores: Scores | None) -> tuple[RocData, ...]:
    if scores is None:
        return ()
    from lmexposure.reporting.roc import roc_data  # tables on the terminal wait for no scipy

    privacy = run.result.privacy
    pooled = privacy is not None and privacy.inclusion_probability is not None
    return roc_data(scores, pooled=pooled, level=run.result.settings.level)


def class_rows(result: Result, form: FormatResult) -> tuple[ClassRow, ...]:
    """The classes of one format: controls first, then by ascending repetitions."""
    rows = [row for row in result.summary if row.format == form.name]
    rows.sort(key=lambda row: (row.role != "control", row.repetitions))
    return tuple(_class_row(row, form) for row in rows)


def base_data(result: Result, name: str) -> BaseData | None:
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


def canary_rows(
    result: Result, name: str, secrets_of: Manifest | None = None
) -> tuple[CanaryRow, ...]:
    """The canaries and controls of one format, in the result's order."""
    secrets = {} if secrets_of is None else _secrets_of(secrets_of, name)
    return tuple(
        _canary_row(canary, secrets.get(canary.id))
        for canary in result.canaries
        if canary.format == name
    )


def _secrets_of(manifest: Manifest, name: str) -> dict[str, str]:
    """What fills the holes, by the canary's id."""
    form = manifest.formats[name]
    drawn = (entry for entry in manifest.entries if entry.format == name)
    return {entry.id: " ".join(form.fills(entry.index)) for entry in drawn}


def _canary_row(canary: CanaryResult, secret: str | None) -> CanaryRow:
    exposure = canary.exposure
    found, tried = _guesses_of(canary)
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
