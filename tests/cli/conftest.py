import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from typer.main import get_command

from lmexposure.cli.entry import _run


class Outcome(NamedTuple):
    """What a person saw: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


def assert_refused(seen: Outcome, message: str) -> None:
    """A refusal is exit code 3 and a sentence on standard error."""
    said = " ".join(seen.err.split())
    assert (seen.code, message in said) == (3, True), seen
    assert not {"Traceback", "unexpected"} & set(said.split()), seen


_command = cache(get_command)  # half of a light command's time, if made for each call


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `lmexposure ARGUMENTS` in this process, as the entry point does."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["lmexposure", *map(str, arguments)])
        monkeypatch.setattr("typer.main.get_command", _command)
        capsys.readouterr()
        code = _run()
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return run
