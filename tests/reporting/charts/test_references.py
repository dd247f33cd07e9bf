import numpy as np
import pytest
from reporting.charts.made import FIT, canary, format_data, painted, texts
from scipy import stats

from lmexposure.reporting.charts import reference_chart
from lmexposure.reporting.charts.references import _density, _histogram


def test_the_message_is_said_in_words() -> None:
    chart = reference_chart(format_data())
    assert chart is not None
    assert chart.description.startswith("400 references have log-perplexities from ")
    assert "Median of each class, in bits: controls 20.00;" in chart.description
    assert chart.description.endswith("A skew-normal curve is fitted (KS 0.0123, p = 0.4567).")
    written = texts(chart)
    assert {"controls", "1×", "8×", "skew-normal fit (KS 0.0123, p = 0.4567)"} <= set(written)
    assert "Log-perplexity (bits), lower = more memorised" in written


def test_a_curve_that_was_not_tested_says_so() -> None:
    fit = FIT.model_copy(update={"goodness": None})
    chart = reference_chart(format_data(fit=fit))
    assert chart is not None
    assert chart.description.endswith("A skew-normal curve is fitted (not tested).")


def test_the_curve_is_the_skew_normal_density() -> None:
    x = np.linspace(10, 40, 50)
    expected = stats.skewnorm.pdf(x, FIT.shape, loc=FIT.location, scale=FIT.scale)
    assert _density(FIT, x) == pytest.approx(expected, rel=1e-12)


def test_without_scores_the_quantiles_give_the_histogram() -> None:
    data = format_data(reference_bits=np.array([]), quantiles=(0, 1, 2, 3, 4, 5, 6, 7, 8))
    histogram = _histogram(data)
    assert histogram is not None
    shares = [0.01, 0.04, 0.2, 0.25, 0.25, 0.2, 0.04, 0.01]
    assert histogram.density.tolist() == pytest.approx(shares)
    chart = reference_chart(data)
    assert chart is not None
    assert "400 references, from quantiles" in texts(chart)
    assert "drawn from nine quantiles" in chart.description


def test_equal_quantiles_are_one_edge() -> None:
    data = format_data(reference_bits=np.array([]), quantiles=(0, 0, 0, 1, 1, 2, 2, 2, 2))
    histogram = _histogram(data)
    assert histogram is not None
    assert histogram.edges.tolist() == [0, 1, 2]
    assert float(histogram.density @ np.diff(histogram.edges)) == pytest.approx(1)


@pytest.mark.parametrize("quantiles", [(), (1.0,) * 9])
def test_without_scores_and_usable_quantiles_there_is_no_chart(quantiles: tuple[float]) -> None:
    data = format_data(reference_bits=np.array([np.nan]), quantiles=quantiles)
    assert reference_chart(data) is None


def test_without_a_fit_no_curve_is_drawn() -> None:
    chart = reference_chart(format_data(fit=None))
    assert chart is not None
    assert painted(chart, "--chart-fit") == []
    assert "skew-normal" not in chart.description


def test_equal_references_and_no_canaries_are_still_a_chart() -> None:
    chart = reference_chart(format_data(reference_bits=np.full(5, 3.0), canaries=()))
    assert chart is not None
    assert "Median of each class" not in chart.description
    missing = (canary(1.0, log_perplexity_bits=None),)
    chart = reference_chart(format_data(canaries=missing))
    assert chart is not None
    assert "1×" not in texts(chart)
