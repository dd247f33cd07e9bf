import json
import math
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import GoodnessOfFit, SkewNormal, skew_normal_exposure
from lmexposure.statistics.skew_normal import Fit, bootstrap_fits, fit_statistics, goodness_of_fit

# Computed with scipy.stats.skewnorm on deterministic quantiles (i + 0.5) / 1000; tolerance 1e-3.
NORMAL_FIT = {10: 1.0, 8: 5.4624, 6: 14.9623, 5: 21.7586}
SKEWED_FIT = {0: 3.68311, -0.3: 6.61936, -0.5: 9.4828, -1: 20.31179}
CURVE = SkewNormal(location=0.0, scale=1.0, shape=0.0)


def _quantiles(distribution: Any, n: int) -> NDArray[np.float64]:
    return np.asarray(distribution.ppf((np.arange(n) + 0.5) / n))


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (_quantiles(stats.norm, 1000) + 10, NORMAL_FIT),
        (_quantiles(stats.skewnorm(4), 1000), SKEWED_FIT),
    ],
)
def test_published_fits(references: NDArray[np.float64], expected: dict[float, float]) -> None:
    result = skew_normal_exposure(list(expected), references, bootstraps=39)
    assert result.value == pytest.approx(list(expected.values()), abs=1e-3)
    assert result.goodness.warnings == ()


# 20,000 deterministic quantiles, canary at a true exposure of 30 bits -> what a skew-normal fit
# says (reference table "extrapolation can lie"). The logistic row of that table, 99.7, is the fit
# at shape 0, a stationary point; the likeliest curves have shape +-0.62, hence the wide tolerance.
LIES = [
    (stats.gamma(9), 15.3, 0.1),
    (stats.lognorm(0.3), 18.3, 0.1),
    (stats.gumbel_r, 22.9, 0.1),
    (stats.gumbel_l, 89.0, 0.5),
    (stats.logistic, 99.7, 12.0),
]


@pytest.mark.parametrize(("distribution", "says", "tolerance"), LIES)
def test_extrapolation_that_lies_is_marked(
    distribution: Any, says: float, tolerance: float
) -> None:
    references = _quantiles(distribution, 20_000)
    result = skew_normal_exposure(distribution.ppf(2.0**-30), references, bootstraps=39)
    assert result.value[0] == pytest.approx(says, abs=tolerance)
    assert "DO NOT RELY ON THIS" in result.warnings[0]
    assert "DO NOT RELY ON THIS" in result.row(0)["warnings"][0]


def test_a_heavy_tail_gives_an_absurd_number_and_says_so() -> None:
    # The table says infinite: scipy's cdf underflows there. The logarithm does not.
    references = _quantiles(stats.t(5), 20_000)
    result = skew_normal_exposure(stats.t(5).ppf(2.0**-30), references, bootstraps=39)
    assert 1000 < result.value[0] < math.inf
    assert "overstates exposure" in result.warnings[1]


@pytest.mark.parametrize("distribution", [stats.norm, stats.skewnorm(4)])
def test_no_good_fit_vouches_for_the_tail(distribution: Any) -> None:
    """These two are right, and nothing among the references tells them from those that lie."""
    references = _quantiles(distribution, 20_000)
    result = skew_normal_exposure(distribution.ppf(2.0**-30), references, bootstraps=39)
    assert result.value[0] == pytest.approx(30, abs=0.02)
    assert result.goodness.warnings == ()
    beyond = 30 - math.log2(20_000)
    assert result.extrapolated_bits[0] == pytest.approx(beyond, abs=0.02)
    assert result.flagged.tolist() == [True]
    assert result.warnings == (
        "1 of 1 canaries, the largest: DO NOT RELY ON THIS: extrapolated 15.7 bits beyond the 14.3 "
        "bits that 20000 references can show; a good fit among the references does not vouch for "
        "the tail",
    )


@pytest.mark.parametrize("distribution", [stats.gamma(4), stats.gamma(9), stats.t(15), stats.norm])
def test_no_value_that_is_wrong_by_3_bits_goes_unflagged(distribution: Any) -> None:
    """At a true 30 bits; by the fit alone 1,000 references let most of these pass."""
    rng, unseen = np.random.default_rng(1), 0
    truth = distribution.ppf(2.0**-30)
    for seed in range(6):
        references = distribution.rvs(size=1000, random_state=rng)
        found = skew_normal_exposure(
            [truth, references.mean()], references, bootstraps=39, seed=seed
        )
        misfit = bool(found.goodness.warnings)
        unseen += not misfit and abs(found.value[0] - 30) > 3
        assert found.flagged.tolist() == [True, misfit]
        assert any("DO NOT RELY ON THIS" in line for line in found.row(0)["warnings"])
    assert unseen


