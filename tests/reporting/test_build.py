"""The data step: what a report shows is what the result says, and secrets only where asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import hostile_run, secret_texts, small_manifest, small_run

from lmexposure import gate
from lmexposure.canaries import (
    Manifest,
)
from lmexposure.errors import ManifestError, ResultError, SettingsError
from lmexposure.gate import Outcome, Thresholds
from lmexposure.records import Result, RunFiles, open_run
from lmexposure.reporting import (
    ReportData,
    report_data,
)


def shown(path: Path, **made_of: Any) -> ReportData:
    return report_data(open_run(small_run(path, **made_of)))


def with_result(run: RunFiles, **parts: Any) -> RunFiles:
    return replace(run, result=run.result.model_copy(update=parts))


def test_a_report_has_what_the_result_says(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "mine"))
    data = report_data(run)
    assert data.title == "mine"
    assert data.verdict.outcome is Outcome.LEAK
    assert data.privacy == run.result.privacy
    assert data.warnings == run.result.warnings
    assert data.training == run.curve
    (form,) = data.formats
    assert form.pattern == "The random number is {digits:9}"
    assert form.space_size == "1000000000"
    assert (form.references, form.exhaustive) == (400, False)
    assert form.reference_bits.shape == (400,)
    assert form.fit == run.result.formats[0].skew_normal is not None
    assert len(form.quantiles) == 9
    assert [(row.role, row.repetitions, row.n) for row in form.classes] == [
        ("control", 0, 16),
        ("canary", 1, 10),
        ("canary", 4, 10),
    ]
    assert len(form.canaries) == 36


def test_thresholds_are_the_verdicts(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    lenient = Thresholds(repetitions=1)
    data = report_data(run, thresholds=lenient)
    assert data.verdict == gate.check(run.result, lenient)
    assert data.verdict != report_data(run).verdict == gate.check(run.result)


def test_no_secret_is_shown_unasked(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    assert run.manifest is not None
    data = report_data(run)
    assert data.redacted
    assert {one.secret for form in data.formats for one in form.canaries} == {None}
    text = repr(data)
    assert [one for one in secret_texts(run.manifest) if one in text] == []


def test_secrets_are_shown_where_asked_for(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    data = report_data(run, show_secrets=True)
    assert not data.redacted
    first = data.formats[0].canaries[0]
    assert first.secret is not None
    assert f"The random number is {first.secret}" == next(
        one.text for one in small_manifest().entries if one.id == first.id
    )


def test_secrets_need_a_manifest(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, whole=False))
    with pytest.raises(SettingsError, match="give the manifest too, or leave the secrets out"):
        report_data(run, show_secrets=True)
    assert report_data(run).formats[0].pattern is None
    data = report_data(run, show_secrets=True, manifest=small_manifest())
    assert data.formats[0].canaries[0].secret is not None
    assert data.formats[0].pattern is not None


def test_the_manifest_of_another_measurement(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, whole=False))
    with pytest.raises(ManifestError, match="give the manifest that was measured"):
        report_data(run, manifest=small_manifest(seed=5))


def test_without_scores_there_is_no_roc_and_no_histogram(tmp_path: Path) -> None:
    small_run(tmp_path)
    (tmp_path / "scores.parquet").unlink()
    data = report_data(open_run(tmp_path))
    assert data.roc == ()
    assert data.formats[0].reference_bits.size == 0
    assert data.formats[0].classes


def test_candidates_left_out_count_as_references(tmp_path: Path) -> None:
    data = shown(
        tmp_path, inclusion_probability=0.5, canaries=30, repetitions=(1,), formats=("pin", "tiny")
    )
    assert [form.reference_bits.size for form in data.formats] == [
        form.references for form in data.formats
    ]
    assert [one.name for one in data.roc] == ["pin, tiny, repetitions 1"]


def test_what_a_result_lacks_is_not_there(tmp_path: Path) -> None:
    """As where nothing was searched, bounded or fitted."""
    run = open_run(small_run(tmp_path, privacy=False, extraction=False, whole=False))
    bare = run.result.formats[0].model_copy(update={"skew_normal": None})
    data = report_data(with_result(run, formats=(bare,)))
    assert data.privacy is None
    assert data.formats[0].fit is None
    assert data.formats[0].classes[0].guesses == ()
    assert data.formats[0].canaries[0].guesses_tried is None
    assert data.roc


def test_no_canaries_at_all(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, whole=False))
    (tmp_path / "scores.parquet").unlink()
    data = report_data(with_result(run, canaries=(), summary=()))
    assert data.verdict.outcome is Outcome.INCONCLUSIVE
    assert data.formats[0].classes == ()


def test_scores_of_another_result_are_refused(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    other = tuple(form.model_copy(update={"references": 401}) for form in run.result.formats)
    with pytest.raises(ResultError, match="does not agree with its result"):
        report_data(with_result(run, formats=other))


def test_a_hostile_name_is_carried_as_it_is(tmp_path: Path) -> None:
    run = open_run(hostile_run(tmp_path))
    data = report_data(run)
    assert data.formats[0].name == run.result.formats[0].name
    assert data.formats[0].reference_bits.size == 400


def test_the_manifest_given_is_read_from_any_place(tmp_path: Path) -> None:
    small_manifest().write(tmp_path / "kept.json")
    run = open_run(small_run(tmp_path / "m", whole=False))
    data = report_data(run, manifest=Manifest.read(tmp_path / "kept.json"))
    assert data.command is not None
    assert isinstance(run.result, Result)
    assert np.isfinite(data.formats[0].reference_bits).all()
