"""Memorised text: texts only where they are asked for, controls always named, looks in pairs."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known import known
from made_looks import SECRET, document, group, look, texts

import lmexposure as lx
from lmexposure.core import as_csv
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies import VerbatimDocument, VerbatimModel, VerbatimPassages, VerbatimRecord


@pytest.fixture
def home(tmp_path: Path) -> Path:
    texts().write(tmp_path / VerbatimPassages.NAME)
    look().save(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shown", [False, True])
def test_texts_are_shown_only_when_asked_for(home: Path, shown: bool) -> None:
    page = lx.report(home, home, show_secrets=shown).read_text("utf-8")
    assert (SECRET in page) is shown
    assert (f"<mark>{SECRET} </mark>&amp; more" in page) is shown
    assert ("&lt;b&gt;again" in page) is shown
    assert "<b>again" not in page
    assert SECRET not in (home / "report.md").read_text("utf-8")
    for name in ("report.html", "report.md"):
        assert (home / name).stat().st_mode & 0o077 == 0


def test_texts_of_another_look_are_not_shown(home: Path) -> None:
    with pytest.raises(ResultError, match=r"lie in passages.json next to verbatim.json"):
        look().with_secrets()
    texts().model_copy(update={"found": ("of another",)}).write(home / VerbatimPassages.NAME)
    with pytest.raises(ResultError, match=r"passages.json is of another study than verbatim.json"):
        lx.report(home, home)
    (home / VerbatimPassages.NAME).unlink()
    with pytest.raises(ResultError, match=r"cannot read .*passages.json"):
        lx.report(home, home, show_secrets=True)
    assert lx.report(home, home).exists()


def test_the_finding_names_the_worst_and_the_control() -> None:
    said = look().finding
    assert "120 characters of document 4, which the corpus has 3 times" in said
    assert said.endswith("1 memorised")
    alone = look(document(verdict="reproduced"), held_out=None, group=None)
    assert "without a control" in alone.finding
    nothing = look(document(verdict="no"), corpus=group(longest_run=7))
    assert "no passage of 10 documents is reproduced" in nothing.finding


def test_columns_of_controls_are_there_where_these_are() -> None:
    def heads(**changes: object) -> set[str]:
        return set(known(look(**changes).document().on("md")[1].table).heads)

    reference = VerbatimModel(name="base", weights_sha256="aa" * 32, parameters=3)
    assert "false share" in heads()
    assert "reference run" not in heads()
    both = heads(reference=reference, of_reference=group(greedy=0))
    assert {"false share", "not held out", "reference run"} <= both
    assert not {"false share", "not held out"} & heads(held_out=None, runs=None, group=None)


def test_a_shift_is_said_in_place_of_a_p() -> None:
    numbers = {"p": None, "difference": -1.0, "blind_auc": 0.9, "blind_p": 0.005}
    assumes = "without the training the model would find both groups equally surprising"
    shifted = known(look().group).model_copy(update={**numbers, "assumes": assumes})
    notes = " ".join(look(group=shifted, runs=None).document().sections[0].notes)
    assert "difference: -1.000" in notes
    assert "memory only if without the training" in notes
    assert "tells them apart as well (AUC 0.90)" in notes
    assert "by shuffling" not in notes


def test_the_csv_holds_every_document() -> None:
    record = look(
        document(), document(7, "no", run=None, least_tries=None, p=None, false_share=None)
    )
    rows = list(csv.DictReader(io.StringIO(as_csv(record.document()))))
    assert [row["document"] for row in rows] == ["4", "7"]
    assert rows[1]["run_characters"] == ""
    assert rows[0]["run_characters"] == "120"


def sized(parameters: int, *rows: Any, **changes: Any) -> VerbatimRecord:
    model = VerbatimModel(name=f"of-{parameters}", weights_sha256="ab" * 32, parameters=parameters)
    return look(*rows, model=model, **changes)


def with_run(number: int, length: int) -> VerbatimDocument:
    run = known(document().run)
    return document(number, run=run.model_copy(update={"characters": length}))


def test_documents_are_paired_over_models(tmp_path: Path) -> None:
    small = sized(100, with_run(4, 20), with_run(5, 9), with_run(6, 30))
    large = sized(9_000, with_run(4, 25), with_run(5, 200), corpus=group(longest_run=200))
    page, text, *_ = lx.compare([small, large], tmp_path, formats=("html", "md", "csv", "json"))
    told = text.read_text("utf-8")
    rows = [line for line in told.splitlines() if line.startswith(("| `4`", "| `5`", "| `6`"))]
    assert rows == ["| `5` | 9 | 200 |", "| `4` | 20 | 25 |", "| `6` | 30 | n/a |"]
    assert "longest run, characters | 120 | 200 | +80" in told.replace("`", "")
    assert "Larger models memorise more" in page.read_text("utf-8")
    assert "1 document missing from a look" in told
    assert re.search(r"p against held-out documents.*\| n/a \|", told)


def test_a_document_that_one_look_left_out_is_not_last(tmp_path: Path) -> None:
    """It came out no longer there than the shortest that is listed, as far as the look tells."""
    alike = range(1, 61)
    before = sized(100, *(with_run(number, 60) for number in alike))
    after = sized(100, *(with_run(n, 61) for n in alike), *(with_run(n, 5_000) for n in (90, 91)))
    _, text, *_ = lx.compare([before, after], tmp_path, formats=("html", "md"))
    rows = [line for line in text.read_text("utf-8").splitlines() if "| 5,000 |" in line]
    assert rows == ["| `90` | n/a | 5,000 |", "| `91` | n/a | 5,000 |"]


def test_where_no_window_was_looked_at_nothing_passes() -> None:
    nothing = look(corpus=group(windows=0))
    verdict = lx.check(nothing, lx.Thresholds(max_verbatim_run=500))
    assert verdict.outcome == "inconclusive"
    assert "none of them was asked for" in verdict.sentence


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    other_rule = replace(look().settings, tries=5)
    for other, problem in (
        (sized(2, corpus_sha256="00" * 32), "study 2 is of other documents .000000000000. than st"),
        (sized(2, settings=other_rule), "study 2 asked for passages in another way than study 1"),
    ):
        with pytest.raises(SettingsError, match=problem):
            lx.compare([look(), other], tmp_path)
