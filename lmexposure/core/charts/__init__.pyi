"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.core.charts.chart import Chart as Chart
from lmexposure.core.charts.drawings import Ceiling as Ceiling
from lmexposure.core.charts.drawings import Line as Line
from lmexposure.core.charts.drawings import Mark as Mark
from lmexposure.core.charts.drawings import Panel as Panel
from lmexposure.core.charts.drawings import Points as Points
from lmexposure.core.charts.drawings import ceilings_chart as ceilings_chart
from lmexposure.core.charts.drawings import dots_chart as dots_chart
from lmexposure.core.charts.drawings import lines_chart as lines_chart
from lmexposure.core.charts.drawings import panels_chart as panels_chart
from lmexposure.core.charts.drawings import sides_chart as sides_chart
from lmexposure.core.charts.roc import RocLine as RocLine
from lmexposure.core.charts.roc import roc_lines_chart as roc_lines_chart
from lmexposure.core.charts.style import BAND as BAND
from lmexposure.core.charts.style import CONTROL as CONTROL
from lmexposure.core.charts.style import FIT as FIT
from lmexposure.core.charts.style import INK as INK
from lmexposure.core.charts.style import LINE as LINE
from lmexposure.core.charts.style import MUTED as MUTED
from lmexposure.core.charts.style import REFERENCE as REFERENCE
from lmexposure.core.charts.style import SERIES as SERIES
from lmexposure.core.charts.style import VARIABLES as VARIABLES
from lmexposure.core.charts.style import Draw as Draw
from lmexposure.core.charts.style import Legend as Legend
from lmexposure.core.charts.style import Style as Style
from lmexposure.core.charts.style import Styles as Styles
from lmexposure.core.charts.style import category_ticks as category_ticks
from lmexposure.core.charts.style import class_styles as class_styles
from lmexposure.core.charts.style import clipped as clipped
from lmexposure.core.charts.style import joined as joined
from lmexposure.core.charts.style import key as key
from lmexposure.core.charts.style import legend_lines as legend_lines
from lmexposure.core.charts.style import log_ticks as log_ticks
from lmexposure.core.charts.style import named_rows as named_rows
from lmexposure.core.charts.style import plain_axes as plain_axes
from lmexposure.core.charts.style import rug as rug
from lmexposure.core.charts.style import series_style as series_style

__all__: list[str]
