"""A report beside the base: what was likely anyway, in a table, a chart and the facts."""

from pathlib import Path
from typing import Any

from exposure.charts.made import canary, texts
from exposure.charts.made import format_data as format_data_of
from exposure.test_tables import sections
from known import known
from made_results import small_result, small_run, with_result

from lmexposure.core.render import as_json, as_markdown, as_page
from lmexposure.studies import Result
from lmexposure.studies.exposure.charts_exposure import _evenly, calibrated_chart
from lmexposure.studies.exposure.facts import command_of, model_facts
from lmexposure.studies.exposure.rows import format_data

LIKELY: dict[str, Any] = {"base": True, "canaries": 5, "controls": 6}


def test_a_table_beside_the_base() -> None:
    table = known(sections(small_result(**LIKELY))["Calibrated exposure in bits"].table)
    assert table.heads == [
        *("repetitions", "canaries", "calibrated", "interval", "mean", "p (chance)"),
        *("under the base", "added", "likelier by", "references likelier by"),
    ]
    rows = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.cells}
    assert list(rows) == ["controls", "1×", "4×", "guessing"]
    assert rows["4×"]["calibrated"].startswith("≥ ")  # memorised: above all references
    assert float(rows["1×"]["calibrated"]) < 3
    assert rows["guessing"]["mean"] == "1.44"
    assert "Calibrated exposure in bits" not in sections(small_result())


def test_its_heads_are_explained() -> None:
    said = "\n".join(sections(small_result(**LIKELY))["How to read these tables"].notes)
    for head in ("calibrated: ", "under the base: ", "added: ", "likelier by: "):
        assert head in said


def test_the_chart_tells_what_was_likely_anyway() -> None:
    charts = small_result(**LIKELY).document().drawings()
    (chart,) = (chart for chart in charts if chart.kind == "calibrated")
    assert chart.description.startswith(
        "Of 10 canaries, 5 have a calibrated exposure above 4.32 bits, where the middle 90 % of "
        "guessing ends, and 1 lay above that before the training. Medians: controls "
    )
    shown = set(texts(chart))
    assert {"1×", "4×", "controls", "lower bound", "middle 90 % of guessing"} <= shown
    assert "Exposure under the base (bits)" in shown


def test_nothing_is_drawn_without_a_base() -> None:
    plain = small_result()
    forms = [format_data(plain, form, None) for form in plain.formats]
    assert [form.beside_base for form in forms] == [()]
    assert [calibrated_chart(form) for form in forms] == [None]
    assert "alibrated" not in as_page(plain.told()) + as_markdown(plain.told())


def test_of_very_many_dots_some_are_drawn() -> None:
    shown = _evenly(range(5000), 2000)
    assert len(shown) == 2000
    assert (shown[0], shown[-1]) == (0, 4999)
    dots = [canary(1.0, base_exposure=1.0, calibrated_exposure=n / 1000) for n in range(5000)]
    chart = known(calibrated_chart(format_data_of(canaries=tuple(dots))))
    assert 1990 < chart.svg().count("<use ") < 2030


def test_page_and_markdown_and_json_have_it() -> None:
    told = small_result(**LIKELY).told()
    page, markdown = as_page(told), as_markdown(told)
    assert "Calibrated exposure beside the base, random_number" in page
    for text in (page, markdown):
        assert "Calibrated exposure in bits" in text
        assert "under the base" in text
    assert '"calibrated_exposure"' in as_json(told)


def test_facts_and_command_name_the_base(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "run", whole=False, **LIKELY))
    facts = {fact.name: fact.value for fact in model_facts(run.files)}
    assert facts["base"] == "before"
    assert facts["weights of the base, SHA-256"] == "3" * 64
    assert " --base before" in command_of(run.files)
    off = known(run.base).model_copy(update={"switched_off": True})
    switched = with_result(run, base=off)
    assert " --base adapter-off" in command_of(switched.files)
    assert {f.name: f.value for f in model_facts(switched.files)}["base"].endswith("switched off")
