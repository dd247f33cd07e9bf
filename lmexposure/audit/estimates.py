"""What one format's scores mean: every estimate of exposure, the one that is shown, the summary.

Nothing is picked because it is larger: the shown estimate is the exact rank where the budget
sufficed to count it, else the one from draws, else the one among references, or the one asked for.
The others are given next to it, and so is the skew-normal curve's even where it was asked for,
which adds its tests and intervals: an extrapolation is not shown first where something was counted
or drawn. What insertion, settings, training and a tokenizer leave open is warned of.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from lmexposure._style import number
from lmexposure.audit.format_scores import BesideBase, FormatScores, beside_base, class_seed
from lmexposure.audit.search import Estimates, Extractions, FormatSearch
from lmexposure.canaries import Manifest
from lmexposure.core import TokenModel
from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.statistics import (
    GUESSING,
    Estimate,
    ExposureEstimate,
    GuessingBaseline,
    SkewNormalExposure,
    certified_exposure,
    epsilon_from_median_exposure,
    exposure_summary,
    guessing_test,
    sampled_exposure,
    skew_normal_exposure,
)
from lmexposure.studies import (
    CanaryResult,
    ClassSummary,
    EstimateName,
    Extraction,
    ExtractionCount,
    FormatResult,
    GuessCount,
    MeasureSettings,
    OtherEstimate,
    SkewNormalFit,
    Validation,
)

# The estimates that may be shown, best first, by what was asked for.
_SHOWN: dict[str, tuple[EstimateName, ...]] = {
    "auto": ("exact", "importance", "sampled"),
    "exact": ("exact", "bounded"),
    "importance": ("importance",),
    "sampled": ("sampled", "exact"),  # references that are all there are give an exact rank
    # An extrapolation is given next to them, never first.
    "skew_normal": ("exact", "importance", "sampled"),
    "certificate": ("certificate",),
}
_BOUNDS: tuple[EstimateName, ...] = ("bounded", "certificate")
_NEVER_FIRST = (
    "an extrapolation is never the exposure that is shown, which is what was counted or drawn; it "
    "has a column of its own, and is among each canary's estimates"
)


@dataclass(frozen=True, kw_only=True)
class FormatEstimates:
    """The estimates of one format, ready for the result."""

    canaries: list[CanaryResult]  # canaries and controls, in the manifest's order
    record: FormatResult  # what is said of the format itself
    summary: list[ClassSummary]  # of each class of repetitions, and of the controls
    warnings: list[str]  # what concerns the whole format
    base: BesideBase | None = None  # the same beside the base model; None where none was measured


def estimate_format(
    scores: FormatScores,
    search: FormatSearch,
    extractions: Extractions,
    settings: MeasureSettings,
    *,
    origin: str,
) -> FormatEstimates:
    """Every estimate for one format."""
    ranks = _by_rank(scores, settings)
    curve, curve_warnings = _by_curve(scores, settings)
    base = beside_base(scores, settings, origin=origin)
    estimates = [_of_canary(scores, search, rank, curve, i) for i, rank in enumerate(ranks)]
    if base is not None:
        for own, calibrated in zip(estimates, base.estimates, strict=True):
            own["calibrated"] = calibrated
    canaries = [
        CanaryResult(
            id=canary.id,
            format=canary.format,
            role="canary" if canary.inserted else "control",
            repetitions=canary.repetitions,
            log_perplexity_bits=float(scores.canary_bits[i]),
            exposure=_shown(
                estimates[i],
                settings.estimate,
                scores.format.name,
                interrupted=search.interrupted,
            ),
            estimates=estimates[i],
            extraction=(*extractions.get(canary.id, ()), *search.guesses[i : i + 1]),
        )
        for i, canary in enumerate(scores.canaries)
    ]
    return FormatEstimates(
        canaries=canaries,
        record=_record(scores, search, curve),
        summary=_summaries(scores, search, canaries, curve, settings, origin=origin),
        warnings=[
            f"format {scores.format.name!r}: {line}"
            for line in [*_score_warnings(scores, search), *curve_warnings]
        ],
        base=base,
    )


def _shown(estimates: Estimates, method: str, name: str, *, interrupted: bool) -> Estimate:
    """The estimate that is shown; where a curve was asked for, a counted or drawn one.

    A search that was ended early leaves lower bounds: the highest that is proven is shown.
    """
    for wanted in _SHOWN[method]:
        if wanted in estimates:
            shown = estimates[wanted]
            if shown.capped and interrupted and method in ("auto", "exact"):
                bounds = [estimates[other] for other in _BOUNDS if other in estimates]
                shown = max([shown, *bounds], key=lambda bound: bound.value or 0.0)
            return shown
    raise ModelError(
        f"format {name!r}: method={method!r} gives no estimate here; there are "
        f"{', '.join(sorted(estimates))}: choose one of these, or estimate='auto'"
    )


def _of_canary(
    scores: FormatScores,
    search: FormatSearch,
    rank: Estimate,
    curve: SkewNormalExposure | None,
    i: int,
) -> Estimates:
    """What scores and search say of one canary, by method."""
    estimates: Estimates = {"exact" if rank.method == "exact" else "sampled": rank}
    if scores.certifiable:
        proven = certified_exposure(scores.format.bits, scores.secret_bits[i]).canary(0)
        alike = (
            f"the secrets not scored begin with the same {len(scores.beginning.ids)} tokens as the "
            f"{scores.bits.size} that were"
        )
        estimates["certificate"] = replace(proven, assumptions=(*proven.assumptions, alike))
    if curve is not None:
        estimates["skew_normal"] = curve.canary(i)
    estimates |= search.estimates[i]
    if search.secret_bits:  # this certificate rests on counted paths
        counted = certified_exposure(scores.format.bits, search.secret_bits[i])
        estimates["certificate"] = counted.canary(0)
    return estimates


def _score_warnings(scores: FormatScores, search: FormatSearch) -> Iterator[str]:
    """What the scores themselves leave out."""
    yield from search.warnings
    if scores.set_aside:
        yield (
            f"{scores.set_aside} secrets that the corpus held before insertion are set aside: not "
            "drawn, and not counted in any rank"
        )
    if scores.first_unscored:
        yield "the first token of a text was not scored: it has no left context"
    tokens_known = bool(scores.beginning.ids) or scores.first_unscored
    if tokens_known and not scores.certifiable and not search.secret_bits:
        yield (
            "no certificate: a part of the secret went unscored, or the tokenizer does not keep "
            "the texts as they are"
        )


def _by_rank(scores: FormatScores, settings: MeasureSettings) -> list[Estimate]:
    """Each canary's exposure by its rank among never-inserted fills, "exact" or "sampled"."""
    controls, bits = scores.controls, scores.canary_bits
    options: dict[str, Any] = {"space_size": scores.format.size, "level": settings.level}
    null = scores.reference_bits
    whole = np.concatenate([null, bits[controls]]) if scores.exhaustive else null
    ranked: dict[int, Estimate] = {}
    for chosen, against, exhaustive in (
        (~controls, whole, scores.exhaustive),
        (controls, null, False),
    ):
        places = np.flatnonzero(chosen).tolist()
        if places:
            found = sampled_exposure(bits[chosen], against, exhaustive=exhaustive, **options)
            ranked |= {place: found.canary(n) for n, place in enumerate(places)}
    return [ranked[place] for place in range(len(bits))]


