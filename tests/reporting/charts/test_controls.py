import numpy as np
import pytest
from reporting.charts.made import canary, format_data, texts
from scipy import stats

from lmexposure.reporting.charts import controls_chart
from lmexposure.reporting.charts.controls import _expected, _shown


def made_of(exposures: list[float | None]) -> tuple[object, ...]:
    return tuple(canary(e, role="control", repetitions=0) for e in exposures)


def test_the_message_is_said_in_words() -> None:
    chart = controls_chart(format_data())
    assert chart is not None
    assert chart.description == (
        "Exposures of 4 controls, in order, against those of as many guesses: 4 lie in the band "
        "that holds 95 % of guessing at each place. Their median is 1.10 bits, that of guessing 1."
    )
    assert {"control (n = 4)", "as expected", "Exposure of controls (bits)"} <= set(texts(chart))


def test_the_band_is_of_order_statistics() -> None:
    """Against scipy.stats.beta, which takes another way than betaincinv."""
    low, median, high = _expected(5, 40.0)
    for i in range(5):  # ascending exposure, descending uniform
        uniform = stats.beta(5 - i, i + 1)
        assert median[i] == pytest.approx(-np.log2(uniform.median()))
        assert low[i] == pytest.approx(-np.log2(uniform.ppf(0.975)))
        assert high[i] == pytest.approx(-np.log2(uniform.ppf(0.025)))


def test_the_band_covers_guessing_as_often_as_it_says() -> None:
    uniform = np.random.default_rng(0).random((4000, 20))
    exposures = np.sort(-np.log2(uniform), axis=1)
    low, _, high = _expected(20, 60.0)
    inside = ((exposures >= low) & (exposures <= high)).mean(axis=0)
    assert inside == pytest.approx(0.95, abs=0.02)


def test_no_exposure_is_expected_above_the_space() -> None:
    assert _expected(1000, 3.0).max() == 3.0


def test_memorised_controls_are_counted_outside() -> None:
    chart = controls_chart(format_data(canaries=made_of([8.0, 9.0, 10.0, 11.0])))
    assert chart is not None
    assert "0 lie in the band" in chart.description


def test_fewer_than_three_controls_have_no_chart() -> None:
    assert controls_chart(format_data(canaries=made_of([1.0, 2.0, None]))) is None


def test_of_many_controls_the_highest_are_all_drawn() -> None:
    shown = _shown(10_000)
    assert shown.size <= 400
    assert shown[0] == 0
    assert shown[-200:].tolist() == list(range(9800, 10_000))
    chart = controls_chart(format_data(canaries=made_of(np.linspace(0, 8, 1000).tolist())))
    assert chart is not None
    assert chart.description.endswith("400 dots are drawn.")
