"""Charts as SVG for a page and as files: what a report shows in pictures, each also in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.reporting.charts.calibrated import calibrated_chart
    from lmexposure.reporting.charts.comparison import comparison_chart
    from lmexposure.reporting.charts.controls import controls_chart
    from lmexposure.reporting.charts.epsilon import epsilon_chart
    from lmexposure.reporting.charts.exposure import exposure_chart
    from lmexposure.reporting.charts.extraction import extraction_chart
    from lmexposure.reporting.charts.gallery import charts_of
    from lmexposure.reporting.charts.references import reference_chart
    from lmexposure.reporting.charts.roc import roc_chart
    from lmexposure.reporting.charts.training import training_chart
    from lmexposure.reporting.charts.trajectory import trajectory_chart
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "calibrated_chart",
    "charts_of",
    "comparison_chart",
    "controls_chart",
    "epsilon_chart",
    "exposure_chart",
    "extraction_chart",
    "reference_chart",
    "roc_chart",
    "training_chart",
    "trajectory_chart",
]
