"""A comparison of defences as one HTML page, by the rules of `page.py`."""

from lmexposure.records import DefencesRecord
from lmexposure.reporting.charts import defences_chart
from lmexposure.reporting.defences import (
    defences_finding,
    defences_origin,
    defences_sections,
    ranked,
)
from lmexposure.reporting.page import filled_page


def render_defences(record: DefencesRecord) -> str:
    """The whole report as one HTML document."""
    table, *others = defences_sections(record)
    return filled_page(
        "defences.html.jinja",
        record=record,
        finding=defences_finding(record),
        origin=defences_origin(record),
        methods=len(ranked(record)),
        table=table,
        others=others,
        chart=defences_chart(record),
    )
