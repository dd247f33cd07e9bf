import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from reporting.charts.made import canary, format_data, painted, texts

from lmexposure.reporting.charts import exposure_chart
from lmexposure.reporting.charts.exposure import GUESSING_HIGH, GUESSING_LOW


def test_guessing_is_minus_log2_of_a_uniform_number() -> None:
    assert pytest.approx(-math.log2(0.95), abs=1e-4) == GUESSING_LOW
    assert pytest.approx(-math.log2(0.05), abs=1e-4) == GUESSING_HIGH


def test_the_message_is_said_in_words() -> None:
    chart = exposure_chart(format_data())
    assert chart is not None
    assert chart.description == (
        "Exposure of 8 canaries and 4 never inserted, in bits, higher = more memorised: 4 of 8 "
        "canaries lie above 4.32 bits, where the middle 90 % of guessing ends, and extraction is "
        "at 20.0 bits. Medians: controls 1.10; 1× 2.50; 8× ≥ 11.50."
    )
    written = texts(chart)
    for text in ("controls", "n = 4", "1", "8", "lower bound", "extraction, log₂|R| = 20.0"):
        assert text in written


def test_every_canary_is_a_dot_and_capped_ones_have_another_shape() -> None:
    chart = exposure_chart(format_data())
    assert chart is not None
    groups = [
        [use.get("href") for use in group.iter() if use.tag.endswith("}use")]
        for variable in ("--chart-class-4", "--chart-class-8")
        for group in painted(chart, variable)
    ]
    dots = [group for group in groups if len(group) > 1]
    assert sorted(map(len, dots)) == [3, 4]  # one capped canary stands alone
    drawn = {f"#{path.get('id')}": path.get("d") for path in ET.fromstring(chart.svg()).iter()}
    assert len({drawn[str(shape)] for group in dots for shape in group}) == 1
    assert "lower bound" in texts(chart)


def test_missing_exposures_are_not_drawn_and_counted() -> None:
    rows = (canary(1.0), canary(None), canary(None), canary(None))
    chart = exposure_chart(format_data(canaries=rows))
    assert chart is not None
    assert chart.description.endswith("3 without an exposure are not drawn.")
    assert "n = 1" in texts(chart)
    assert exposure_chart(format_data(canaries=rows[1:])) is None
    assert exposure_chart(format_data(canaries=())) is None


def test_all_capped_and_no_class_is_still_a_chart() -> None:
    rows = tuple(canary(20.0, capped=True, high=None) for _ in range(3))
    chart = exposure_chart(format_data(canaries=rows, classes=()))
    assert chart is not None
    assert "lower bound" in texts(chart)
    assert "Medians" not in chart.description


def test_a_band_of_guessing_never_passes_extraction() -> None:
    chart = exposure_chart(format_data(bits=2.0, canaries=(canary(1.0),)))
    assert chart is not None
    assert "above 2.00 bits" in chart.description


def test_very_many_canaries_are_thinned_and_said_to_be() -> None:
    rows = tuple(canary(float(e)) for e in np.linspace(0, 10, 5000))
    chart = exposure_chart(format_data(canaries=rows))
    assert chart is not None
    assert 1990 < chart.svg().count("<use ") < 2030
    assert len(chart.svg()) < 150_000
    assert "Of 5,000 dots about 2,000 are drawn, evenly by rank" in chart.description
    assert "intervals of single canaries are left out" in chart.description


def test_many_classes_leave_room_for_their_names() -> None:
    rows = tuple(canary(1.0, repetitions=2**n) for n in range(20))
    chart = exposure_chart(format_data(canaries=rows))
    assert chart is not None
    assert "8" in texts(chart)
    assert "16" not in texts(chart)
