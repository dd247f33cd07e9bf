"""The ROC curve of each class of canaries, with only as many corners as an eye can tell apart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics import (
    ScoreClass,
    area_under_curve,
    concave_hull,
    roc_curve,
    score_classes,
)
from lmexposure.studies.exposure.rows import Floats
from lmexposure.studies.exposure.scores import Scores

_BUCKETS = 200  # each keeps two corners


@dataclass(frozen=True, kw_only=True, eq=False)
class RocData:
    """The ROC of one class of canaries against all that was never inserted."""

    name: str  # the class, as people read it
    repetitions: int  # of the class
    # fpr, tpr: corners of the ordinary curve, ascending, shape (k,)
    fpr: Floats
    tpr: Floats
    # hull_fpr, hull_tpr: of its concave hull
    hull_fpr: Floats
    hull_tpr: Floats
    # positives, negatives: how many texts are on either side; a rate below one over `negatives` is
    # not resolvable
    positives: int
    negatives: int
    area: float  # under the ordinary curve, with `area_low` and `area_high`
    area_low: float
    area_high: float


def roc_data(scores: Scores, *, pooled: bool, level: float) -> tuple[RocData, ...]:
    """One curve a class, as the result's membership metrics see it."""
    classes = score_classes(
        -scores.log_perplexity_bits,
        scores.roles,
        scores.repetitions,
        scores.formats,
        pooled=pooled,
    )
    both_sides = (group for group in classes if group.included.any() and group.outside.size)
    return tuple(_curve(group, level) for group in both_sides)


def _curve(group: ScoreClass, level: float) -> RocData:
    inside, outside = group.scores[group.included], group.outside
    curve = roc_curve(inside, outside)
    hull = concave_hull(curve)
    area = area_under_curve(inside, outside, level=level)
    fpr, tpr = _thinned(curve.fpr[::-1], curve.tpr[::-1], curve.negatives)
    return RocData(
        name=_class_title(group),
        repetitions=group.repetitions,
        fpr=fpr,
        tpr=tpr,
        hull_fpr=hull.false_positives / hull.negatives,
        hull_tpr=hull.true_positives / hull.positives,
        positives=curve.positives,
        negatives=curve.negatives,
        area=area.value,
        area_low=area.low,
        area_high=area.high,
    )


def _class_title(group: ScoreClass) -> str:
    few = len(group.formats) <= 2
    formats = ", ".join(group.formats) if few else f"{len(group.formats)} formats"
    return f"{formats}, repetitions {group.repetitions}"


def _thinned(fpr: Floats, tpr: Floats, negatives: int) -> tuple[Floats, Floats]:
    """The first and last corner of each narrow strip, narrow on linear and on logarithmic axes."""
    keep = _corners(fpr, tpr)
    fpr, tpr = fpr[keep], tpr[keep]
    floor = 0.5 / negatives
    decades = np.log(np.maximum(fpr, floor) / floor) / np.log(1 / floor)
    strip = np.floor((fpr + decades) / 2 * _BUCKETS)
    first = np.concatenate([[True], strip[1:] != strip[:-1]])
    last = np.concatenate([first[1:], [True]])
    return fpr[first | last], tpr[first | last]


def _corners(fpr: Floats, tpr: Floats) -> NDArray[np.bool_]:
    """Where the staircase turns."""
    flat, steep = np.diff(tpr) == 0, np.diff(fpr) == 0
    straight = (flat[1:] & flat[:-1]) | (steep[1:] & steep[:-1])
    return np.concatenate([[True], ~straight, [True]])