def _by_curve(
    scores: FormatScores, settings: MeasureSettings
) -> tuple[SkewNormalExposure | None, list[str]]:
    """The skew-normal extrapolation, or why there is none."""
    try:
        curve = skew_normal_exposure(
            scores.canary_bits,
            scores.reference_bits,
            space_size=scores.format.size,
            level=settings.level,
            bootstraps=settings.bootstraps if settings.estimate == "skew_normal" else None,
            seed=settings.bootstrap_seed,
        )
    except SettingsError:
        raise
    except InputError as failure:  # too few references, or all of them alike
        return None, [f"no skew-normal curve: {failure}"]
    # Where it was not asked for, each number of it is marked, and each canary's estimate says why.
    lines = () if curve.goodness is None else (_NEVER_FIRST, *curve.warnings)
    return curve, [f"skew-normal curve: {line}" for line in lines]


def _record(
    scores: FormatScores, search: FormatSearch, curve: SkewNormalExposure | None
) -> FormatResult:
    null = scores.reference_bits
    quantiles = np.quantile(null, [0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1])
    fit = None
    if curve is not None:
        fit = SkewNormalFit(**asdict(curve.curve), goodness=curve.goodness)
    return FormatResult(
        name=scores.format.name,
        space_size=scores.format.size,
        bits=scores.format.bits,
        references=int(null.size),
        exhaustive=scores.exhaustive,
        set_aside=scores.set_aside,
        shared_tokens=len(scores.beginning.ids),
        certifiable=scores.certifiable,
        first_unscored=scores.first_unscored,
        reference_bits_quantiles=quantiles.tolist(),
        skew_normal=fit,
        search=search.record,
        interrupted=search.interrupted,
    )


