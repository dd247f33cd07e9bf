import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    Bonferroni,
    FixedThreshold,
    OrderStatistics,
    SplitSample,
    epsilon_from_scores,
)
from lmexposure.statistics.bounds.clopper_pearson import Threshold, ThresholdRule
from lmexposure.statistics.bounds.from_scores import _End

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]

EVERY: list[Threshold] = [
    OrderStatistics(),
    FixedThreshold(value=1.0),
    SplitSample(),
    Bonferroni(),
    Bonferroni(grid=(0.0, 0.5, 1.0), by="value"),
]


def _laplace(rng: np.random.Generator, n: int, m: int, epsilon: float) -> Scores:
    return rng.laplace(size=n) + epsilon, rng.laplace(size=m)


def _roof(rng: np.random.Generator, n: int, m: int, epsilon: float, delta: float) -> Scores:
    """The least favourable pair: P(in > t) is as large as P(out > t) allows, for all t."""
    v = rng.random(n)
    turn = (1 - delta) / (1 + math.exp(epsilon))
    low = np.maximum(v - delta, 0) * math.exp(-epsilon)
    high = 1 - delta - (1 - v) * math.exp(epsilon)
    return -np.where(low <= turn, low, high), -rng.random(m)


def _answers(rng: np.random.Generator, n: int, m: int, epsilon: float) -> Scores:
    """Randomised response: two scores only, all of them ties."""
    p = 1 / (1 + math.exp(-epsilon))
    return (rng.random(n) < p).astype(float), (rng.random(m) > p).astype(float)


@pytest.mark.parametrize("threshold", EVERY, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_coverage_on_a_shift(threshold: Threshold, epsilon: float) -> None:
    rng, reps = np.random.default_rng(5), 150
    above = sum(
        epsilon_from_scores(
            *_laplace(rng, 120, 90, epsilon), significance=0.1, threshold=threshold, seed=i
        ).value
        > epsilon
        for i in range(reps)
    )
    assert above <= stats.binom.isf(2e-5, reps, 0.1)


@pytest.mark.parametrize("threshold", [OrderStatistics(), FixedThreshold(value=0.5)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_coverage_where_all_is_tied(threshold: Threshold, epsilon: float) -> None:
    rng, reps = np.random.default_rng(6), 150
    above = sum(
        epsilon_from_scores(
            *_answers(rng, 150, 150, epsilon), significance=0.1, threshold=threshold
        ).value
        > epsilon
        for _ in range(reps)
    )
    assert above <= stats.binom.isf(2e-5, reps, 0.1)


@pytest.mark.parametrize("threshold", [OrderStatistics(), Bonferroni()])
@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_coverage_of_the_least_favourable_pair(threshold: Threshold, delta: float) -> None:
    rng, reps, epsilon = np.random.default_rng(7), 80, 0.7
    found = np.array(
        [
            epsilon_from_scores(
                *_roof(rng, 150, 200, epsilon, delta),
                significance=0.1,
                delta=delta,
                threshold=threshold,
            ).value
            for _ in range(reps)
        ]
    )
    assert (found > epsilon).sum() <= stats.binom.isf(2e-5, reps, 0.1)
    assert np.median(found) > 0.1


def test_tightness_of_the_joint_test() -> None:
    rng = np.random.default_rng(8)
    found = [epsilon_from_scores(*_laplace(rng, 1000, 1000, 1.0)).value for _ in range(40)]
    assert np.median(found) >= 0.8


def test_both_directions_count() -> None:
    rng = np.random.default_rng(9)
    ins, outs = rng.normal(size=300), rng.normal(size=300)
    ins[:90] += 6
    top = epsilon_from_scores(ins, outs)
    bottom = epsilon_from_scores(-outs, -ins)
    assert top.value == pytest.approx(bottom.value, abs=1e-5)
    assert top.value > 2
    assert bottom.counts["true_positives"] == 300 - top.counts["false_positives"]
    fixed = FixedThreshold(value=-3.0)
    assert epsilon_from_scores(-outs, -ins, threshold=fixed).value > 2


@pytest.mark.parametrize("threshold", EVERY, ids=lambda t: type(t).__name__)
def test_ties_and_wrong_direction_give_0(threshold: Threshold) -> None:
    same = epsilon_from_scores([3] * 40, [3] * 50, threshold=threshold)
    assert same.value == 0
    assert "no signal" in same.notes[0]
    wrong = epsilon_from_scores(range(40), range(50, 90), threshold=threshold)
    assert wrong.value == 0
    assert "worse than chance" in wrong.notes[0]
    assert "higher scores must mean in" in wrong.notes[0]


@pytest.mark.parametrize("threshold", EVERY, ids=lambda t: type(t).__name__)
def test_a_perfect_attack_reaches_the_ceiling(threshold: Threshold) -> None:
    bound = epsilon_from_scores(
        np.full(400, 2.0), np.full(400, 0.5), threshold=threshold, significance=0.01
    )
    assert bound.max_attainable is not None
    assert 0 < bound.value <= bound.max_attainable
    if isinstance(threshold, OrderStatistics | FixedThreshold | SplitSample):
        assert bound.value == pytest.approx(bound.max_attainable, abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 50), (50, 1), (2, 3)])
@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_few_scores(n: int, m: int, delta: float) -> None:
    bound = epsilon_from_scores(range(100, 100 + n), range(m), delta=delta)
    assert math.isfinite(bound.value)
    assert bound.value <= max(0.0, math.log(max(n, m) / 0.03))


@settings(max_examples=40)
@given(st.integers(2, 400), st.integers(2, 400), st.sampled_from([0.0, 0.01]))
@example(10_000, 100, 0.0)  # rises where almost all passed, at local bounds below 0
def test_local_bounds_fall_as_more_pass(size: int, others: int, delta: float) -> None:
    end = _End.of(size, others, ThresholdRule(significance=0.05, delta=delta, repetitions=1))
    local = np.array([end.local(np.full_like(end.ranks, c)) for c in range(others)])
    rising = np.diff(local, axis=0) > 1e-9
    assert not (rising & (local[1:] > 0)).any()


def test_groups_and_delta_cost() -> None:
    scores = _laplace(np.random.default_rng(2), 300, 300, 3.0)
    one = epsilon_from_scores(*scores).value
    assert epsilon_from_scores(*scores, repetitions=4).value == pytest.approx(one / 4)
    values = [epsilon_from_scores(*scores, repetitions=4, delta=d).value for d in (1e-3, 0.1)]
    assert one / 4 > values[0] > values[1] >= 0


def test_a_million_scores() -> None:
    scores = _laplace(np.random.default_rng(4), 20_000, 200_000, 1.0)
    start = time.process_time()
    assert 0.97 < epsilon_from_scores(*scores).value < 1
    assert time.process_time() - start < 10


def test_the_largest_floats_are_only_compared() -> None:
    least, most = [-1.7e308] * 50, [1.7e308] * 50
    with np.errstate(all="raise"):
        assert epsilon_from_scores(most, least).value > 2
        assert epsilon_from_scores(most, most).value == 0
        assert "worse than chance" in epsilon_from_scores(least, most).notes[0]


def test_the_split_follows_the_seed() -> None:
    scores = _laplace(np.random.default_rng(1), 200, 200, 2.0)
    one = [epsilon_from_scores(*scores, threshold=SplitSample(), seed=s).value for s in (1, 1, 2)]
    assert one[0] == one[1] != one[2]
    plain = json.loads(json.dumps(epsilon_from_scores(*scores, threshold=SplitSample()).to_dict()))
    assert plain["threshold_choice"] == "chosen on 0.5 of each sample (seed 0), bound on the rest"
    assert plain["counts"]["positives"] == 100


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"in_scores\[1\]=nan is not finite"):
        epsilon_from_scores([1.0, math.nan], [1.0])
    with pytest.raises(InputError, match="out_scores has shape"):
        epsilon_from_scores([1.0], [])
    with pytest.raises(InputError, match="in_scores has 1 scores, too few to choose a threshold"):
        epsilon_from_scores([1.0], [1.0, 2.0], threshold=SplitSample())
    with pytest.raises(SettingsError, match=r"threshold=0.5 must be OrderStatistics\(\)"):
        epsilon_from_scores([1.0], [1.0], threshold=0.5)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="significance=0 must lie strictly between"):
        epsilon_from_scores([1.0], [1.0], significance=0)
    with pytest.raises(SettingsError, match=r"delta=-1 must lie in \[0, 1\)"):
        epsilon_from_scores([1.0], [1.0], delta=-1)
    with pytest.raises(SettingsError, match="repetitions=0 must be"):
        epsilon_from_scores([1.0], [1.0], repetitions=0)
    with pytest.raises(SettingsError, match="seed=-1 must be"):
        epsilon_from_scores([1.0], [1.0], seed=-1)


