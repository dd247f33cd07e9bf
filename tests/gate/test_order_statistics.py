import numpy as np
import pytest

from lmexposure.gate.order_statistics import quantile_ends, quantile_of
from lmexposure.statistics import quantile_interval


@pytest.mark.parametrize("quantile", [0.01, 0.25, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("n", [1, 2, 8, 9, 10, 29, 56, 100, 999, 20_000])
@pytest.mark.parametrize("tail", [0.25, 0.025, 0.003, 1e-5])
def test_ends_are_those_of_the_interval(quantile: float, n: int, tail: float) -> None:
    values = np.arange(1.0, n + 1)
    interval = quantile_interval(values, quantile, level=1 - 2 * tail)
    assert quantile_ends(n, quantile, tail) == (interval.low, interval.high)
    assert quantile_of(values.tolist(), quantile) == pytest.approx(interval.value)


def test_a_tail_that_is_exactly_reached_counts() -> None:
    assert quantile_ends(8, 0.5, 2**-8) == (1, 8)
    assert quantile_ends(8, 0.5, 2**-8 * 0.999) == (None, None)


def test_a_quantile_of_one_value_is_that_value() -> None:
    assert quantile_of([3.0], 0.9) == 3.0
