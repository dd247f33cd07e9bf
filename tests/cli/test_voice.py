"""Errors and warnings, in the words of the command that shows them."""

from functools import cache
from pathlib import Path

import pytest
from cli.conftest import Call
from typer.main import get_command

from lmexposure.cli.app import app
from lmexposure.cli.voice import arguments_of, spoken

_commands = cache(lambda: get_command(app).commands)  # type: ignore[attr-defined]


def said_by(command: str, message: str, *typed: str) -> str:
    arguments = arguments_of(command, _commands()[command].params)
    return spoken(message, arguments, typed=typed)


METHODS = "must be one of plain, dp-sgd, goldfish, relaxloss, hamp, selena, distillation; choose"


@pytest.mark.parametrize(
    ("command", "message", "said"),
    [
        ("verbatim", "windows=0 must be", "--windows 0 must be"),
        ("verbatim", "give more windows (windows=...)", "give more windows (--windows)"),
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


def test_a_claim_is_no_training(call: Call, tmp_path: Path) -> None:
    """A run has --epsilon of the training, and --claimed-epsilon."""
    corpus, out = tmp_path / "c.txt", tmp_path / "o"
    for given, told in (
        (("--claimed-epsilon", "4"), "error: a claim of epsilon=4.0 says nothing without its"),
        (("--claimed-epsilon", "-4", "--delta", "0"), "error: --claimed-epsilon -4.0 must be a"),
        (("--epsilon", "-4"), "error: --epsilon -4.0 must be a finite number"),
    ):
        assert call("run", corpus, "--out", out, *given).err.startswith(told)


def test_errors_and_warnings_are_said_by_the_command(call: Call, tmp_path: Path) -> None:
    corpus = tmp_path / "epochs=3"
    corpus.write_text("".join(f"line {n}\n" for n in range(50)))
    seen = call("insert", corpus, "--out", tmp_path / "o", "--format", "pin", "--canaries", 9)
    assert "leave the witnesses out (--no-witness), which the gate then misses" in seen.err
    refused = call("train", corpus, "--out", tmp_path / "p", "--epochs", 0, "--method", "plain")
    assert refused.err == "error: --epochs 0 must be a whole number at least 1\n"
    settings = tmp_path / "mine.toml"
    settings.write_text("epochs = 0\n")
    refused = call("train", corpus, "--out", tmp_path / "p", "--settings", settings)
    assert "mine.toml: epochs=0 must be" in refused.err.replace("\n", "")
