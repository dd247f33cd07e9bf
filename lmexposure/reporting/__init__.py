"""What people read: results in, files out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.reporting.build import report_data
    from lmexposure.reporting.charts import Chart, charts_of
    from lmexposure.reporting.compare import CompareData, compare_data
    from lmexposure.reporting.data import ReportData
    from lmexposure.reporting.page import render_compare, render_report
    from lmexposure.reporting.write import FORMATS, report, write_compare, write_report
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "build": ["report_data"],
            "charts": ["Chart", "charts_of"],
            "compare": ["CompareData", "compare_data"],
            "data": ["ReportData"],
            "page": ["render_compare", "render_report"],
            "write": ["FORMATS", "report", "write_compare", "write_report"],
        },
    )

__all__ = [
    "FORMATS",
    "Chart",
    "CompareData",
    "ReportData",
    "charts_of",
    "compare_data",
    "render_compare",
    "render_report",
    "report",
    "report_data",
    "write_compare",
    "write_report",
]
