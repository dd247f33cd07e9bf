"""Damage between the steps of a run is named and mended."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from corpora import write_corpus
from hashes import sha256_tree

from lmexposure._files import atomic_directory, only_writer, sha256_file
from lmexposure._integrity import take_hash, write_hashed, write_sealed
from lmexposure._written import study
from lmexposure.audit import MeasureSettings, RunSettings, insert_corpus, measure, run, train_corpus
from lmexposure.audit.directory import MeasurementDirectory
from lmexposure.canaries import Plan, insert_files
from lmexposure.errors import FileError, ModelError, ResultError
from lmexposure.models.trainer import CheckpointDirectory
from lmexposure.scoring import load_for_measuring
from lmexposure.studies import Result

SETTINGS = RunSettings(
    formats=("pin",),
    canaries=2,
    repetitions=(2,),
    controls=2,
    layers=1,
    units=8,
    seed=5,
    training={"epochs": 2},
    measure=MeasureSettings(
        references=50,
        revealed=1,
        budget_steps=500,
        draws=100,
        guesses=10,
        bootstraps=39,
        permutations=99,
    ),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A corpus, its run, and the same stopped half-way in its training and in its measurement."""

    class StopError(Exception):
        pass

    def stop(*arguments: Any, **named: Any) -> None:
        raise StopError

    homes = {name: tmp_path_factory.mktemp(name) for name in ("whole", "training", "measuring")}
    homes["corpus"] = write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", 100)
    run(homes["corpus"], out=homes["whole"], settings=SETTINGS)
    for name, owner, method in (
        ("training", CheckpointDirectory, "finish"),
        ("measuring", MeasurementDirectory, "finish"),
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StopError):
            patch.setattr(owner, method, stop)
            run(homes["corpus"], out=homes[name], settings=SETTINGS)
    return homes


