import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from lmexposure.errors import NumericalError
from lmexposure.statistics import (
    Bonferroni,
    FixedThreshold,
    OrderStatistics,
    SplitSample,
    epsilon_from_scores,
)
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.bounds import from_scores
from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.clopper_pearson import Threshold
from lmexposure.statistics.bounds.from_scores import (
    Staircase,
    _End,
    _least_exceeded,
    _log_prefix_ratio,
    _ranges,
)

Scores = tuple[Floats, Floats]

EVERY: list[Threshold] = [
    OrderStatistics(),
    FixedThreshold(value=1.0),
    SplitSample(),
    Bonferroni(),
    Bonferroni(grid=(0.0, 0.5, 1.0), by="value"),
]
ROUNDING = 1e-7


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


LEVEL = 0.1
SAMPLED: list[Any] = [
    *((kind, _laplace) for kind in EVERY),
    *((kind, _answers) for kind in (OrderStatistics(), FixedThreshold(value=0.5))),
]
PURE: list[Any] = [(*kind, epsilon, 0.0, 150) for kind in SAMPLED for epsilon in (0.0, 1.0)]
WORST: list[Any] = [
    (kind, partial(_roof, delta=delta), 0.7, delta, 80)
    for kind in (OrderStatistics(), Bonferroni())
    for delta in (1e-3, 0.05)
]


@pytest.mark.parametrize(("threshold", "draw", "epsilon", "delta", "runs"), PURE + WORST)
def test_coverage(threshold: Threshold, draw: Any, epsilon: float, delta: float, runs: int) -> None:
    rng, found = np.random.default_rng(5), []
    for seed in range(runs):
        scores = draw(rng, 120, 150, epsilon)
        bound = epsilon_from_scores(
            *scores, significance=LEVEL, delta=delta, threshold=threshold, seed=seed
        )
        found.append(bound.value)
    assert (np.array(found) > epsilon).sum() <= stats.binom.isf(2e-5, runs, LEVEL)
    if delta:
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
    end = _End.of(size, others, Terms(significance=0.05, delta=delta, repetitions=1))
    local = np.array([end.local(np.full_like(end.ranks, c)) for c in range(others)])
    rising = np.diff(local, axis=0) > 1e-9
    assert not (rising & (local[1:] > 0)).any()


def test_many_scores() -> None:
    scores = _laplace(np.random.default_rng(4), 20_000, 200_000, 1.0)
    assert 0.97 < epsilon_from_scores(*scores).value < 1


def test_the_split_follows_the_seed() -> None:
    scores = _laplace(np.random.default_rng(1), 200, 200, 2.0)
    one = [epsilon_from_scores(*scores, threshold=SplitSample(), seed=s).value for s in (1, 1, 2)]
    assert one[0] == one[1] != one[2]
    assert epsilon_from_scores(*scores, threshold=SplitSample()).counts["positives"] == 100


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
    values = [epsilon_from_scores(inside, outside, delta=d).value for d in (0.0, 1e-7, 1e-4)]
    assert values[0] >= values[1] - 1e-3 >= values[2] - 2e-3


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.5, 4.0])
def test_reused_walks_give_the_chance_of_walks_of_their_own(slope: float) -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(size=10_000), np.sort(rng.normal(size=10_000))
    inside[:100] += 9
    end = _End.of(10_000, 10_000, Terms(significance=0.05, delta=0.0, repetitions=1))
    order = np.sort(inside)[::-1]
    passed = outside.size - np.searchsorted(outside, order[end.ranks - 1], side="left")
    kept = replace(end, passed=passed).staircase(2.5, 1.0)
    own = replace(kept, spacing=0.02)
    assert kept.probability(slope, 0.0) == pytest.approx(own.probability(slope, 0.0), abs=2e-4)


def _naive(steps: list[tuple[int, int]], n: int, m: int, epsilon: float) -> float:
    """Condition on how many others lie below e^-epsilon: all orders of those are as likely."""
    total = 0.0
    for a in range(m + 1):
        weight = stats.binom.pmf(a, m, math.exp(-epsilon))
        ways = np.zeros((n + 1, a + 1), dtype=object)
        for k in range(n + 1):
            for y in range(a + 1):
                free = 1 if k == y == 0 else 0
                free += ways[k, y - 1] if y else 0
                # Arriving at the k-th point with y others before it.
                arrived = ways[k - 1, y] if k else 0
                crossed = any(k == rank and y <= count for rank, count in steps)
                ways[k, y] = free + (0 if crossed else arrived)
        total += weight * (1 - ways[n, a] / math.comb(n + a, n))
    return float(total)


