import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import binomial_chance, ends, holds
from pydantic import TypeAdapter
from scipy import special, stats

from lmexposure.statistics import (
    Membership,
    area_under_curve,
    concave_hull,
    membership_metrics,
    roc_curve,
    tpr_at_fpr,
)
from lmexposure.statistics.arrays import Floats

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=25)


@given(SCORES, SCORES, st.sampled_from(["effective", "hoeffding", "newcombe"]))
def test_is_the_area_of_the_curve_and_mirrors(
    inside: list[int], outside: list[int], method: str
) -> None:
    found = area_under_curve(inside, outside, method=method)  # type: ignore[arg-type]
    turned = area_under_curve(outside, inside, method=method)  # type: ignore[arg-type]
    assert found.value == pytest.approx(roc_curve(inside, outside).area, abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low == pytest.approx(1 - turned.high, abs=1e-9)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (10, 10), (64, 10_000), (10_000, 64)])
def test_at_an_area_of_one_it_is_the_exact_bound_of_as_many_successes(m: int, n: int) -> None:
    """Clopper and Pearson 1934: after k successes of k, (alpha / 2)^(1 / k)."""
    found = area_under_curve(np.arange(m) + n, np.arange(n), method="hoeffding")
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(0.025 ** (1 / min(m, n)), abs=1e-9)
    assert area_under_curve(np.arange(m) + n, np.arange(n), method="newcombe").low < 1
    shown = area_under_curve(np.arange(m) + n, np.arange(n))
    assert (shown.value, shown.high) == (1, 1)
    # As wide, but for a factor of 2, as after as many successes.
    assert 1 - shown.low > 0.5 * (1 - found.low)


@pytest.mark.parametrize("level", [1e-10, 1e-6, 0.05])
@pytest.mark.parametrize("method", ["effective", "newcombe"])
def test_a_level_near_0_has_ends_next_to_an_area_of_one(level: float, method: str) -> None:
    found = area_under_curve([3, 4], [1, 2], level=level, method=method)  # type: ignore[arg-type]
    assert 0 < found.low <= found.value == found.high == 1


def test_the_shown_interval_against_its_definition() -> None:
    """The placements by every pair; Clopper and Pearson's by the binomial tail it inverts."""
    rng = np.random.default_rng(8)
    inside, outside = rng.integers(0, 9, 12) + 2.0, rng.integers(0, 9, 20) + 0.0
    right = (inside[:, None] > outside) + (inside[:, None] == outside) / 2  # (12, 20)
    spread = sum(
        np.var([*right.mean(axis=axis), 0.5], ddof=1) / size for axis, size in ((1, 12), (0, 20))
    )
    middle = (right.sum() + 16 / 2) / (right.size + 16)
    pairs = middle * (1 - middle) / spread
    low = stats.beta(right.mean() * pairs, pairs - right.mean() * pairs + 1).ppf(0.05)
    newcombe = area_under_curve(inside, outside, level=0.9, method="newcombe")
    found = area_under_curve(inside, outside, level=0.9)
    assert found.low == pytest.approx(min(low, newcombe.low), abs=1e-12)
    assert found.low < newcombe.low


def test_the_others_solve_their_equation() -> None:
    rng = np.random.default_rng(3)
    inside, outside = rng.normal(1, 1, 40), rng.normal(0, 1, 90)
    found = area_under_curve(inside, outside, level=0.9, method="hoeffding")
    for end in (found.low, found.high):
        a = found.value
        divergence = a * math.log(a / end) + (1 - a) * math.log((1 - a) / (1 - end))
        assert 40 * divergence == pytest.approx(math.log(2 / 0.1), rel=1e-6)
    found = area_under_curve(inside, outside, level=0.9, method="newcombe")
    for end in (found.low, found.high):
        rest = 64 * ((1 - end) / (2 - end) + end / (1 + end))  # (40 + 90) / 2 - 1
        variance = end * (1 - end) * (1 + rest) / (40 * 90)
        assert abs(found.value - end) == pytest.approx(1.6448536 * math.sqrt(variance), rel=1e-6)


