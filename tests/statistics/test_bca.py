import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.intervals import mean_interval


def test_against_a_naive_bootstrap() -> None:
    values = np.random.default_rng(1).exponential(size=25)
    normal, mean = NormalDist(), values.mean()
    generator = np.random.default_rng(4)
    means = sorted(values[generator.integers(0, 25, 25, np.int32)].mean() for _ in range(2000))
    bias = normal.inv_cdf(sum(one < mean for one in means) / 2000)
    left_out = [np.delete(values, i).mean() for i in range(25)]
    gaps = np.mean(left_out) - np.array(left_out)
    skew = float((gaps**3).sum() / (6 * (gaps**2).sum() ** 1.5))
    ends = []
    for tail in (0.025, 0.975):
        z = bias + normal.inv_cdf(tail)
        ends.append(float(np.quantile(means, normal.cdf(bias + z / (1 - skew * z)))))
    found = mean_interval(values, seed=4)
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=1e-9)


def test_against_scipy() -> None:
    values = np.random.default_rng(2).exponential(size=40)
    other = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, rng=np.random.default_rng(5)
    ).confidence_interval
    found = mean_interval(values, resamples=20_000, seed=6)
    # Two runs of 20,000 resamples differ by about a hundredth of the interval's width.
    assert found.low == pytest.approx(other.low, abs=0.02)
    assert found.high == pytest.approx(other.high, abs=0.02)


def test_coverage_on_exposures_of_guessing() -> None:
    rng, truth, held = np.random.default_rng(3), 1 / math.log(2), 0
    for seed in range(500):
        found = mean_interval(rng.exponential(truth, 100), resamples=500, seed=seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 0.9 * 500


def test_large_samples_get_the_normal_interval_and_say_so() -> None:
    values = np.random.default_rng(3).exponential(size=10_001)
    found = mean_interval(values)
    half = 1.959963985 * values.std(ddof=1) / math.sqrt(10_001)
    assert (found.method, found.resamples) == ("normal", 0)
    assert found.high == pytest.approx(found.value + half)
    assert found.note is not None
    assert "more than the 10000" in found.note
    bootstrap = mean_interval(values[:10_000])
    assert (bootstrap.method, bootstrap.note) == ("bca", None)
    assert bootstrap.high == pytest.approx(found.high, abs=0.005)


def test_what_a_few_or_equal_values_give() -> None:
    for values, words in (
        ([1.0, 2.0], "2 values give no interval of a mean; it takes at least 3"),
        ([4.0] * 9, "9 equal values show no spread"),
    ):
        found = mean_interval(values)
        assert (found.method, found.low, found.high) == ("none", None, None)
        assert words in str(found.note)
    rough = mean_interval([0, 0, 1])
    assert rough.low is not None
    assert rough.high is not None
    assert 0 <= rough.low <= rough.value <= rough.high <= 1
    assert "rough with 3 values" in str(rough.note)
    assert mean_interval(range(30)).note is None
    assert "no bootstrap was asked for" in str(mean_interval(range(30), resamples=0).note)


def test_same_seed_same_interval_and_plain_values() -> None:
    values = np.random.default_rng(3).exponential(size=30)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values, seed=1).low != mean_interval(values, seed=2).low
    assert json.loads(json.dumps(mean_interval(values).to_dict()))["method"] == "bca"


def test_refusals() -> None:
    with pytest.raises(SettingsError, match="resamples=99 must be a whole number at least 100"):
        mean_interval([1.0, 2.0], resamples=99)
    with pytest.raises(SettingsError, match="seed=-1 must be"):
        mean_interval([1.0], seed=-1)
    with pytest.raises(SettingsError, match="level=1 must lie strictly between"):
        mean_interval([1.0], level=1)
    with pytest.raises(InputError, match=r"values\[1\]=nan is not finite"):
        mean_interval([1.0, math.nan])