@settings(max_examples=60)
@given(st.data())
def test_chance_against_counting_orders(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    length = data.draw(st.integers(1, min(n, m)))
    some = st.lists(st.integers(1, n), min_size=length, max_size=length, unique=True)
    ranks = sorted(data.draw(some))
    low = st.lists(st.integers(0, m - 1), min_size=length, max_size=length, unique=True)
    counts = sorted(data.draw(low))
    epsilon = data.draw(st.sampled_from([0.0, 0.3, 1.0, 4.0]))
    stairs = Staircase(ranks=tuple(ranks), counts=tuple(counts), size=n, others=m)
    expected = _naive(list(zip(ranks, counts, strict=True)), n, m, epsilon)
    assert stairs.probability(epsilon, 0.0) == pytest.approx(min(1, expected + ROUNDING), abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(40, 90), (90, 40), (2000, 1500)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 0.0), (0.7, 0.02), (0.0, 0.0)])
def test_chance_against_simulation(n: int, m: int, epsilon: float, delta: float) -> None:
    rng, draws = np.random.default_rng(3), 2_000
    spared = int(stats.binom.isf(1e-3, n, delta)) if delta else 0
    ranks = [spared + 1 + n // 8, spared + n // 3, n - n // 4]
    expected = [k * m / n * math.exp(-epsilon) for k in ranks]
    counts = [int(share * y) for share, y in zip((0.5, 0.75, 0.9), expected, strict=True)]
    hit = 0
    for _ in range(draws):
        points = np.sort(np.maximum(rng.random(n) - delta, 0)) * math.exp(-epsilon)
        others = np.sort(rng.random(m))
        before = np.searchsorted(others, points[np.array(ranks) - 1])
        hit += bool((before <= counts).any())
    found = Staircase(
        ranks=tuple(ranks), counts=tuple(counts), size=n, others=m, spared=spared
    ).probability(epsilon, delta)
    error = 4 * math.sqrt(0.25 / draws)
    assert found >= hit / draws - error
    # With delta each range of spared points is given the chance of its upper end.
    assert found <= hit / draws + error + (0.08 if delta else 0)


def test_one_step_is_a_beta_binomial() -> None:
    n, m, k, b, epsilon = 50, 3000, 20, 700, 0.5
    v = stats.beta(k, n - k + 1).ppf((np.arange(200_000) + 0.5) / 200_000)
    expected = stats.binom.cdf(b, m, v * math.exp(-epsilon)).mean()
    found = Staircase(ranks=(k,), counts=(b,), size=n, others=m).probability(epsilon, 0.0)
    assert found == pytest.approx(expected, abs=1e-6)


def test_it_grows_with_epsilon_and_delta() -> None:
    stairs = Staircase(ranks=(20, 60), counts=(5, 40), size=100, others=100, spared=8)
    chances = [stairs.probability(epsilon, 0.0) for epsilon in np.linspace(0, 4, 30)]
    assert (np.diff(chances) > -1e-9).all()
    assert stairs.probability(0.5, 0.0) < stairs.probability(0.5, 0.01)
    assert stairs.probability(0.5, 0.01) < stairs.probability(0.5, 0.05)
    assert Staircase(ranks=(), counts=(), size=3, others=3).probability(1.0, 0.0) == 0


def test_a_kept_walk_overlaps_the_one_that_is_wanted() -> None:
    # A walk .24 away has its mass elsewhere: weighted, it was "alive" with probability 2.97.
    settings_ = {"ranks": (7500, 9919), "counts": (1, 3), "size": 10378, "others": 1581}
    for epsilon in (0.0, 0.25, 0.5):
        far = Staircase(**settings_, spacing=0.493)  # type: ignore[arg-type]
        assert far.probability(epsilon, 0.0) == pytest.approx(ROUNDING, abs=1e-8)


@pytest.mark.parametrize("size", [399, 400, 401])
def test_a_sample_that_is_used_up_is_interpolated_as_well(size: int) -> None:
    # Near the last point the weights bend like a logarithm; even knots gave .04229 at 400.
    counts = (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 24, 29, 36)
    ranks = (56, 74, 85, 98, 113, 130, 150, 172, 198, 228, 262, 301, 346, 398)
    stairs = Staircase(ranks=ranks, counts=counts, size=size, others=400)
    chances = [stairs.probability(epsilon, 0.0) for epsilon in (0.0, 0.01, 0.02, 0.05)]
    assert chances == pytest.approx([ROUNDING] * 4, rel=0.05)


def test_it_is_smooth_over_sizes_and_epsilons() -> None:
    rng = np.random.default_rng(11)
    for n, m in np.exp(rng.uniform(0, math.log(20_000), (60, 2))).astype(int).tolist():
        m = n if rng.random() < 0.3 else m
        ranks = np.unique(np.geomspace(1, n, 12).astype(int))
        counts = np.maximum.accumulate((rng.uniform(0.05, 0.9) * ranks * m / n).astype(int))
        first = np.unique(counts, return_index=True)[1]
        stairs = Staircase(
            ranks=tuple(ranks[first].tolist()),
            counts=tuple(counts[first].tolist()),
            size=n,
            others=m,
            spacing=0.2,
        )
        step = 0.02 / math.sqrt(n + m)
        chances = [stairs.probability(k * step, 0.0) for k in range(24)]
        assert np.diff(chances).min() > -1e-8, (n, m)
        assert np.abs(np.diff(chances, 3)).max() < 1e-4, (n, m)


def test_a_chance_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        from_scores, "_log_prefix_ratio", lambda *a, **k: _log_prefix_ratio(*a, **k) + 1e-3
    )
    with pytest.raises(
        NumericalError, match=r"chance of no event is 1\.001.* 20 points, 30 others"
    ):
        Staircase(ranks=(20,), counts=(0,), size=20, others=30).probability(0.0, 0.0)


