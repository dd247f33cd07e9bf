import math
import time
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known import as_json, known
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    GoodnessOfFit,
    SkewNormal,
    fit_skew_normal,
    skew_normal_exposure,
    skew_normal_log_cdf,
)
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.skew_normal import (
    Fit,
    bootstrap_fits,
    fit_statistics,
    goodness_of_fit,
    refit,
)

# Computed with scipy.stats.skewnorm on deterministic quantiles (i + 0.5) / 1000; tolerance 1e-3.
NORMAL_FIT = {10: 1.0, 8: 5.4624, 6: 14.9623, 5: 21.7586}
SKEWED_FIT = {0: 3.68311, -0.3: 6.61936, -0.5: 9.4828, -1: 20.31179}
CURVE = SkewNormal(location=0.0, scale=1.0, shape=0.0)


def _quantiles(distribution: Any, n: int) -> Floats:
    return np.asarray(distribution.ppf((np.arange(n) + 0.5) / n))


GOOD = _quantiles(stats.norm, 100)


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (_quantiles(stats.norm, 1000) + 10, NORMAL_FIT),
        (_quantiles(stats.skewnorm(4), 1000), SKEWED_FIT),
    ],
)
def test_published_fits(references: Floats, expected: dict[float, float]) -> None:
    result = skew_normal_exposure(list(expected), references, bootstraps=39)
    assert result.value == pytest.approx(list(expected.values()), abs=1e-3)
    assert known(result.goodness).warnings == ()


# 20,000 deterministic quantiles, canary at a true exposure of 30 bits -> what a skew-normal fit
# says (reference table "extrapolation can lie"). The logistic row of that table, 99.7, is the fit
# at shape 0, a stationary point; the likeliest curves have shape +-0.62, hence the wide tolerance.
# Of t(5) the table says infinite, for scipy's cdf underflows there. The logarithm does not.
LIES = [
    (stats.gamma(9), 15.3, 0.1),
    (stats.lognorm(0.3), 18.3, 0.1),
    (stats.gumbel_r, 22.9, 0.1),
    (stats.gumbel_l, 89.0, 0.5),
    (stats.logistic, 99.7, 12.0),
    (stats.t(5), 50_000, 49_000),
]


@pytest.mark.parametrize(("distribution", "says", "tolerance"), LIES)
def test_extrapolation_that_lies_is_marked(
    distribution: Any, says: float, tolerance: float
) -> None:
    references = _quantiles(distribution, 20_000)
    result = skew_normal_exposure(distribution.ppf(2.0**-30), references, bootstraps=None)
    assert result.value[0] == pytest.approx(says, abs=tolerance)
    assert result.flagged.tolist() == [True]
    assert "extrapolated" in result.warnings[1]
    assert "extrapolated" in result.canary(0).warnings[1]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [row[0] for row in LIES])
def test_a_wrong_family_is_found_out(distribution: Any) -> None:
    result = skew_normal_exposure(0.0, _quantiles(distribution, 20_000), bootstraps=39)
    assert "DO NOT RELY ON THIS" in known(result.goodness).warnings[0]
    assert set(known(result.goodness).warnings) <= set(result.warnings)


def test_a_heavy_tail_is_found_out() -> None:
    result = skew_normal_exposure(0.0, _quantiles(stats.t(5), 1000), bootstraps=39)
    assert "overstates exposure" in result.warnings[-1]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [stats.norm, stats.skewnorm(4)])
def test_no_good_fit_vouches_for_the_tail(distribution: Any) -> None:
    """These two are right, and nothing among the references tells them from those that lie."""
    references = _quantiles(distribution, 20_000)
    canary = distribution.ppf(2.0**-30)
    value = skew_normal_exposure(canary, references, bootstraps=None).value[0]
    assert value == pytest.approx(30, abs=0.02)
    result = skew_normal_exposure(canary, references[::40], bootstraps=39)
    assert known(result.goodness).warnings == ()
    assert result.flagged.tolist() == [True]
    beyond = result.extrapolated_bits[0]
    assert beyond == pytest.approx(result.value[0] - math.log2(500))
    assert result.warnings == (
        f"1 of 1 canaries, the largest: DO NOT RELY ON THIS: extrapolated {beyond:.1f} bits beyond "
        "the 9.0 bits that 500 references can show; a good fit among the references does not vouch "
        "for the tail",
    )


