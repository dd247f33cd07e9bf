"""A run on the disk: read as it is, and refused where it is torn, edited or of other parts."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_results import small_result, small_run, with_scores_of

from lmexposure._files import LOCK, only_writer, sha256_file
from lmexposure._integrity import file_hashes, write_hashed
from lmexposure.errors import ManifestError, ResultError
from lmexposure.records import Result, RunRecord, open_run
from lmexposure.records.scores import read_scores
from lmexposure.reporting import write_compare, write_report


def edited(path: Path, change: Callable[[Any], object]) -> Path:
    """A record with something else in it, and the hash that goes with that."""
    values = json.loads(path.read_text())
    change(values)
    values.pop("content_sha256", None)
    write_hashed(path, values)
    return path


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A Parquet file with something else in it."""
    import pyarrow as pa

    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path)


def test_a_whole_run_is_all_of_its_files(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "mine"))
    assert run.name == "mine"
    scores_sha256 = sha256_file(tmp_path / "mine" / "scores.parquet")
    assert run.result == small_result().model_copy(update={"scores_sha256": scores_sha256})
    assert run.manifest is not None
    assert run.manifest.sha256 == run.result.manifest_sha256
    assert run.record is not None
    assert run.record.settings is not None
    assert run.record.settings.controls == 16
    assert [point.step for point in run.curve] == [0, 10, 20, 30]
    assert run.result_path == tmp_path / "mine" / "result.json"


def test_its_scores_are_columns(tmp_path: Path) -> None:
    scores = open_run(small_run(tmp_path)).scores()
    assert scores is not None
    assert scores.ids.shape == scores.formats.shape == (436,)
    assert dict(zip(*np.unique(scores.roles, return_counts=True), strict=True)) == {
        "canary": 20,
        "control": 16,
        "reference": 400,
    }
    assert scores.repetitions.max() == 4
    assert np.isfinite(scores.log_perplexity_bits).all()


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    opened = open_run(str(run))
    assert RunRecord.read(f"{run}/run.json") == opened.record
    scores = read_scores(f"{run}/scores.parquet", opened.result)
    assert scores.ids.size > len(opened.result.canaries)
    with pytest.raises(ResultError, match="is not readable"):
        RunRecord.read(f"{run}/none.json")


def test_candidates_left_out_are_among_the_references(tmp_path: Path) -> None:
    made_of: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 30, "repetitions": (1,)}
    run = open_run(small_run(tmp_path, **made_of))
    scores = run.scores()
    assert scores is not None
    never = np.isin(scores.roles, ("reference", "held_out")).sum()
    assert (scores.roles == "held_out").any()
    assert never == run.result.formats[0].references


def test_a_measurement_has_neither_manifest_nor_record(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, whole=False))
    assert (run.manifest, run.record, run.curve) == (None, None, ())
    assert run.scores() is not None


def test_a_result_json_stands_for_its_directory_and_any_other_name_for_itself(
    tmp_path: Path,
) -> None:
    path = small_run(tmp_path / "r") / "result.json"
    assert open_run(path).manifest is not None
    alone = path.rename(path.with_name("other.json"))
    run = open_run(alone)
    assert (run.name, run.manifest, run.record, run.scores()) == ("other", None, None, None)


def test_the_current_directory_has_a_name(tmp_path: Path, monkeypatch: Any) -> None:
    small_run(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert open_run(".").name == "here"


def test_without_scores_there_are_none(tmp_path: Path) -> None:
    small_run(tmp_path)
    (tmp_path / "scores.parquet").unlink()
    assert open_run(tmp_path).scores() is None


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"no run or result at .*none; make one: lmexposure run"):
        open_run(tmp_path / "none")
    with pytest.raises(ResultError, match=r"holds no result.json; it is no run directory"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ResultError, match="the run did not finish: give its command again"):
        open_run(tmp_path)
    with only_writer(tmp_path), pytest.raises(ResultError, match="process is at work there; wait"):
        open_run(tmp_path)
    (tmp_path / LOCK).touch()  # as a killed process leaves it
    with pytest.raises(ResultError, match="the run did not finish: give its command again"):
        open_run(tmp_path)


def test_a_whole_run_without_its_manifest(tmp_path: Path) -> None:
    small_run(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ResultError, match=r"run.json but no manifest.json, so the run is not"):
        open_run(tmp_path)


def test_the_manifest_of_another_measurement(tmp_path: Path) -> None:
    small_run(tmp_path / "a")
    small_run(tmp_path / "b", seed=1)
    os.replace(tmp_path / "b" / "manifest.json", tmp_path / "a" / "manifest.json")
    with pytest.raises(ManifestError, match=r"a/result.json was made from .*; take the manifest"):
        open_run(tmp_path / "a")


