"""A report as one HTML page, by the rules of `core.page`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader

from lmexposure._style import LABELS, number, percent, short, whole
from lmexposure.core import environment, filled
from lmexposure.core.charts import Chart
from lmexposure.reporting.answers import answers_of
from lmexposure.reporting.beside import memorised_section, white_box_section
from lmexposure.reporting.charts import charts_of, comparison_chart
from lmexposure.reporting.compare import classes_section, differences_section, runs_section
from lmexposure.reporting.data import CanaryRow, ClassRow, FormatData, ReportData, RocData, Section
from lmexposure.reporting.kinds import kinds_section
from lmexposure.reporting.privacy import bounds_legend, bounds_overview, class_section, where
from lmexposure.reporting.promise import promise_section
from lmexposure.reporting.sections import (
    base_section,
    class_cells,
    class_columns,
    exposure_section,
    guesses_section,
    known_section,
    legend,
    most_memorised,
    overview_section,
    trajectory_section,
)

if TYPE_CHECKING:
    from lmexposure.reporting.compare import CompareData, ComparedFormat

# Of canaries in the page's table: beyond it the page would pass 2 MB, and browsers get slow.
_MOST_ROWS = 3000


_SECTIONS = (bounds_legend, class_section, bounds_overview, where)
_OF_THE_RUN = ("epsilon", "white_box", "roc", "training", "trajectory")
_OF_CONTROLS = ("median", "interval", "mean", "p_value")
_RATES = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def render_report(data: ReportData) -> str:
    """The whole report as one HTML document."""
    rows, left_out = _canary_rows(data.formats)
    charts = charts_of(data)
    formats = [_view(form, charts) for form in data.formats]
    glance = overview_section(most_memorised(data.formats))
    found = [table for view in formats for table in (view.guesses, view.known) if table]
    level = next((percent(row.level) for form in data.formats for row in form.classes), "")
    return filled_page(
        "report.html.jinja",
        data=data,
        answers=answers_of(data),
        formats=formats,
        glance=glance,
        how_to_read={
            "exposure": legend([glance, *_shown(formats)], level).notes,
            "extraction": legend(found, level).notes,
        },
        controls=_controls(data.formats),
        charts={kind: _of(charts, kind) for kind in _OF_THE_RUN},
        canaries=rows,
        left_out=left_out,
        trajectory=trajectory_section(data.trajectory),
        roc_table=_roc(data.roc),
        kinds=kinds_section(data.kinds),
        promise=promise_section(data.promise),
        inside=white_box_section(data.promise, data.privacy),
        memorised=memorised_section(data.memorised),
    )


def render_compare(data: "CompareData") -> str:
    """Several runs side by side as one HTML document."""
    names = [run.name for run in data.runs]
    charts = [comparison_chart(form.name, form.bits, _runs(form, names)) for form in data.formats]
    tables = [classes_section(form, data.runs) for form in data.formats]
    cells = (cell for form in data.formats for row in form.classes for cell in row.cells if cell)
    return filled_page(
        "compare.html.jinja",
        data=data,
        formats=list(zip(data.formats, charts, tables, strict=True)),
        how_to_read=legend(tables, next((percent(cell.level) for cell in cells), "")).notes,
        runs=runs_section(data.runs),
        differences=differences_section(data.differences),
    )


def _runs(form: "ComparedFormat", names: Sequence[str]) -> list[tuple[str, list[ClassRow]]]:
    """Each run's name, and the classes of a format that it has."""
    columns = [(name, [row.cells[n] for row in form.classes]) for n, name in enumerate(names)]
    return [(name, [cell for cell in cells if cell is not None]) for name, cells in columns]


@dataclass(frozen=True, kw_only=True)
class _FormatView:
    """A format with its tables and charts, each where its part of the page wants it."""

    data: FormatData
    classes: Section
    base: Section | None
    guesses: Section | None
    known: Section | None
    exposure: Chart | None
    references: Chart | None
    extraction: Chart | None
    controls: Chart | None
    calibrated: Chart | None


def _view(form: FormatData, charts: Sequence[Chart]) -> _FormatView:
    kinds = ("exposure", "references", "extraction", "controls", "calibrated")
    found = {kind: next(iter(_of(charts, kind, form.name)), None) for kind in kinds}
    return _FormatView(
        data=form,
        classes=exposure_section(form, form.classes),
        base=None if form.base is None else base_section(form, form.base),
        guesses=guesses_section(form.name, form.classes),
        known=known_section(form.name, form.classes),
        **found,
    )


def _shown(formats: Sequence[_FormatView]) -> list[Section]:
    """The tables of exposure on the page."""
    return [table for view in formats for table in (view.classes, view.base) if table]


def _of(charts: Sequence[Chart], kind: str, subject: str = "") -> list[Chart]:
    """Charts of one kind; those of a format by its name."""
    return [chart for chart in charts if chart.kind == kind and chart.subject == subject]


def _canary_rows(formats: Sequence[FormatData]) -> tuple[list[tuple[str, CanaryRow]], int]:
    """All canaries with their formats, the most exposed first, and how many found no room."""
    rows = [(form.name, canary) for form in formats for canary in form.canaries]
    missing = [row for row in rows if row[1].exposure is None]
    known = [(row[1].exposure, row) for row in rows if row[1].exposure is not None]
    shown = [row for _, row in sorted(known, key=lambda pair: -pair[0])]
    kept = shown[: max(0, _MOST_ROWS - len(missing))] + missing
    return kept, len(rows) - len(kept)


def _controls(formats: Sequence[FormatData]) -> Section:
    """The controls of each format, above what is to be expected of them."""
    rows = [(form.name, row) for form in formats for row in form.classes if row.role == "control"]
    return Section(
        title="Exposure of the controls in bits",
        columns=(LABELS["format"], "controls", *class_columns(_OF_CONTROLS)),
        rows=(
            *((name, whole(row.n), *class_cells(row, _OF_CONTROLS)) for name, row in rows),
            ("guessing", "", number(1.0), "", number(1 / math.log(2)), ""),
        ),
    )


def _roc(curves: Sequence[RocData]) -> Section:
    """The curves in numbers, at rates that one of them resolves."""
    rates = [rate for rate in _RATES if any(rate * curve.negatives >= 1 for curve in curves)]
    return Section(
        title="True-positive rate (TPR) of each class at each false-positive rate (FPR)",
        columns=(
            "class",
            LABELS["inserted"],
            "not inserted",
            LABELS["auc"],
            *(f"at {short(rate)}" for rate in rates),
        ),
        rows=tuple(
            (
                curve.name,
                whole(curve.positives),
                whole(curve.negatives),
                number(curve.area, 3),
                *(number(_rate(curve, rate), 3) for rate in rates),
            )
            for curve in curves
        ),
    )


def _rate(curve: RocData, fpr: float) -> float | None:
    """The true-positive rate at a false-positive rate; None where too few texts resolve it."""
    if fpr * curve.negatives < 1:
        return None
    return max(
        (float(t) for f, t in zip(curve.fpr, curve.tpr, strict=True) if f <= fpr), default=0.0
    )


def filled_page(template: str, **values: object) -> str:
    """A template of this room with what every page carries."""
    return filled(_environment(), template, **values)


@cache
def _environment() -> Environment:
    words = {written.__name__: written for written in _SECTIONS}
    return environment([PackageLoader("lmexposure.reporting")], words)
