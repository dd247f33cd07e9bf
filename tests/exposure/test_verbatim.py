"""The gate of memorised text: each outcome, at its threshold and beside it."""

from pathlib import Path
from typing import Any

import pytest
from known import known
from made_looks import SECRET, document, group, look, runs
from made_results import clean, small_result, small_run, with_files

import lmexposure as lx
from lmexposure.core import write_report
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies import SeenFrom, VerbatimRecord


def test_a_corpus_that_comes_out_longer_is_a_leak_by_default() -> None:
    verdict = lx.check(look())
    assert verdict.outcome == "leak"
    assert verdict.exit_code == 1
    assert "longer runs of the corpus than of held-out documents" in verdict.sentence


@pytest.mark.parametrize(
    ("p", "level", "expected"), [(0.01, 0.01, "leak"), (0.011, 0.01, "pass"), (0.011, 0.05, "leak")]
)
def test_the_test_has_the_level_that_is_asked_for(p: float, level: float, expected: str) -> None:
    record = look(document(verdict="no"), runs=runs(p))
    assert lx.check(record, lx.Thresholds(significance=level)).outcome == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"held_out": None, "runs": None, "group": None}, "no control"),
        ({"runs": None}, "without a random split"),
        ({"runs": runs(None, seen=())}, "comparable in length"),
        ({"runs": runs(0.3, seen=(SeenFrom(documents=5, p=0.02),))}, "not even a corpus"),
        ({"runs": runs(0.3, units=21)}, "only 10 of 21 documents"),
        ({"runs": runs(0.3), "distinct": 100, "too_short": 51}, "51 are too short"),
        ({"runs": runs(0.3), "worse_than_guessing": True}, "more surprising than random tokens"),
    ],
)
def test_nothing_passes_that_was_not_looked_at(changes: dict[str, Any], words: str) -> None:
    verdict = lx.check(look(document(verdict="no"), **changes))
    assert verdict.exit_code == 2
    assert words in " ".join(check.reason for check in verdict.findings).lower()


def test_a_pass_says_what_would_have_been_seen() -> None:
    verdict = lx.check(look(document(verdict="explained"), runs=runs(0.3)))
    assert verdict.exit_code == 0
    assert "about 6 documents with longer runs than all of these would have" in verdict.sentence


def test_text_that_no_control_explains_is_no_pass() -> None:
    verdict = lx.check(look(document(verdict="reproduced"), runs=runs(0.3)))
    assert verdict.exit_code == 2
    assert "that no held-out document explains" in verdict.sentence


WHOLE = known(document().run)
CUT = document(run=WHOLE.model_copy(update={"whole": False, "copies": None}))
EXPLAINED = document(verdict="explained", why="the reference model gives the same windows")


@pytest.mark.parametrize(
    ("record", "thresholds", "expected"),
    [
        (look(), {"max_verbatim_run": 120}, "pass"),
        (look(), {"max_verbatim_run": 119}, "leak"),
        (look(), {"max_verbatim_run": 0}, "leak"),
        # Of some windows, to the end of the context, and what a control gives as well.
        (look(corpus=group(among=5_000)), {"max_verbatim_run": 500}, "inconclusive"),
        (look(CUT), {"max_verbatim_run": 500}, "inconclusive"),
        (look(CUT), {"max_verbatim_run": 50}, "leak"),
        (look(EXPLAINED), {"max_verbatim_run": 50}, "inconclusive"),
        # The share of all windows is exact, that of a sample has an interval.
        (look(), {"max_extractable": 0.03}, "pass"),
        (look(), {"max_extractable": 0.029}, "leak"),
        (look(), {"max_extractable": 0.0}, "leak"),
        (look(corpus=group(among=5_000)), {"max_extractable": 0.1}, "pass"),
        (look(corpus=group(among=5_000)), {"max_extractable": 0.03}, "inconclusive"),
        (look(corpus=group(among=5_000)), {"max_extractable": 0.005}, "leak"),
    ],
)
def test_a_threshold_that_was_asked_for(
    record: VerbatimRecord, thresholds: dict[str, Any], expected: str
) -> None:
    verdict = lx.check(record, lx.Thresholds(**thresholds))
    assert verdict.outcome == expected
    if record.corpus.among == 5_000 and "max_verbatim_run" in thresholds:
        assert "--windows 5000" in verdict.sentence


