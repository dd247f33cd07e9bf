from dataclasses import replace

import pytest
from reporting.charts.made import evaluation, painted, texts, training_rows

from lmexposure.records import Evaluation
from lmexposure.reporting.charts import training_chart


def test_the_message_is_said_in_words() -> None:
    chart = training_chart(training_rows())
    assert chart is not None
    assert chart.title == "Loss while training"
    assert chart.description == (
        "Validation loss goes from 6.000 to its lowest, 2.000 bits per token, at epoch 2; training "
        "loss ends at 1.500."
    )
    written = texts(chart)
    assert {"training", "validation", "lowest validation loss", "Epoch"} <= set(written)
    assert "Median exposure" not in written


@pytest.mark.parametrize("rows", [(), (evaluation(1, None, None),)])
def test_no_loss_no_chart(rows: tuple[Evaluation, ...]) -> None:
    assert training_chart(rows) is None


def test_without_epochs_steps_and_without_steps_rows() -> None:
    chart = training_chart([replace(row, epoch=None) for row in training_rows()])
    assert chart is not None
    assert "Step" in texts(chart)
    chart = training_chart([replace(evaluation(0, 1.0, None), epoch=None, step=None)])
    assert chart is not None
    assert "Evaluation" in texts(chart)
    assert "validation" not in texts(chart)
    assert chart.description == "Training loss ends at 1.000."


def test_exposure_where_it_was_followed() -> None:
    rows = training_rows(**{"pin, 1 repetition": 2.0, "pin, 8 repetitions": 9.0})
    first = (("pin, 1 repetition", 1.0), ("pin, 8 repetitions", None))
    chart = training_chart([rows[0], replace(rows[1], exposures=first), *rows[2:]])
    assert chart is not None
    assert chart.title == "Loss while training, and exposure"
    assert chart.description.endswith(
        "Median exposure at the end, in bits: pin, 1 repetition 2.00; pin, 8 repetitions 9.00."
    )
    assert painted(chart, "--chart-2")
    assert "median of guessing" in texts(chart)


def test_of_many_classes_the_highest_are_drawn() -> None:
    chart = training_chart(training_rows(**{f"c{i}": float(i) for i in range(9)}))
    assert chart is not None
    assert "(the highest; 3 more are not drawn): c3 3.00; " in chart.description
