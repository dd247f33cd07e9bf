"""What one model's scores say of differential privacy: bounds on epsilon, and membership metrics.

Classes of repetitions are never pooled. Formats are pooled where coins were tossed: a candidate's
score is then its place among the scores of its own format.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from lmexposure.audit.format_scores import FormatScores
from lmexposure.audit.settings import MeasureSettings
from lmexposure.canaries import Manifest
from lmexposure.errors import InputError
from lmexposure.statistics import (
    Claim,
    EpsilonBound,
    JointBounds,
    joint_bounds,
    membership_metrics,
)

__all__ = ["privacy_section"]

_PACKED = (
    "training packs documents into blocks of tokens: one document more or less shifts the blocks "
    "behind it, so these bounds test claims about documents; a claim about blocks is another one"
)


@dataclass(frozen=True, kw_only=True)
class _Class:
    """Candidates of one number of repetitions; higher scores = more likely in."""

    formats: list[str]
    repetitions: int
    scores: NDArray[np.float64]  # (m,)
    included: NDArray[np.bool_]  # (m,)
    references: NDArray[np.float64]  # (n,)


def privacy_section(
    scores: Sequence[FormatScores], manifest: Manifest, settings: MeasureSettings
) -> dict[str, Any]:
    """The section "privacy" of a result.

    The primary bound is the largest of the classes' primary ones, each at an equal part of the
    significance, so that the largest is paid for.

    Args:
        scores: log-perplexities of every format.
        manifest: how the candidates were drawn.
        settings: significance, delta, claim.

    Returns:
        `coins`, `significance`, `deltas`, `primary` (a bound, or None), `classes` (each with its
        bounds and its membership metrics), `claim` (what the primary bound says of it, or None),
        `notes`.
    """
    coins = None if manifest.plan.coins == "fixed" else float(manifest.plan.coins)
    deltas = settings.deltas(manifest.corpus.documents)
    classes = list(_classes(scores, pooled=coins is not None))
    rows = [_row(one, coins, deltas, settings, len(classes)) for one in classes]
    bounds = [bounds.primary for _, bounds in rows if bounds is not None]
    best = max(bounds, key=lambda one: one.value, default=None)
    return {
        "coins": "fixed" if coins is None else coins,
        "significance": settings.significance,
        "deltas": list(deltas),
        "primary": None if best is None else best.to_dict(),
        "classes": [row for row, _ in rows],
        "claim": _claim(best, settings),
        "notes": [_PACKED],
    }


def _claim(best: EpsilonBound | None, settings: MeasureSettings) -> dict[str, Any] | None:
    if settings.claimed_epsilon is None or best is None:
        return None
    claim = Claim(epsilon=settings.claimed_epsilon, delta=settings.delta)
    return claim.against(best).to_dict()


def _classes(scores: Sequence[FormatScores], *, pooled: bool) -> Iterator[_Class]:
    """All candidates by repetitions; per format, too, where they are not pooled."""
    for some in [scores] if pooled else [[one] for one in scores]:
        candidates = [_candidates(one) for one in some]
        counts = np.unique(np.concatenate([copies for copies, _ in candidates]))
        for count in counts[counts > 0].tolist():
            parts = [
                _scores(one, copies == count, inside)
                for one, (copies, inside) in zip(some, candidates, strict=True)
            ]
            chosen, included, references = (np.concatenate(p) for p in zip(*parts, strict=True))
            yield _Class(
                formats=[one.format.name for one in some],
                repetitions=count,
                scores=chosen,
                included=included,
                references=references,
            )


def _candidates(one: FormatScores) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(copies, whether in) of canaries and excluded ones; controls are no candidates: 0 copies."""
    drawn = [*one.canaries, *one.excluded]
    copies = np.array([c.repetitions for c in drawn], dtype=np.int64)
    return copies, np.array([c.role == "canary" for c in drawn], dtype=bool)


def _scores(
    one: FormatScores, chosen: NDArray[np.bool_], inside: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Candidates' places among all of them and the references, as shares; higher = lower bits."""
    drawn = len(chosen)
    own = one.bits[:drawn][chosen]
    references = one.bits[drawn:]
    places = rankdata(-np.concatenate([own, references])) / (own.size + references.size)
    return places[: own.size], inside[chosen], places[own.size :]


def _row(
    one: _Class,
    coins: float | None,
    deltas: Sequence[float],
    settings: MeasureSettings,
    classes: int,
) -> tuple[dict[str, Any], JointBounds | None]:
    """What is said of a class, and its bounds where there are some."""
    row: dict[str, Any] = {
        "formats": one.formats,
        "repetitions": one.repetitions,
        "canaries": int(one.included.sum()),
        "excluded": int((~one.included).sum()),
        "references": one.references.size,
        "bounds": None,
        "membership": None,
        "note": None,
    }
    try:
        bounds = joint_bounds(
            one.scores,
            one.included,
            references=one.references,
            coins=coins,
            significance=settings.significance / classes,
            deltas=deltas,
            repetitions=one.repetitions,
            seed=settings.seed,
        )
    except InputError as failure:  # all candidates of the class on one side, for one
        return row | {"note": f"no bound: {failure}"}, None
    return row | {
        "bounds": bounds.to_dict(),
        "membership": _membership(one, settings.level),
    }, bounds


def _membership(one: _Class, level: float) -> dict[str, Any]:
    outside = np.concatenate([one.scores[~one.included], one.references])
    return membership_metrics(one.scores[one.included], outside, level=level)