def _summaries(
    scores: FormatScores,
    search: FormatSearch,
    canaries: Sequence[CanaryResult],
    curve: SkewNormalExposure | None,
    settings: MeasureSettings,
    *,
    origin: str,
) -> list[ClassSummary]:
    """The classes of a format by ascending repetitions, 0 (the controls) first."""
    estimates = [_estimate(canary, scores) for canary in canaries]
    controls = [
        estimate for estimate, never in zip(estimates, scores.controls, strict=True) if never
    ]
    repetitions = np.array([canary.repetitions for canary in canaries])
    rows = []
    for count in np.unique(repetitions).tolist():
        chosen = np.flatnonzero(repetitions == count)
        own = [canaries[i] for i in chosen.tolist()]
        shown = [estimates[i] for i in chosen.tolist()]
        seed = class_seed(settings.bootstrap_seed, origin, scores.format.name, count)
        null = controls if count else []  # the exposures of a class are held against the controls
        summary = exposure_summary(
            [estimate.value for estimate in shown],
            level=settings.level,
            capped=[estimate.capped for estimate in shown],
            estimates=shown,
            controls_bits=[estimate.value for estimate in null] or None,
            control_estimates=null or None,
            seed=seed,
            guessing=_guessing(scores, {estimate.method for estimate in shown}),
        )
        test = guessing_test(
            scores.canary_bits[chosen],
            scores.reference_bits,
            seed=seed,
            permutations=settings.permutations,
            alternative="memorised" if count else "different",
        )
        # With half of the exposures capped, so is the median, and epsilon with it.
        capped = 2 * summary.capped >= summary.n
        epsilon = epsilon_from_median_exposure(summary.median.value, repetitions=count or 1)
        row = ClassSummary(
            **vars(summary),
            format=scores.format.name,
            role="canary" if count else "control",
            repetitions=count,
            other_medians=_other_medians(own),
            skew_normal_flagged=None if curve is None else int(curve.flagged[chosen].sum()),
            guessing_test=test,
            median_capped=capped,
            epsilon=replace(epsilon, capped=capped) if count else None,
            methods=dict(Counter(canary.exposure.method for canary in own)),
            extraction=_found(own),
            guesses=_guessed(own, search),
        )
        rows.append(row)
    return rows


def _estimate(canary: CanaryResult, scores: FormatScores) -> ExposureEstimate:
    """The exposure shown, with what its error comes from."""
    found = canary.exposure.with_error(
        canary.log_perplexity_bits,
        references=int(scores.reference_bits.size),
        space_bits=scores.format.bits,
    )
    assert found is not None  # only of an extrapolation it may be infinite
    return found


def _guessing(scores: FormatScores, methods: set[str]) -> GuessingBaseline:
    """What guessing gives by these estimates; draws and counts over all of R are at the limit."""
    n = scores.reference_bits.size
    if methods == {"sampled"}:
        return GuessingBaseline.among(n)
    if methods == {"exact"} and scores.exhaustive:
        # The controls belong to the null, as in `_by_rank`.
        return GuessingBaseline.among(n + int(scores.controls.sum()), space_size=scores.format.size)
    return GUESSING


