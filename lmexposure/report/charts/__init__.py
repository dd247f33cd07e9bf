"""Charts as SVG for a page and as files: what a report shows in pictures, each also in words."""

from lmexposure.report.charts import _quiet as _quiet  # before anything of matplotlib
from lmexposure.report.charts.chart import Chart
from lmexposure.report.charts.comparison import compare_exposure
from lmexposure.report.charts.controls import controls
from lmexposure.report.charts.epsilon import epsilon
from lmexposure.report.charts.exposure import exposure_by_repetitions
from lmexposure.report.charts.extraction import extraction
from lmexposure.report.charts.gallery import charts_of
from lmexposure.report.charts.references import reference_distribution
from lmexposure.report.charts.roc import roc
from lmexposure.report.charts.training import training

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
