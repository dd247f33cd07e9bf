import numpy as np
import pytest

from lmexposure.statistics import GoodnessOfFit, SkewNormal
from lmexposure.statistics.skew_normal import Fit, bootstrap_fits, goodness_of_fit, look_at

CURVE = SkewNormal(location=0.0, scale=1.0, shape=0.0)


def test_looks_against_a_naive_count() -> None:
    x = np.sort(np.random.default_rng(0).normal(size=37))
    cdf = np.exp(CURVE.log_cdf(x))
    # The largest gap between the curve and the sample's staircase, on either side of each step.
    gaps = [
        max(abs(cdf[i] - (x <= x[i]).mean()), abs(cdf[i] - (x < x[i]).mean())) for i in range(37)
    ]
    found = look_at(x, CURVE)
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
    plain = [look_at(np.sort(rng.normal(size=200)), CURVE).ks_statistic for _ in range(60)]
    assert np.mean([fit.ks_statistic for fit in fits]) < 0.8 * np.mean(plain)
