"""A disk that fails at any write, an end behind any of them: the same command ends at the same.

Each write of a command is one `os.replace`. What differs between two whole runs (dates, seconds)
has to be there again; all else has to be there to the byte.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call
from cli.test_foreign_files import COMMANDS, Command, made
from forks import die_behind, start

from lmexposure._written import LIST
from lmexposure.cli import entry

__all__ = ["made"]  # a fixture

# Of each kind of study, and what writes: every write of the quick ones, of the others every
# so-manieth. With LMEXPOSURE_FAULTS=all every write of all, which takes twenty minutes.
STRIDES = {
    "insert": 1,
    "train": 1,
    "verbatim": 1,
    "canife": 1,
    "report": 1,
    "compare": 1,
    "identifiers": 7,
    "sweep": 40,
}
# A report is written at once, each file whole: it waits for nobody.
MAKING = [name for name in COMMANDS if not name.startswith(("report", "compare"))]
ALL = os.environ.get("LMEXPOSURE_FAULTS") == "all"
if ALL:
    STRIDES = dict.fromkeys([*STRIDES, "measure", "dp-sgd", "selena", "run"], 1)
_NEVER_ALIKE = (b'"seconds"', b'"measured"')  # by chance the same in two runs


def files_at(out: Path) -> dict[str, bytes]:
    """Every file by its name."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file()
    }


class Writes:
    """Counts the writes of a command, and lets one of them fail."""

    def __init__(self, failing: int | None = None, *, behind: bool = False) -> None:
        self.done, self._failing, self._behind = 0, failing, behind
        self._put = os.replace

    def __call__(self, source: Any, target: Any) -> None:
        number, self.done = self.done, self.done + 1
        if number == self._failing and not self._behind:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        self._put(source, target)
        if number == self._failing:
            raise KeyboardInterrupt


Made = tuple[dict[str, bytes], set[str]]
_WHOLE: dict[str, Made] = {}  # by command


def whole_and_steady(call: Call, made: Path, tmp_path: Path, name: str, *more: object) -> Made:
    """The files that a command makes, and those of them that are the same each time."""
    if name not in _WHOLE:
        _WHOLE[name] = _made_twice(call, made, tmp_path, COMMANDS[name], *more)
    return _WHOLE[name]


def _made_twice(call: Call, made: Path, tmp_path: Path, command: Command, *more: object) -> Made:
    call.done(*command(made, tmp_path / "first" / "o"), *more)
    time.sleep(1.1)  # for its dates to be others
    call.done(*command(made, tmp_path / "whole" / "o"), *more)
    first, whole = (files_at(tmp_path / run) for run in ("first", "whole"))
    assert first.keys() == whole.keys()
    steady = {
        path
        for path, content in whole.items()
        if first[path] == content
        and not any(word in content for word in _NEVER_ALIKE)
        and Path(path).name != LIST  # it has what both attempts began
    }
    assert steady
    return whole, steady


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", STRIDES)
def test_after_a_fault_the_same_command_goes_on_to_the_same(
    call: Call, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, behind: bool
) -> None:
    command = COMMANDS[name]
    more = ("--seed", 3) if name == "insert" else ()
    whole, steady = whole_and_steady(call, made, tmp_path, name, *more)
    for failing in count(0, STRIDES[name]):
        out, writes = tmp_path / f"at-{failing}" / "o", Writes(failing, behind=behind)
        with monkeypatch.context() as patched:
            patched.setattr("lmexposure._files.os.replace", writes)
            ended = call(*command(made, out), *more)
        assert "bug in lmexposure" not in ended.err, ended.err
        if writes.done <= failing:
            break
        assert ended.code == (130 if behind else 3), (failing, ended.err)
        call.done(*command(made, out), *more)
        found = files_at(out.parent)
        assert found.keys() == whole.keys(), (failing, found.keys() ^ whole.keys())
        changed = {path for path in steady if found[path] != whole[path]}
        assert not changed, failing
    assert failing


def killed(behind: int, words: list[str]) -> None:
    """The command, killed behind one of its writes."""
    die_behind(behind)
    sys.argv = ["lmexposure", *words]
    entry.main()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["verbatim", "identifiers"])
def test_killed_again_and_again_it_goes_on_to_the_same(
    call: Call, made: Path, tmp_path: Path, name: str
) -> None:
    whole, steady = whole_and_steady(call, made, tmp_path, name)
    command, said = COMMANDS[name](made, tmp_path / "killed" / "o"), tmp_path / "said.txt"
    for number in (0, 1, 2):
        begun = start(killed, number, list(map(str, command)), said=said, environment={})
        begun.join()
        assert begun.exitcode == -signal.SIGKILL, said.read_text()
    call.done(*command)
    found = files_at(tmp_path / "killed")
    assert found.keys() == whole.keys()
    assert not {path for path in steady if found[path] != whole[path]}


_HOLDS = """
import sys
from contextlib import ExitStack
from pathlib import Path
from lmexposure._files import only_writer
with ExitStack() as held:
    for path in sys.argv[1:]:
        held.enter_context(only_writer(Path(path)))
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directories that another process works in, one a command."""
    home = tmp_path_factory.mktemp("held")
    words = [sys.executable, "-c", _HOLDS, *(str(home / name) for name in MAKING)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield home
        other.communicate()


@pytest.mark.parametrize("name", MAKING)
def test_where_another_process_is_at_work_nothing_is_begun(
    call: Call, made: Path, held: Path, name: str
) -> None:
    before = files_at(held / name)
    answer = call(*COMMANDS[name](made, held / name))
    assert (answer.code, files_at(held / name)) == (3, before), answer
    assert "another process is at work" in answer.err
