"""All charts that a report's data supports, in the order in which they are read."""

from collections.abc import Iterator
from dataclasses import replace

from lmexposure.core.charts import Chart, class_styles
from lmexposure.reporting.charts.calibrated import calibrated_chart
from lmexposure.reporting.charts.controls import controls_chart
from lmexposure.reporting.charts.epsilon import epsilon_chart
from lmexposure.reporting.charts.exposure import exposure_chart
from lmexposure.reporting.charts.extraction import extraction_chart
from lmexposure.reporting.charts.references import reference_chart
from lmexposure.reporting.charts.roc import roc_chart
from lmexposure.reporting.charts.training import training_chart
from lmexposure.reporting.charts.trajectory import trajectory_chart
from lmexposure.reporting.data import ReportData

_CURVES = 6  # of one ROC chart


def charts_of(data: ReportData) -> list[Chart]:
    """Every chart that has something to show, kind by kind, formats in the data's order."""
    taken: set[str] = set()
    found = []
    for chart in _all(data):
        if chart is not None:
            found.append(_named_apart(chart, taken))
            taken.add(found[-1].name)
    return found


def _all(data: ReportData) -> Iterator[Chart | None]:
    styles = class_styles(_repetitions(data))
    for of_format in (exposure_chart, calibrated_chart, reference_chart, extraction_chart):
        yield from (of_format(form, styles) for form in data.formats)
    yield epsilon_chart(data.privacy, styles)
    yield None if data.white_box is None else data.white_box.chart()
    for start in range(0, len(data.roc), _CURVES):
        curves = data.roc[start : start + _CURVES]
        yield roc_chart(curves, number_of=start // _CURVES + 1, styles=styles)
    yield training_chart(data.training, styles)
    yield trajectory_chart(data.trajectory, styles)
    yield from map(controls_chart, data.formats)


def _repetitions(data: ReportData) -> Iterator[int]:
    """Of every class that a chart may show."""
    for form in data.formats:
        yield from (row.repetitions for row in form.classes)
        yield from (canary.repetitions for canary in form.canaries)
    if data.privacy is not None:
        yield from (part.repetitions for part in data.privacy.classes)
    yield from (curve.repetitions for curve in data.roc)
    yield from (row.repetitions for row in data.trajectory)


def _named_apart(chart: Chart, taken: set[str]) -> Chart:
    """Two names of formats may differ in signs only, which no file name keeps."""
    name, number = chart.name, 1
    while name in taken:
        number += 1
        name = f"{chart.name}-{number}"
    return chart if number == 1 else replace(chart, name=name)
