"""Differences of rates and of means, held against published values, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import mean_difference, rate_difference


def test_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        counts = rng.binomial(60, [0.9, 0.5])
        ends = [(k / 60, *stats.binomtest(k, 60).proportion_ci()) for k in counts]
        found = rate_difference(*ends)
        hits += found.low <= 0.4 <= found.high
    assert hits >= 280


def test_means_by_welch() -> None:
    # R 4.3: t.test(sleep$extra[1:10], sleep$extra[11:20]): -3.3654832 to 0.2054832.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = mean_difference(first, second)
    assert found.value == pytest.approx(-1.58)
    assert (found.low, found.high) == pytest.approx((-3.3654832, 0.2054832), abs=1e-6)


def test_means_without_spread_or_numbers() -> None:
    same = mean_difference([2.0, 2.0], [2.0, 2.0, 2.0])
    assert (same.value, same.low, same.high) == (0, 0, 0)
    with pytest.raises(InputError, match="second has one number, which has no spread"):
        mean_difference([1.0, 2.0], [1.0])
    with pytest.raises(SettingsError, match="level"):
        mean_difference([1.0, 2.0], [1.0, 3.0], level=1.0)
