import math

import pytest
from report.charts.made import painted, texts, training_rows

from lmexposure.reporting.charts import training


def test_the_message_is_said_in_words() -> None:
    chart = training(training_rows())
    assert chart is not None
    assert chart.title == "Loss while training"
    assert chart.description == (
        "Validation loss goes from 6 to its lowest, 2 bits per token, at epoch 2; training loss "
        "ends at 1.5."
    )
    written = texts(chart)
    assert {"training", "validation", "lowest validation loss", "Epoch"} <= set(written)
    assert "Median exposure" not in written


@pytest.mark.parametrize(
    "rows",
    [(), ({},), ({"step": 1, "validation_bits_per_token": None},), ({"epoch": math.nan},)],
)
def test_no_loss_no_chart(rows: tuple[dict[str, float | None], ...]) -> None:
    assert training(rows) is None


def test_without_epochs_steps_and_without_steps_rows() -> None:
    without = [{k: v for k, v in row.items() if k != "epoch"} for row in training_rows()]
    chart = training(without)
    assert chart is not None
    assert "Step" in texts(chart)
    chart = training([{"train_bits_per_token": 1.0}])
    assert chart is not None
    assert "Evaluation" in texts(chart)
    assert "validation" not in texts(chart)
    assert chart.description == "Training loss ends at 1."


def test_exposure_where_it_was_followed() -> None:
    rows = [dict(row) for row in training_rows()]
    rows[1]["exposure"] = {"pin, 1 repetition": 1.0, "pin, 8 repetitions": None}
    rows[3]["exposure"] = {"pin, 1 repetition": 2.0, "pin, 8 repetitions": 9.0}
    chart = training(rows)
    assert chart is not None
    assert chart.title == "Loss while training, and exposure"
    assert chart.description.endswith(
        "Median exposure at the end, in bits: pin, 1 repetition 2; pin, 8 repetitions 9."
    )
    assert painted(chart, "--chart-2")
    assert "median of guessing" in texts(chart)


def test_of_many_classes_the_highest_are_drawn() -> None:
    rows = [row | {"exposure": {f"c{i}": float(i) for i in range(9)}} for row in training_rows()]
    chart = training(rows)
    assert chart is not None
    assert "(the highest; 3 more are not drawn): c3 3; " in chart.description


def test_an_exposure_that_is_no_mapping_is_left_out() -> None:
    chart = training([row | {"exposure": 3.0} for row in training_rows()])
    assert chart is not None
    assert chart.title == "Loss while training"
