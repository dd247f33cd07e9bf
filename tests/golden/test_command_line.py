"""Every `--help`, and wrong calls of every command: exit code, and all that a person sees.

A file of `expected/command_line` is a list of calls with what each gave. Its lines that begin with
`$ ` are what is called here; a new one is filled in by `scripts/golden --accept`. They are called
in a directory of the files that `wrong_files.py` makes, which each call finds as they were made.
"""

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import typer.main
from golden.wrong_files import make_files
from golden_run import agree

from lmexposure.cli.app import app
from lmexposure.cli.entry import _run

_EXPECTED = Path(__file__).parent / "expected" / "command_line"
_COMMANDS = sorted(path.stem for path in _EXPECTED.glob("*.txt") if path.stem != "help")
_CALL = "$ lmexposure"
# What Python says of nesting too deep depends on its version; what it is depends on nothing.
_NESTED = re.compile(r"(maximum recursion depth exceeded|Stack overflow)[^);]*")

_made_once = cache(typer.main.get_command)  # each call would make all commands anew

Call = Callable[[str], str]
Entry = tuple[int, int] | None


class Home:
    """The directory of the calls, which is put back as it was made after each.

    Args:
        place: a directory that is not there yet, for two copies of the files.
    """

    def __init__(self, place: Path) -> None:
        self.path, self._made = place / "files", place / "as_made"
        make_files(self._made)
        shutil.copytree(self._made, self.path, symlinks=True)
        self._before = _entries(self._made)

    def restore(self) -> list[str]:
        """Put all back; returns what had been made, changed and taken away, in words."""
        before, after = self._before, _entries(self.path)
        made = sorted(after.keys() - before.keys(), reverse=True)
        other = sorted(name for name in before if before[name] != after.get(name, (-1, -1)))
        for name in made:
            path = self.path / name
            path.rmdir() if after[name] is None else path.unlink()
        for name in other:
            shutil.copy2(self._made / name, self.path / name, follow_symlinks=False)
        shown = [name for name in reversed(made) if not _holds_more(name, made)]
        return [f"  made  {name}{'/' if after[name] is None else ''}" for name in shown] + [
            f"  {'changed' if name in after else 'gone'}  {name}" for name in other
        ]


def _holds_more(name: str, names: list[str]) -> bool:
    return any(other.startswith(f"{name}/") for other in names)


def _entries(home: Path) -> dict[str, Entry]:
    """Size and time of each file, None for a directory, by path; a link is not followed."""
    found: dict[str, Entry] = {}
    left = [""]
    while left:
        within = left.pop()
        for one in os.scandir(home / within):  # pathlib takes longer than the calls
            name = f"{within}/{one.name}".removeprefix("/")
            if one.is_dir(follow_symlinks=False):
                found[name] = None
                left.append(name)
            else:
                seen = one.stat(follow_symlinks=False)
                found[name] = (seen.st_size, seen.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("command_line"))


@pytest.fixture
def _quiet() -> Iterator[None]:
    """As the entry point has it where no other test has imported transformers before."""
    library = sys.modules.get("transformers")
    before = None if library is None else library.logging.get_verbosity()
    if library is not None:
        library.logging.set_verbosity_error()
    yield
    if library is not None:
        library.logging.set_verbosity(before)


@pytest.fixture
def call(
    _quiet: None,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Call:
    """Give a call, as it is in an expected file, and get what is below it there."""
    monkeypatch.chdir(home.path)
    monkeypatch.setattr(typer.main, "get_command", _made_once)
    _fix_terminal(monkeypatch)

    def transcript(line: str) -> str:
        words, _, given = line.removeprefix("$ ").partition(" < ")
        typed = Path(given).read_bytes() if given else b""
        monkeypatch.setattr(sys, "argv", shlex.split(words))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        capsys.readouterr()
        caplog.clear()
        code = _run()
        seen, logged = capsys.readouterr(), "\n".join(caplog.messages)
        said = {"out": seen.out, "log": logged, "err": seen.err}
        lines = [*_marked(said), f"  exit {code}"]
        text = "\n".join(one.rstrip() for one in [*lines, *home.restore()])
        return _NESTED.sub("NESTED TOO DEEP", text.replace(str(home.path), "HERE"))

    return transcript


def _fix_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a person at a terminal of 100 columns who types the name of the command."""
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    for name in ("FORCE_COLOR", "LINES", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)


def _marked(said: Mapping[str, str]) -> list[str]:
    """Lines with where they were said; what is logged, pytest keeps from standard error."""
    return [f"  {where}  {line}" for where, text in said.items() for line in text.splitlines()]


@pytest.mark.parametrize("command", _COMMANDS)
def test_wrong_calls(call: Call, command: str) -> None:
    expected = (_EXPECTED / f"{command}.txt").read_text(encoding="utf-8")
    asked = [line for line in expected.splitlines() if line.startswith(("$ ", "# "))]
    made = [f"\n{line}" if line[0] == "#" else f"\n{line}\n{call(line)}" for line in asked]
    agree(f"command_line/{command}.txt", "\n".join(made).lstrip("\n") + "\n")


def test_every_help(call: Call) -> None:
    commands = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(commands) == set(_COMMANDS) - {"top"}
    asked = ["", *commands, "formats show", "formats check"]
    lines = [f"{_CALL} {words} --help".replace("  ", " ") for words in asked]
    made = [f"{line}\n{call(line)}" for line in lines]
    agree("command_line/help.txt", "\n\n".join(made) + "\n")


def test_no_call_is_lost_or_made_twice() -> None:
    files = {name: (_EXPECTED / f"{name}.txt").read_text(encoding="utf-8") for name in _COMMANDS}
    calls = [line for text in files.values() for line in text.splitlines() if line[:2] == "$ "]
    assert len(set(calls)) == len(calls) >= 780
    assert all(name == "top" or f"{_CALL} {name}" in text for name, text in files.items())