def test_the_outputs_name_model_and_corpus(tmp_path: Path) -> None:
    from lmexposure.core import verdict_json, verdict_junit, verdict_sarif, verdict_summary

    look().save(tmp_path)
    opened = lx.open(tmp_path)
    verdict = lx.check(tmp_path)
    made = [
        verdict_json(verdict, opened.hashes, opened.provenance),
        verdict_junit(verdict, opened.provenance),
        verdict_sarif(verdict, tmp_path / "verbatim.json", opened.provenance),
        verdict_summary(verdict, opened.provenance),
    ]
    assert all("my-model" in text for text in (*made[:3], made[3].replace("\\", "")))
    assert "cd" * 32 in made[0]


def with_look(path: Path, record: VerbatimRecord, **weights: str) -> Path:
    """A run with a look at its model beside it."""
    run = small_run(path)
    weights = {"weights_sha256": small_result().model.weights_sha256, **weights}
    model = record.model.model_copy(update=weights)
    (run / "verbatim").mkdir()
    record.model_copy(update={"model": model}).write(run / "verbatim" / VerbatimRecord.NAME)
    return run


def test_a_run_is_judged_with_the_look_beside_it(tmp_path: Path) -> None:
    run = with_look(tmp_path / "run", look())
    alone = {check.key for check in lx.check(small_result()).checks}
    verdict = lx.check(run)
    assert {check.key for check in verdict.checks} == {*alone, "memorised", "covered"}
    held_against = lx.check(run, lx.Thresholds(max_verbatim_run=50, max_exposure=20.0))
    assert {"max_verbatim_run", "max_exposure"} <= {check.key for check in held_against.checks}
    assert "memorised" not in {check.key for check in held_against.checks}


@pytest.mark.parametrize(("p", "expected"), [(0.001, "leak"), (0.3, "pass")])
def test_a_clean_run_that_gives_its_documents_back_leaks(p: float, expected: str) -> None:
    run = with_files(clean(), look=look(document(verdict="no"), runs=runs(p)))
    assert lx.check(clean()).outcome == "pass"
    found = lx.check(run)
    assert found.outcome == expected
    assert (known(found.deciding).key == "memorised") == (expected == "leak")


def test_a_look_at_other_weights_is_left_out_and_said(tmp_path: Path) -> None:
    run = with_look(tmp_path / "run", look(), weights_sha256="12" * 32)
    assert "memorised" not in {check.key for check in lx.check(run).checks}
    (note,) = lx.Result.read(run).files.notes
    assert "121212121212" in note
    assert f"memorised text: {note}" in lx.check(run).untested
    with pytest.raises(SettingsError, match=r"max_verbatim_run=50 cannot be tested: .* look again"):
        lx.check(run, lx.Thresholds(max_verbatim_run=50))


def test_a_torn_look_is_no_silence(tmp_path: Path) -> None:
    run = with_look(tmp_path / "run", look())
    (run / "verbatim" / "verbatim.json").write_text("{")
    with pytest.raises(ResultError, match=r"verbatim\.json"):
        lx.Result.read(run)


def test_the_report_of_a_run_shows_both(tmp_path: Path) -> None:
    run = with_look(tmp_path / "run", look(warnings=("only some windows",)))
    written = write_report(lx.Result.read(run), run, formats=("html", "md", "json"))
    page, markdown, values = (path.read_text() for path in written)
    for text in (page, markdown):
        assert "Memorised text" in text
        assert "memorised text: only some windows" in text
        assert "it gives back documents of its training text" in text
        assert SECRET not in text
    assert '"memorised": {' in values