@pytest.mark.parametrize(("n", "m", "share"), [(10_000, 10_000, 0.01), (1_000, 30_000, 0.02)])
def test_a_few_that_are_memorised_beside_many_that_are_not(n: int, m: int, share: float) -> None:
    """The step that decides is short, the staircase long: walks kept for reuse must still fit."""
    rng = np.random.default_rng(1)
    inside = rng.normal(size=n)
    inside[: int(share * n)] += 9
    outside = rng.normal(size=m)
    found = epsilon_from_scores(inside, outside).value
    memorised = Bonferroni(grid=(1 / m,))
    assert found > epsilon_from_scores(inside, outside, threshold=memorised).value - 1.5 > 0.5
    beside = [epsilon_from_scores(inside, outside, delta=d).value for d in (0.0, 1e-7, 1e-4)]
    assert beside[0] >= beside[1] - 1e-3 >= beside[2] - 2e-3


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.5, 4.0])
def test_reused_walks_give_the_chance_of_walks_of_their_own(slope: float) -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(size=10_000), np.sort(rng.normal(size=10_000))
    inside[:100] += 9
    end = _End.of(10_000, 10_000, ThresholdRule(significance=0.05, delta=0.0, repetitions=1))
    order = np.sort(inside)[::-1]
    passed = outside.size - np.searchsorted(outside, order[end.ranks - 1], side="left")
    kept = replace(end, passed=passed).staircase(2.5, 1.0)
    own = replace(kept, spacing=0.02)
    assert kept.probability(slope, 0.0) == pytest.approx(own.probability(slope, 0.0), abs=2e-4)
