"""The charts of a sweep by their names; imports core.charts first, which quiets matplotlib."""

from collections.abc import Callable, Mapping
from functools import partial

from lmexposure.core.charts import Chart
from lmexposure.studies.sweep_charts import (
    beside_chart,
    canaries_chart,
    counterfactual_chart,
    power_chart,
    sweep_bounds_chart,
    sweep_roc_chart,
    worst_chart,
)
from lmexposure.studies.sweep_record import SweepNumbers

DRAWN: Mapping[str, Callable[[SweepNumbers], Chart | None]] = {
    "beside": beside_chart,
    "kinds": power_chart,
    "canaries": canaries_chart,
    "worst canary": partial(worst_chart, noun="canary"),
    "worst document": partial(worst_chart, noun="document"),
    "changes": counterfactual_chart,
    "roc": sweep_roc_chart,
    "bounds": sweep_bounds_chart,
}
