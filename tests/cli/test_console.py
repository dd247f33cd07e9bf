"""Lines, tables and bars; errors and warnings in the words of the command that shows them."""

import io
import sys
from functools import cache
from pathlib import Path

import pytest
from cli.conftest import Call
from rich.errors import MarkupError
from typer.main import get_command

from lmexposure.cli import console
from lmexposure.cli.app import app
from lmexposure.cli.console import arguments_of, spoken


def test_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup, colours and wrapping would change a path, or raise on a template."""
    line = "[red]/a/path[/] {digits:9} " + "x" * 300
    try:
        console.say(line)
        console.error(line)
    except MarkupError:
        pytest.fail("user text was read as markup")
    seen = capsys.readouterr()
    assert seen.out == line + "\n"
    assert seen.err == f"error: {line}\n"


def test_only_the_first_of_several_processes_speaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    console.say("once")
    console.warn("always")
    seen = capsys.readouterr()
    assert (seen.out, "always" in seen.err) == ("", True)


def test_tables_and_pairs_keep_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["name", "n"], [["[a]", "7"], ["b", "10"]], right=(1,))
    console.print_pairs([("one", "1"), ("three", "3")])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["name   n", "[a]    7", "b     10", "one    1", "three  3"]


def test_bars_are_quiet_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bars() as bars:
        bars.show("scoring", 1, 2)
    assert not bars.drawn
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("encoding", "line", "cell"),
    [
        ("utf-8", "epsilon ≥ 1, 16× é \u4e2d", "≥ 13.29"),
        ("cp1252", "epsilon >= 1, 16× é \\u4e2d", ">= 13.29"),
        ("ascii", "epsilon >= 1, 16x \\xe9 \\u4e2d", ">= 13.29"),
    ],
)
def test_a_terminal_that_lacks_a_sign_gets_it_in_others(
    monkeypatch: pytest.MonkeyPatch, encoding: str, line: str, cell: str
) -> None:
    """Standard output refuses what its encoding lacks; a table keeps its columns all the same."""
    written = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, stream in written.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding, write_through=True))
    console.say("epsilon ≥ 1, 16× é \u4e2d")
    console.print_table(["epsilon ≥", "n"], [["≥ 13.29", "7"], ["≥ 2.00", "10"]], right=(0, 1))
    console.warn("≥")
    shown = written["stdout"].getvalue().decode(encoding).splitlines()
    assert shown[0] == line
    assert [" ".join(row.split()[:2]) for row in shown[2:]] == [cell, cell.split()[0] + " 2.00"]
    assert len({len(row.rstrip()) for row in shown[1:]}) == 1
    assert written["stderr"].getvalue().decode(encoding).startswith("warning: ")


def test_an_error_is_seen_without_a_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    console.error("no such run")
    assert capsys.readouterr().err == "error: no such run\n"


def test_without_standard_output_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python has it where a shell closed it
    console.say("a line")
    console.print_table(["a"], [["1"]])


_commands = cache(lambda: get_command(app).commands)  # type: ignore[attr-defined]


def said_by(command: str, message: str, *typed: str) -> str:
    arguments = arguments_of(command, _commands()[command].params)
    return spoken(message, arguments, typed=typed)


METHODS = "must be one of plain, dp-sgd, goldfish, relaxloss, hamp, selena, distillation; choose"


@pytest.mark.parametrize(
    ("command", "message", "said"),
    [
        ("verbatim", "windows=0 must be", "--windows 0 must be"),
        ("verbatim", "ask for more (windows=...)", "ask for more (--windows)"),
        ("verbatim", "name them (held_out=[...]), or", "name them (--held-out), or"),
        ("verbatim", "random_split=True is of", "--random-split is of"),
        ("verbatim", "leave it out: samples=0", "leave it out: --samples 0"),
        (
            "insert",
            "the gate misses (witness=False), which",
            "the gate misses (--no-witness), which",
        ),
        ("insert", "say witness=True.", "say --witness."),
        ("insert", "formats=['pin', 'my own'] must", "--format pin --format 'my own' must"),
        ("insert", "kind='texts' needs, or kinds=()", "--kind texts needs, or kinds=()"),
        ("insert", "repetitions=(1, 4) need", "--repetitions 1,4 need"),
        ("insert", "say layout='jsonl', else", "say --layout jsonl, else"),
        ("insert", 'system="it\'s" is', "--set 'system=it'\"'\"'s' is"),
        ("train", "epochs=-1: lora=True; seed=1e+100", "--epochs -1: --lora; --seed 1e+100"),
        ("train", "learning_rate=nan, not -inf", "--learning-rate nan, not -inf"),
        ("train", "lora_targets=[...] or lora=False", "--set lora_targets=... or lora=False"),
        (
            "train",
            "lora_targets=['a', 'b']; patience=0",
            "--set lora_targets=a,b; --set patience=0",
        ),
        ("train", "document_norms=True", "--set document_norms=true"),
        ("train", "add method='dp-sgd', or", "add --method dp-sgd, or"),
        ("measure", "choose estimate='importance'", "choose --estimate importance"),
        ("run", "with method='hamp': epsilon=3.0", "with --method hamp: --epsilon 3.0"),
        ("run", f"method='guess' {METHODS}", f"--method guess {METHODS}"),
        ("canife", "clients=1 must be", "--clients 1 must be"),
        ("epsilon", "deltas=2.0 must", "--delta 2.0 must"),
        ("report", "format='pdf' must", "--format pdf must"),
    ],
)
def test_an_argument_is_named_by_its_flag(command: str, message: str, said: str) -> None:
    assert said_by(command, message) == said


@pytest.mark.parametrize(
    "message",
    [
        "epochs=3 must be",  # of another command
        "delta=None is none",
        "no model 'my windows=1 run'; see windows=x",
        "cannot read runs/windows=1 or windows=1/a.txt: no such file",
        "windows=1.txt is empty",
        r"cannot read C:\windows=1",
        "see https://a.org/?windows=1 and a.org/b?q&windows=1",
        "call look(windows=1, seed=2) on corpus.windows=1",
        "mine.toml: windows=0 must be a whole number",
        "a look/passages.json: seed=3: Input should be a string",
        "it says \"windows=1\" and 'seed=2'; xwindows=1; windows = 1; windows==1",
    ],
)
def test_all_else_is_said_as_it_is(message: str) -> None:
    assert said_by("verbatim", message) == message


def test_words_that_were_typed_are_kept() -> None:
    said = said_by("verbatim", "the corpus windows=1 is empty; windows=1, seed=2", "x", "windows=1")
    assert said == "the corpus windows=1 is empty; windows=1, --set seed=2"
    said = said_by("verbatim", "seed=2 is a file; windows=1", "--out=seed=2", "--windows=1")
    assert said == "seed=2 is a file; --windows 1"


def test_a_claim_is_no_training(call: Call) -> None:
    """A run has --epsilon of the training, and --claimed-epsilon."""
    for given, told in (
        (("--claimed-epsilon", "4"), "error: a claim of epsilon=4.0 says nothing without its"),
        (("--claimed-epsilon", "-4", "--delta", "0"), "error: --claimed-epsilon -4.0 must be a"),
        (("--epsilon", "-4"), "error: --epsilon -4.0 must be a finite number"),
    ):
        assert call("run", "c.txt", "--out", "o", *given).err.startswith(told)


def test_errors_and_warnings_are_said_by_the_command(call: Call) -> None:
    corpus = Path("epochs=3")
    corpus.write_text("".join(f"line {n}\n" for n in range(50)))
    seen = call("insert", corpus, "--out", "o", "--format", "pin", "--canaries", 9)
    assert "leave the witnesses out (--no-witness), which the gate then misses" in seen.err
    refused = call("train", corpus, "--out", "p", "--epochs", 0, "--method", "plain")
    assert refused.err == "error: --epochs 0 must be a whole number at least 1\n"
    Path("mine.toml").write_text("epochs = 0\n")
    refused = call("train", corpus, "--out", "p", "--settings", "mine.toml")
    assert "mine.toml: epochs=0 must be" in refused.err.replace("\n", "")
