"""What charts are drawn with, and the drawings that studies share."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.core.charts.chart import Chart
    from lmexposure.core.charts.drawings import (
        Ceiling,
        Line,
        Mark,
        Panel,
        Points,
        ceilings_chart,
        dots_chart,
        lines_chart,
        panels_chart,
        sides_chart,
    )
    from lmexposure.core.charts.roc import RocLine, roc_lines_chart
    from lmexposure.core.charts.style import (
        BAND,
        CONTROL,
        FIT,
        INK,
        LINE,
        MUTED,
        REFERENCE,
        SERIES,
        VARIABLES,
        Draw,
        Legend,
        Style,
        Styles,
        category_ticks,
        class_styles,
        clipped,
        joined,
        key,
        legend_lines,
        log_ticks,
        named_rows,
        plain_axes,
        rug,
        series_style,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)


# matplotlib says where it keeps its fonts; on a disk that it may not write to, on every import. A
# command prints its own words and no others; whoever has set a level wants to hear it.
if logging.getLogger("matplotlib").level == logging.NOTSET:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
