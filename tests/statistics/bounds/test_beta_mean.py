import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics.bounds.bound import beta_nodes, beta_quantiles


@pytest.mark.parametrize(
    ("a", "b"), [(0.5, 0.5), (0.5, 1000.5), (3, 4), (1, 1), (12.5, 1e7), (1e6, 1e6), (1e7, 1)]
)
def test_moments(a: float, b: float) -> None:
    x = beta_nodes(a, b, np.array([]))
    assert x.weight.sum() == pytest.approx(1, abs=1e-12)
    assert x.weight @ x.value == pytest.approx(a / (a + b), rel=1e-9)
    assert x.weight @ x.complement == pytest.approx(b / (a + b), rel=1e-9)
    second = a * (a + 1) / ((a + b) * (a + b + 1))
    assert x.weight @ x.value**2 == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize("cut", [0.1, 0.36, 0.8])
def test_a_step_at_a_break_costs_nothing(cut: float) -> None:
    x = beta_nodes(2.5, 3.5, np.array([cut, -1.0, 2.0]))
    assert x.weight @ (x.value <= cut) == pytest.approx(stats.beta(2.5, 3.5).cdf(cut), abs=1e-10)


def test_quantiles_ascend() -> None:
    marks = beta_quantiles(0.5, 200.5)
    assert (np.diff(marks) > 0).all()
    assert stats.beta(0.5, 200.5).cdf(marks[5]) == pytest.approx(0.5)
