"""Training killed with SIGKILL, and training on two processes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hashes import sha256_tree
from models.small_training import train_small
from safetensors.torch import load_file

PROGRAM = Path(__file__).with_name("small_training.py")
ROOT = Path(__file__).parents[2]


def _environment(**more: str) -> dict[str, str]:
    # One thread as here (conftest.py): sums over more threads round differently.
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def _run_until_killed(out: Path, records: Path, steps: int) -> None:
    """Start the program and kill it when it has said so many steps, wherever it then is."""
    command = [sys.executable, str(PROGRAM), str(out), str(records), "0.2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=_environment(), text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline()
        process.kill()


def test_killed_twice_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = train_small(tmp_path / "whole")
    moments = random.Random(4)
    for _ in range(2):
        _run_until_killed(tmp_path / "out", tmp_path, moments.randrange(3, whole.steps // 2 - 3))
        assert (tmp_path / "out" / "checkpoint.pt").exists()
        assert not (tmp_path / "out" / "model").exists()
    resumed = train_small(tmp_path / "out")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)


@pytest.fixture
def two_processes(tmp_path: Path) -> Path:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node=2", str(PROGRAM), str(tmp_path / "two"), str(tmp_path), "0"]
    environment = _environment(ACCELERATE_USE_CPU="true")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_two_processes_see_each_block_once_an_epoch_and_end_like_one(two_processes: Path) -> None:
    said = json.loads((two_processes / "two" / "training.json").read_text())["result"]
    assert said["processes"] == 2
    records = [(two_processes / f"process-{i}.jsonl").read_text() for i in (0, 1)]
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
    one = train_small(two_processes / "one", dropout=0.0)
    assert said["tokens"] == one.tokens
    assert said["validation_bits"] == pytest.approx(one.validation_bits, abs=1e-3)
    weights = load_file(two_processes / "two" / "model" / "model.safetensors")
    for name, expected in load_file(one.model_path / "model.safetensors").items():
        assert torch.allclose(weights[name], expected, atol=2e-3), name
