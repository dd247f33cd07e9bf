"""--out is one thing in every command: a directory, made where it is missing; a file is refused."""

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
    found.pop("texts")  # writes a file
    return {name: those[0] for name, those in found.items() if those}


def test_every_help_ends_with_the_rule() -> None:
    assert flags().keys() == WORDS.keys()
    for option in flags().values():
        assert "A directory, created with its parents if it is missing; a file is" in option.help


@pytest.mark.parametrize("command", WORDS)
def test_a_file_is_refused_by_name(call: Call, command: str) -> None:
    file, link = Path("file"), Path("link")
    file.write_text("mine")
    link.symlink_to(file)
    for out, taken in (
        (file, file),
        (link, link),
        (file / "a" / "b", f"{file / 'a' / 'b'}: {file}"),
    ):
        seen = call(command, *WORDS[command], "--out", out)
        seen.refused(f"--out {taken} is a file; --out names a directory: choose another")
    assert file.read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["file", "link"]


def test_a_directory_is_made_with_its_parents(call: Call) -> None:
    corpus = write_corpus(Path("c.txt"), 40)
    deep = Path("a/b")
    call.done("insert", corpus, "--out", deep / "i", *PLAN)
    words = (deep / "i" / "corpus" / "c.txt", deep / "i" / "manifest.json")
    call.done("remove", *words, "--out", deep / "back" / "there")
    assert (deep / "back" / "there" / "c.txt").read_bytes() == corpus.read_bytes()
    for out in (deep / "back" / "there", "."):
        call("remove", *words, "--out", out).refused("c.txt is there already; choose another --out")
    Path("links").mkdir()
    Path("links/c.txt").symlink_to("../nowhere")
    call("remove", *words, "--out", "links").refused("c.txt is there already; choose another --out")
    assert not Path("nowhere").exists()
    run = small_run(Path("r"))
    call.done("report", run, "--out", deep / "x" / "y")
    call.done("compare", run, run, "--out", deep / "x" / "z")
    assert (deep / "x" / "y" / "report.md").exists()
    assert (deep / "x" / "z" / "compare.md").exists()
