"""A run on the disk: read as it is, and refused where it is torn, edited or of other parts."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known import known
from made_looks import look
from made_results import small_result, small_run, trained_record, with_scores_of

import lmexposure as lx
from lmexposure._files import LOCK, only_writer, sha256_file
from lmexposure._integrity import file_hashes, write_hashed
from lmexposure.core import refuse_other_study, utc_now
from lmexposure.errors import ManifestError, ResultError
from lmexposure.studies import Result, RunRecord
from lmexposure.studies.exposure.scores import read_scores


def edited(path: Path, change: Callable[[Any], object]) -> Path:
    """A record with something else in it, and the hash that goes with that."""
    values = json.loads(path.read_text())
    change(values)
    values.pop("content_sha256", None)
    write_hashed(path, values)
    return path


def test_a_whole_run_is_all_of_its_files(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "mine"))
    assert run.files.name == "mine"
    scores_sha256 = sha256_file(tmp_path / "mine" / "scores.parquet")
    assert run == small_result().model_copy(update={"scores_sha256": scores_sha256})
    assert known(run.files.manifest).sha256 == run.manifest_sha256
    assert known(known(run.files.record).settings).controls == 16
    assert [point.step for point in run.files.curve] == [0, 10, 20, 30]
    assert run.home == tmp_path / "mine"
    assert (run.files.whole, run.files.white_box) == (True, None)
    opened = lx.open(str(tmp_path / "mine"))
    assert lx.open(tmp_path / "mine" / "result.json") == run == opened
    assert RunRecord.read(f"{tmp_path}/mine/run.json") == opened.files.record
    scores = read_scores(f"{tmp_path}/mine/scores.parquet", opened)
    assert np.array_equal(scores.ids, known(run.scores).ids)
    assert scores.ids.shape == scores.formats.shape == (436,)
    roles = dict(zip(*np.unique(scores.roles, return_counts=True), strict=True))
    assert roles == {"canary": 20, "control": 16, "reference": 400}
    assert scores.repetitions.max() == 4
    assert np.isfinite(scores.log_perplexity_bits).all()


def test_candidates_left_out_are_among_the_references(tmp_path: Path) -> None:
    made_of: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 30, "repetitions": (1,)}
    run = Result.read(small_run(tmp_path, **made_of))
    scores = known(run.scores)
    never = np.isin(scores.roles, ("reference", "held_out")).sum()
    assert (scores.roles == "held_out").any()
    assert never == run.formats[0].references


def test_a_result_json_stands_for_its_directory_and_any_other_name_for_itself(
    tmp_path: Path,
) -> None:
    path = small_run(tmp_path / "r") / "result.json"
    assert Result.read(path).files.manifest is not None
    alone = path.rename(path.with_name("other.json"))
    run = Result.read(alone)
    assert (run.files.name, run.scores) == ("other", None)
    assert (run.files.manifest, run.files.record) == (None, None)


def test_what_a_measurement_alone_lacks_is_none(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path, whole=False))
    assert (run.files.manifest, run.files.record) == (None, None)
    assert (run.files.curve, run.files.whole) == ((), False)
    assert run.scores is not None
    model = "model (lstm)"
    assert run.provenance.line == f"lmexposure 0.1.0, date unknown; {model}, weights {'1' * 12}"
    (tmp_path / "scores.parquet").unlink()
    assert Result.read(tmp_path).scores is None


def test_a_look_at_other_weights_is_left_out_and_said(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    weights = Result.read(run).model.weights_sha256
    (run / "verbatim").mkdir()
    theirs = look()
    theirs.write(run / "verbatim" / "verbatim.json")
    opened = Result.read(run)
    assert opened.files.look is None
    assert "memorised text was looked for in weights abababab" in opened.files.notes[-1]
    model = theirs.model.model_copy(update={"weights_sha256": weights})
    own = theirs.model_copy(update={"model": model})
    own.write(run / "verbatim" / "verbatim.json")
    assert (Result.read(run).files.look, Result.read(run).files.notes) == (own, ())


def test_now_is_to_the_second_in_utc() -> None:
    now = datetime.strptime(utc_now(), "%Y-%m-%dT%H:%M:%S%z")
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=1)


def test_the_current_directory_has_a_name(tmp_path: Path, monkeypatch: Any) -> None:
    small_run(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert Result.read(".").files.name == "here"


def test_of_damaged_metrics_what_is_whole_is_a_curve(tmp_path: Path) -> None:
    """It decides no number, so a run is read, and says what its curve lacks."""
    path = small_run(tmp_path) / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    run = Result.read(tmp_path)
    # A process that was killed left it so.
    assert (len(run.files.curve), run.files.notes) == (3, ())
    path.write_bytes(whole + b'{"step": 4, "validation_bits_per_token": NaN}\n\xc3')
    last = Result.read(tmp_path).files.curve[-1]
    assert (last.step, last.validation_bits) == (4, None)
    deep = b"[" * 9000 + b"\n{}\n"
    for damaged in (b"{torn\n" + whole, b"\xff" + whole[1:], b"3\n" + whole, deep):
        path.write_bytes(damaged)
        (note,) = Result.read(tmp_path).files.notes
        assert "missing in part: 1 of" in note
        assert "lines of metrics.jsonl are damaged, the first is line 1" in note
    for value in (10**400, "\ud800", [1], "x"):  # what is no number is left out
        path.write_text(json.dumps({"step": value, "epoch": 2}) + "\n")
        (point,) = Result.read(tmp_path).files.curve
        assert (point.step, point.epoch) == (None, 2.0)
    path.unlink()
    path.mkdir()
    run = Result.read(tmp_path)
    assert run.files.notes == ("no training curve: cannot read metrics.jsonl: Is a directory",)
    assert run.files.curve == ()


def test_scores_below_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"b\xff")
    home.mkdir()
    small_run(home)
    assert Result.read(home).scores is not None


def test_opening_a_run_imports_nothing_heavy(tmp_path: Path) -> None:
    small_run(tmp_path)
    script = (
        "import sys, lmexposure as lx\nlx.check(lx.open(sys.argv[1]))\n"
        "heavy = {'torch', 'scipy.stats', 'pyarrow', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_what_a_callback_followed_stands_in_for_the_metrics(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    row = {"epoch": 1.0, "validation_bits_per_token": 2.0, "exposure": {"pin x4": 5.5}}
    (run / "exposure.jsonl").write_text(json.dumps(row) + "\n")
    assert not any(point.exposures for point in Result.read(run).files.curve)
    (run / "metrics.jsonl").unlink()
    (point,) = Result.read(run).files.curve
    assert (point.validation_bits, point.exposures) == (2.0, (("pin x4", 5.5),))


def with_model(run: Path) -> Path:
    """A run with a model of which its training wrote the hashes."""
    result = Result.read(run / "result.json")
    model = result.model.model_copy(update={"path": "model"})
    result.model_copy(update={"model": model}).write(run / "result.json")
    (run / "model").mkdir()
    (run / "model" / "model.safetensors").write_bytes(b"weights")
    training = trained_record(file_hashes(run / "model"))
    of_same = result.model.validation
    if of_same is not None:
        shared = training["result"].keys() & type(of_same).model_fields.keys()
        training["result"] |= {name: getattr(of_same, name) for name in shared - {"claim"}}
    write_hashed(run / "training.json", training)
    return run


def test_a_model_that_was_put_beside_a_result_is_refused(tmp_path: Path) -> None:
    run = with_model(small_run(tmp_path / "run"))
    (run / "model" / "README.md").write_text("added")
    Result.read(run)
    refused = pytest.raises(ResultError, match=r"model\.safetensors is not what the training wrote")
    (run / "model" / "model.safetensors").write_bytes(b"of another")
    with refused:
        Result.read(run)
    (run / "model").rename(tmp_path / "other")
    Result.read(run)  # it was moved elsewhere
    (run / "model").symlink_to(tmp_path / "other")
    with refused:
        Result.read(run / "result.json")


Damage = Callable[[Path], object]


def wrote(name: str, content: str | bytes) -> Damage:
    """A file of the run has this content."""
    data = content.encode("latin-1") if isinstance(content, str) else content
    return lambda run: (run / name).write_bytes(data)


def record(change: Callable[[Any], object]) -> Damage:
    return lambda run: edited(run / "run.json", change)


def training(**false: Any) -> Damage:
    """The record of the training holds something else, and the hash that goes with it."""
    return lambda run: edited(run / "training.json", lambda values: values.update(false))


def made_into(make: Callable[[Path], None]) -> Damage:
    """What is no file has the name of the training's record."""

    def change(run: Path) -> None:
        (run / "training.json").unlink()
        make(run / "training.json")

    return change


