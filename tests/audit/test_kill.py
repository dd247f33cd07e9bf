"""A run killed with SIGKILL in training and in measuring ends like one that was left alone."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Call, call
from corpora import write_corpus
from forks import start
from hashes import sha256_tree

from lmexposure._files import sha256_file
from lmexposure.cli.entry import _run

__all__ = ["call"]  # a fixture of the tests of commands

PLAN = ["--canaries", "4", "--repetitions", "1,8", "--controls", "4", "--set", "units=48"]
ARGUMENTS = [*PLAN, "--seed", "0", "--epochs", "3", "--references", "1000", "--set", "revealed=4"]
ARGUMENTS += ["--set", "budget_steps=20000", "--set", "draws=2000", "--set", "guesses=100"]


def command(corpus: Path, out: Path) -> list[str]:
    return ["run", str(corpus), "--out", str(out), *ARGUMENTS]


def begin(arguments: list[str]) -> None:
    sys.argv = ["lmexposure", *arguments]
    sys.exit(_run())


def kill_when(corpus: Path, out: Path, ready: Callable[[], bool]) -> None:
    """Start the run in a process of its own, and kill it at once when `ready` says so."""
    said = corpus.with_name("said.txt")
    process = start(begin, command(corpus, out), said=said, environment={})
    while not ready():
        assert process.is_alive(), f"it ended before it could be killed: {said.read_text()}"
        time.sleep(0.002)
    process.kill()
    process.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_in_training_and_in_measuring_it_ends_bit_equal(call: Call, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 900)
    assert call(*command(corpus, tmp_path / "whole")).code == 0
    out = tmp_path / "killed"
    kill_when(corpus, out, (out / "checkpoint.pt").exists)
    assert not (out / "model").exists()
    kill_when(corpus, out, lambda: any((out / ".work").glob("random_number.npz-*")))
    assert (out / "model").exists()
    assert not (out / "result.json").exists()
    assert call(*command(corpus, out)).code == 0
    for name in ("manifest.json", "scores.parquet", "result.json"):
        assert sha256_file(out / name) == sha256_file(tmp_path / "whole" / name), name
    for name in ("corpus", "model"):
        assert sha256_tree(out / name) == sha256_tree(tmp_path / "whole" / name), name
    leftovers = [p.name for p in out.iterdir() if p.name not in os.listdir(tmp_path / "whole")]
    assert leftovers == []
