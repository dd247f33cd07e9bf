"""Checkpoints: whole or not there, and never taken for another training's."""

import functools
import io
import json
import random
import shutil
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import start, together
from hashes import sha256_tree
from models.dp_trainings import check_in_a_process
from models.small_training import train_recorded, train_small
from safetensors.torch import load_file

from lmexposure._files import atomic_directory
from lmexposure._integrity import write_sealed
from lmexposure._written import study
from lmexposure.errors import FileError, ResultError
from lmexposure.models.trainer import CheckpointDirectory, Counters

STATE = {"weight": torch.arange(3.0)}


def test_an_older_best_goes_only_when_a_checkpoint_no_longer_needs_it(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "inputs")
    (tmp_path / "best-of-all").mkdir()
    (tmp_path / ".best-1.old").mkdir()
    with study(tmp_path):
        for step in (1, 2):
            with atomic_directory(checkpoints.best(step)) as partial:
                (partial / "weights").write_text("w")
        (checkpoints.best(1) / "mine").write_text("m")
        checkpoints.save(Counters(step=2, best_step=2), {}, {})
    assert [path.name for path in checkpoints.best(1).iterdir()] == ["mine"]
    assert checkpoints.best(2).exists()
    assert (tmp_path / "best-of-all").exists()
    assert (tmp_path / ".best-1.old").exists()


def test_another_trainings_checkpoint_is_refused(tmp_path: Path) -> None:
    CheckpointDirectory(tmp_path, "inputs").save(Counters(), {}, {})
    with pytest.raises(ResultError, match="holds an unfinished training with other settings"):
        CheckpointDirectory(tmp_path, "others").load()


def test_a_damaged_checkpoint_is_named_and_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints, path = CheckpointDirectory(tmp_path, "inputs"), tmp_path / "checkpoint.pt"
    checkpoints.save(Counters(step=7), STATE, {})
    whole = path.read_bytes()
    weights = whole.index(STATE["weight"].numpy().tobytes())
    for damaged in (b"damaged", b"", whole[:-100], whole[:weights] + b"\1" + whole[weights + 1 :]):
        path.write_bytes(damaged)
        assert checkpoints.load() is None
        assert "checkpoint.pt is damaged" in caplog.text
        assert "the training begins anew" in caplog.text
        caplog.clear()
    path.write_bytes(whole)
    assert checkpoints.load() is not None


def test_a_checkpoint_with_other_counters_is_named_and_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counters = vars(Counters(step=3)) | {"rewound": 1}
    state = {"inputs": "inputs", "counters": counters, "model": STATE, "optimizer": {}}
    packed = io.BytesIO()
    torch.save(state, packed)
    write_sealed(tmp_path / "checkpoint.pt", packed.getvalue())
    assert CheckpointDirectory(tmp_path, "inputs").load() is None
    assert "checkpoint.pt is not as this version writes it: the training begins" in caplog.text


@pytest.mark.parametrize("damage", ["other", None])
def test_a_damaged_best_model_is_named_and_the_training_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str | None
) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "inputs")
    checkpoints.best(2).mkdir()
    weights = checkpoints.best(2) / "weights"
    weights.write_text("whole")
    checkpoints.save(Counters(step=4, best_step=2, best_bits=1.0), STATE, {})
    if damage is None:
        shutil.rmtree(checkpoints.best(2))
    else:
        weights.write_text(damage)
        with pytest.raises(FileError, match=r"best-2/weights was damaged while the training went"):
            checkpoints.finish(2)
        assert not (tmp_path / "model").exists()
    assert CheckpointDirectory(tmp_path, "inputs").load() is None
    assert str(weights if damage else weights.parent) in caplog.text


def _run_until_killed(out: Path, records: Path, steps: int) -> None:
    """Start the training and kill it when it has reported this many steps, wherever it then is."""
    heard, says = Pipe(duplex=False)
    said = records / "said.txt"
    process = start(train_recorded, out, records, 0.2, says, said=said, environment={})
    says.close()
    for _ in range(steps):
        heard.recv()
    process.kill()
    process.join()


@pytest.mark.slow
def test_killed_twice_it_ends_with_the_same_bytes(tmp_path: Path, whole_training: Any) -> None:
    _, whole, _ = whole_training
    moments = random.Random(4)
    for _ in range(2):
        _run_until_killed(tmp_path / "out", tmp_path, moments.randrange(3, whole.steps // 2 - 3))
        assert (tmp_path / "out" / "checkpoint.pt").exists()
        assert not (tmp_path / "out" / "model").exists()
    resumed = train_small(tmp_path / "out")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)


@pytest.mark.slow
def test_two_processes_see_each_block_once_an_epoch_and_end_like_one(tmp_path: Path) -> None:
    said_there = tmp_path / "said.txt"
    together(2, train_recorded, tmp_path / "two", tmp_path, 0.0, None, said=said_there)
    said = json.loads((tmp_path / "two" / "training.json").read_text())["result"]
    assert said["processes"] == 2
    records = [(tmp_path / f"process-{i}.jsonl").read_text() for i in (0, 1)]
    passes = [[json.loads(line) for line in text.splitlines()] for text in records]
    per_epoch = len(passes[0]) // 4
    assert len(passes[0]) == len(passes[1]) == 4 * per_epoch
    blocks = {number for numbers in passes[0] + passes[1] for number in numbers}
    assert len(blocks) > 30
    for epoch in range(4):
        span = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        seen = [number for part in passes for numbers in part[span] for number in numbers]
        assert sorted(seen) == sorted(blocks)
        assert all(any(numbers for numbers in part[span]) for part in passes)
    one = train_small(tmp_path / "one", dropout=0.0)
    assert said["tokens"] == one.tokens
    assert said["validation_bits"] == pytest.approx(one.validation_bits, abs=1e-3)
    weights = load_file(tmp_path / "two" / "model" / "model.safetensors")
    for name, expected in load_file(one.model_path / "model.safetensors").items():
        assert torch.allclose(weights[name], expected, atol=2e-3), name


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_two_processes_that_check_dp_share_the_documents_of_a_step(
    tmp_path: Path, double: bool
) -> None:
    work = functools.partial(check_in_a_process, double=double)
    together(2, work, tmp_path, said=tmp_path / "said.txt")
    for rank in (0, 1):
        found: Any = json.loads((tmp_path / f"process-{rank}.json").read_text())
        failed = {f["name"]: f["message"] for f in found["findings"] if not f["passed"]}
        assert set(failed) == ({"batch size", "rate"} if double else set())
        said = "each of 2 processes draws from all documents, and a step"
        assert not double or said in failed["batch size"]