@pytest.mark.parametrize("distribution", [stats.gamma(4), stats.gamma(9), stats.t(15), stats.norm])
def test_no_value_that_is_wrong_by_3_bits_goes_unflagged(distribution: Any) -> None:
    """At a true 30 bits; by the fit alone 300 references let most of these pass."""
    rng, unseen = np.random.default_rng(1), 0
    truth = distribution.ppf(2.0**-30)
    for seed in range(2):
        references = distribution.rvs(size=300, random_state=rng)
        found = skew_normal_exposure(
            [truth, references.mean()], references, bootstraps=39, seed=seed
        )
        misfit = bool(known(found.goodness).warnings)
        unseen += not misfit and abs(found.value[0] - 30) > 3
        assert found.flagged.tolist() == [True, misfit]
        assert any("DO NOT RELY ON THIS" in line for line in found.canary(0).warnings)
    assert unseen


def test_without_refits_there_is_the_value_alone() -> None:
    references = _quantiles(stats.norm, 100)
    found = skew_normal_exposure([-1.0, 0.0], references, bootstraps=None)
    tested = skew_normal_exposure([-1.0, 0.0], references, bootstraps=39)
    assert found.value.tolist() == tested.value.tolist()
    assert found.goodness is None
    assert np.isnan([found.low, found.high]).all()
    assert found.flagged.tolist() == [True, True]
    assert tested.flagged.tolist() == [False, False]
    row = found.canary(1)
    assert (row.low, row.high) == (None, None)
    assert "ask for the skew_normal estimate" in row.warnings[0]
    assert found.warnings == tuple(row.warnings)
    assert found.goodness is None


@pytest.mark.slow
def test_the_whole_fit_is_tested_as_scipy_does() -> None:
    references = stats.skewnorm(2).rvs(size=60, random_state=3)
    own = known(skew_normal_exposure(0.0, references, bootstraps=79).goodness)
    scipys = stats.goodness_of_fit(
        stats.skewnorm, references, statistic="ks", n_mc_samples=79, rng=np.random.default_rng(0)
    )
    assert own.ks_statistic == pytest.approx(scipys.statistic, abs=1e-4)
    assert own.ks_p_value == pytest.approx(scipys.pvalue, abs=0.2)  # 2.5 standard errors of 79


def test_what_lies_below_all_references_is_flagged_however_little_the_curve_says() -> None:
    references = np.concatenate([_quantiles(stats.norm, 980), np.full(20, -6.0)])
    found = skew_normal_exposure([-6.1], references, bootstraps=None)
    assert found.below_all.tolist() == found.flagged.tolist() == [True]
    exposed = found.extrapolated_bits[0] > 0
    said = "extrapolated" if exposed else "read off the curve below all 1000 references"
    assert said in found.canary(0).warnings[-1]
    assert said in found.warnings[-1]


@pytest.mark.slow
def test_false_alarms_are_few_p_values_uniform_and_the_interval_covers() -> None:
    truth = SkewNormal(location=40.0, scale=5.0, shape=2.0)
    canaries = np.array([37.0, 35.0, 32.0])  # 4.5, 8.0 and 15.8 bits
    bits = truth.exposure(canaries)
    rng = np.random.default_rng(12)
    seeds, held, alarms, p_values = 40, np.zeros(3), 0, []
    for seed in range(seeds):
        # 39 bootstraps at 95 %: the interval runs from the lowest to the highest of them.
        result = skew_normal_exposure(canaries, truth.sample(200, rng), bootstraps=39, seed=seed)
        held += (result.low <= bits) & (bits <= result.high)
        goodness = known(result.goodness)
        alarms += bool(goodness.warnings)
        p_values.append((goodness.ks_p_value, goodness.tail_p_value))
    assert (held >= 0.9 * seeds - 3 * math.sqrt(seeds * 0.9 * 0.1)).all()  # a percentile interval
    assert alarms <= 0.08 * seeds
    for p in np.array(p_values).T:  # of 40 equally likely values, made continuous
        assert stats.kstest(p - rng.uniform(size=p.size) / 40, "uniform").pvalue > 0.01