def test_an_edited_manifest(tmp_path: Path) -> None:
    small_run(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"documents": ', '"documents": 1'))
    with pytest.raises(ManifestError, match="does not fit"):
        open_run(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", "\xff\xfe", '{"settings": 3}'])
def test_a_record_that_is_none(tmp_path: Path, content: str) -> None:
    small_run(tmp_path)
    (tmp_path / "run.json").write_text(content, encoding="latin-1")
    with pytest.raises(ResultError, match=r"not readable JSON|has schema None"):
        open_run(tmp_path)


def test_of_damaged_metrics_what_is_whole_is_a_curve(tmp_path: Path) -> None:
    """It decides no number, so a run is read, and says what its curve lacks."""
    path = small_run(tmp_path) / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    run = open_run(tmp_path)
    assert (len(run.curve), run.notes) == (3, ())  # a process that was killed left it so
    path.write_bytes(whole + b'{"step": 4, "validation_bits_per_token": NaN}\n\xc3')
    last = open_run(tmp_path).curve[-1]
    assert (last.step, last.validation_bits) == (4, None)
    for damaged in (
        b"{torn\n" + whole,
        b"\xff" + whole[1:],
        b"3\n" + whole,
        b"[" * 9000 + b"\n{}\n",
    ):
        path.write_bytes(damaged)
        (note,) = open_run(tmp_path).notes
        assert "missing in part: 1 of" in note
        assert "lines of metrics.jsonl are damaged, the first is line 1" in note
    path.unlink()
    path.mkdir()
    run = open_run(tmp_path)
    assert run.notes == ("no training curve: cannot read metrics.jsonl: Is a directory",)
    assert run.curve == ()


def test_scores_that_cannot_be_opened(tmp_path: Path) -> None:
    path = small_run(tmp_path) / "scores.parquet"
    result = open_run(tmp_path).result.model_copy(update={"scores_sha256": "0" * 64})
    path.unlink()
    path.mkdir()
    with pytest.raises(ResultError, match=r"is not readable \(Is a directory\); give the command"):
        read_scores(path, result)


def test_scores_below_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"b\xff")
    home.mkdir()
    small_run(home)
    assert open_run(home).scores() is not None


def test_torn_scores(tmp_path: Path) -> None:
    path = small_run(tmp_path) / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ResultError, match="is not what its result was made with"):
        open_run(tmp_path).scores()
    with_scores_of(tmp_path, small_result())
    with pytest.raises(ResultError, match="cannot be read as scores"):
        open_run(tmp_path).scores()