def _other_medians(canaries: Sequence[CanaryResult]) -> dict[OtherEstimate, float | None]:
    """Median exposure by the estimates that are given next to the rank; None: one is infinite."""
    medians: dict[OtherEstimate, float | None] = {}
    others: tuple[OtherEstimate, ...] = ("certificate", "skew_normal", "calibrated")
    for method in others:
        values = [
            canary.estimates[method].value for canary in canaries if method in canary.estimates
        ]
        known = [value for value in values if value is not None]
        if values:
            medians[method] = float(np.median(known)) if len(known) == len(values) else None
    return medians


def _found(canaries: Sequence[CanaryResult]) -> tuple[ExtractionCount, ...]:
    """How many of these canaries were found, for each method and number of revealed characters."""
    searches: dict[tuple[str, int], list[Extraction]] = {}
    for canary in canaries:
        for search in canary.extraction:
            if search.proven != 0:  # a best-first search that proved nothing was not made
                searches.setdefault((search.method, search.revealed), []).append(search)
    return tuple(
        ExtractionCount(
            method=chosen[0].method,
            revealed=chosen[0].revealed,
            found=sum(search.found for search in chosen),
            of=len(chosen),
            by_chance=sum(search.by_chance for search in chosen),
        )
        for _, chosen in sorted(searches.items())
    )


def _guessed(canaries: Sequence[CanaryResult], search: FormatSearch) -> tuple[GuessCount, ...]:
    """How many of these canaries an attacker finds within 1, 10, 100 ... guesses."""
    proven = 0 if search.record is None else search.record.guesses_proven or 0
    places = [
        search.place
        for canary in canaries
        for search in canary.extraction
        if search.method == "best_first" and search.place is not None
    ]
    powers = [10**k for k in range(len(str(proven))) if 10**k <= proven]
    return tuple(
        GuessCount(guesses=g, found=sum(place <= g for place in places), of=len(canaries))
        for g in powers
    )


def open_warnings(
    manifest: Manifest, settings: MeasureSettings, validation: Validation | None
) -> Iterator[str]:
    """What insertion, settings and training leave open, whatever was measured."""
    if not manifest.corpus.verified:
        yield (
            "the insertion was not verified: secrets that the corpus already held would be taken "
            "for never inserted, which makes canaries seem less memorised; insert with verification"
        )
    if settings.coarser is not None:
        yield (
            f"{settings.coarser}: intervals are wider and fewer ranks are exact; before a release, "
            "measure in full"
        )
    # A model that learned nothing cannot leak, which says nothing of a model that did.
    if validation is not None and not validation.has_loss and validation.best_epoch < 1:
        yield (
            f"INCONCLUSIVE: the weights are of epoch {validation.best_epoch:.2f}, before all "
            "canaries were read; train for an epoch at least"
        )
    elif validation is not None and not validation.improved:
        yield (
            "INCONCLUSIVE: the model did not learn (validation "
            f"{number(validation.validation_bits, 3)} bits per token, "
            f"{number(validation.initial_validation_bits, 3)} before training), so low exposure "
            "says nothing; train longer or with another learning rate"
        )
    differs = "so another machine, or the same one when it is busy, gives other numbers"
    if validation is not None and validation.stopped == "max_seconds":
        yield f"max_seconds ended the training by the clock, {differs}"
    if settings.budget_seconds is not None:
        yield f"budget_seconds={settings.budget_seconds:g} ends each search by the clock, {differs}"


def tokenizer_warnings(lm: TokenModel, scores: Sequence[FormatScores]) -> Iterator[str]:
    """Tokens of another model's tokenizer are noise to a model, and it knows no canary in them."""
    bits = sum(part.bits.sum() for part in scores) / sum(part.tokens.sum() for part in scores)
    guessing = math.log2(lm.vocabulary)
    if bits > guessing:
        yield (
            f"the model finds these texts less likely than random tokens ({bits:.1f} bits per "
            f"token; random tokens take {guessing:.1f}), so low exposure says nothing: check that "
            "the tokenizer is that of the model, and that the model was trained"
        )
