"""Checkpoints: whole or not there, and never taken for another training's."""

from pathlib import Path

import pytest
import torch

from lmexposure.errors import ResultError
from lmexposure.models.checkpoints import CheckpointDirectory, Counters

STATE = {"weight": torch.arange(3.0)}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    counters = Counters(step=7, tokens=70, best_bits=1.5, best_step=5, rows=[{"step": 5}])
    CheckpointDirectory(tmp_path, "inputs").save(counters, STATE, {"state": {0: STATE}})
    loaded = CheckpointDirectory(tmp_path, "inputs").load()
    assert loaded is not None
    assert loaded[0] == counters
    assert torch.equal(loaded[1]["weight"], STATE["weight"])
    assert torch.equal(loaded[2]["state"][0]["weight"], STATE["weight"])


def test_nothing_saved_is_nothing_loaded(tmp_path: Path) -> None:
    assert CheckpointDirectory(tmp_path, "inputs").load() is None


def test_an_older_best_goes_only_when_a_checkpoint_no_longer_needs_it(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "inputs")
    for step in (1, 2):
        checkpoints.best(step).mkdir()
    assert checkpoints.best(1).exists()
    checkpoints.save(Counters(step=2, best_step=2), {}, {})
    assert not checkpoints.best(1).exists()
    assert checkpoints.best(2).exists()


def test_finishing_leaves_the_model_and_nothing_else(tmp_path: Path) -> None:
    checkpoints = CheckpointDirectory(tmp_path, "inputs")
    checkpoints.best(2).mkdir()
    (checkpoints.best(2) / "weights").write_text("w")
    checkpoints.save(Counters(best_step=2), {}, {})
    for _ in range(2):  # killed in between, it is done again
        assert (checkpoints.finish(2) / "weights").read_text() == "w"
    checkpoints.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_another_trainings_checkpoint_is_refused(tmp_path: Path) -> None:
    CheckpointDirectory(tmp_path, "inputs").save(Counters(), {}, {})
    with pytest.raises(ResultError, match="holds an unfinished training with other settings"):
        CheckpointDirectory(tmp_path, "others").load()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"damaged")
    with pytest.raises(ResultError, match=r"cannot read .*checkpoint\.pt; remove it to train"):
        CheckpointDirectory(tmp_path, "inputs").load()
