"""report.md: what a reviewer must see is there, and nothing in it is markup of somebody else."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import HOSTILE, hostile_run, secret_texts, small_run

from lmexposure.records import open_run
from lmexposure.reporting import (
    ReportData,
    report_data,
)
from lmexposure.reporting.markdown import report_markdown


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return report_data(open_run(small_run(tmp_path_factory.mktemp("runs") / "mine")))


def test_one_screen_says_it_all(data: ReportData) -> None:
    text = report_markdown(data)
    assert text.startswith("# mine: leaks\n\n**Leaks: a secret inserted 4 times is found at ")
    assert "\n\nFalse alarms: at most 1 % of models that memorised nothing are called" in text
    assert "What now:\n\n1. Do not release this model: whoever can query it can guess" in text
    assert "Tested:\n\n- leaks: secrets found by guessing: 1 of 2 classes leaks\n- " in text
    assert "Not tested:\n\n- " in text
    assert "| `random_number` | controls | 16 | 0.95 | 0.53 .. 2.24 | 0.4180 | 0/16 | n/a |" in text
    assert "| `random_number` | 4× | 10 | 20.82 |" in text
    assert "29.9 bits are the whole secret" in text
    assert "**epsilon ≥ 0.860 nats at delta 0, a lower bound" in text
    assert "\n- assumes: " in text
    assert text.rstrip().endswith("--settings mine-again.toml\n```")
    assert len(text.splitlines()) < 60


def test_no_secret_is_in_it_unless_asked_for(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    assert run.manifest is not None
    hidden = report_markdown(report_data(run))
    assert [one for one in secret_texts(run.manifest) if one in hidden] == []
    shown = report_markdown(report_data(run, show_secrets=True))
    assert "**This report holds secrets" in shown
    first = run.manifest.entries[0]
    assert f"| `{first.id}` | `{first.text.split()[-1]}` |" in shown


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    text = report_markdown(report_data(open_run(hostile_run(tmp_path / HOSTILE.replace("/", "")))))
    html = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)
    assert "<script" not in html
    assert "<a " not in html
    assert html.count("<h1>") == 1
    assert html.count("&lt;script&gt;") > 5
    cells = [row.count("<td") for row in html.split("<tr>")[2:]]
    assert cells == [8, 8, 8]


def test_many_classes_fold(data: ReportData) -> None:
    form = data.formats[0]
    many = [replace(form, name=f"format_{i}") for i in range(5)]
    text = report_markdown(replace(data, formats=tuple(many)))
    assert "<details><summary>All 15 classes</summary>" in text
    above = text.split("<details>")[0]
    assert above.count("| `format_") == 5
    assert above.count(" | 4× | 10 | 20.82 |") == 5


def test_without_canaries_it_says_so(data: ReportData) -> None:
    empty = replace(data, formats=(), command=None, privacy=None)
    text = report_markdown(empty)
    assert "No canaries were measured." in text
    assert "No bound on epsilon: the result holds none." in text
    assert "Reproduce" not in text


def test_what_the_command_leaves_out_is_said(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "run", seed=918_273_645))
    data = report_data(run)
    assert (data.command is not None, "--seed SEED" in (data.command or "")) == (True, True)
    assert "Words in capitals, if there are any, are for you to fill in" in report_markdown(data)
    assert "SEED is plan.seed in manifest.json" in report_markdown(data)
    written = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    assert written["plan"]["seed"] == "918273645"


def test_a_bound_that_is_not_there(data: ReportData) -> None:
    assert data.privacy is not None
    none = data.privacy.model_copy(update={"primary": None})
    text = report_markdown(replace(data, privacy=none))
    assert "**No bound on epsilon: no class has canaries on both sides.**" in text


def test_a_claim_is_told_its_verdict(tmp_path: Path) -> None:
    made_of: dict[str, Any] = {"claimed_epsilon": 0.1}
    from lmexposure.audit import MeasureSettings

    made_of["measure"] = MeasureSettings(bootstraps=39, permutations=999, revealed=2, delta=0.0)
    run = open_run(small_run(tmp_path, **made_of))
    text = report_markdown(report_data(run))
    assert "- claim of epsilon 0.1 at delta 0: contradicted: " in text
