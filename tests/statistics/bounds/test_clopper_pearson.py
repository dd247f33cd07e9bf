import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics import JointBetaEpsilon, clopper_pearson_epsilon, joint_beta_epsilon
from lmexposure.statistics.bounds.bound import Terms

# tensorflow/privacy, jax_privacy, PrivacyGuard and privacy-estimates print these alike:
# (true positives, positives, false positives, negatives, significance, delta, epsilon).
PUBLISHED = [
    (500, 500, 0, 500, 0.01, 0, 4.541915810224),
    (500, 500, 0, 500, 0.05, 1e-05, 4.905584135933),
    (1000, 1000, 0, 1000, 0.05, 0, 5.600587531299),
    (1000, 1000, 0, 1000, 0.05, 1e-05, 5.600577494292),
    (90, 100, 10, 100, 0.05, 0, 1.542152),
    (10, 100, 0, 100, 0.05, 0, 0.302396),
    (100, 110, 10, 80, 0.05, 0, 1.348421),
]


def test_published() -> None:
    for *counts, significance, delta, epsilon in PUBLISHED:
        rates = [int(count) for count in counts]
        bound = clopper_pearson_epsilon(*rates, significance=significance, delta=delta)
        assert bound.value == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(("tp", "fp"), [(0, 0), (0, 5), (5, 5), (1, 0)])
def test_small_and_full_counts(tp: int, fp: int) -> None:
    assert clopper_pearson_epsilon(tp, 5, fp, 5, significance=0.05).value == 0


@pytest.mark.parametrize(("tpr", "delta"), [(0.3, 0.0), (0.9, 0.1), (0.05, 0.01)])
def test_coverage(tpr: float, delta: float) -> None:
    rng, epsilon = np.random.default_rng(1), 0.8
    tp = rng.binomial(100, tpr, 500)
    fp = rng.binomial(150, (tpr - delta) * math.exp(-epsilon), 500)
    above = sum(
        clopper_pearson_epsilon(int(a), 100, int(b), 150, significance=0.1, delta=delta).value
        > epsilon
        for a, b in zip(tp, fp, strict=True)
    )
    assert above <= stats.binom.isf(2e-5, 500, 0.1)


def test_a_signal_that_a_delta_explains_is_not_called_chance() -> None:
    counted = clopper_pearson_epsilon(80, 100, 20, 100, significance=0.05, delta=0.5)
    assert counted.value == 0
    assert counted.max_attainable > 0  # type: ignore[operator]
    assert counted.notes == (
        "no epsilon above 0 could be shown: chance and this delta would give as much",
    )


def _bound(
    fn: int, fp: int, tn: int, tp: int, significance: float = 0.05, **settings: float
) -> JointBetaEpsilon:
    return joint_beta_epsilon(
        false_negatives=fn,
        false_positives=fp,
        true_negatives=tn,
        true_positives=tp,
        significance=significance,
        **settings,  # type: ignore[arg-type]
    )


def test_published_intervals() -> None:
    # Zanella-Beguelin et al. 2022, Jeffreys priors, at delta 1e-5: by a quadrature of another make,
    # confirmed by Monte Carlo.
    for counts, significance, low, high, one_sided in (
        ((0, 512, 1, 487), 0.1, 0.1439, 6.4156, 0.2987),
        ((12, 58, 200, 200), 0.05, 2.1046, 3.2105, 2.1785),
        ((0, 0, 1000, 1000), 0.05, 6.9106, 15.9004, 7.2072),
    ):
        bound = _bound(*counts, significance, delta=1e-5)
        found = (bound.low, bound.high, bound.one_sided_low)
        assert found == pytest.approx((low, high, one_sided), abs=1e-4)


@pytest.mark.parametrize("counts", [(3, 1, 9, 7), (40, 2, 300, 60), (5, 5, 5, 5), (0, 7, 3, 9)])
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_against_monte_carlo(counts: tuple[int, int, int, int], delta: float) -> None:
    fn, fp, tn, tp = counts
    rng, draws = np.random.default_rng(1), 400_000
    x = rng.beta(fp + 0.5, tn + 0.5, draws)
    y = rng.beta(fn + 0.5, tp + 0.5, draws)

    def needed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        ratio = np.maximum((1 - delta - x) / y, (1 - delta - y) / x)
        epsilon: np.ndarray = np.log(np.maximum(ratio, 1.0))
        return epsilon

    directed = needed(x, y)
    either = np.maximum(directed, needed(1 - x, 1 - y))
    bound = _bound(*counts, delta=delta)
    # Five standard errors of a share of .05 among the draws, at the quantile found.
    slack = 5 * math.sqrt(0.05 * 0.95 / draws)
    if bound.low > 0:
        assert np.mean(either <= bound.low) == pytest.approx(0.025, abs=slack)
    else:
        assert np.mean(either <= 0) >= 0.025 - slack
    assert np.mean(either <= bound.high) == pytest.approx(0.975, abs=slack)
    assert np.mean(either <= bound.one_sided_low) == pytest.approx(0.05, abs=slack)
    if bound.value > 0:
        assert np.mean(directed <= bound.value) == pytest.approx(0.05, abs=slack)
    else:
        assert np.mean(directed <= 0) >= 0.05 - slack


def test_the_bound_of_the_source_is_above_0_whatever_the_attack() -> None:
    even = _bound(50, 50, 50, 50)
    assert even.one_sided_low > 0 == even.value  # which is why it is not the value


@cache
def _value(false_negatives: int, false_positives: int) -> float:
    """With 60 canaries a side."""
    return _bound(
        false_negatives, false_positives, 60 - false_positives, 60 - false_negatives
    ).value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misses", "alarms", "epsilon", "most"),
    [
        (0.5, 0.5, 0.0, 0.08),
        (1 - 0.1 * math.e, 0.1, 1.0, 0.08),
        # Randomised response: both ratios are e, and the posterior of the larger is too high.
        (1 / (1 + math.e), 1 / (1 + math.e), 1.0, 0.16),
    ],
)
def test_how_often_the_value_is_above_the_truth(
    misses: float, alarms: float, epsilon: float, most: float
) -> None:
    rng = np.random.default_rng(5)
    counts = zip(rng.binomial(60, misses, 300), rng.binomial(60, alarms, 300), strict=True)
    above = sum(_value(int(fn), int(fp)) > epsilon for fn, fp in counts)
    assert above <= most * 300


@pytest.mark.parametrize("copies", [2, 16])
def test_groups_are_paid_for(copies: int) -> None:
    counts = (12, 58, 200, 200)
    found = _bound(*counts, delta=1e-4, repetitions=copies)
    terms = Terms(significance=0.05, delta=1e-4, repetitions=copies)
    by_hand = terms.per_document(lambda delta: _bound(*counts, delta=delta).value)
    assert found.value == pytest.approx(by_hand, abs=1e-6)
    assert found.value < _bound(*counts, delta=1e-4).value / copies + 1e-9
    assert f"{copies} copies" in found.adjacency


def test_large_counts() -> None:
    bound, vast = _bound(0, 0, 10**7, 10**7), _bound(10**6, 2 * 10**6, 8 * 10**6, 9 * 10**6)
    assert bound.high > bound.value > 16
    assert vast.low == pytest.approx(math.log(8), abs=0.01)
    assert vast.high == pytest.approx(math.log(8), abs=0.01)
