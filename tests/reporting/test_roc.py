"""The ROC of each class: the curve of the scores, thin enough for a page, in the same place."""

import numpy as np
import pytest

from lmexposure.records import Scores
from lmexposure.reporting.roc import roc_data
from lmexposure.statistics import roc_curve


def scores_of(inside: list[float], outside: list[float], repetitions: int = 1) -> Scores:
    """Bits of canaries and references of one format."""
    m, n = len(inside), len(outside)
    return Scores(
        ids=np.array([f"x/{i}" for i in range(m + n)]),
        formats=np.full(m + n, "x"),
        roles=np.array(["canary"] * m + ["reference"] * n),
        repetitions=np.array([repetitions] * m + [0] * n),
        log_perplexity_bits=np.array(inside + outside, dtype=float),
    )


def test_lower_log_perplexity_is_more_likely_in() -> None:
    (curve,) = roc_data(scores_of([1, 2, 5], [3, 4, 6, 7]), pooled=False, level=0.95)
    assert curve.name == "x, repetitions 1"
    assert (curve.positives, curve.negatives) == (3, 4)
    assert curve.area == pytest.approx(10 / 12)
    assert curve.area_low < curve.area < curve.area_high
    points = list(zip(curve.fpr.tolist(), curve.tpr.tolist(), strict=True))
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    assert (0, 2 / 3) in points


def test_pooled_formats_are_the_classes_that_the_metrics_see() -> None:
    """A format without references leaves out those of the others, which would bend the curve."""
    rng = np.random.default_rng(4)
    coins, references = rng.random(240) < 0.5, 2000
    roles = [*np.where(coins, "canary", "held_out").tolist(), *["reference"] * references]
    scores = Scores(
        ids=np.array([f"x/{i}" for i in range(len(roles))]),
        formats=np.append(np.repeat(np.arange(12), 20), np.repeat([0, 1], references // 2)).astype(
            str
        ),
        roles=np.array(roles),
        repetitions=np.append(np.ones(240, int), np.zeros(references, int)),
        log_perplexity_bits=rng.normal(size=len(roles)),
    )
    (curve,) = roc_data(scores, pooled=True, level=0.95)
    assert (curve.positives, curve.negatives) == (coins.sum(), (~coins).sum())
    assert curve.area_low < 0.5 < curve.area_high
    # Places on 20 steps: no threshold parts what is above all candidates of a format from the rest.
    assert curve.fpr.size <= 21


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_thinning_moves_the_curve_by_less_than_an_eye_sees(shift: float) -> None:
    draw = np.random.default_rng(3)
    inside, outside = draw.normal(-shift, 1, 1000), draw.normal(0, 1, 50_000)
    (curve,) = roc_data(scores_of(inside.tolist(), outside.tolist()), pooled=False, level=0.95)
    assert curve.fpr.size <= 402
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    whole = roc_curve(-inside, -outside)
    # No point is further from the drawn curve than a hundredth of either axis.
    for fpr, tpr in zip(whole.fpr.tolist(), whole.tpr.tolist(), strict=True):
        assert curve.tpr[curve.fpr <= fpr * 1.13].max() >= tpr
        assert curve.tpr[curve.fpr >= fpr / 1.13].min() <= tpr
    assert curve.area == pytest.approx(whole.area)


def test_the_hull_lies_above_the_curve() -> None:
    draw = np.random.default_rng(5)
    scores = scores_of(draw.normal(-1, 1, 40).tolist(), draw.normal(0, 1, 300).tolist())
    (curve,) = roc_data(scores, pooled=False, level=0.95)
    above = np.interp(curve.fpr, curve.hull_fpr, curve.hull_tpr)
    # Where the curve climbs straight up, its lower end is far below.
    assert (above >= curve.tpr - 1e-12).all()
    assert (np.diff(curve.hull_fpr) >= 0).all()


def test_a_class_without_others_has_no_curve() -> None:
    assert roc_data(scores_of([1, 2], []), pooled=False, level=0.95) == ()