def of_another_run(run: Path) -> None:
    small_run(run.with_name("other"), seed=1)
    os.replace(run.with_name("other") / "manifest.json", run / "manifest.json")


def result_of_another_run(run: Path) -> None:
    other = small_run(run.with_name("other"), seed=1, whole=False)
    (run / "manifest.json").unlink()
    (run / "run.json").unlink()
    os.replace(other / "result.json", run / "result.json")


def edit_manifest(run: Path) -> None:
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"documents": ', '"documents": 1'))


def unfinished(run: Path) -> None:
    (run / "result.json").unlink()


def killed(run: Path) -> None:
    unfinished(run)
    (run / LOCK).touch()


OTHER_RUN = r"run\.json is of another run than .*result\.json: its settings or its training differ"
NO_RECORD, NOT_TRAINED = (
    "not readable JSON|has schema None",
    "json is not what the training wrote, so",
)
DAMAGES: list[tuple[Damage, str]] = [
    (shutil.rmtree, r"no run or result at .*run; make one: lmexposure run"),
    (unfinished, "the run did not finish: give its command again"),
    (killed, "the run did not finish: give its command again"),
    (
        lambda run: (run / "manifest.json").unlink(),
        "run.json but no manifest.json, so the run is no",
    ),
    (of_another_run, "run/result.json was made from .*; take the manifest"),
    (edit_manifest, "does not fit"),
    (result_of_another_run, r"scores\.parquet is not what its result was made with"),
    *((wrote("run.json", text), NO_RECORD) for text in ("{", "[]", "{}", "\xff\xfe")),
    (wrote("run.json", '{"settings": 3}'), NO_RECORD),
    (record(lambda v: v.update(schema="lmexposure.result/2")), "expected 'lmexposure.run/3': give"),
    (record(lambda v: v["settings"].update(colour=1)), "settings.colour: Extra inputs"),
    (record(lambda v: v["settings"].update(seed=3)), "settings.seed=3: Input should be a decimal"),
    (record(lambda v: v.update(command="measure")), "command='measure' does not go with its sett"),
    (record(lambda v: v.update(measured="2026-02-30T00:00:00Z")), "30T00:00:00Z' is no date"),
    (record(lambda v: v["seconds"].update(train=-1.0)), "seconds.train=-1.0: Input should be grea"),
    (record(lambda v: v.pop("python")), "python: Field required"),
    (record(lambda v: v["measure"].update(references=77)), OTHER_RUN),
    *(
        (wrote("training.json", text), NOT_TRAINED)
        for text in ("[]", "{", '{"model_files": 3}', '{"content_sha256": "x"}')
    ),
    (
        training(schema="lmexposure.training/2"),
        "reads 'lmexposure.training/1' alone; use .*; else train again",
    ),
    *((training(schema=other), NOT_TRAINED) for other in (None, "lmexposure.run/3")),
    (training(result={}), NOT_TRAINED),
    (made_into(os.mkfifo), NOT_TRAINED),
    (made_into(os.mkdir), NOT_TRAINED),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_run_is_refused(tmp_path: Path, damage: Damage, message: str) -> None:
    run = with_model(small_run(tmp_path / "run"))
    damage(run)
    with pytest.raises((ManifestError, ResultError), match=message):
        Result.read(run)


def test_the_training_in_a_run_json_is_that_of_the_result(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    trained = known(Result.read(run / "result.json").model.validation)
    same = ("validation_bits", "initial_validation_bits", "best_epoch", "epochs", "stopped")
    told = trained_record({})["result"] | {name: getattr(trained, name) for name in same}
    edited(run / "run.json", lambda values: values.update(training=told))
    assert Result.read(run).files.record is not None
    for false in ({"validation_bits": 0.123}, {"epochs": 77.0}, {"stopped": "max_seconds"}):
        edited(run / "run.json", lambda values, f=false: values.update(training=told | f))  # type: ignore[misc]
        with pytest.raises(ResultError, match=OTHER_RUN):
            Result.read(run)


def test_a_record_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_model(small_run(tmp_path / "run"))
    real = os.open

    def refuse(path: Any, *flags: int) -> int:
        if Path(path).name == "training.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *flags)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ResultError, match=r"cannot read .*/training\.json: Permission denied; tra"):
        Result.read(run)


def test_what_is_no_run_or_at_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"holds no result.json; it is no run directory"):
        Result.read(tmp_path)
    with pytest.raises(ResultError, match="cannot read"):
        RunRecord.read(f"{tmp_path}/none.json")
    (tmp_path / "run.json").write_text("{}")
    with only_writer(tmp_path), pytest.raises(ResultError, match="process is at work there; wait"):
        Result.read(tmp_path)


def column(name: str, value: Any) -> Damage:
    """Something else in the first row of a column; `...` takes the column out."""

    def change(run: Path) -> None:
        columns = pq.read_table(run / "scores.parquet").to_pydict()
        if value is ...:
            del columns[name]
        else:
            columns[name][0] = value
        pq.write_table(pa.table(columns), run / "scores.parquet")

    return change


def torn(run: Path) -> None:
    path = run / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-30])


