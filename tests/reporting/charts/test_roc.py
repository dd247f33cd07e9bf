import numpy as np
import pytest
from reporting.charts.made import roc_data, texts

from lmexposure.reporting.charts import roc_chart
from lmexposure.reporting.charts.roc import _on_log_axes


def test_the_message_is_said_in_words() -> None:
    chart = roc_chart([roc_data()])
    assert chart is not None
    assert "0.5 = guessing: pin, repetitions 8 0.800 (0.600 .. 0.900)." in chart.description
    assert "below 0.0025 cannot be resolved" in chart.description
    written = texts(chart)
    assert "pin, repetitions 8: AUC 0.800 (0.600 .. 0.900)" in written
    assert {"concave hull", "guessing", "below 0.0025: not resolved"} <= set(written)


def test_no_curve_no_chart() -> None:
    assert roc_chart([]) is None
    assert (
        roc_chart([roc_data(positives=0), roc_data(negatives=0), roc_data(fpr=np.array([]))])
        is None
    )


def test_a_curve_begins_at_what_is_resolvable_and_zero_lies_at_the_bottom() -> None:
    fpr, tpr = np.array([0.0, 0.1, 0.1, 1.0]), np.array([0.0, 0.0, 0.5, 1.0])
    x, y = _on_log_axes(fpr, tpr, 0.01, 0.001)
    assert x[0] == pytest.approx(0.01)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    assert y[x < 0.1] == pytest.approx(0.001)
    assert y[x > 0.1].min() >= 0.5


def test_straight_lines_between_corners_are_bent() -> None:
    ends = np.array([0.0, 1.0])
    x, y = _on_log_axes(ends, ends, 0.001, 1e-9)
    assert y == pytest.approx(x)
    assert x.size > 100


@pytest.mark.parametrize("negatives", [1, 2, 10**6])
def test_few_and_many_negatives_are_drawn(negatives: int) -> None:
    chart = roc_chart([roc_data(negatives=negatives, positives=1)])
    assert chart is not None
    assert chart.svg()
