"""Names and files that would take over a terminal: what a person sees of them is spelled out."""

import json
import os
import sys
from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import write_corpus

from lmexposure.cli import console

# Colours, a title, a C1 control, a bell, a turned line, a width of nothing, markup, line ends.
HOSTILE = "\x1b[31m\x1b]0;t\x07\x9b2J\u202ea\u200b[red]\r\nerror: x"
ESCAPED = json.dumps(HOSTILE.replace("\r\n", ""))  # TOML reads this too


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with hostile files in it; commands are called there."""
    monkeypatch.chdir(tmp_path)
    Path(f"{HOSTILE}.txt").write_text("a line\n" * 40)
    template = f'template = "Code {{digits:5}}"\ndescription = {ESCAPED}\nsource = {ESCAPED}\n'
    Path(f"{HOSTILE}.toml").write_text(f'name = "f"\n{template}')
    Path("name.toml").write_text(f"name = {ESCAPED}\n{template}")
    Path("torn.toml").write_text(f"name = {HOSTILE}")
    Path("settings.toml").write_text(f"{ESCAPED} = 1\n")
    Path("a.jsonl").write_text(json.dumps({HOSTILE: "x"}) + "\n")
    Path("m.json").write_text(json.dumps({"schema": HOSTILE}))
    Path(HOSTILE).mkdir()
    Path(HOSTILE, "result.json").write_text(json.dumps({"schema": HOSTILE}))
    return tmp_path


TEXT, FORMAT = f"{HOSTILE}.txt", f"{HOSTILE}.toml"
CALLS = [
    ("formats", "show", FORMAT),
    ("formats", "check", FORMAT),
    ("formats", "check", "name.toml"),
    ("formats", "check", "torn.toml"),
    ("formats", "show", HOSTILE),
    ("insert", TEXT, "--out", f"{HOSTILE}.out", "--format", FORMAT),
    ("insert", HOSTILE, "--out", "o"),
    ("insert", f"{HOSTILE}*?", "--out", "o"),
    ("insert", "a.jsonl", "--out", "o"),
    ("insert", "a.jsonl", "--out", "o", "--text-field", HOSTILE),
    ("insert", TEXT, "--out", "o", "--settings", "settings.toml"),
    ("insert", TEXT, "--out", "o", "--settings", HOSTILE),
    ("insert", TEXT, "--out", "o", "--layout", HOSTILE),
    ("insert", TEXT, "--out", "o", "--repetitions", HOSTILE),
    ("insert", TEXT, "--out", "o", "--seed", HOSTILE),
    ("insert", TEXT, "--out", "o", f"--{HOSTILE}"),
    (HOSTILE,),
    ("formats", "show", HOSTILE, HOSTILE),
    ("verify", TEXT, "m.json"),
    ("remove", TEXT, HOSTILE, "--out", "o"),
    ("report", HOSTILE),
    ("check", HOSTILE),
    ("compare", HOSTILE, HOSTILE),
    ("epsilon", TEXT),
    ("train", TEXT, "--out", "o", "--model", HOSTILE, "--offline"),
]


def test_nothing_from_outside_reaches_the_terminal_as_it_is(home: Path, call: Call) -> None:
    for arguments in CALLS:
        outcome = call(*arguments)
        seen = outcome.out + outcome.err
        assert all(one.isprintable() for one in seen.replace("\n", "")), arguments
        assert not any(line.startswith("error: x") for line in seen.splitlines()), arguments
        assert "unexpected failure" not in seen, arguments


def test_a_traceback_is_harmless_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("lmexposure.audit.corpus.plan_of", fail)
    seen = call("--debug", "insert", "a", "--out", "b").err
    assert "Traceback" in seen
    assert "unexpected failure: RuntimeError" in seen
    assert all(one.isprintable() for one in seen.replace("\n", ""))


def test_a_bar_has_no_markup_and_no_controls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    with console.progress_bars() as bars:
        assert bars.drawn
        bars.show(f"scoring {HOSTILE}", 1, 2, HOSTILE)
        bars.say(HOSTILE)
    console.print_table([HOSTILE], [[HOSTILE]])
    console.say(HOSTILE, aside=True)
    seen = capsys.readouterr()
    for part in (HOSTILE[:4], "\x07", "\x9b", "\u202e"):
        assert part not in seen.out + seen.err
    assert "[red]" in seen.out


@pytest.mark.skipif(sys.platform != "linux", reason="other disks refuse such names")
def test_a_name_that_is_not_utf8_is_refused_by_name(call: Call, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    place = tmp_path / os.fsdecode(b"\xe9")
    place.mkdir()
    for corpus in (tmp_path / name, place / "corpus.txt"):
        write_corpus(corpus, 500)
    pattern = tmp_path / "*.txt"
    for command, corpus in (
        ("insert", tmp_path / name),
        ("insert", pattern),
        ("run", tmp_path / name),
        ("run", place / "corpus.txt"),
    ):
        outcome = call(command, corpus, "--out", tmp_path / "o", "--canaries", "1")
        outcome.refused("\\udce9")
        assert "is not UTF-8, as " in outcome.err
        assert not (tmp_path / "o" / "manifest.json").exists()
    written = place / "o"
    call.done("insert", place / "corpus.txt", "--out", written, "--canaries", "1")
    copy, manifest = written / "corpus" / "corpus.txt", written / "manifest.json"
    moved = copy.rename(copy.with_name(name))
    call.done("verify", moved, manifest)
    call.done("remove", moved, manifest, "--file", tmp_path / "back.txt")