def test_no_signal_gives_the_baseline() -> None:
    rng = np.random.default_rng(13)
    truth = SkewNormal(location=30.0, scale=3.0, shape=1.0)
    result = skew_normal_exposure(truth.sample(4000, rng), truth.sample(2000, rng), bootstraps=None)
    assert result.value.mean() == pytest.approx(1 / math.log(2), abs=0.1)
    assert np.median(result.value) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
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
    assert result.warnings[-1].startswith("1 of 2 canaries: more bits than the format has")
    assert "more bits than the format has" in result.canary(0).warnings[-1]
    assert result.canary(1).warnings == ()


def test_rows_and_dictionary_are_plain_json() -> None:
    result = skew_normal_exposure([-5.0, 0.0], _quantiles(stats.norm, 100), bootstraps=39)
    row = as_json(result.canary(0))
    assert (row["method"], row["rank"], row["capped"]) == ("skew_normal", None, False)
    assert row["low"] <= row["value"] <= row["high"]
    assert "beyond the 6.6 bits that 100 references can show" in row["warnings"][0]
    told = as_json(result)
    assert set(told["curve"]) == {"location", "scale", "shape"}
    assert told["goodness"]["bootstraps"] == 39


@pytest.mark.slow
def test_a_curve_without_low_tail_is_marked() -> None:
    # Exponential references, so few that neither look objects.
    references = _quantiles(stats.expon, 25) + 10
    result = skew_normal_exposure([9.0, 11.0], references, bootstraps=39)
    assert known(result.goodness).warnings == ()
    assert result.value[0] > 1000
    for warnings in (result.warnings, result.canary(0).warnings, result.canary(1).warnings):
        assert "has no low tail" in warnings[0]


@pytest.mark.slow
def test_ties_are_no_curve() -> None:
    references = [1.0] * 60 + [2.0] * 140
    result = skew_normal_exposure(0.5, references, bootstraps=39)
    assert "Kolmogorov-Smirnov distance" in result.warnings[0]


