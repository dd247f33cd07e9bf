import math
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import ends, holds
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy import special, stats

from lmexposure.statistics import (
    Membership,
    area_under_curve,
    membership_metrics,
    roc_curve,
    tpr_at_fpr,
)

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=25)
Scores = NDArray[np.float64]


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


def _normal(rng: np.random.Generator, m: int, n: int) -> tuple[Scores, Scores, float]:
    return rng.normal(1, 1, m), rng.normal(0, 1, n), 0.7602499


def _tied(rng: np.random.Generator, m: int, n: int) -> tuple[Scores, Scores, float]:
    inside, outside = rng.binomial(1, 0.7, m), rng.binomial(1, 0.3, n)
    return inside.astype(np.float64), outside.astype(np.float64), 0.7


def _some_memorised(rng: np.random.Generator, m: int, n: int) -> tuple[Scores, Scores, float]:
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


def _tail(low: int, high: int, n: int, p: float) -> float:
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(low, high + 1))


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
    r = max(r for r in range(1, n) if _tail(0, r - 1, n, fpr) <= side / 2)
    s = min(s for s in range(1, n) if _tail(s, n, n, fpr) <= side / 2)
    low, high = ends(tpr_at_fpr(inside, outside, fpr=fpr, level=0.9))
    count, spent = int((inside > ordered[r - 1]).sum()), _tail(0, r - 1, n, fpr)
    assert spent + (1 - spent) * _tail(count, m, m, low) == pytest.approx(side)
    count, spent = int((inside >= ordered[s - 1]).sum()), _tail(s, n, n, fpr)
    assert spent + (1 - spent) * _tail(0, count, m, high) == pytest.approx(side)


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
        f"{needed - 1} negatives do not resolve a FPR of {fpr:g} at level 0.95; it takes {needed}"
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
