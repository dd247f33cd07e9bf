import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from corpora import write_corpus
from typer.main import get_command

from lmexposure.cli.entry import _run


class Outcome(NamedTuple):
    """What a person saw: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    def done(self, *, out: str = "", err: str = "") -> "Outcome":
        """It ended with exit code 0, and said this."""
        assert (self.code, out in self.out, err in self.err) == (0, True, True), self
        return self

    def refused(self, message: str) -> None:
        """It ended with exit code 3, and a sentence on standard error."""
        said = " ".join(self.err.split())
        assert (self.code, message in said) == (3, True), self
        assert not {"Traceback", "unexpected"} & set(said.split()), self


_command = cache(get_command)  # half of a light command's time, if made for each call


def run_command(*arguments: object) -> int:
    """Run `lmexposure ARGUMENTS` in this process, as the entry point does; its exit code."""
    words = ["lmexposure", *map(str, arguments)]
    with patch.object(sys, "argv", words), patch("typer.main.get_command", _command):
        return _run()


class Call:
    """Runs a command, and gives what a person saw of it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._seen = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._seen.readouterr()
        return Outcome(run_command(*arguments), *self._seen.readouterr())

    def done(self, *arguments: object) -> Outcome:
        """Of a command that ends with exit code 0."""
        return self(*arguments).done()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


# Two canaries once and two three times, with two controls; what a corpus of 60 lines has room for.
FEW = ("--format", "pin", "--canaries", 2, "--repetitions", "1,3", "--controls", 2)
# What measures little in a second.
QUICK = (
    *("--set", "references=300", "--set", "revealed=1", "--set", "budget_steps=20000"),
    *("--set", "draws=1000"),
)


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are called where nothing is yet."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def corpus(own_directory: None) -> Path:
    return write_corpus(Path("corpus.txt"), 60)


SMALL = ("--set", "layers=1", "--set", "units=8", "--epochs", 1, "--seed", 3)
PLAN = ("--format", "pin", "--canaries", 2, "--repetitions", "1,20", "--controls", 4)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of corpus.txt, what `insert` made of it in i, and a model of that in t."""
    home = tmp_path_factory.mktemp("trained")
    corpus, inserted = write_corpus(home / "corpus.txt", 60), home / "i" / "corpus" / "corpus.txt"
    assert run_command("insert", corpus, "--out", home / "i", *PLAN) == 0
    manifest = ("--manifest", home / "i" / "manifest.json")
    assert run_command("train", inserted, *manifest, "--out", home / "t", *SMALL) == 0
    return home
