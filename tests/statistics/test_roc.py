import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import concave_hull, roc_curve

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=25)


def _pairs(inside: list[int], outside: list[int]) -> float:
    """P(in > out) + P(equal) / 2, pair by pair."""
    won = sum((a > b) + (a == b) / 2 for a in inside for b in outside)
    return won / (len(inside) * len(outside))


def _slow_hull_at(inside: list[int], outside: list[int], fpr: float) -> float:
    """The highest TPR that any coin between two thresholds reaches at this FPR."""
    thresholds = [*sorted({*inside, *outside}), 99]
    rates = [
        (np.mean([b >= t for b in outside]), np.mean([a >= t for a in inside])) for t in thresholds
    ]
    best = 0.0
    for x0, y0 in rates:
        for x1, y1 in rates:
            if x0 <= fpr <= x1:
                share = (fpr - x0) / (x1 - x0) if x1 > x0 else 1.0
                best = max(best, float(y0 + share * (y1 - y0)))
    return best


def test_published_counts_areas_and_hulls() -> None:
    """google-deepmind/jax_privacy, tests/auditing_test.py: a score at the threshold is a guess."""
    curve = roc_curve([0, 1, 1, 2], [0, 0, 1, 1])
    assert curve.thresholds.tolist() == [0, 1, 2, np.inf]
    assert curve.true_negatives.tolist() == [0, 2, 4, 4]
    assert curve.false_negatives.tolist() == [0, 1, 3, 4]
    curve = roc_curve([0, 4, 6, 7], [1, 2, 3, 5])
    assert (curve.area, concave_hull(curve).area) == (0.6875, 0.8125)
    hull = concave_hull(roc_curve([1, 3], [0, 2]))
    found = [hull.tpr_at(fpr) for fpr in (0, 0.25, 0.5, 0.75, 1)]
    assert found == pytest.approx([0.5, 0.75, 1, 1, 1], abs=1e-12)


@given(SCORES, SCORES)
def test_against_slow_versions(inside: list[int], outside: list[int]) -> None:
    curve = roc_curve(inside, outside)
    hull = concave_hull(curve)
    assert curve.area == pytest.approx(_pairs(inside, outside), abs=1e-12)
    for fpr in (0, 0.1, 0.37, 0.5, 1):
        expected = _slow_hull_at(inside, outside, fpr)
        assert hull.tpr_at(fpr) == pytest.approx(expected, abs=1e-12)
    assert hull.area >= max(0.5, curve.area) - 1e-12
    advantage = max(
        np.mean([a >= t for a in inside]) - np.mean([b >= t for b in outside])
        for t in [*inside, *outside, 99]
    )
    assert curve.advantage == pytest.approx(advantage, abs=1e-12)


@given(SCORES, SCORES)
def test_corners_turn_right_and_end_where_they_must(inside: list[int], outside: list[int]) -> None:
    hull = concave_hull(roc_curve(inside, outside))
    x, y = hull.false_positives.astype(int), hull.true_positives.astype(int)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, len(outside), len(inside))
    turns = np.diff(x)[:-1] * np.diff(y)[1:] - np.diff(y)[:-1] * np.diff(x)[1:]
    assert (turns < 0).all()


def test_all_ties_are_guessing_in_both_curves() -> None:
    curve = roc_curve([3] * 5, [3.0] * 7)
    assert curve.area == concave_hull(curve).area == 0.5
    assert curve.advantage == 0
    assert curve.tpr.tolist() == curve.fpr.tolist() == [1, 0]


def test_a_perfect_and_a_reversed_score() -> None:
    assert roc_curve([2, 3], [0, 1]).area == 1
    reversed_score = roc_curve([0, 1], [2, 3])
    assert (reversed_score.area, concave_hull(reversed_score).area) == (0, 0.5)


def test_without_signal_the_curve_is_at_chance_and_the_hull_above_it() -> None:
    rng = np.random.default_rng(1)
    curve = roc_curve(rng.normal(size=2000), rng.normal(size=3000))
    assert curve.area == pytest.approx(0.5, abs=0.03)
    assert concave_hull(curve).area > 0.5
