"""Checkpoints of one training: each measured as alone, in order, and kept one by one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from audit.quick import ALL_FILLS
from audit.small import TOKENIZER, pins
from tiny import characters, model_of

from lmexposure.audit import measure, measure_checkpoints
from lmexposure.errors import FileError, LmexposureError, ModelError, ResultError, SettingsError
from lmexposure.models import LoadedModel, load_model, save_model
from lmexposure.studies import Result

SETTINGS = replace(
    ALL_FILLS, extraction=False, draws=100, budget_steps=2_000, permutations=99, bootstraps=39
)
MANIFEST = pins(2)


def save(path: Path, change: float = 0.0, tokenizer: Any = TOKENIZER, kind: str = "gpt2") -> Path:
    model = model_of(kind, len(tokenizer))
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1 + change)
    save_model(model, tokenizer, path)
    return path


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """As a shell sorts them: not by their steps."""
    place = tmp_path_factory.mktemp("training")
    names = {"checkpoint-100": 0.2, "checkpoint-20": 0.1, "final": 0.4}
    found = [save(place / name, change) for name, change in names.items()]
    (found[0] / "trainer_state.json").write_text(json.dumps({"global_step": 107}))
    return found


ORDER = ["checkpoint-20", "checkpoint-100", "final"]


@pytest.fixture(scope="module")
def finished(
    checkpoints: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Result]:
    """The directory of a trajectory over all checkpoints, and its result."""
    out = tmp_path_factory.mktemp("finished") / "t"
    return out, measure_checkpoints(checkpoints, MANIFEST, out=out, settings=SETTINGS)


def test_each_checkpoint_has_the_numbers_of_its_own_measurement(
    checkpoints: list[Path], finished: tuple[Path, Result]
) -> None:
    out, result = finished
    by_name = {path.name: path for path in checkpoints}
    assert list(dict.fromkeys(row.checkpoint for row in result.trajectory)) == ORDER
    assert list(dict.fromkeys(row.step for row in result.trajectory)) == [20, 107, None]
    for name in ORDER[::2]:
        alone = measure(by_name[name], MANIFEST, settings=SETTINGS)
        rows = [row for row in result.trajectory if row.checkpoint == name]
        assert [(r.format, r.repetitions, r.n, r.median, r.low, r.high) for r in rows] == [
            (s.format, s.repetitions, s.n, s.median.value, s.median.low, s.median.high)
            for s in alone.summary
        ]
        assert [row.exact for row in rows] == [row.counted for row in alone.summary]
        kept = Result.read(out / "checkpoints" / name / "result.json")
        assert kept.canaries == alone.canaries
    last = Result.read(out / "checkpoints" / "final" / "result.json")
    assert result.canaries == last.canaries
    assert result.inputs_sha256 != last.inputs_sha256
    run = Result.read(out)
    assert run == result
    assert run.scores is not None


@pytest.mark.slow
def test_what_is_finished_is_not_measured_again(checkpoints: list[Path], tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    loaded: list[str] = []
    seen: list[tuple[int, int, str]] = []

    def load(name: str) -> LoadedModel:
        loaded.append(Path(name).name)
        if len(loaded) == 2:
            raise KilledError
        return load_model(name)

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        if what == "checkpoints":
            seen.append((done, total, note))

    options: dict[str, Any] = {"settings": SETTINGS, "load": load}
    with pytest.raises(KilledError):
        measure_checkpoints(checkpoints[1:3], MANIFEST, out=tmp_path, **options)
    kept = tmp_path / "checkpoints" / "checkpoint-20" / "result.json"
    before = kept.stat().st_mtime_ns
    assert not (tmp_path / "result.json").exists()
    result = measure_checkpoints(checkpoints[1:3], MANIFEST, out=tmp_path, **options)
    assert kept.stat().st_mtime_ns == before
    whole = (tmp_path / "result.json").stat().st_mtime_ns
    assert measure_checkpoints(checkpoints[1:3], MANIFEST, out=tmp_path, **options) == result
    assert (tmp_path / "result.json").stat().st_mtime_ns == whole
    in_memory = measure_checkpoints(checkpoints[1:3], MANIFEST, progress=watch, **options)
    assert in_memory.trajectory == result.trajectory
    assert in_memory.inputs_sha256 == result.inputs_sha256
    assert in_memory.scores is not None
    assert seen == [(0, 2, "checkpoint-20"), (1, 2, "final"), (2, 2, "")]


def unreadable(path: Path) -> Path:
    (save(path) / "config.json").write_text('{"model_type": "no such type"}')
    return path


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p: save(p, tokenizer=characters()), "has another tokenizer than .*measure them ap"),
        (lambda p: save(p, kind="llama"), "has another architecture than .*measure them apart"),
        (lambda p: p, "no such directory; check the path"),
        (unreadable, r"(cannot read the config|cannot load the tokenizer) of"),
    ],
)
def test_what_is_no_checkpoint_of_the_same_training_is_refused_before_any_work(
    make: Callable[[Path], Path], match: str, checkpoints: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=match):
        measure_checkpoints([checkpoints[0], make(tmp_path / "m-1")], MANIFEST, out=tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("models", "match"),
    [
        (["a/final", "b/final"], "2 of the models lie in a directory of the name 'final'"),
        ([], "are no checkpoints; give a list of one or more"),
        ("model", "models='model' are no checkpoints; give a list"),
    ],
)
def test_what_is_no_list_of_checkpoints_is_refused(models: Any, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        measure_checkpoints(models, MANIFEST)


def test_what_is_there_of_something_else_is_not_written_over(
    checkpoints: list[Path], finished: tuple[Path, Result], tmp_path: Path
) -> None:
    (tmp_path / "scores.parquet").write_bytes(b"of another tool")
    out, two = finished[0], checkpoints[:2]
    refused: list[tuple[list[Path], Path, type[LmexposureError], str]] = [
        (
            two,
            out / "checkpoints" / "final",
            ResultError,
            "the result of a single model; choose an",
        ),
        (two, out, ResultError, "holds the result of another model, manifest or setti"),
        (two, tmp_path, FileError, r"scores\.parquet is there already, and lmexposure"),
    ]
    for models, place, error, match in refused:
        with pytest.raises(error, match=match):
            measure_checkpoints(models, MANIFEST, settings=SETTINGS, out=place)
