"""A report beside the base: what was likely anyway, in a table, a chart and the facts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import small_result, small_run
from reporting.charts.made import texts

from lmexposure.reporting import (
    ReportData,
    Section,
    charts_of,
    render_report,
    report_data,
    result_sections,
)
from lmexposure.reporting.charts import calibrated_chart
from lmexposure.reporting.charts.calibrated import _shown
from lmexposure.reporting.data import BaseDot
from lmexposure.reporting.exports import report_json
from lmexposure.reporting.facts import command_of, model_facts
from lmexposure.reporting.markdown import report_markdown
from lmexposure.studies import open_run

LIKELY: dict[str, Any] = {"base": True, "canaries": 5, "controls": 6}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return report_data(open_run(small_run(tmp_path_factory.mktemp("base") / "run", **LIKELY)))


def beside(sections: list[Section]) -> list[Section]:
    return [section for section in sections if section.title.startswith("Calibrated exposure")]


def test_a_table_beside_the_base() -> None:
    (table,) = beside(list(result_sections(small_result(**LIKELY))))
    assert table.columns == (
        *("repetitions", "canaries", "calibrated", "interval", "mean", "p (chance)"),
        *("under the base", "added", "likelier by", "references likelier by"),
    )
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["controls", "1×", "4×", "guessing"]
    assert rows["4×"]["calibrated"].startswith("≥ ")  # memorised: above all references
    assert float(rows["1×"]["calibrated"]) < 3
    assert rows["guessing"]["mean"] == "1.44"
    assert beside(list(result_sections(small_result()))) == []


def test_its_heads_are_explained() -> None:
    legend = next(s for s in result_sections(small_result(**LIKELY)) if "How to" in s.title)
    said = "\n".join(legend.notes)
    for head in ("calibrated: ", "under the base: ", "added: ", "likelier by: "):
        assert head in said


def test_the_chart_tells_what_was_likely_anyway(data: ReportData) -> None:
    (chart,) = (chart for chart in charts_of(data) if chart.kind == "calibrated")
    assert chart.description.startswith(
        "Of 10 canaries, 5 have a calibrated exposure above 4.32 bits, where the middle 90 % of "
        "guessing ends, and 1 lay above that before the training. Medians: controls "
    )
    shown = set(texts(chart))
    assert {"1×", "4×", "controls", "lower bound", "middle 90 % of guessing"} <= shown
    assert "Exposure under the base (bits)" in shown


def test_nothing_is_drawn_without_a_base(tmp_path: Path) -> None:
    plain = report_data(open_run(small_run(tmp_path / "run")))
    assert [form.base for form in plain.formats] == [None]
    assert [calibrated_chart(form) for form in plain.formats] == [None]
    assert "alibrated" not in render_report(plain) + report_markdown(plain)


def test_of_very_many_dots_some_are_drawn() -> None:
    dots = [
        BaseDot(role="canary", repetitions=1, base=1.0, calibrated=float(n), capped=False)
        for n in range(5000)
    ]
    shown = _shown(dots)
    assert len(shown) == 2000
    assert (shown[0], shown[-1]) == (dots[0], dots[-1])


def test_page_and_markdown_and_json_have_it(data: ReportData) -> None:
    page, markdown = render_report(data), report_markdown(data)
    assert "Calibrated exposure beside the base, random_number" in page
    for text in (page, markdown):
        assert "Calibrated exposure in bits" in text
        assert "under the base" in text
    assert '"calibrated_mean"' in report_json(data)


def test_facts_and_command_name_the_base(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "run", whole=False, **LIKELY))
    facts = {fact.name: fact.value for fact in model_facts(run)}
    assert facts["base"] == "before"
    assert facts["weights of the base, SHA-256"] == "3" * 64
    assert " --base before" in command_of(run)
    assert run.result.base is not None
    off = run.result.base.model_copy(update={"switched_off": True})
    switched = replace(run, result=run.result.model_copy(update={"base": off}))
    assert " --base adapter-off" in command_of(switched)
    assert {f.name: f.value for f in model_facts(switched)}["base"].endswith("switched off")
