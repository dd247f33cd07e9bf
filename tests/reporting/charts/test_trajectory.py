import pytest
from reporting.charts.made import painted, texts

from lmexposure.records import CheckpointClass
from lmexposure.reporting.charts import trajectory_chart
from lmexposure.reporting.charts.style import class_styles


def row(step: int | None, repetitions: int, median: float, **other: object) -> CheckpointClass:
    values = {
        "checkpoint": f"checkpoint-{step}",
        "step": step,
        "format": "pin",
        "repetitions": repetitions,
        "n": 10,
        "median": median,
        "low": median - 0.5,
        "high": median + 0.5,
        "exact": 10,
        **other,
    }
    return CheckpointClass.model_validate(values)


def rows(*steps: int) -> list[CheckpointClass]:
    medians = {0: 1.0, 1: 1.5, 16: 9.0}
    return [row(s, r, bits * (1 + n)) for n, s in enumerate(steps) for r, bits in medians.items()]


def test_the_message_is_said_in_words() -> None:
    chart = trajectory_chart(rows(10, 20), class_styles([0, 1, 16]))
    assert chart is not None
    assert chart.description == (
        "Median exposure over 2 checkpoints, in bits: controls from 1.00 to 2.00; 1× from 1.50 to "
        "3.00; 16× from 9.00 to 18.00."
    )
    written = texts(chart)
    assert {"Step", "controls", "16×", "median of guessing"} <= set(written)
    assert painted(chart, "--chart-control") or painted(chart, "--chart-2")


def test_without_steps_the_checkpoints_are_named() -> None:
    unknown = [
        row(None, 1, 1.0, checkpoint="first"),
        row(None, 1, 2.0, checkpoint="last", low=None, high=None),
    ]
    chart = trajectory_chart(unknown)
    assert chart is not None
    assert {"Checkpoint", "first", "last"} <= set(texts(chart))


def test_of_many_classes_the_highest_are_drawn_and_several_formats_named() -> None:
    many = [row(s, r, float(r), format=f) for s in (1, 2) for f in "ab" for r in range(4)]
    chart = trajectory_chart(many)
    assert chart is not None
    assert "in bits (the highest; 2 more are not drawn): a, 1× from 1.00" in chart.description


@pytest.mark.parametrize("given", [()])
def test_no_rows_no_chart(given: tuple[CheckpointClass, ...]) -> None:
    assert trajectory_chart(given) is None
