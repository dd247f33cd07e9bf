"""A federated training and its canaries as one HTML page, by the rules of `page.py`."""

from lmexposure.records import CanifeRecord
from lmexposure.reporting.canife import canife_finding, canife_origin, canife_sections
from lmexposure.reporting.charts import epsilon_rounds_chart, mock_scores_chart
from lmexposure.reporting.page import filled_page


def render_canife(record: CanifeRecord) -> str:
    """The whole report as one HTML document."""
    rounds, training = canife_sections(record)
    return filled_page(
        "canife.html.jinja",
        record=record,
        finding=canife_finding(record),
        origin=canife_origin(record),
        rounds=rounds,
        training=training,
        chart=epsilon_rounds_chart(record),
        scores=mock_scores_chart(record),
    )