def test_what_lies_below_all_references_is_flagged_however_little_the_curve_says() -> None:
    references = np.concatenate([_quantiles(stats.norm, 980), np.full(20, -6.0)])
    found = skew_normal_exposure([-6.1], references, bootstraps=39)
    assert found.below_all.tolist() == found.flagged.tolist() == [True]
    exposed = found.extrapolated_bits[0] > 0
    said = "extrapolated" if exposed else "read off the curve below all 1000 references"
    assert said in found.row(0)["warnings"][-1]
    assert said in found.warnings[-1]


def test_false_alarms_are_few_and_the_interval_covers() -> None:
    truth = SkewNormal(location=40.0, scale=5.0, shape=2.0)
    canaries = np.array([37.0, 35.0, 32.0])  # 4.5, 8.0 and 15.8 bits
    bits = truth.exposure(canaries)
    rng = np.random.default_rng(12)
    held, alarms = np.zeros(3), 0
    for seed in range(500):
        # 39 bootstraps at 95 %: the interval runs from the lowest to the highest of them.
        result = skew_normal_exposure(canaries, truth.sample(200, rng), bootstraps=39, seed=seed)
        held += (result.low <= bits) & (bits <= result.high)
        alarms += bool(result.goodness.warnings)
    assert (held >= 0.9 * 500).all()
    assert alarms <= 0.08 * 500  # 5 % at most, and 3 standard deviations of 500 seeds


def test_no_signal_gives_the_baseline() -> None:
    rng = np.random.default_rng(13)
    truth = SkewNormal(location=30.0, scale=3.0, shape=1.0)
    result = skew_normal_exposure(truth.sample(4000, rng), truth.sample(2000, rng), bootstraps=39)
    assert result.value.mean() == pytest.approx(1 / math.log(2), abs=0.1)
    assert np.median(result.value) == pytest.approx(1.0, abs=0.1)


def test_order_one_canary_and_seed() -> None:
    references = _quantiles(stats.norm, 100)
    both = skew_normal_exposure([-3.0, -1.0], references, bootstraps=39, seed=5)
    one = skew_normal_exposure(-1.0, references, bootstraps=39, seed=5)
    assert one.value.shape == (1,)
    assert (both.value[1], both.low[1], both.high[1]) == (one.value[0], one.low[0], one.high[0])
    assert both.value[0] > both.value[1]
    other = skew_normal_exposure(-1.0, references, bootstraps=39, seed=6)
    assert other.value[0] == one.value[0]
    assert other.low[0] != one.low[0]


def test_values_past_the_space_are_kept_and_marked() -> None:
    references = _quantiles(stats.norm, 200)
    result = skew_normal_exposure([-8.0, -1.0], references, space_size=1000, bootstraps=39)
    assert result.value[0] > math.log2(1000)
    assert result.exceeds_space.tolist() == [True, False]
    assert result.warnings[-1].startswith("1 of 2 canaries: more bits than the randomness space")
    assert "more bits than the randomness space has" in result.row(0)["warnings"][-1]
    assert result.row(1)["warnings"] == []


def test_rows_and_dictionary_are_plain_json() -> None:
    result = skew_normal_exposure([-5.0, 0.0], _quantiles(stats.norm, 100), bootstraps=39)
    row = json.loads(json.dumps(result.row(0), allow_nan=False))
    assert (row["method"], row["rank"], row["capped"]) == ("skew_normal", None, False)
    assert row["low"] <= row["value"] <= row["high"]
    assert "beyond the 6.6 bits that 100 references can show" in row["warnings"][0]
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert set(plain["curve"]) == {"location", "scale", "shape"}
    assert plain["goodness"]["bootstraps"] == 39


def test_a_curve_without_low_tail_is_marked() -> None:
    # Exponential references, so few that neither look objects.
    references = _quantiles(stats.expon, 25) + 10
    result = skew_normal_exposure([9.0, 11.0], references, bootstraps=39)
    assert result.goodness.warnings == ()
    assert result.value[0] > 1000
    for warnings in (result.warnings, result.row(0)["warnings"], result.row(1)["warnings"]):
        assert "has no low tail" in warnings[0]


