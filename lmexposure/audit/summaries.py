"""What is said of a class of canaries: its exposures in a few numbers, and how many were found."""

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lmexposure._files import sha256_bytes
from lmexposure.audit.format_scores import FormatScores
from lmexposure.audit.searching import FormatSearch
from lmexposure.records import (
    CanaryResult,
    ClassSummary,
    EstimateName,
    Extraction,
    ExtractionCount,
    GuessCount,
    MeasureSettings,
)
from lmexposure.statistics import (
    GUESSING,
    ExposureEstimate,
    ExposureSummary,
    GuessingBaseline,
    SkewNormalExposure,
    epsilon_from_median_exposure,
    exposure_summary,
    guessing_test,
)


def summarise(
    scores: FormatScores,
    search: FormatSearch,
    canaries: Sequence[CanaryResult],
    curve: SkewNormalExposure | None,
    settings: MeasureSettings,
    *,
    origin: str,
) -> list[ClassSummary]:
    """The classes of a format by ascending repetitions, 0 (the controls) first.

    Args:
        scores: its log-perplexities.
        search: what a search over all fills found.
        canaries: what was measured of each, in the order of the scores.
        curve: the skew-normal extrapolation; None where there is none.
        settings: levels, permutations, seed.
        origin: what tells this measurement from all others: see `estimate_format`.
    """
    estimates = [_estimate(one, scores) for one in canaries]
    controls = [one for one, never in zip(estimates, scores.controls, strict=True) if never]
    repetitions = np.array([one.repetitions for one in canaries])
    rows = []
    for count in np.unique(repetitions).tolist():
        chosen = np.flatnonzero(repetitions == count)
        own = [canaries[i] for i in chosen.tolist()]
        shown = [estimates[i] for i in chosen.tolist()]
        seed = _seed_of(settings.bootstrap_seed, origin, scores.format.name, count)
        summary = _exposures(scores, shown, controls if count else [], settings.level, seed)
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
        row = summary.to_dict() | {
            "format": scores.format.name,
            "role": "canary" if count else "control",
            "repetitions": count,
            "other_medians": _other_medians(own),
            "skew_normal_flagged": None if curve is None else int(curve.flagged[chosen].sum()),
            "guessing_test": test.to_dict(),
            "median_capped": capped,
            "epsilon": epsilon.to_dict() | {"capped": capped} if count else None,
            "methods": dict(Counter(one.method for one in shown)),
            "extraction": _found(own),
            "guesses": _guessed(own, search),
        }
        rows.append(ClassSummary.model_validate(row))
    return rows


def _exposures(
    scores: FormatScores,
    shown: Sequence[ExposureEstimate],
    controls: Sequence[ExposureEstimate],
    level: float,
    seed: int,
) -> ExposureSummary:
    """The exposures of a class, held against the controls where there are any."""
    return exposure_summary(
        [one.value for one in shown],
        level=level,
        capped=[one.capped for one in shown],
        estimates=shown,
        controls_bits=[one.value for one in controls] or None,
        control_estimates=controls or None,
        seed=seed,
        guessing=_guessing(scores, {one.method for one in shown}),
    )


def _seed_of(seed: int, origin: str, name: str, repetitions: int) -> int:
    """A class's own seed, below 2^48 so that a JSON number holds it."""
    key = json.dumps([seed, origin, name, repetitions])
    return int(sha256_bytes(key.encode())[:12], 16)


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


def _other_medians(canaries: Sequence[CanaryResult]) -> dict[EstimateName, float | None]:
    """Median exposure by the estimates that stand beside the rank; None: one is infinite."""
    medians: dict[EstimateName, float | None] = {}
    beside: tuple[EstimateName, ...] = ("certificate", "skew_normal")
    for method in beside:
        values = [one.estimates[method].value for one in canaries if method in one.estimates]
        known = [value for value in values if value is not None]
        if values:
            medians[method] = float(np.median(known)) if len(known) == len(values) else None
    return medians


def _found(canaries: Sequence[CanaryResult]) -> list[ExtractionCount]:
    """How many of these canaries were found, for each method and number of revealed characters.

    `by_chance` is how many of them a beam of the same width would hold by guessing. A best-first
    search that proved nothing is left out: it found none, for it was not made.
    """
    searches: dict[tuple[str, int], list[Extraction]] = {}
    for canary in canaries:
        for one in canary.extraction:
            if one.proven != 0:
                searches.setdefault((one.method, one.revealed), []).append(one)
    return [
        ExtractionCount(
            method=chosen[0].method,
            revealed=chosen[0].revealed,
            found=sum(one.found for one in chosen),
            of=len(chosen),
            by_chance=sum(one.by_chance for one in chosen),
        )
        for _, chosen in sorted(searches.items())
    ]


def _guessed(canaries: Sequence[CanaryResult], search: FormatSearch) -> list[GuessCount]:
    """How many of these canaries an attacker finds within 1, 10, 100 ... guesses."""
    proven = 0 if search.record is None else search.record.guesses_proven or 0
    places = [
        one.place
        for canary in canaries
        for one in canary.extraction
        if one.method == "best_first" and one.place is not None
    ]
    powers = [10**k for k in range(len(str(proven))) if 10**k <= proven]
    return [
        GuessCount(guesses=g, found=sum(place <= g for place in places), of=len(canaries))
        for g in powers
    ]