def _normal(rng: np.random.Generator, m: int, n: int) -> tuple[Floats, Floats, float]:
    return rng.normal(1, 1, m), rng.normal(0, 1, n), 0.7602499


def _tied(rng: np.random.Generator, m: int, n: int) -> tuple[Floats, Floats, float]:
    inside, outside = rng.binomial(1, 0.7, m), rng.binomial(1, 0.3, n)
    return inside.astype(np.float64), outside.astype(np.float64), 0.7


def _some_memorised(rng: np.random.Generator, m: int, n: int) -> tuple[Floats, Floats, float]:
    memorised = rng.random(m) < 0.3
    return rng.normal(0, 1, m) + 99 * memorised, rng.normal(0, 1, n), 0.65


@pytest.mark.parametrize("draw", [_normal, _tied, _some_memorised])
@pytest.mark.parametrize(("m", "n"), [(12, 12), (64, 2000)])
def test_coverage(draw: object, m: int, n: int) -> None:
    rng, held, sure, narrower = np.random.default_rng(11), 0, 0, 0
    for _ in range(300):
        inside, outside, truth = draw(rng, m, n)  # type: ignore[operator]
        found = area_under_curve(inside, outside)
        widest = area_under_curve(inside, outside, method="hoeffding")
        held, sure = held + holds(found, truth), sure + holds(widest, truth)
        narrower += found.high - found.low < 0.85 * (widest.high - widest.low)
    assert held >= 0.93 * 300
    assert sure >= 0.95 * 300
    assert narrower >= 0.95 * 300


def test_newcombe_is_too_narrow_where_some_canaries_are_memorised() -> None:
    """Which is why it is not the default."""
    rng, held = np.random.default_rng(12), 0
    for _ in range(300):
        inside, outside, truth = _some_memorised(rng, 64, 2000)
        held += holds(area_under_curve(inside, outside, method="newcombe"), truth)
    assert held < 0.93 * 300


def test_chance_and_the_wrong_direction_are_said() -> None:
    rng = np.random.default_rng(4)
    found = area_under_curve(rng.normal(size=50), rng.normal(size=50))
    assert found.low < 0.5 < found.high
    assert found.notes == ("no better than chance at this level",)
    assert "worse than chance" in area_under_curve(range(50), range(50, 100)).notes[0]
    assert area_under_curve(range(50, 100), range(50)).notes == ()
    assert area_under_curve([1] * 9, [1] * 9).value == 0.5


def _slow_value(inside: list[int], outside: list[int], fpr: float) -> float:
    """The best of all thresholds whose FPR on these scores is low enough."""
    thresholds = [-99, *inside, *outside]
    allowed = [t for t in thresholds if np.mean([b > t for b in outside]) <= fpr + 1e-12]
    return max(float(np.mean([a > t for a in inside])) for t in allowed)


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=30),
    st.lists(st.integers(-9, 9), min_size=40, max_size=60),
    st.sampled_from([0.1, 0.2, 0.5]),
)
def test_against_a_slow_version(inside: list[int], outside: list[int], fpr: float) -> None:
    found: Any = tpr_at_fpr(inside, outside, fpr=fpr)
    assert found.value == pytest.approx(_slow_value(inside, outside, fpr))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.false_positives <= fpr * len(outside) + 1e-9


