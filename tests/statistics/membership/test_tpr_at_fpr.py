import json
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    tpr_at_fpr,
)


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
    found = tpr_at_fpr(inside, outside, fpr=fpr)
    assert found.value == pytest.approx(_slow_value(inside, outside, fpr))
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.false_positives is not None
    assert found.false_positives <= fpr * len(outside) + 1e-9


def test_the_interval_solves_both_equations() -> None:
    """n = 60, FPR .2, level .9: each side .05, of which the threshold may take .025."""
    m, n, fpr, side = 25, 60, 0.2, 0.05
    rng = np.random.default_rng(5)
    inside, outside = rng.normal(1.5, 1, m), rng.normal(0, 1, n)
    ordered = np.sort(outside)[::-1]
    r = max(r for r in range(1, n) if _tail(0, r - 1, n, fpr) <= side / 2)
    s = min(s for s in range(1, n) if _tail(s, n, n, fpr) <= side / 2)
    found = tpr_at_fpr(inside, outside, fpr=fpr, level=0.9)
    assert found.low is not None
    assert found.high is not None
    count, spent = int((inside > ordered[r - 1]).sum()), _tail(0, r - 1, n, fpr)
    assert spent + (1 - spent) * _tail(count, m, m, found.low) == pytest.approx(side)
    count, spent = int((inside >= ordered[s - 1]).sum()), _tail(s, n, n, fpr)
    assert spent + (1 - spent) * _tail(0, count, m, found.high) == pytest.approx(side)


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
        found = tpr_at_fpr(inside, outside, fpr=fpr)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
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
    assert found.note is None
    assert found.value == 1
    assert found.low is not None
    assert 0 < found.low < 1
    assert found.high == 1


def test_no_signal_all_ties_and_a_reversed_score() -> None:
    rng = np.random.default_rng(7)
    found = tpr_at_fpr(rng.normal(size=500), rng.normal(size=500), fpr=0.1)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.1 < found.high
    tied = tpr_at_fpr([1] * 9, [1] * 500, fpr=0.1)
    assert (tied.value, tied.low, tied.high) == (0, 0, 1)
    turned = tpr_at_fpr(range(50), range(50, 600), fpr=0.1)
    assert (turned.value, turned.low) == (0, 0)
    assert turned.high is not None
    assert turned.high < 0.15
    assert json.loads(json.dumps(turned.to_dict()))["validity"] == "iid-scores"


def test_many_scores_are_no_trouble() -> None:
    rng = np.random.default_rng(8)
    found = tpr_at_fpr(rng.normal(1, 1, 10**5), rng.normal(0, 1, 10**6), fpr=0.001)
    truth = float(special.ndtr(1 + special.ndtri(0.001)))
    assert found.low is not None
    assert found.high is not None
    assert found.low < truth < found.high
    assert found.high - found.low < 0.01


def test_refusals() -> None:
    for fpr in (0, 1, float("nan")):
        with pytest.raises(SettingsError, match=r"fpr=.* must lie strictly between"):
            tpr_at_fpr([1], [0], fpr=fpr)
    with pytest.raises(SettingsError, match="level=0 must"):
        tpr_at_fpr([1], [0], fpr=0.1, level=0)
    with pytest.raises(InputError, match="out_scores has shape"):
        tpr_at_fpr([1], [], fpr=0.1)