def test_a_prefix_without_privacy_loss_is_one_of_all_arrangements() -> None:
    n, m = 7, 5
    found = _log_prefix_ratio(
        np.array([2.0, 7.0]), np.array([3.0, 0.0]), sizes=(n, m), slope=1.0, theta=0.4
    )
    for value, (a, b) in zip(found, [(2, 3), (7, 0)], strict=True):
        exact = math.comb(n + m - a - b, n - a) / math.comb(n + m, n)
        assert value == pytest.approx(math.log(exact / (0.4**a * 0.6**b)), abs=1e-10)


@pytest.mark.parametrize("slope", [1.0, 1.5, 20.0])
@pytest.mark.parametrize(("n", "m"), [(200_000, 20_000), (9_000, 90_000), (30, 40), (1, 900)])
def test_laws_of_one_rank_add_up_to_1(n: int, m: int, slope: float) -> None:
    # Weighted by the ratio, the negative binomial law of others before the k-th point becomes the
    # true one, whose sum is 1; k = n has its peak at the end of the range.
    theta = slope * n / (slope * n + m)
    for k in {1, min(2, n), n // 9 + 1, n // 3 + 1, n - n // 7, n}:
        law = stats.nbinom(k, theta)
        middle, reach = law.mean(), 12 * law.std() + 40 / theta
        y = np.arange(max(0, int(middle - reach)), min(m, int(middle + reach)) + 1, dtype=float)
        ratio = _log_prefix_ratio(np.full_like(y, k), y, sizes=(n, m), slope=slope, theta=theta)
        assert np.exp(ratio + law.logpmf(y)).sum() == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("trials", [1, 2, 30, 1_000, 300_000])
@pytest.mark.parametrize("share", [1e-9, 1e-4, 0.3, 0.5, 0.97])
def test_tails_are_those_of_scipy_stats(trials: int, share: float) -> None:
    law = stats.binom(trials, share)
    counts = np.unique(np.clip(law.ppf([1e-12, 0.01, 0.5, 0.99, 1 - 1e-12]), 0, trials - 1))
    found = [_ranges(trials, share, int(count)) for count in counts]
    below = [sum(chance for _, chance in ranges) for ranges, _ in found]
    above = [more for _, more in found]
    np.testing.assert_allclose(below, law.cdf(counts), rtol=1e-9)
    np.testing.assert_allclose(above, law.sf(counts), rtol=1e-9)


@pytest.mark.parametrize("chance", [0.4, 0.05, 1e-3, 1e-8])
@pytest.mark.parametrize(("trials", "share"), [(1, 0.5), (7, 0.9), (1_000, 1e-5), (90_000, 0.01)])
def test_the_least_count_that_is_exceeded_so_seldom(
    chance: float, trials: int, share: float
) -> None:
    law = stats.binom(trials, share)
    naive = next(count for count in range(trials + 1) if law.sf(count) <= chance)
    assert _least_exceeded(chance, trials, share) == naive
