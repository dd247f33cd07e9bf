"""The report of a sweep as one HTML page, by the rules of `page.py`."""

from collections.abc import Sequence

from lmexposure.core.charts import Chart
from lmexposure.reporting.charts import sweep_charts
from lmexposure.reporting.data import Section
from lmexposure.reporting.page import filled_page
from lmexposure.reporting.sweep_answers import sweep_answers
from lmexposure.reporting.sweep_counterfactual import (
    counterfactual_lines,
    counterfactual_sections,
    left_out,
)
from lmexposure.reporting.sweep_data import SweepReportData
from lmexposure.reporting.sweep_power import power_sections
from lmexposure.reporting.sweep_tables import (
    average_section,
    bounds_section,
    epsilon_line,
    most_leaking,
    named_score,
    other_scores_section,
    texts_section,
    worst_section,
)

_MOST_ROWS = 1000  # of canaries in the page's table
_MOST_CHANGES = 200  # texts of a group
_KINDS = ("beside", "power", "canaries", "worst", "counterfactual", "sweep_roc", "sweep_bounds")


def render_sweep(data: SweepReportData) -> str:
    """The whole report as one HTML document."""
    result, found = data.result, data.result.counterfactual
    charts = sweep_charts(result)
    texts = most_leaking(result.texts)
    return filled_page(
        "sweep.html.jinja",
        data=data,
        answers=sweep_answers(data),
        charts={kind: _of(charts, kind) for kind in _KINDS},
        worst=worst_section(result),
        texts=texts_section(texts[:_MOST_ROWS]),
        left_out=len(texts[_MOST_ROWS:]),
        changes=[] if found is None else counterfactual_sections(found, _MOST_CHANGES),
        said=[] if found is None else counterfactual_lines(found),
        unsaid=() if found is None else found.notes,
        less=0 if found is None else left_out(found, _MOST_CHANGES),
        average=average_section(result),
        others=_others(data),
        named=named_score(result),
        power=[] if result.power is None else power_sections(result.power),
        bounds=bounds_section(result),
        epsilon=epsilon_line(result),
    )


def _of(charts: Sequence[Chart], kind: str) -> list[Chart]:
    return [chart for chart in charts if chart.kind == kind]


def _others(data: SweepReportData) -> list[Section]:
    """A table a group, where it has more than the score that was named."""
    groups = dict.fromkeys(row.group for row in data.result.scores)
    sections = [other_scores_section(data.result, group) for group in groups]
    return [section for section in sections if len(section.rows) > 1]
