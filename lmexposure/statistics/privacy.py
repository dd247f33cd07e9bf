"""What classes of scores say of privacy together: bounds, membership metrics, one verdict."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lmexposure._settings import takes_old_names
from lmexposure._validate import fraction
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.bound import EpsilonBound
from lmexposure.statistics.bounds.claim import Claim
from lmexposure.statistics.bounds.joint import JointBounds, joint_bounds
from lmexposure.statistics.bounds.tossed import refuse_unlikely_coins
from lmexposure.statistics.membership.auc import area_under_curve
from lmexposure.statistics.membership.metrics import membership_metrics
from lmexposure.statistics.score_class import ScoreClass


@takes_old_names({"coins": "inclusion_probability"})
def privacy_of(
    classes: Sequence[ScoreClass],
    *,
    inclusion_probability: float | None = None,
    significance: float = 0.05,
    deltas: Sequence[float] = (0.0,),
    claim: Claim | None = None,
    level: float = 0.95,
    seed: int = 0,
    if_reversed: str = "higher must mean in: turn the sign of the scores",
) -> dict[str, Any]:
    """Bounds on epsilon over all classes, at one joint level, and one verdict on a claim.

    The primary bound is the largest of the classes' primary ones. Each of those has half of an
    equal part of the significance; the largest lies above the truth where any of them does, so
    that its own `significance`, and that of the verdict on a claim, is the sum of theirs.

    Args:
        classes: at least one.
        inclusion_probability: with which each candidate went in by its own coin; None: no coins.
        significance: of all bounds together.
        deltas: beside which epsilon is bounded, the primary bound's first.
        claim: held against the primary bound.
        level: coverage of the membership metrics' intervals.
        seed: of ties.
        if_reversed: what to do where those in score lower than the rest, for the reader of a note.

    Returns:
        plain values: "inclusion_probability", "significance", "deltas"; "primary": a bound with the
        "formats" and "repetitions" of its class, or None; "max_attainable": the most that a perfect
        attack on these classes would have shown; "classes": each with "bounds" and "membership", or
        with the "note" that says why not; "claim": a verdict, or None without a claim; "notes":
        what the reader must know of all this.

    Raises:
        InputError: no classes.
        SettingsError: a setting out of range.
    """
    if not classes:
        raise InputError("no candidates, so there is nothing to bound; give canaries and others")
    share = fraction("significance", significance) / len(classes)
    rows: list[dict[str, Any]] = []
    primary: list[tuple[EpsilonBound, ScoreClass]] = []
    for one in classes:
        try:
            bounds = joint_bounds(
                one.scores,
                one.included,
                references=one.references,
                inclusion_probability=inclusion_probability,
                significance=share,
                deltas=deltas,
                repetitions=one.repetitions,
                seed=seed,
            )
            _refuse_unlikely(classes, inclusion_probability)
        except SettingsError:
            raise
        except InputError as failure:  # all candidates of the class on one side, for one
            rows.append(_row(one, None, level, f"no bound: {failure}"))
            continue
        rows.append(_row(one, bounds, level, None))
        primary.append((bounds.primary, one))
    best = _largest(primary)
    ceilings = [bound.max_attainable for bound, _ in primary if bound.max_attainable is not None]
    return {
        "inclusion_probability": inclusion_probability,
        "significance": significance,
        "deltas": list(deltas),
        "primary": None if best is None else _named(*best),
        "max_attainable": max(ceilings, default=None),
        "classes": rows,
        "claim": None if claim is None else _verdict(claim, best, ceilings),
        "notes": [*_left_out(classes), *_reversed(classes, level, if_reversed)],
    }


def _refuse_unlikely(classes: Sequence[ScoreClass], probability: float | None) -> None:
    """Refuse coins that all classes together would hardly ever give, where each alone still might.

    Raises:
        InputError: as `refuse_unlikely_coins`.
    """
    if probability is not None:
        went_in = sum(int(np.count_nonzero(one.included)) for one in classes)
        refuse_unlikely_coins(went_in, sum(one.included.size for one in classes), probability)


def _left_out(classes: Sequence[ScoreClass]) -> Iterator[str]:
    """Where formats are pooled and cannot be compared by all their references."""
    for one in classes:
        left = one.references_left_out
        if left:
            yield (
                f"{_where(one.formats, one.repetitions)}: {left:,} of "
                f"{left + one.references.size:,} references are left out: several formats are "
                "compared by places, which takes as many references for each candidate in each"
            )


def _reversed(classes: Sequence[ScoreClass], level: float, advice: str) -> Iterator[str]:
    """Where scores tell those in from the rest, but the other way round: every bound is then 0."""
    for one in classes:
        inside = one.scores[one.included]
        if not inside.size or not one.outside.size:
            continue
        # Each class at its share, so that many classes without a leak seldom look reversed.
        area = area_under_curve(inside, one.outside, level=1 - (1 - level) / len(classes))
        if area.high < 0.5:
            yield (
                f"{_where(one.formats, one.repetitions)}: those that were in score lower than the "
                f"rest (AUC {area.value:.3f}, its interval below 0.5), which no bound counts as a "
                f"leak; {advice}"
            )


def _where(formats: Sequence[str], repetitions: int) -> str:
    names = ", ".join(filter(None, formats)) if len(formats) < 4 else f"{len(formats)} formats"
    return f"{names + ', ' if names else ''}repetitions {repetitions}"


def _largest(
    primary: Sequence[tuple[EpsilonBound, ScoreClass]],
) -> tuple[EpsilonBound, ScoreClass] | None:
    """The largest bound with its class: it lies above the truth where any of them does (Boole)."""
    if not primary:
        return None
    bound, one = max(primary, key=lambda pair: pair[0].value)
    together = math.fsum(each.significance for each, _ in primary)
    return replace(bound, significance=together), one


def _named(bound: EpsilonBound, one: ScoreClass) -> dict[str, Any]:
    return bound.to_dict() | {"formats": list(one.formats), "repetitions": one.repetitions}


def _verdict(
    claim: Claim, best: tuple[EpsilonBound, ScoreClass] | None, ceilings: list[float]
) -> dict[str, Any]:
    """The largest bound contradicts; what any class could have shown makes it consistent."""
    if best is None:
        return claim.untested("no class of canaries has a bound").to_dict()
    return claim.against(replace(best[0], max_attainable=max(ceilings, default=None))).to_dict()


def _row(
    one: ScoreClass, bounds: JointBounds | None, level: float, note: str | None
) -> dict[str, Any]:
    """What is said of one class."""
    return {
        "formats": list(one.formats),
        "repetitions": one.repetitions,
        "canaries": int(one.included.sum()),
        "held_out": int((~one.included).sum()),
        "references": int(one.references.size),
        "bounds": None if bounds is None else bounds.to_dict(),
        "membership": None
        if bounds is None
        else membership_metrics(one.scores[one.included], one.outside, level=level),
        "note": note,
    }
