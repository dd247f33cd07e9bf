import math

import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics import clopper_pearson_epsilon

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
        "no signal beyond what chance and this delta explain at this significance: the bound is 0",
    )