@pytest.fixture
def home(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the finished run, to be damaged."""
    return shutil.copytree(runs["whole"], tmp_path / "run")


def flip(path: Path, *, place: float = 0.6) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def contents(home: Path) -> list[str]:
    """What a run found, by hash."""
    files = [
        sha256_file(home / name) for name in ("manifest.json", "result.json", "scores.parquet")
    ]
    return [*files, sha256_tree(home / "model"), sha256_tree(home / "corpus"), *names(home)]


def names(home: Path) -> list[str]:
    return sorted(p.relative_to(home).as_posix() for p in home.rglob("*"))


@pytest.mark.parametrize(
    ("stopped", "pattern", "damage"),
    [
        ("training", "corpus/corpus.txt", flip),
        ("training", "best-*/model.safetensors", flip),
        ("training", "checkpoint.pt", flip),
        ("measuring", "training.json", flip),
        ("measuring", "model/model.safetensors", flip),
        ("measuring", "run.json", flip),
        ("measuring", ".work/threads-*", flip),
        ("measuring", ".work/pin.npz-*", flip),
        ("measuring", ".work/pin.search.json-*", flip),
        ("measuring", ".work/pin.beams.json-*", cut),
        ("whole", "training.json", cut),
        ("whole", "scores.parquet", flip),
        ("whole", "run.json", cut),
    ],
)
def test_what_is_damaged_is_named_and_made_again(
    runs: dict[str, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    stopped: str,
    pattern: str,
    damage: Callable[[Path], None],
) -> None:
    home = shutil.copytree(runs[stopped], tmp_path / "run")
    (path,) = home.glob(pattern)
    damage(path)
    run(runs["corpus"], out=home, settings=SETTINGS)
    assert f"{path} is damaged" in caplog.text
    if pattern.startswith(("model/", "corpus/")):  # it may be a person's own: it is kept
        first = {"model": "model/config.json", "corpus": "corpus/corpus.txt"}
        top = pattern.partition("/")[0]
        assert names(home / "damaged-1")[:2] == [top, first[top]]
        shutil.rmtree(home / "damaged-1")
    assert contents(home) == contents(runs["whole"])


def test_a_damaged_result_is_refused_and_nothing_is_lost(runs: dict[str, Path], home: Path) -> None:
    path = home / "result.json"
    text = path.read_text()
    digit = text.index('"log_perplexity_bits": ') + len('"log_perplexity_bits": ') + 4
    for changed in (
        text[:digit] + str(9 - int(text[digit])) + text[digit + 1 :],
        text.replace('"warnings": [', '"warnings": ["reassuring", ', 1),
        text.replace('"content_sha256"', '"content_sha257"'),
    ):
        path.write_text(changed)
        calls: list[Callable[[], object]] = [
            lambda: Result.read(home),
            lambda: run(runs["corpus"], out=home, settings=SETTINGS),
        ]
        for again in calls:
            with pytest.raises(ResultError, match=r"result\.json .*move the file away first"):
                again()
        assert path.read_text() == changed
    path.write_text(text)
    flip(home / "scores.parquet")
    with pytest.raises(ResultError, match=r"scores\.parquet is not what its result was made with"):
        Result.read(home)
    flip(home / "scores.parquet")  # as it was
    flip(home / "run.json")
    with pytest.raises(ResultError, match=r"run\.json .*give the run's command again"):
        Result.read(home)


def test_a_directory_in_the_place_of_the_scores_is_said(runs: dict[str, Path], home: Path) -> None:
    (home / "scores.parquet").unlink()
    (home / "scores.parquet").mkdir()
    with pytest.raises(FileError, match=r"scores\.parquet is there already.*move it away"):
        run(runs["corpus"], out=home, settings=SETTINGS)


def test_a_corpus_that_changed_since_insertion_is_said(
    runs: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = runs["whole"] / "manifest.json"
    for place in (runs["whole"] / "corpus" / "corpus.txt", tmp_path / "corpus.txt"):
        shutil.copy(runs["whole"] / "corpus" / "corpus.txt", tmp_path)
        with (tmp_path / "corpus.txt").open("a") as file:
            file.write("One more line.\n")
        caplog.clear()
        train_corpus(place, out=tmp_path / place.parent.name, settings=SETTINGS, manifest=manifest)
        assert ("corpus.txt is not what insertion wrote" in caplog.text) == (
            place.parent == tmp_path
        )


def test_one_file_of_several_is_held_against_its_own_sidecar(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.txt", "b.txt"):
        write_corpus(tmp_path / name, 100)
    plan = Plan(formats=["pin"], canaries=1, repetitions=(2,), controls=1, seed=1)
    insert_files([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "in", plan)
    copy, manifest = tmp_path / "in" / "corpus" / "a.txt", tmp_path / "in" / "manifest.json"
    for changed in (False, True):
        if changed:
            copy.write_text(copy.read_text() + "One more line.\n")
        caplog.clear()
        with pytest.raises(ModelError, match="canaries would not reach the model as planned"):
            train_corpus(copy, out=tmp_path / "run", settings=SETTINGS, manifest=manifest)
        assert ("is not what insertion wrote" in caplog.text) == changed


def test_a_model_that_changed_since_its_training_is_not_measured(
    home: Path, tmp_path: Path
) -> None:
    assert load_for_measuring(home / "model", SETTINGS)
    flip(home / "model" / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is not what the training wrote"):
        load_for_measuring(home / "model", SETTINGS)
    meant = shutil.copytree(home / "model", tmp_path / "copied")
    assert load_for_measuring(meant, SETTINGS)
    cut(home / "training.json")
    with pytest.raises(ModelError, match=r"training\.json is damaged, or was changed.*put the"):
        load_for_measuring(home / "model", SETTINGS)
    assert load_for_measuring(meant, SETTINGS)


def test_what_a_kill_at_the_very_end_left_is_cleared(runs: dict[str, Path], home: Path) -> None:
    with study(home), atomic_directory(home / "best-4") as best:
        write_sealed(home / ".work" / "threads", b"")
        (best / "weights").write_text("w")
    run(runs["corpus"], out=home, settings=SETTINGS)
    assert contents(home) == contents(runs["whole"])


def test_two_at_work_in_one_directory(runs: dict[str, Path], tmp_path: Path) -> None:
    """The second is refused at once, whichever step it wants; see tests/test_files.py."""
    out, manifest = tmp_path / "run", runs["whole"] / "manifest.json"
    calls: list[Callable[[], object]] = [
        lambda: run(runs["corpus"], out=out, settings=SETTINGS),
        lambda: insert_corpus(runs["corpus"], out=out, settings=SETTINGS),
        lambda: train_corpus(runs["corpus"], out=out, settings=SETTINGS),
        lambda: measure(runs["whole"] / "model", manifest, out=out, settings=SETTINGS.measure),
    ]
    with only_writer(out), ThreadPoolExecutor(1) as second:
        for call in calls:
            with pytest.raises(ResultError, match=r"another process is at work in .*/run; wait"):
                second.submit(call).result()
    assert not out.exists()


def test_the_training_of_another_model_is_refused_with_its_model(home: Path) -> None:
    """Model and training.json fit each other, and not the result: its verdict is of another."""
    values = json.loads((home / "training.json").read_text())
    assert take_hash(values)
    values["result"]["validation_bits"] += 0.5
    write_hashed(home / "training.json", values)
    with pytest.raises(ResultError, match=r"training\.json is not what the training wrote, so"):
        Result.read(home)


def test_a_model_without_its_training_is_not_vouched_for(runs: dict[str, Path], home: Path) -> None:
    """Nothing else in a run's directory tells its model from another."""
    (home / "training.json").unlink()
    assert "training.json has gone, so the model here may not be the one" in str(
        Result.read(home).files.notes
    )
    assert Result.read(runs["whole"]).files.notes == ()
