"""A sweep as a study: what it shows, in every form, opened, and set beside another."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known import known
from made_results import HOSTILE, clean
from made_sweeps import made_sweep, sweep_with, written_sweep

import lmexposure as lx
from lmexposure.core import Answers, Thresholds, as_markdown, write_report
from lmexposure.core.render import as_page
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies import Result, SweepText, WorstText


def page(**parts: Any) -> str:
    return as_page(made_sweep(**parts).told())


def answers(limits: Thresholds | None = None, **parts: Any) -> Answers:
    return known(made_sweep(**parts).told(limits).answers)


def cells(html: str, table: str) -> list[list[str]]:
    """The rows of a table, tags taken out."""
    body = html.split(f'<table id="{table}"')[1].split("</table>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", body.split("<tbody>")[1], re.DOTALL)
    found = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in found]


def test_the_population_is_beside_the_worst_canary() -> None:
    html = page(leaking=1, canaries=64, population=100)
    assert "<title>Sweep: leaks (lmexposure)</title>" in html
    worst, document = cells(html, "worst-table")
    assert worst[0] == "canary pin/x1/0000"
    assert (worst[4], worst[7]) == ("1.000", "yes")
    assert document[0].startswith("document/")
    average = {row[0]: row for row in cells(html, "average-table")}
    assert list(average) == ["all canaries", "ordinary documents"]
    assert float(average["all canaries"][3]) < 0.1
    assert cells(html, "texts-table")[0][:2] == ["pin/x1/0000", "pin/x1"]
    bounds = cells(html, "privacy-table")
    assert bounds[0][0] == "all models together, primary"
    assert "max attainable" in html


def test_the_named_score_decides_and_the_others_are_beside_it() -> None:
    html = page()
    assert "named before anything was trained: tokens of the secret, LiRA" in html
    rows = cells(html, "scores-canaries-table")
    assert [row[0] for row in rows] == ["tokens of the secret, LiRA", "log-perplexity, as it is"]
    assert "largest of these numbers is no result" in html
    kinds = cells(page(formats=("pin", "api_key")), "average-table")
    assert [row[0] for row in kinds[2:]] == ["pin/x1", "api_key/x1"]


@pytest.mark.parametrize(
    "parts",
    [
        {"canaries": 0, "population": 0},
        {"coins": "exactly_half"},
        {"models": 6, "canaries": 3, "population": 0, "failed": 2},
    ],
)
def test_what_is_missing_is_said(parts: dict[str, Any]) -> None:
    told = made_sweep(**parts).told()
    html, text = as_page(told), as_markdown(told)
    if not parts.get("canaries", 1):
        assert "Each canary by itself" not in html
    if parts.get("coins"):
        assert "No bound on epsilon: coins=exactly_half" in html
        assert "No bound on epsilon: coins=exactly" in text.replace("\\", "")
    if parts.get("failed"):
        assert "model 1 failed" in html
        assert "cannot resolve it; it takes 1,000 models" in html


def test_the_answers_are_those_of_the_verdict() -> None:
    leaking = answers(documents_leaking=1)
    assert leaking.asked == "How badly?"
    assert leaking.finding.startswith("Text document/0000 gives itself away")
    assert any("Take the documents that give themselves away" in step for step in leaking.steps)
    undecided = answers(Thresholds(max_epsilon=2), coins="exactly_half")
    assert "each in a model by a coin of its own" in undecided.steps[1]
    assert "the bound on epsilon has its own" in undecided.sure[0]
    clean_ones = answers()
    assert clean_ones.steps[0].startswith("No leak found is no proof")
    assert {line.what: line.aside for line in clean_ones.tested}["worst canary"] == "passed"
    assert {fact.name: fact.value for fact in clean_ones.since}["model"] == "64 models of lstm"


def test_no_name_becomes_markup() -> None:
    result = made_sweep(leaking=1)
    name = HOSTILE + "<script>alert(1)</script>|`*"
    text = SweepText(**{**result.texts[0].model_dump(), "id": name, "kind": name})
    worst = WorstText(**{**known(result.worst).model_dump(), "id": name})
    hostile = sweep_with(result, texts=(text, *result.texts[1:]), worst=worst, warnings=(name,))
    html = as_page(hostile.told())
    assert "<script>alert" not in html
    assert html.count("<script") == 1
    outside = re.sub(r"(`+).*?\1", "", as_markdown(hostile.told()))  # code shows what it holds
    assert not re.search(r"(?<!\\)<script", outside)


def test_a_page_of_many_canaries_says_which_are_left_out() -> None:
    html = page(canaries=1_010, population=0, models=16)
    assert "The 1,000 most leaking of 1,010 canaries in numbers" in html
    assert "the CSV file holds all" in html
    assert len(cells(html, "texts-table")) == 1_000


def test_every_format_is_written_and_read_again(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", leaking=1)
    write_report(lx.open(home), home, formats=("html", "md", "csv", "json"))
    rows = list(csv.DictReader(io.StringIO((home / "report.csv").read_text())))
    assert len(rows) == 32
    assert (rows[0]["id"], rows[0]["tpr"]) == ("pin/x1/0000", "1.0")
    record = json.loads((home / "report.json").read_text())
    assert record["verdict"]["outcome"] == "leak"
    (worst, *_) = record["sections"]["worst"]["rows"]
    assert worst["the worst"] == "canary pin/x1/0000"
    assert (home / "report.md").read_text().startswith("# recipe: leaks\n")


def test_no_form_has_a_chosen_seed(tmp_path: Path) -> None:
    result = made_sweep()
    run = replace(result.settings.run, seed=918_273_645)
    chosen = sweep_with(result, settings=replace(result.settings, run=run))
    chosen.save(tmp_path)
    written = write_report(chosen, tmp_path, formats=("html", "md", "csv", "json"))
    for path in (*written, *lx.compare([chosen, made_sweep(seed=1)], tmp_path / "both")):
        assert "918273645" not in path.read_text()


def test_the_command_makes_such_a_sweep_again(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", models=16, population=0, formats=("pin", "api_key"))
    settings = lx.open(home).document().sections[-1]
    assert settings.code == (
        "lmexposure sweep CORPUS --models 16 --population 0 --format pin --format api_key "
        "--canaries 32 --out recipe-again"
    )
    assert made_sweep().document().sections[-1].code == ""


def test_a_terminal_has_the_worst_the_average_and_the_bounds() -> None:
    result = made_sweep(leaking=1)
    worst, average, bounds = (section.table for section in result.document().on("terminal"))
    assert known(average).cells[0][0] == "all canaries"
    assert known(worst).cells[0][0] == "canary pin/x1/0000"
    bound = known(result.epsilon.primary).bound
    ends = [f"{known(end):.3f}" for end in (bound.value, bound.max_attainable)]
    assert known(bounds).cells[0][4:6] == ends


def test_a_sweep_is_opened_under_any_name_and_runs_are_none(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", leaking=1)
    opened = lx.open(home)
    assert opened == made_sweep(leaking=1)
    assert opened.provenance.line == (
        "lmexposure 0.1.0, measured 2026-11-22T06:30:00Z; 64 models of lstm, scores efefefefefef"
    )
    assert opened.provenance.to_dict()["plan_sha256"] == "ab" * 32
    with pytest.raises(ResultError, match=r"holds no result\.json; it is no run directory"):
        Result.read(home)
    (home / "sweep.json").rename(home / "other.json")
    assert lx.open(home / "other.json") == opened
    (tmp_path / "run").mkdir()
    clean().write(tmp_path / "run" / "result.json")
    (tmp_path / "run" / "plan.json").write_text("{}")  # whoever has both is a run
    assert lx.check(tmp_path / "run").passed


def test_a_sweep_that_is_not_collected_says_how(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    for door in (lx.open, lx.check):
        with pytest.raises(ResultError, match="collect the sweep again"):
            door(tmp_path)


def test_differences_of_rates_have_intervals_with_models_as_units(tmp_path: Path) -> None:
    """Of the same recipe none is certain; of a leaking one that of the canaries' area is."""
    clean_one, again, leaking = made_sweep(), made_sweep(seed=1), made_sweep(seed=2, shift=1.0)
    _, text = lx.compare([clean_one, again, leaking], tmp_path)
    rows = re.findall(
        r"\| `(study \d)` \| `([^`]+)` \| ([-+.\d]+) \| (\S+) \.\. (\S+) \|", text.read_text()
    )
    ends = {(name, rate): (float(low), float(high)) for name, rate, _, low, high in rows}
    low, high = ends["study 2", "AUC, all canaries"]
    assert low < 0 < high
    assert ends["study 3", "AUC, all canaries"][0] > 0.05
    _, text = lx.compare(
        [clean_one, sweep_with(leaking, manifest_sha256="ef" * 32)], tmp_path / "o"
    )
    told = text.read_text()
    assert re.search(r"`AUC, all canaries` \| [-+.\d]+ \| n/a \|", told)
    assert "study 2: other canaries or another corpus than study 1" in told
    assert re.search(r"AUC, all canaries, beside study 1: study 2 [+-][.\d]+ \(no interval\)", told)
    other = made_sweep(seed=3)
    options = replace(other.settings, level=0.9)
    with pytest.raises(SettingsError, match="their intervals are at 90 % and 95 %"):
        lx.compare([clean_one, sweep_with(other, settings=options)], tmp_path)