NO_SCORES, BITS = "cannot be read as scores", "log_perplexity_bits"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (torn, NO_SCORES),
        (column("role", ...), NO_SCORES),
        (column("repetitions", None), NO_SCORES),
        (column(BITS, None), NO_SCORES),
        (column(BITS, float("nan")), "1 of 436 log-perplexities are not finite"),
        (column(BITS, -3.0), "a log-perplexity is -3 bits, and none is below 0"),
        (column("role", "spy"), "1 roles are none of"),
    ],
)
def test_scores_that_cannot_be(tmp_path: Path, change: Damage, message: str) -> None:
    change(small_run(tmp_path))
    with pytest.raises(ResultError, match="is not what its result was made with"):
        Result.read(tmp_path)
    with_scores_of(tmp_path, small_result())
    with pytest.raises(ResultError, match=message):
        known(Result.read(tmp_path).scores)


def test_scores_are_those_of_their_result(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    result = Result.read(run).model_copy(update={"scores_sha256": "0" * 64})
    small_result().write(tmp_path / "result.json")  # which names no scores
    with pytest.raises(ResultError, match="is not what its result was made with"):
        Result.read(tmp_path)
    (run / "scores.parquet").unlink()
    (run / "scores.parquet").mkdir()
    with pytest.raises(ResultError, match=r"is not readable \(Is a directory\); give the command"):
        read_scores(run / "scores.parquet", result)
    with pytest.raises(ResultError, match=r"is not readable \(Is a directory\); give the command"):
        Result.read(run)


def test_scores_that_are_their_owners_alone_keep_nobody_from_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run(tmp_path)
    torn(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "scores.parquet")
    assert Result.read(tmp_path).formats


def test_files_of_another_study_are_not_replaced(tmp_path: Path) -> None:
    refuse_other_study(tmp_path, ["result.json"], "run")
    (tmp_path / "canife.json").touch()
    with pytest.raises(
        ResultError, match=r"holds a federated training \(canife.json\), whose file"
    ):
        refuse_other_study(tmp_path, ["result.json"], "run")
    refuse_other_study(tmp_path, ["canife.json"], "run")