def test_ties_are_no_curve() -> None:
    references = [1.0] * 300 + [2.0] * 700
    result = skew_normal_exposure(0.5, references, bootstraps=39)
    assert "Kolmogorov-Smirnov distance" in result.warnings[0]


def test_refusals() -> None:
    good = _quantiles(stats.norm, 100)
    with pytest.raises(InputError, match="reference_bits holds 5 numbers; a curve needs at least"):
        skew_normal_exposure(1.0, good[:5])
    with pytest.raises(InputError, match="are all 3: there is no curve to fit; use sampled"):
        skew_normal_exposure(1.0, [3.0] * 30)
    with pytest.raises(InputError, match=r"canary_bits\[0\]=-inf is not finite"):
        skew_normal_exposure(-math.inf, good)
    with pytest.raises(SettingsError, match="bootstraps=38 must be a whole number at least 39"):
        skew_normal_exposure(1.0, good, bootstraps=38)
    with pytest.raises(SettingsError, match="bootstraps=39 must be a whole number at least 199"):
        skew_normal_exposure(1.0, good, bootstraps=39, level=0.99)
    with pytest.raises(SettingsError, match="seed=-1 must be a whole number at least 0"):
        skew_normal_exposure(1.0, good, seed=-1)
    with pytest.raises(SettingsError, match="space_size=1 must be a whole number at least 2"):
        skew_normal_exposure(1.0, good, space_size=1)
    with pytest.raises(SettingsError, match="level=1 must lie strictly between"):
        skew_normal_exposure(1.0, good, level=1)


def test_ten_thousand_references_are_quick() -> None:
    truth = SkewNormal(location=40.0, scale=5.0, shape=2.0)
    references = truth.sample(10_000, np.random.default_rng(0))
    start = time.process_time()
    skew_normal_exposure(np.linspace(10, 40, 100), references)
    assert time.process_time() - start < 10  # about 1 s


def test_looks_against_a_naive_count() -> None:
    x = np.sort(np.random.default_rng(0).normal(size=37))
    cdf = np.exp(CURVE.log_cdf(x))
    # The largest gap between the curve and the sample's staircase, on either side of each step.
    gaps = [
        max(abs(cdf[i] - (x <= x[i]).mean()), abs(cdf[i] - (x < x[i]).mean())) for i in range(37)
    ]
    found = fit_statistics(x, CURVE)
    assert found.ks_statistic == pytest.approx(max(gaps))
    over = [-np.log2(cdf[i]) + np.log2((i + 0.5) / 37) for i in range(10)]
    assert found.tail_bits == pytest.approx(np.mean(over))


def test_p_values_count_the_bootstraps_and_are_never_zero() -> None:
    fits = [Fit(curve=CURVE, ks_statistic=k / 100, tail_bits=(-1.0) ** k * k) for k in range(99)]
    middle = goodness_of_fit(Fit(curve=CURVE, ks_statistic=0.5, tail_bits=-90.0), fits)
    assert (middle.ks_p_value, middle.tail_p_value) == (50 / 100, 10 / 100)
    worst = goodness_of_fit(Fit(curve=CURVE, ks_statistic=9.0, tail_bits=500.0), fits)
    assert (worst.ks_p_value, worst.tail_p_value) == (0.01, 0.01)


def test_each_look_warns_by_itself() -> None:
    def goodness(ks: float, tail: float, bits: float) -> GoodnessOfFit:
        return GoodnessOfFit(
            ks_statistic=0.1, ks_p_value=ks, tail_bits=bits, tail_p_value=tail, bootstraps=99
        )

    assert goodness(0.03, 0.03, 1.0).warnings == ()
    assert "do not follow a skew-normal curve" in goodness(0.01, 0.5, 1.0).warnings[0]
    assert "overstates exposure by 1.50 bits" in goodness(0.5, 0.01, 1.5).warnings[0]
    assert "understates exposure by 0.40 bits" in goodness(0.5, 0.01, -0.4).warnings[0]
    assert len(goodness(0.01, 0.01, 1.0).to_dict()["warnings"]) == 2


def test_bootstraps_are_fitted_anew() -> None:
    # Plain Kolmogorov-Smirnov distances, without fitting, are larger by about a third.
    fits = bootstrap_fits(CURVE, 200, bootstraps=60, seed=1)
    rng = np.random.default_rng(1)
    plain = [fit_statistics(np.sort(rng.normal(size=200)), CURVE).ks_statistic for _ in range(60)]
    assert np.mean([fit.ks_statistic for fit in fits]) < 0.8 * np.mean(plain)
