"""What people read: results in, files out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.core import FORMATS
    from lmexposure.reporting.build import report_data
    from lmexposure.reporting.charts import charts_of
    from lmexposure.reporting.compare import CompareData, compare_data
    from lmexposure.reporting.data import ReportData, Section
    from lmexposure.reporting.page import render_compare, render_report
    from lmexposure.reporting.privacy import privacy_sections
    from lmexposure.reporting.sections import result_sections
    from lmexposure.reporting.write import report, write_compare, write_report
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "FORMATS",
    "CompareData",
    "ReportData",
    "Section",
    "charts_of",
    "compare_data",
    "privacy_sections",
    "render_compare",
    "render_report",
    "report",
    "report_data",
    "result_sections",
    "write_compare",
    "write_report",
]