def test_scores_beside_a_result_without_any_are_not_its_own(tmp_path: Path) -> None:
    small_run(tmp_path)
    small_result().write(tmp_path / "result.json")
    with pytest.raises(ResultError, match="is not what its result was made with"):
        open_run(tmp_path).scores()


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda columns: columns[name].__setitem__(0, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns: columns.pop("role"), "cannot be read as scores"),
        (_set("repetitions", None), "cannot be read as scores"),
        (_set("log_perplexity_bits", None), "cannot be read as scores"),
        (_set("log_perplexity_bits", float("nan")), "1 of 436 log-perplexities are not finite"),
        (_set("log_perplexity_bits", -3.0), "a log-perplexity is -3 bits, and none is below 0"),
        (_set("role", "spy"), "1 roles are none of"),
    ],
)
def test_scores_that_cannot_be(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    small_run(tmp_path)
    rewritten(tmp_path / "scores.parquet", change)
    with_scores_of(tmp_path, small_result())
    with pytest.raises(ResultError, match=message):
        open_run(tmp_path).scores()


def test_opening_a_run_imports_nothing_heavy(tmp_path: Path) -> None:
    small_run(tmp_path)
    script = (
        "import sys\nfrom lmexposure.records import open_run\nopen_run(sys.argv[1])\n"
        "heavy = {'torch', 'scipy.stats', 'pyarrow', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


@pytest.mark.parametrize("value", [10**400, "\ud800", [1], "x"])
def test_of_a_curve_what_is_no_number_is_left_out(tmp_path: Path, value: Any) -> None:
    path = small_run(tmp_path)
    (path / "metrics.jsonl").write_text(json.dumps({"step": value, "epoch": 2}) + "\n")
    (point,) = open_run(path).curve
    assert (point.step, point.epoch) == (None, 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda v: v.update(schema="lmexposure.result/2"),
            "expected 'lmexposure.run/3': give a run.json",
        ),
        (lambda v: v["settings"].update(colour=1), "settings.colour: Extra inputs"),
        (
            lambda v: v["settings"].update(seed=3),
            "settings.seed=3: Input should be a decimal string",
        ),
        (lambda v: v.update(command="measure"), "command='measure' does not go with its settings"),
        (lambda v: v.update(measured="2026-02-30T00:00:00Z"), "'2026-02-30T00:00:00Z' is no date"),
        (lambda v: v["seconds"].update(train=-1.0), "seconds.train=-1.0: Input should be greater"),
        (lambda v: v.pop("python"), "python: Field required"),
    ],
)
def test_a_record_of_other_parts(
    tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    path = edited(small_run(tmp_path) / "run.json", change)
    with pytest.raises(ResultError, match=message):
        open_run(path.parent)


def test_what_a_callback_followed_stands_in_for_the_metrics(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    row = {"epoch": 1.0, "validation_bits_per_token": 2.0, "exposure": {"pin x4": 5.5}}
    (run / "exposure.jsonl").write_text(json.dumps(row) + "\n")
    assert not any(point.exposures for point in open_run(run).curve)
    (run / "metrics.jsonl").unlink()
    (point,) = open_run(run).curve
    assert (point.validation_bits, point.exposures) == (2.0, (("pin x4", 5.5),))


DATE, VERSION = "2026-02-03T04:05:06Z", "0.0.9"


def dated_run(path: Path) -> Path:
    """A run whose record has a date, measured by a version that no other record names."""
    small_run(path)
    record = json.loads((path / "run.json").read_text())
    record.pop("content_sha256")
    write_hashed(path / "run.json", {**record, "measured": DATE})
    result = json.loads((path / "result.json").read_text())
    result.pop("content_sha256")
    write_hashed(path / "result.json", {**result, "lmexposure": VERSION})
    return path


def test_a_result_with_its_version_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result.read(dated_run(tmp_path) / "result.json")
    assert result.lmexposure == VERSION
    assert small_result().lmexposure is None


@pytest.mark.parametrize("known", [True, False])
def test_every_rendering_shows_where_its_numbers_come_from(tmp_path: Path, known: bool) -> None:
    path = dated_run(tmp_path / "r") if known else small_run(tmp_path / "r", whole=False)
    runs = [open_run(path)] * 2
    formats = ("html", "md", "csv", "json")
    (tmp_path / "model").mkdir()
    written = write_report(runs[0], out=tmp_path, formats=formats, model_card=tmp_path / "model")
    written += write_compare(runs, out=tmp_path, formats=formats)
    version = f"lmexposure {VERSION}" if known else "version unknown"
    date = f"measured {DATE}" if known else "date unknown"
    line = f"{version}, {date}; weights {'1' * 12}"
    assert len(written) == 9
    for file in written:
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".html", ".md") and file.name != "README.md":
            assert line in text, file
        elif file.suffix == ".csv":
            row = next(csv.DictReader(text.splitlines()))
            assert (row["lmexposure"], row["measured"]) == ((VERSION, DATE) if known else ("", ""))
            assert (row["model"], row["weights_sha256"]) == ("model", "1" * 64)
        else:
            assert "1" * 64 in text
            assert (DATE in text) == (VERSION in text) == known
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"measured: {DATE!r}" in card if known else "measured: date unknown" in card
    said = json.loads((tmp_path / "report.json").read_text())["provenance"]
    assert said["measured"] == (DATE if known else None)


def with_model(run: Path) -> Path:
    """A run with a model of which its training wrote the hashes."""
    result = Result.read(run / "result.json")
    model = result.model.model_copy(update={"path": "model"})
    result.model_copy(update={"model": model}).write(run / "result.json")
    (run / "model").mkdir()
    (run / "model" / "model.safetensors").write_bytes(b"weights")
    write_hashed(run / "training.json", {"model_files": file_hashes(run / "model")})
    return run


def test_a_model_that_was_put_beside_a_result_is_refused(tmp_path: Path) -> None:
    run = with_model(small_run(tmp_path / "run"))
    (run / "model" / "README.md").write_text("added")
    open_run(run)
    refused = pytest.raises(ResultError, match=r"model\.safetensors is not what the training wrote")
    (run / "model" / "model.safetensors").write_bytes(b"of another")
    with refused:
        open_run(run)
    (run / "model").rename(tmp_path / "other")
    open_run(run)  # it was moved elsewhere
    (run / "model").symlink_to(tmp_path / "other")
    with refused:
        open_run(run / "result.json")


@pytest.mark.parametrize("damaged", ["[]", "{", '{"model_files": 3}', '{"content_sha256": "x"}'])
def test_a_damaged_record_of_the_training_says_nothing_of_its_model(
    tmp_path: Path, damaged: str
) -> None:
    run = with_model(small_run(tmp_path / "run"))
    (run / "training.json").write_text(damaged)
    with pytest.raises(ResultError, match=r"training\.json is not what the training wrote, so"):
        open_run(run)