def test_the_interval_solves_both_equations() -> None:
    """n = 60, FPR .2, level .9: each side .05, of which the threshold may take .025."""
    m, n, fpr, side = 25, 60, 0.2, 0.05
    rng = np.random.default_rng(5)
    inside, outside = rng.normal(1.5, 1, m), rng.normal(0, 1, n)
    ordered = np.sort(outside)[::-1]
    r = max(r for r in range(1, n) if binomial_chance(0, r - 1, n, fpr) <= side / 2)
    s = min(s for s in range(1, n) if binomial_chance(s, n, n, fpr) <= side / 2)
    low, high = ends(tpr_at_fpr(inside, outside, fpr=fpr, level=0.9))
    count, spent = int((inside > ordered[r - 1]).sum()), binomial_chance(0, r - 1, n, fpr)
    assert spent + (1 - spent) * binomial_chance(count, m, m, low) == pytest.approx(side)
    count, spent = int((inside >= ordered[s - 1]).sum()), binomial_chance(s, n, n, fpr)
    assert spent + (1 - spent) * binomial_chance(0, count, m, high) == pytest.approx(side)


@pytest.mark.parametrize("step", [0.0, 0.5])
@pytest.mark.parametrize(("n", "fpr"), [(400, 0.01), (500, 0.1)])
def test_coverage_with_and_without_ties(step: float, n: int, fpr: float) -> None:
    """Normal scores one apart, rounded down to steps; the truth is the best threshold's."""
    rng, held = np.random.default_rng(6), 0
    cuts = np.arange(-8, 8, step) if step else special.ndtri([1 - fpr])
    allowed = cuts[special.ndtr(-cuts) <= fpr + 1e-12]
    truth = float(special.ndtr(1 - allowed).max())
    for _ in range(400):
        inside, outside = rng.normal(1, 1, 80), rng.normal(0, 1, n)
        if step:
            inside, outside = (np.floor(x / step) * step for x in (inside, outside))
        held += holds(tpr_at_fpr(inside, outside, fpr=fpr), truth)
    assert held >= 0.94 * 400


@pytest.mark.parametrize(("fpr", "needed"), [(0.1, 36), (0.01, 368), (0.001, 3688)])
def test_says_how_many_negatives_it_takes(fpr: float, needed: int) -> None:
    """(1 - fpr)^n < .025, where n = ln(40) / fpr is a little more than enough."""
    assert needed == pytest.approx(np.log(40) / fpr, rel=0.03)
    found = tpr_at_fpr(range(50), range(needed - 1), fpr=fpr)
    assert (found.value, found.low, found.high, found.threshold) == (None, None, None, None)
    assert found.note == (
        f"{needed - 1:,} texts that were not in are too few for a false-positive rate of {fpr:g}; "
        f"it takes {needed:,}"
    )
    found = tpr_at_fpr(np.arange(50) + needed, range(needed), fpr=fpr)
    assert (found.note, found.value, found.high) == (None, 1, 1)
    assert 0 < ends(found)[0] < 1


def test_no_signal_all_ties_and_a_reversed_score() -> None:
    rng = np.random.default_rng(7)
    assert holds(tpr_at_fpr(rng.normal(size=500), rng.normal(size=500), fpr=0.1), 0.1)
    tied = tpr_at_fpr([1] * 9, [1] * 500, fpr=0.1)
    assert (tied.value, tied.low, tied.high) == (0, 0, 1)
    turned = tpr_at_fpr(range(50), range(50, 600), fpr=0.1)
    assert (turned.value, turned.low) == (0, 0)
    assert ends(turned)[1] < 0.15


def test_each_metric_is_its_own_function_s() -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1, 1, 300), rng.normal(0, 1, 2_000)
    found = membership_metrics(inside, outside, level=0.9)
    assert found.area_under_curve == area_under_curve(inside, outside, level=0.9)
    assert found.tpr_at_fpr == tuple(
        tpr_at_fpr(inside, outside, fpr=rate, level=0.9) for rate in (0.1, 0.01, 0.001)
    )
    held = TypeAdapter(Membership)
    assert held.validate_json(held.dump_json(found)) == found


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
    assert (curve.negatives - curve.false_positives).tolist() == [0, 2, 4, 4]
    assert (curve.positives - curve.true_positives).tolist() == [0, 1, 3, 4]
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
