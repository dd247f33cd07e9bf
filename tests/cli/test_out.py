"""--out is one thing in every command: a directory, made where it is missing; a file is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli.conftest import Call
from corpora import write_corpus
from made_results import small_run

from lmexposure.cli.app import app

# Words of each command that has --out, but for --out itself; they need not be of any use.
WORDS = {
    "insert": ("c.txt",),
    "remove": ("c.txt", "m.json"),
    "train": ("c.txt",),
    "measure": ("m", "m.json"),
    "run": ("c.txt",),
    "sweep": ("c.txt",),
    "defences": ("c.txt",),
    "verbatim": ("m", "c.txt"),
    "canife": ("c.txt",),
    "report": ("r",),
    "compare": ("r", "s"),
    "check": ("--model", "m", "--manifest", "m.json"),
    "identifiers": ("m", "c.txt", "--format", "pin"),
    "demo": (),
}
PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1", "--controls", "2")


def flags() -> dict[str, Any]:
    """The option --out of each command that has one."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = {
        name: [one for one in command.params if "--out" in one.opts]
        for name, command in commands.items()
    }
    return {name: those[0] for name, those in found.items() if those}


def test_every_help_ends_with_the_rule() -> None:
    assert flags().keys() == WORDS.keys()
    for option in flags().values():
        assert "A directory, created with its parents if it is missing; a file is" in option.help


@pytest.mark.parametrize("command", WORDS)
def test_a_file_is_refused_by_name(call: Call, tmp_path: Path, command: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(file)
    for out in (file, tmp_path / "link"):
        outcome = call(command, *WORDS[command], "--out", out)
        assert outcome.code == 3
        assert f"--out {out} is a file; --out names a directory: choose another" in outcome.err
    outcome = call(command, *WORDS[command], "--out", file / "a" / "b")
    assert (outcome.code, f"b: {file} is a file; --out" in outcome.err) == (3, True), outcome.err
    assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_a_directory_is_made_with_its_parents(call: Call, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.txt", 40)
    deep = tmp_path / "a" / "b"
    assert call("insert", corpus, "--out", deep / "i", *PLAN).code == 0
    words = (deep / "i" / "corpus" / "c.txt", deep / "i" / "manifest.json")
    assert call("remove", *words, "--out", deep / "back" / "there").code == 0
    assert (deep / "back" / "there" / "c.txt").read_bytes() == corpus.read_bytes()
    for out in (deep / "back" / "there", tmp_path):
        again = call("remove", *words, "--out", out)
        assert (again.code, "c.txt is there already; choose another --out" in again.err) == (
            3,
            True,
        )
    run = small_run(tmp_path / "r")
    assert call("report", run, "--out", deep / "x" / "y").code == 0
    assert call("compare", run, run, "--out", deep / "x" / "z").code == 0
    assert (deep / "x" / "y" / "report.md").exists()
    assert (deep / "x" / "z" / "compare.md").exists()


def test_a_report_does_not_take_the_place_of_another_runs(call: Call, tmp_path: Path) -> None:
    """A report beside a result would be read as that result's."""
    first, second = small_run(tmp_path / "a"), small_run(tmp_path / "b")
    assert call("report", second).code == 0
    before = (second / "report.md").read_bytes()
    assert call("report", first, "--out", first).code == 0
    copied = shutil.copytree(first, tmp_path / "copied")
    assert call("report", first, "--out", copied).code == 0
    (second / "result.json").write_text((second / "result.json").read_text() + " ")
    outcome = call("report", first, "--out", second)
    assert outcome.code == 3
    assert f"{second} holds the result of another run, and its report" in outcome.err
    assert (second / "report.md").read_bytes() == before
