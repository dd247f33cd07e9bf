"""What is killed with SIGKILL, at any moment and again and again, ends as if it was left alone."""

import gzip
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Call, call
from corpora import sentences, write_corpus
from forks import start
from hashes import sha256_tree

from lmexposure._files import sha256_file
from lmexposure.canaries import Manifest
from lmexposure.cli.entry import _run

__all__ = ["call"]  # a fixture of the tests of commands

PLAN = ["--canaries", "4", "--repetitions", "1,8", "--controls", "4", "--set", "units=48"]
ARGUMENTS = [
    *PLAN,
    "--seed",
    "0",
    "--epochs",
    "3",
    "--set",
    "references=1000",
    "--set",
    "revealed=4",
]
ARGUMENTS += ["--set", "budget_steps=20000", "--set", "draws=2000", "--set", "guesses=100"]


def command(corpus: Path, out: Path) -> list[str]:
    return ["run", str(corpus), "--out", str(out), *ARGUMENTS]


def begin(words: list[str], given: Path | None = None, written: Path | None = None) -> None:
    for descriptor, path in enumerate((given, written)):
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if descriptor else os.O_RDONLY
            os.dup2(os.open(path, flags), descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["lmexposure", *words]
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


INSERTED = ["--format", "pin", "--canaries", "4", "--repetitions", "1,8", "--controls", "4"]
INSERTED += ["--seed", "0"]
KILLS, FILES = 8, 3


class Insertion:
    """The call that is killed: of one file, of several packed ones, or of a pipe."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        text = "".join(f"{line}\n" for line in sentences(40_000)).encode()
        self.text, empty = place / "corpus.txt", place / "empty.txt"
        self.text.write_bytes(text)
        empty.write_bytes(b"")
        for number in range(FILES):
            part = text[number * len(text) // FILES : (number + 1) * len(text) // FILES]
            (place / f"{number}.txt.gz").write_bytes(gzip.compress(part))
        self._empty = empty

    def call(self, out: Path, *, until: float | None = None, empty: bool = False) -> float:
        """Give the call and kill it after so many seconds, or let it end; how long it took."""
        corpus = {"file": str(self.text), "files": str(self.place / "*.gz"), "pipe": "-"}
        words = ["insert", corpus[self.kind], "--out", str(out), *INSERTED]
        piped = self.kind == "pipe"
        given = (self._empty if empty else self.text) if piped else None
        said = self.place / "said.txt"
        begun = time.monotonic()
        process = start(
            begin, words, given, self.written(out) if piped else None, said=said, environment={}
        )
        if until is not None:
            process.join(until)
            process.kill()
        process.join()
        assert until is not None or process.exitcode == 0, said.read_text()
        return time.monotonic() - begun

    def written(self, out: Path) -> Path:
        """What standard output went to."""
        return out.with_suffix(".txt")

    def left(self, out: Path) -> tuple[str, ...]:
        """All that a call has made, by hash."""
        made = (sha256_tree(out),)
        if self.kind != "pipe":
            return made
        return (*made, self.written(out).read_text())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["file", "files", "pipe"])
def test_killed_again_and_again_it_ends_the_same(kind: str, tmp_path: Path) -> None:
    insertion, draw = Insertion(kind, tmp_path), random.Random(kind)
    whole, out = tmp_path / "whole", tmp_path / "killed"
    seconds = insertion.call(whole)
    seconds = min(seconds, insertion.call(tmp_path / "warm"))
    for _ in range(KILLS):
        spool = out / "source" / "standard_input"
        insertion.call(out, until=draw.uniform(0, seconds), empty=spool.exists())
        if (out / "manifest.json").exists():
            assert Manifest.read(out / "manifest.json") == Manifest.read(whole / "manifest.json")
        if (out / "corpus").exists():
            assert sha256_tree(out / "corpus") == sha256_tree(whole / "corpus")
        if kind == "pipe" and (out / "manifest.json").exists() and not spool.exists():
            # It was done, but for the lock, which the next command takes over.
            (out / ".lmexposure.lock").unlink(missing_ok=True)
            break
    else:
        insertion.call(out, empty=(out / "source" / "standard_input").exists())
    assert insertion.left(out) == insertion.left(whole)
    assert sorted(path.name for path in out.iterdir()) == sorted(os.listdir(whole))
