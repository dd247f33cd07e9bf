"""The report of a sweep: what it shows, in every form, and that it replaces nothing else."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from made_results import HOSTILE, clean
from made_sweeps import made_sweep, sweep_with, written_sweep

import lmexposure as lx
from lmexposure.core import Thresholds
from lmexposure.errors import FileError, ResultError, SettingsError
from lmexposure.reporting import (
    render_sweep,
    report,
    sweep_report_data,
    sweep_sections,
    write_sweep_report,
)
from lmexposure.reporting.sweep_answers import sweep_answers
from lmexposure.reporting.sweep_markdown import sweep_markdown
from lmexposure.studies import SweepResult, SweepText, WorstText


def page(**parts: Any) -> str:
    return render_sweep(sweep_report_data(made_sweep(**parts)))


def cells(html: str, table: str) -> list[list[str]]:
    """The rows of a table, tags taken out."""
    body = html.split(f'<table id="{table}"')[1].split("</table>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", body.split("<tbody>")[1], re.DOTALL)
    found = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in found]


def test_the_population_is_beside_the_worst_canary() -> None:
    html = page(leaking=1, canaries=64, population=100)
    assert "<title>sweep: leaks (lmexposure)</title>" in html
    worst, document = cells(html, "worst-table")
    assert worst[0] == "canary pin/x1/0000"
    assert (worst[4], worst[7]) == ("1.000", "yes")
    assert document[0].startswith("document/")
    average = {row[0]: row for row in cells(html, "average-table")}
    assert list(average) == ["all canaries", "ordinary documents"]
    assert float(average["all canaries"][3]) < 0.1
    assert cells(html, "texts-table")[0][:2] == ["pin/x1/0000", "pin/x1"]
    bounds = cells(html, "bounds-table")
    assert bounds[0][0] == "all models together, primary"
    assert "max attainable" in html


def test_the_named_score_decides_and_the_others_are_beside_it() -> None:
    html = page()
    assert "named before anything was trained: tokens of the secret, LiRA" in html
    rows = cells(html, "scores-1")
    assert [row[0] for row in rows] == ["tokens of the secret, LiRA", "log-perplexity, as it is"]
    assert "The largest of these numbers is no result" in html


def test_kinds_of_canaries_have_rows_of_their_own() -> None:
    rows = cells(page(formats=("pin", "api_key")), "average-table")
    assert [row[0] for row in rows[2:]] == ["pin/x1", "api_key/x1"]


@pytest.mark.parametrize(
    "parts",
    [
        {"canaries": 0, "population": 0},
        {"coins": "exactly_half"},
        {"models": 6, "canaries": 3, "population": 0, "failed": 2},
    ],
)
def test_what_is_missing_is_said(parts: dict[str, Any]) -> None:
    data = sweep_report_data(made_sweep(**parts))
    html, text = render_sweep(data), sweep_markdown(data)
    if not parts.get("canaries", 1):
        assert "There were no canaries" in html
        assert "There are no scores" in html
    if parts.get("coins"):
        assert "No bound on epsilon: coins=exactly_half" in html
        assert "No bound on epsilon: coins=exactly" in text.replace("\\", "")
    if parts.get("failed"):
        assert "model 1 failed" in html
        assert "cannot resolve it; it takes 1,000 models" in html


def test_the_answers_are_those_of_the_verdict() -> None:
    leaking = sweep_answers(sweep_report_data(made_sweep(documents_leaking=1)))
    assert leaking.asked == "How badly?"
    assert leaking.finding.startswith("Text document/0000 gives itself away")
    assert any("Take the documents that give themselves away" in step for step in leaking.steps)
    undecided = sweep_answers(
        sweep_report_data(made_sweep(coins="exactly_half"), thresholds=Thresholds(max_epsilon=2))
    )
    assert "each in a model by a coin of its own" in undecided.steps[1]
    assert "the bound on epsilon has its own" in undecided.sure[0]
    clean_ones = sweep_answers(sweep_report_data(made_sweep()))
    assert clean_ones.steps[0].startswith("No leak found is no proof")
    assert {line.what: line.word for line in clean_ones.tested}["worst canary"] == "passed"
    assert {fact.name: fact.value for fact in clean_ones.since}["models"] == "64 of lstm"


def test_all_models_failed_is_no_pass() -> None:
    verdict = sweep_report_data(made_sweep(failed=9)).verdict
    assert verdict.exit_code == 2


def test_no_name_becomes_markup() -> None:
    result = made_sweep(leaking=1)
    name = HOSTILE + "<script>alert(1)</script>|`*"
    text = SweepText(**{**result.texts[0].model_dump(), "id": name, "kind": name})
    assert result.worst is not None
    worst = WorstText(**{**result.worst.model_dump(), "id": name})
    hostile = sweep_with(result, texts=(text, *result.texts[1:]), worst=worst, warnings=(name,))
    data = sweep_report_data(hostile)
    html = render_sweep(data)
    assert "<script>alert" not in html
    assert html.count("<script") == 1
    outside = re.sub(r"(`+).*?\1", "", sweep_markdown(data))  # code shows what it holds
    assert not re.search(r"(?<!\\)<script", outside)


def test_a_page_of_many_canaries_says_which_are_left_out() -> None:
    html = page(canaries=1_010, population=0, models=16)
    assert "10 more canaries are not in this table" in html
    assert len(cells(html, "texts-table")) == 1_000


@pytest.mark.slow
def test_every_format_is_written_and_read_again(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", leaking=1)
    every = ("html", "md", "csv", "json")
    written = write_sweep_report(home, formats=every, charts=True)
    assert [path.name for path in written[:4]] == [f"report.{name}" for name in every]
    assert {path.suffix for path in written[4:]} == {".svg", ".png", ".pdf"}
    rows = list(csv.DictReader(io.StringIO((home / "report.csv").read_text())))
    assert len(rows) == 32
    assert (rows[0]["id"], rows[0]["tpr"], rows[0]["models"]) == ("pin/x1/0000", "1.0", "64")
    record = json.loads((home / "report.json").read_text())
    assert record["schema"] == "lmexposure.sweep_report/1"
    assert record["verdict"]["outcome"] == "leak"
    assert record["result"]["worst"]["id"] == "pin/x1/0000"
    assert (home / "report.md").read_text().startswith("# recipe: leaks\n")
    assert write_sweep_report(home, out=home, formats=every) == written[:4]


def test_no_form_has_a_chosen_seed(tmp_path: Path) -> None:
    result = made_sweep()
    run = result.settings.run.model_copy(update={"seed": 918_273_645})
    sweep_with(result, settings=result.settings.model_copy(update={"run": run})).write(
        tmp_path / "sweep.json"
    )
    for path in write_sweep_report(tmp_path, formats=("html", "md", "csv", "json")):
        assert "918273645" not in path.read_text()


def test_the_command_makes_such_a_sweep_again(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", models=16, population=0, formats=("pin", "api_key"))
    command = sweep_report_data(home).command
    assert command == (
        "lmexposure sweep CORPUS --models 16 --population 0 --format pin --format api_key "
        "--canaries 32 --out recipe-again"
    )
    assert sweep_report_data(made_sweep()).command is None


def test_the_front_door_takes_sweeps(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe")
    assert lx.report(home, tmp_path / "new") == tmp_path / "new" / "report.html"
    assert lx.report(made_sweep(), tmp_path / "page.html") == tmp_path / "page.html"
    assert lx.check(home).passed
    with pytest.raises(SettingsError, match=r"must end in \.html, \.md, \.csv, \.json"):
        lx.report(home, tmp_path / "page.pdf")
    with pytest.raises(SettingsError, match="the result of a sweep holds no secrets"):
        report(home, tmp_path / "page.html", show_secrets=True)
    with pytest.raises(SettingsError, match="the result of a sweep holds no secrets"):
        report(home, tmp_path / "page.html", manifest="manifest.json")


def test_nothing_else_is_replaced(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe")
    other = written_sweep(tmp_path / "other", leaking=1)
    with pytest.raises(SettingsError, match="holds the result of another sweep"):
        write_sweep_report(home, out=other)
    with pytest.raises(SettingsError, match="holds the result of another sweep"):
        write_sweep_report(made_sweep(), out=other)
    (tmp_path / "run").mkdir()
    clean().write(tmp_path / "run" / "result.json")
    with pytest.raises(SettingsError, match="holds the result of another measurement"):
        report(home, tmp_path / "run" / "page.html")
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(FileError, match="is there already, and lmexposure did not write it"):
        report(home, tmp_path / "page.html")
    with pytest.raises(SettingsError, match="the result is in memory; say with out"):
        write_sweep_report(made_sweep())
    with pytest.raises(SettingsError, match="no format given"):
        write_sweep_report(home, formats=())
    (home / "report.html").symlink_to(tmp_path / "elsewhere.html")
    with pytest.raises(FileError, match="is a link, which is not followed"):
        write_sweep_report(home)
    with pytest.raises(ResultError, match="collect the sweep first"):
        write_sweep_report(tmp_path / "none")


def test_a_terminal_has_the_average_the_worst_and_the_bounds() -> None:
    average, worst, bounds = sweep_sections(made_sweep(leaking=1))
    assert average.rows[0][0] == "all canaries"
    assert worst.rows[0][0] == "canary pin/x1/0000"
    assert bounds.rows[0][4:6] == tuple(
        f"{end:.3f}" for end in _primary_ends(made_sweep(leaking=1))
    )
    for section in (average, worst, bounds):
        assert all(len(row) == len(section.columns) for row in section.rows)


def _primary_ends(result: SweepResult) -> tuple[float, float]:
    assert result.epsilon.primary is not None
    bound = result.epsilon.primary.bound
    assert bound.max_attainable is not None
    return bound.value, bound.max_attainable