@pytest.mark.parametrize(
    ("canary", "references", "options", "error", "said"),
    [
        (1.0, GOOD[:5], {}, InputError, "reference_bits holds 5 numbers; a curve needs at least"),
        (1.0, [3.0] * 30, {}, InputError, "are all 3: there is no curve to fit; use sampled"),
        (-math.inf, GOOD, {}, InputError, r"canary_bits\[0\]=-inf is not finite"),
        (1.0, GOOD, {"bootstraps": 38}, SettingsError, "bootstraps=38 must be .* at least 39"),
        (1.0, GOOD, {"bootstraps": 39, "level": 0.99}, SettingsError, "=39 must be .* least 199"),
        (1.0, GOOD, {"seed": -1}, SettingsError, "seed=-1 must be a whole number at least 0"),
        (1.0, GOOD, {"space_size": 1}, SettingsError, "space_size=1 must be .* at least 2"),
        (1.0, GOOD, {"level": 1}, SettingsError, "level=1 must lie strictly between"),
    ],
)
def test_refusals(
    canary: float, references: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        skew_normal_exposure(canary, references, **options)


def test_ten_thousand_references_are_quick() -> None:
    truth = SkewNormal(location=40.0, scale=5.0, shape=2.0)
    references = truth.sample(10_000, np.random.default_rng(0))
    start = time.process_time()
    skew_normal_exposure(np.linspace(10, 40, 100), references, bootstraps=None)
    assert time.process_time() - start < 10  # about 0.3 s


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
    assert len(goodness(0.01, 0.01, 1.0).warnings) == 2


def test_bootstraps_are_fitted_anew() -> None:
    # Plain Kolmogorov-Smirnov distances, without fitting, are larger by about a third.
    fits = bootstrap_fits(CURVE, 100, bootstraps=60, seed=1)
    rng = np.random.default_rng(1)
    plain = [fit_statistics(np.sort(rng.normal(size=100)), CURVE).ks_statistic for _ in range(60)]
    assert np.mean([fit.ks_statistic for fit in fits]) < 0.8 * np.mean(plain)


def _precise_log_cdf(z: float, shape: float) -> float:
    """The density integrated with 40 digits, on pieces as wide as its fall at z."""
    with mpmath.workdps(40):
        a, end = mpmath.mpf(shape), mpmath.mpf(z)
        slope = -end + a * mpmath.npdf(a * end) / mpmath.ncdf(a * end)
        width = 1 / max(abs(slope), 1)
        pieces = [end - width * k for k in (200, 60, 30, 15, 8, 4, 2, 1, 0.5, 0)]
        area = mpmath.quad(lambda t: 2 * mpmath.npdf(t) * mpmath.ncdf(a * t), pieces)
        return float(mpmath.log(area))


@pytest.mark.parametrize("shape", [0.0, 1e-4, 0.5, 4.0, -4.0, 50.0])
@pytest.mark.parametrize("z", [-100.0, -40.0, -6.0, -4.7, -3.0, -0.5, 1.0])
def test_log_cdf_against_forty_digits(z: float, shape: float) -> None:
    expected = _precise_log_cdf(z, shape)
    assert float(skew_normal_log_cdf(z, shape)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_log_cdf_at_an_extreme_shape() -> None:
    assert float(skew_normal_log_cdf(-3.0, 1000.0)) == pytest.approx(
        _precise_log_cdf(-3.0, 1000.0), rel=1e-9
    )
    # A half-normal in all but name: F(z) = 2 Phi(z) - 1 to the right of 0.
    assert math.exp(float(skew_normal_log_cdf(1.0, 1e6))) == pytest.approx(0.6826894921)


def test_shape_zero_is_the_normal() -> None:
    z = np.linspace(-60, 9, 200)
    assert skew_normal_log_cdf(z, 0.0) == pytest.approx(stats.norm.logcdf(z), rel=1e-10, abs=1e-15)


@given(st.floats(-30, 30), st.floats(-200, 200))
def test_log_cdf_rises_and_stays_below_zero(shape: float, z: float) -> None:
    logs = skew_normal_log_cdf(np.array([z - 1e-3, z, z + 1.0]), shape)
    assert np.isfinite(logs).all()
    assert (logs <= 0).all()
    assert (np.diff(logs) >= -1e-12).all()


def test_log_cdf_refuses_an_infinite_shape() -> None:
    with pytest.raises(InputError, match="shape=inf must be a finite number"):
        skew_normal_log_cdf(0.0, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drawn", "n"),
    [
        (stats.skewnorm(-5), 200),
        (stats.norm, 200),
        (stats.skewnorm(0.8), 30),
        (stats.skewnorm(3), 30),
        (stats.expon, 60),  # the likeliest curve is half of a normal
        (stats.t(3), 60),
    ],
)
def test_no_random_start_reaches_a_larger_likelihood(drawn: Any, n: int) -> None:
    rng = np.random.default_rng(1)
    for x in drawn.rvs(size=(3, n), random_state=rng):
        fit = fit_skew_normal(x)
        starts = zip(
            rng.normal(0, 5, 8), rng.choice(x, 8), x.std() * rng.uniform(0.3, 2, 8), strict=True
        )
        fits = [stats.skewnorm.fit(x, a, loc=loc, scale=scale) for a, loc, scale in starts]
        # A search that runs on to an infinite shape gains no more than this limit has.
        reached = [-float(stats.skewnorm.nnlf(found, x)) for found in fits]
        assert _log_likelihood(fit, x) >= max(reached) - (1e-3 if abs(fit.shape) < 1e4 else 0.05)


def _log_likelihood(fit: SkewNormal, x: Floats) -> float:
    return -float(stats.skewnorm.nnlf((fit.shape, fit.location, fit.scale), x))


@pytest.mark.slow
def test_scipy_alone_may_end_at_a_lesser_summit() -> None:
    """Why there are five starts; where this fails, scipy's own suffices."""
    rng = np.random.default_rng(0)
    samples = stats.skewnorm(2).rvs(size=(15, 30), random_state=rng)
    alone = [-float(stats.skewnorm.nnlf(stats.skewnorm.fit(x), x)) for x in samples]
    best = [_log_likelihood(fit_skew_normal(x), x) for x in samples]
    assert max(np.subtract(best, alone)) > 0.1


@pytest.mark.slow
def test_recovers_the_curve_it_was_drawn_from() -> None:
    truth = SkewNormal(location=30.0, scale=4.0, shape=3.0)
    fit = fit_skew_normal(truth.sample(50_000, np.random.default_rng(2)))
    assert fit.location == pytest.approx(30.0, abs=0.1)
    assert fit.scale == pytest.approx(4.0, abs=0.1)
    assert fit.shape == pytest.approx(3.0, abs=0.2)
    assert fit.exposure(truth.location - 4.0) == pytest.approx(
        truth.exposure(truth.location - 4.0), rel=0.03
    )


@pytest.mark.slow
@settings(max_examples=10)
@given(st.floats(-1e4, 1e4), st.floats(1e-2, 1e3))
def test_fit_moves_with_its_data(shift: float, factor: float) -> None:
    x = stats.skewnorm.ppf((np.arange(60) + 0.5) / 60, 2)
    one, moved = fit_skew_normal(x), fit_skew_normal(shift + factor * x)
    expected = one.exposure([-2.0, 0.0])
    assert moved.exposure(shift + factor * np.array([-2.0, 0.0])) == pytest.approx(
        expected, abs=1e-3
    )


@pytest.mark.parametrize("shape", [-1.0, 0.0, 4.0])
@pytest.mark.parametrize("n", [40, 200])
def test_a_refit_is_scipys_own_fit(shape: float, n: int) -> None:
    x = stats.skewnorm(shape).rvs(size=n, random_state=5)
    fit, mean, deviation = refit(x), x.mean(), x.std()
    scipys = stats.skewnorm.fit((x - mean) / deviation)
    found = (fit.shape, (fit.location - mean) / deviation, fit.scale / deviation)
    assert found == pytest.approx(scipys, rel=1e-9)


def test_skewness_past_the_family_ends_finite() -> None:
    x = stats.expon.ppf((np.arange(500) + 0.5) / 500)
    fit = fit_skew_normal(x)
    assert 100 < fit.shape < 1e5
    half = stats.norm(x.min(), math.sqrt(float(np.mean((x - x.min()) ** 2))))
    limit = float((math.log(2) + half.logpdf(x)).sum())
    assert _log_likelihood(fit, x) == pytest.approx(limit, abs=0.2)


def test_sample_has_the_moments_of_the_curve() -> None:
    curve = SkewNormal(location=1.0, scale=2.0, shape=-3.0)
    x = curve.sample(200_000, np.random.default_rng(3))
    mean, variance = stats.skewnorm.stats(-3.0, 1.0, 2.0, moments="mv")
    assert x.mean() == pytest.approx(float(mean), abs=0.02)
    assert x.var() == pytest.approx(float(variance), rel=0.02)


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        (np.arange(19.0), "reference_bits holds 19 numbers; a curve needs at least"),
        ([31.5] * 50, r"reference_bits are all 31\.5: there is no curve to fit"),
        ([1.0, 2.0, 3.0, math.nan], r"reference_bits\[3\]=nan is not finite"),
    ],
)
def test_fits_that_are_refused(bits: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fit_skew_normal(bits)
