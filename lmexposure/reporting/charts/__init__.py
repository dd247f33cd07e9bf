"""Charts as SVG for a page and as files: what a report shows in pictures, each also in words."""

from lmexposure.reporting.charts import _quiet as _quiet  # before anything of matplotlib
from lmexposure.reporting.charts.chart import Chart
from lmexposure.reporting.charts.comparison import compare_exposure
from lmexposure.reporting.charts.controls import controls
from lmexposure.reporting.charts.epsilon import epsilon
from lmexposure.reporting.charts.exposure import exposure_by_repetitions
from lmexposure.reporting.charts.extraction import extraction
from lmexposure.reporting.charts.gallery import charts_of
from lmexposure.reporting.charts.references import reference_distribution
from lmexposure.reporting.charts.roc import roc
from lmexposure.reporting.charts.training import training

__all__ = [
    "Chart",
    "charts_of",
    "compare_exposure",
    "controls",
    "epsilon",
    "exposure_by_repetitions",
    "extraction",
    "reference_distribution",
    "roc",
    "training",
]
