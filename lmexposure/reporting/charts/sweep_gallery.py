"""All charts that a sweep's result supports, in the order in which they are read."""

from collections.abc import Iterator

from lmexposure.core.charts import Chart
from lmexposure.reporting.charts.sweep_counterfactual import counterfactual_chart
from lmexposure.reporting.charts.sweep_power import power_chart
from lmexposure.reporting.charts.sweep_rates import beside_chart, canaries_chart, sweep_roc_chart
from lmexposure.reporting.charts.sweep_worst import sweep_bounds_chart, worst_charts
from lmexposure.studies import SweepResult


def sweep_charts(result: SweepResult) -> list[Chart]:
    """Every chart that has something to show; none for what the result lacks."""
    return [chart for chart in _all(result) if chart is not None]


def _all(result: SweepResult) -> Iterator[Chart | None]:
    yield beside_chart(result)
    yield power_chart(result)
    yield canaries_chart(result)
    yield from worst_charts(result)
    yield counterfactual_chart(result)
    yield sweep_roc_chart(result)
    yield sweep_bounds_chart(result)
