from reporting.charts.made import class_row, painted, texts

from lmexposure.reporting.charts import comparison_chart

CLASSES = (
    class_row(0.9, role="control", repetitions=0),
    class_row(2.5, low=None),
    class_row(11.0, repetitions=8, capped=True, high=None),
)


def test_the_message_is_said_in_words() -> None:
    chart = comparison_chart("pin", 20.0, [("base", CLASSES[:2]), ("defended", CLASSES)])
    assert chart is not None
    assert chart.title == "Median exposure of 2 runs, pin"
    assert "base: controls 0.90, 1× 2.50; defended: controls 0.90," in chart.description
    assert "Extraction is at 20.0 bits" in chart.description
    assert {"base", "defended", "controls", "1", "8", "lower bound"} <= set(texts(chart))
    assert painted(chart, "--chart-1")
    assert painted(chart, "--chart-2")


def test_a_run_without_medians_is_named() -> None:
    chart = comparison_chart("pin", 20.0, [("base", CLASSES), ("broken", ())])
    assert chart is not None
    assert "broken: no medians" in chart.description
    assert "broken" in texts(chart)


def test_no_median_no_chart() -> None:
    assert comparison_chart("pin", 20.0, []) is None
    assert comparison_chart("pin", 20.0, [("a", ()), ("b", ())]) is None


def test_many_classes_and_runs_are_drawn() -> None:
    many = tuple(class_row(float(n), repetitions=2**n) for n in range(12))
    chart = comparison_chart("pin", 20.0, [(f"run {i}", many) for i in range(14)])
    assert chart is not None
    assert "run 13" in texts(chart)
    assert "and 8 more" in chart.description
