"""A look at memorised text as one HTML page, by the rules of `page.py`."""

from collections.abc import Sequence

from lmexposure.reporting.charts import runs_by_size_chart, verbatim_chart
from lmexposure.reporting.page import filled_page
from lmexposure.reporting.verbatim import ShownPassage
from lmexposure.reporting.verbatim_several import several_finding, several_section
from lmexposure.reporting.verbatim_tables import (
    verbatim_finding,
    verbatim_origin,
    verbatim_sections,
)
from lmexposure.studies import VerbatimRecord


def render_verbatim(record: VerbatimRecord, passages: Sequence[ShownPassage] = ()) -> str:
    """The whole report as one HTML document."""
    groups, documents, *others = verbatim_sections(record)
    return filled_page(
        "verbatim.html.jinja",
        record=record,
        finding=verbatim_finding(record),
        origin=verbatim_origin(record),
        groups=groups,
        documents=documents,
        others=others,
        passages=passages,
        chart=verbatim_chart(record),
    )


def render_several(records: Sequence[VerbatimRecord]) -> str:
    """Several models over the same documents as one HTML document."""
    return filled_page(
        "verbatim_several.html.jinja",
        finding=several_finding(records),
        section=several_section(records),
        chart=runs_by_size_chart(records),
        models=len(records),
        origin=verbatim_origin(records[-1]),
    )
