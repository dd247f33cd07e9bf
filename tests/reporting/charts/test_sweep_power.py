"""The chart of kinds: its words, and that it is drawn of what is there."""

from made_sweeps import made_power, made_sweep, sweep_with
from reporting.charts.made import texts

from lmexposure.reporting.charts import sweep_charts
from lmexposure.reporting.charts.sweep_power import power_chart


def test_one_dot_for_each_class_that_is_resolved() -> None:
    found = power_chart(made_sweep(power=True))
    assert found is not None
    assert found.title == "What each kind of canary shows: TPR at FPR 0.01"
    assert found.description == (
        "TPR at FPR 0.01: new_token/x1 0.800 (0.750 .. 0.850), pin/x1 0.100 (0.050 .. 0.150)."
    )
    drawn = texts(found)
    assert "new_token/x1: 0.800" in drawn
    assert not any("texts" in text for text in drawn)
    assert "sweep-power" in [chart.name for chart in sweep_charts(made_sweep(power=True))]


def test_nothing_to_compare_is_no_chart() -> None:
    assert power_chart(made_sweep()) is None
    rows = tuple(row for row in made_power().rows if row.group == "texts/x1")
    power = made_power(rows=rows, comparisons=(), strongest=None, strongest_low=None)
    assert power_chart(sweep_with(made_sweep(), power=power)) is None


def test_one_share_has_no_hollow_marks() -> None:
    rows = tuple(row for row in made_power().rows if row.share == 1)
    found = power_chart(sweep_with(made_sweep(), power=made_power(rows=rows)))
    assert found is not None
    assert len(found.svg()) < 100_000
    assert not any("of them" in text for text in texts(found))
