import math

import numpy as np
import pytest
from scipy.stats import beta, binom, gamma

from lmexposure._quantiles import (
    ExposureEstimate,
    proportion_ends,
    quantile_ends,
    quantile_of,
    quantile_range,
)
from lmexposure.statistics import binomial_interval, quantile_interval


def estimate(value: float, *, method: str = "sampled", **parts: object) -> ExposureEstimate:
    """Log-perplexities fall as exposures rise."""
    known = {"low": value, "high": value, "capped": False, "level": 0.95, "bits": 50.0 - value}
    sizes = {"references": 1000, "space_bits": 30.0}
    return ExposureEstimate(method=method, value=value, **known | sizes | parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("quantile", [0.01, 0.25, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("n", [1, 2, 8, 9, 10, 29, 56, 100, 999, 20_000])
@pytest.mark.parametrize("tail", [0.25, 0.025, 0.003, 1e-5])
def test_ends_are_those_of_binomial_counts(quantile: float, n: int, tail: float) -> None:
    counts, values = np.arange(n + 1), np.arange(1.0, n + 1)
    r = np.sum(binom.cdf(counts, n, quantile) <= tail + 1e-12)
    s = 1 + np.argmax(binom.sf(counts, n, quantile) <= tail + 1e-12)
    assert quantile_ends(n, quantile, tail) == (r or None, s if s <= n else None)
    interval = quantile_interval(values, quantile, level=1 - 2 * tail)
    assert (interval.low, interval.high) == (r or None, s if s <= n else None)
    assert quantile_of(values.tolist(), quantile) == pytest.approx(interval.value)


def test_a_tail_that_is_exactly_reached_counts() -> None:
    assert quantile_ends(8, 0.5, 2**-8) == (1, 8)
    assert quantile_ends(8, 0.5, 2**-8 * 0.999) == (None, None)


@pytest.mark.parametrize("trials", [1, 2, 20, 1000, 10**5, 10**6])
@pytest.mark.parametrize("tail", [0.45, 0.025, 1e-3, 1e-6, 1e-9])
def test_ends_of_a_proportion_are_clopper_and_pearsons_to_the_digit(
    trials: int, tail: float
) -> None:
    for count in {0, 1, 3, trials // 100, trials // 2, trials - 1, trials} & {*range(trials + 1)}:
        low, high = proportion_ends(count, trials, tail)
        least = beta.ppf(tail, count, trials - count + 1) if count else 0.0
        most = beta.isf(tail, count + 1, trials - count) if count < trials else 1.0
        assert (low, high) == pytest.approx((least, most), rel=2e-9, abs=0)
        assert (low, high) == pytest.approx((least, most), rel=0, abs=1e-12)


def test_ends_of_tiny_tails_exist() -> None:
    assert proportion_ends(0, 1, 1e-200) == (0.0, 1.0)
    assert 0.5 < proportion_ends(500, 1000, 1e-300)[1] < 1


def test_a_rank_is_counted_again_at_any_tail() -> None:
    value = math.log2(1000 / 8)  # 7 references cost no more
    known = binomial_interval(7, 1000, level=1 - 2e-3)
    assert estimate(value).ends(1e-3) == pytest.approx(
        (-math.log2(known.high[0] + 2**-30), -math.log2(known.low[0]))
    )
    capped = estimate(math.log2(1000), capped=True).ends(1e-3)
    assert capped == pytest.approx((-math.log2(1 - 1e-3 ** (1 / 1000) + 2**-30), 30.0))
    # What costs more than all references has the rank n + 1, and less than no bits.
    least, most = estimate(math.log2(1000 / 1001)).ends(1e-3)
    assert least == pytest.approx(math.log2(1000 / 1001))
    assert 0 < most < 0.01


def test_counted_exposures_have_no_error() -> None:
    for method in ("exact", "exact up to an empirical margin"):
        assert estimate(12.0, method=method, level=1.0).ends(1e-3) == (12.0, 12.0)
    proven = estimate(5.0, method="bounded", low=5.0, high=9.0, capped=True, level=1.0)
    assert proven.ends(1e-3) == (5.0, 9.0)


@pytest.mark.parametrize("effective", [1.5, 3.0, 20.0, 140.0])
@pytest.mark.parametrize("largest", [0.0, 0.1, 3.0])  # weight, as a share of the count
def test_weighted_draws_are_widened_as_a_gamma_variable_would_be(
    effective: float, largest: float
) -> None:
    """Fay and Feuer's ends at another tail lie within the widened ones."""

    def ends(tail: float) -> tuple[float, float]:
        variance = 1 / effective
        shape = (1 + largest) ** 2 / (variance + largest**2)
        least = gamma.ppf(tail, effective) / effective
        most = gamma.isf(tail, shape) * (variance + largest**2) / (1 + largest)
        return 10 - math.log2(max(most, 1)), 10 - math.log2(least)

    low, high = ends(0.025)
    weighted = estimate(10.0, method="importance", low=low, high=high)
    for tail in (0.0125, 1e-3, 1e-5):
        least, most = weighted.ends(tail)
        known = ends(tail)
        assert least <= known[0] + 1e-9
        assert most >= known[1] - 1e-9
    assert weighted.ends(0.1) == (low, high)  # never narrower than what was measured


def test_a_count_of_none_falls_with_the_logarithm_of_the_tail() -> None:
    none = estimate(10.0, method="importance", low=10.0, high=30.0, capped=True)
    assert none.ends(0.025**2) == pytest.approx((9.0, 30.0))


def test_a_class_of_many_methods_takes_the_ends_of_two_of_its_canaries() -> None:
    """Ordered by log-perplexity: a noisy value moves no other canary's place."""
    values = [float(k) for k in range(1, 30)]
    exact = [estimate(v, method="exact", level=1.0) for v in values]
    assert quantile_range(exact, 0.5, 0.025) == (9.0, 21.0)  # r and s of 29 at .025
    noisy = [estimate(v, method="importance", low=v - 1, high=v + 2) for v in values]
    mixed = [*noisy[:9], *exact[9:]]
    low, high = quantile_range(mixed, 0.5, 0.025)
    assert quantile_ends(29, 0.5, 0.0125) == (9, 21)
    assert (low, high) == (mixed[8].ends(0.0125)[0], 21.0)
    assert low is not None
    assert low < 8.0
