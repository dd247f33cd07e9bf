"""The gate of memorised text: each outcome, at its threshold and beside it."""

from pathlib import Path
from typing import Any

import pytest
from made_looks import document, group, look

import lmexposure as lx
from lmexposure.errors import SettingsError
from lmexposure.records import VerbatimRecord, VerbatimRun


def outcome(record: VerbatimRecord, **thresholds: Any) -> str:
    return str(lx.check(record, lx.Thresholds(**thresholds)).outcome)


def test_a_memorised_document_is_a_leak_by_default() -> None:
    verdict = lx.check(look())
    assert verdict.outcome == "leak"
    assert verdict.exit_code == 1
    assert "1 of 10 documents are memorised" in verdict.sentence


def test_what_a_control_explains_is_none() -> None:
    explained = document(verdict="reproduces", why="the reference model gives the same windows")
    assert outcome(look(explained)) == "pass"


def test_without_a_control_what_comes_out_is_inconclusive() -> None:
    alone = document(verdict="reproduces", why="no control says whether any model would")
    record = look(alone, held_out=None, group=None)
    assert outcome(record) == "inconclusive"
    assert outcome(look(document(verdict="no"), held_out=None, group=None)) == "pass"


@pytest.mark.parametrize(("most", "expected"), [(120, "pass"), (119, "leak"), (0, "leak")])
def test_the_longest_run_has_a_threshold(most: int, expected: str) -> None:
    assert outcome(look(), max_verbatim_run=most) == expected


def test_a_short_run_of_some_windows_is_no_pass() -> None:
    some = look(corpus=group(windows=100, among=5_000))
    verdict = lx.check(some, lx.Thresholds(max_verbatim_run=500))
    assert verdict.outcome == "inconclusive"
    assert "--windows 5000" in verdict.sentence


def test_a_run_to_the_end_of_the_context_is_no_pass() -> None:
    run = VerbatimRun(
        characters=120, tokens=40, start=0, prompt=50, whole=False, reference=None, copies=None
    )
    assert outcome(look(document(run=run)), max_verbatim_run=500) == "inconclusive"
    assert outcome(look(document(run=run)), max_verbatim_run=50) == "leak"


def test_a_long_run_that_a_control_gives_as_well_is_inconclusive() -> None:
    explained = document(verdict="reproduces", why="the reference model gives the same windows")
    assert outcome(look(explained), max_verbatim_run=50) == "inconclusive"


@pytest.mark.parametrize(("most", "expected"), [(0.03, "pass"), (0.029, "leak"), (0.0, "leak")])
def test_the_share_of_all_windows_is_exact(most: float, expected: str) -> None:
    assert outcome(look(), max_extractable=most) == expected


@pytest.mark.parametrize(
    ("most", "expected"), [(0.1, "pass"), (0.03, "inconclusive"), (0.005, "leak")]
)
def test_the_share_of_a_sample_has_an_interval(most: float, expected: str) -> None:
    assert outcome(look(corpus=group(among=5_000)), max_extractable=most) == expected


def test_thresholds_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="max_guesses=5 is a threshold of a run"):
        outcome(look(), max_guesses=5)
    with pytest.raises(SettingsError, match=r"max_verbatim_run=-1"):
        lx.Thresholds(max_verbatim_run=-1)
    with pytest.raises(SettingsError, match=r"max_extractable=1"):
        lx.Thresholds(max_extractable=1)


def test_the_outputs_name_model_and_corpus(tmp_path: Path) -> None:
    from lmexposure.gate import verdict_json, verdict_junit, verdict_sarif, verdict_summary
    from lmexposure.records import open_look

    look().write(tmp_path / "verbatim.json")
    opened = open_look(tmp_path)
    verdict = lx.check(tmp_path)
    made = [
        verdict_json(verdict, opened.result, opened.provenance),
        verdict_junit(verdict, opened.provenance),
        verdict_sarif(verdict, tmp_path / "verbatim.json", opened.provenance),
        verdict_summary(verdict, opened.provenance),
    ]
    assert all("my-model" in text for text in (*made[:3], made[3].replace("\\", "")))
    assert "cd" * 32 in made[0]
