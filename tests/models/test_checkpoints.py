"""Checkpoints: whole or not there, and never taken for another training's."""

import io
import shutil
from pathlib import Path

import pytest
import torch

from lmexposure._files import atomic_directory
from lmexposure._integrity import write_sealed
from lmexposure._written import study
from lmexposure.errors import FileError, ResultError
from lmexposure.models.checkpoints import CheckpointDirectory, Counters

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
