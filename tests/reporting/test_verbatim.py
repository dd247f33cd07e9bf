"""The report of memorised text: texts only where they are asked for, controls always named."""

import csv
import io
from pathlib import Path

import pytest
from made_looks import SECRET, document, group, look, texts

from lmexposure.errors import FileError, ResultError, SettingsError
from lmexposure.reporting import verbatim_finding, verbatim_sections, write_verbatim
from lmexposure.studies import GroupTest, VerbatimModel, VerbatimRecord


@pytest.mark.parametrize("shown", [False, True])
def test_texts_are_shown_only_when_asked_for(tmp_path: Path, shown: bool) -> None:
    written = write_verbatim(look(), tmp_path, texts=texts(), show_text=shown)
    assert {path.name for path in written} == {"report.html", "report.md", "report.csv"}
    page = (tmp_path / "report.html").read_text("utf-8")
    assert (SECRET in page) is shown
    assert ("&lt;b&gt;again" in page) is shown
    assert "<b>again" not in page
    assert ("▒▒▒ ▒▒▒▒▒▒▒▒▒▒" in page) is not shown
    for name in ("report.md", "report.csv"):
        assert SECRET not in (tmp_path / name).read_text("utf-8")


def test_the_report_of_another_study_is_kept(tmp_path: Path) -> None:
    one, other = (tmp_path / name / VerbatimRecord.NAME for name in ("one", "other"))
    look().write(one)
    changed = look(inputs_sha256="01" * 32)
    changed.write(other)
    write_verbatim(look(), one.parent)
    before = [path.read_bytes() for path in sorted(one.parent.glob("report.*"))]
    with pytest.raises(SettingsError, match=r"holds another study \(verbatim.json\), and its rep"):
        write_verbatim(changed, one.parent, source=other)
    one.unlink()  # the report alone
    with pytest.raises(FileError, match=r"report.html is of another study, and would be replaced"):
        write_verbatim(changed, one.parent, source=other)
    assert before == [path.read_bytes() for path in sorted(one.parent.glob("report.*"))]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").touch()
    with pytest.raises(ResultError, match=r"holds a measurement \(result.json\), whose files this"):
        write_verbatim(look(), tmp_path / "run")


def test_the_finding_names_the_worst_and_the_control() -> None:
    said = verbatim_finding(look())
    assert "120 characters of document 4, which the corpus has 3 times" in said
    assert said.endswith("1 memorised")
    alone = look(document(verdict="reproduced"), held_out=None, group=None)
    assert "without a control" in verbatim_finding(alone)
    nothing = look(document(verdict="no"), corpus=group(longest_run=7))
    assert "no window of 10 documents comes out" in verbatim_finding(nothing)


def test_columns_of_controls_are_there_where_these_are() -> None:
    def heads(**changes: object) -> set[str]:
        return set(verbatim_sections(look(**changes))[1].columns)

    reference = VerbatimModel(name="base", weights_sha256="aa" * 32, parameters=3)
    assert "false share" in heads()
    assert "reference run" not in heads()
    both = heads(reference=reference, of_reference=group(greedy=0))
    assert {"false share", "not held out", "reference run"} <= both
    assert not {"false share", "not held out"} & heads(held_out=None, runs=None, group=None)


def test_a_shift_is_said_in_place_of_a_p() -> None:
    shifted = GroupTest(
        p=None,
        members=40,
        held_out=40,
        bits_members=1.0,
        bits_held_out=2.0,
        difference=-1.0,
        low=-1.2,
        high=-0.8,
        beside_reference=False,
        assumes="without the training the model would find both groups equally surprising",
        blind_auc=0.9,
        blind_p=0.005,
    )
    notes = " ".join(verbatim_sections(look(group=shifted, runs=None))[0].notes)
    assert "difference: -1.000" in notes
    assert "memory only if without the training" in notes
    assert "tells them apart as well (AUC 0.90)" in notes
    assert "by shuffling" not in notes


def test_the_csv_holds_every_document() -> None:
    from lmexposure.reporting.verbatim import verbatim_csv

    record = look(
        document(), document(7, "no", run=None, least_tries=None, p=None, false_share=None)
    )
    rows = list(csv.DictReader(io.StringIO(verbatim_csv(record))))
    assert [row["document"] for row in rows] == ["4", "7"]
    assert rows[1]["run_characters"] == ""
    assert rows[0]["run_characters"] == "120"
