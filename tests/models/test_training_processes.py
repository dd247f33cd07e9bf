"""Training killed with SIGKILL, and trainings on two processes, plain and checked ones of DP."""

import functools
import json
import random
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
