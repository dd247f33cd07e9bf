import math
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError
from lmexposure.statistics import SkewNormal, fit_skew_normal, skew_normal_log_cdf
from lmexposure.statistics.skew_normal import refit


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


def _log_likelihood(fit: SkewNormal, x: NDArray[np.float64]) -> float:
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
def test_refusals(bits: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fit_skew_normal(bits)
