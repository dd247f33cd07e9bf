"""Flags and keys of a settings file: declared once, and what is wrong with them is said by name."""

import re
from pathlib import Path

import pytest
import typer.main
from cli.conftest import Call, assert_refused

from lmexposure._settings import settings_of
from lmexposure.cli import options
from lmexposure.cli.app import app
from lmexposure.core import Thresholds
from lmexposure.errors import SettingsError
from lmexposure.studies import (
    MeasureSettings,
    RunSettings,
    TrainingSettings,
)


def flags_of(command: str) -> set[str]:
    """The flags of a command that its help shows."""
    found = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    return {
        flag
        for option in found
        if not getattr(option, "hidden", False)
        for flag in (*option.opts, *option.secondary_opts)
        if flag.startswith("--")
    }


def declared(*records: type) -> set[str]:
    return {
        flag
        for record in records
        for told in settings_of(record).values()
        if told.flag
        for flag in told.flag.split("/")
    }


def test_each_declared_flag_is_one_of_the_command_line() -> None:
    own = {"--out", "--settings", "--help"}
    # What a run has as --batch-size is the training's.
    assert flags_of("run") - own == declared(RunSettings, MeasureSettings, TrainingSettings)
    assert declared(Thresholds) <= flags_of("check")
    assert declared(MeasureSettings) - flags_of("measure") == set()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("zzz = 4", "unknown setting 'zzz'; there are batch_size, beam_width, "),
        ("epochs = 4", r"'epochs' is no setting here: it belongs in the table \[training\]"),
        (
            "[training]\nepoch = 4",
            r"\[training\] unknown setting of the training 'epoch'; did you mean 'epochs'",
        ),
        (
            "[training]\ndraws = 4",
            r"\[training\] 'draws' is no setting of the training here: it be",
        ),
        ('[training]\nepochs = "2"', r"\[training\] epochs='2' must be a whole number at least 1"),
        (
            "[training]\nsnapshot_epochs = 3",
            r"\[training\] snapshot_epochs=3 must be a list of epochs",
        ),
        (
            "[check]\nmax_guess = 4",
            r"\[check\] unknown threshold 'max_guess'; did you mean 'max_guesses'[?] There are",
        ),
        (
            "[check]\ndraws = 40",
            r"\[check\] 'draws' is no threshold here: it belongs in the settings without a table",
        ),
        (
            "[check]\nmax_guesses = 1.5",
            r"\[check\] max_guesses=1.5 must be a whole number from 1 to",
        ),
    ],
)
def test_what_is_wrong_in_a_settings_file(
    call: Call, tmp_path: Path, file: str, message: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(file)
    words = ("check", tmp_path) if file.startswith("[check]") else ("train", "c", "--out", "o")
    seen = call(*words, "--settings", path)
    assert seen.code == 3
    assert re.search(f"settings.toml: {message}", seen.err.replace("\n", "")), seen.err


@pytest.mark.parametrize(
    ("file", "flags", "message"),
    [
        ("claimed_epsilon = 4", {}, "settings.toml: a claim of epsilon=4 says nothing without its"),
        ("inclusion_seed = 3", {}, "settings.toml: inclusion_seed=... needs inclusion_probability"),
        ("delta = 1e-5", {"training_epochs": 0}, "epochs=0 must be a whole number"),
        ("draws = 100", {"claimed_epsilon": 4.0}, r"a claim of epsilon=4\.0 says nothing without"),
    ],
)
def test_a_file_is_named_where_it_had_its_part(
    tmp_path: Path, file: str, flags: dict[str, object], message: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(file)
    with pytest.raises(SettingsError) as refused:
        options.RUN.make({"settings_file": path, **flags})
    assert re.match(rf"(.*/)?{message}", str(refused.value))


def test_thresholds_at_the_top_say_where_they_belong(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("max_guesses = 10\n")
    for words in (("insert", "c.txt", "--out", tmp_path / "o"), ("check", tmp_path)):
        message = "'max_guesses' is no setting here: it belongs in the table [check]; mo"
        assert_refused(call(*words, "--settings", path), message)


def panels(text: str) -> list[str]:
    """The titles of a help."""
    return [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]


def test_a_help_has_panels_and_examples(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    said = call("run", "--help").out
    assert panels(said) == [
        *("Arguments", "Most used", "What is hidden", "Training", "Measuring", "Privacy"),
        *("Machine", "Other", "Examples"),
    ]
    top = said[said.index("Most used") : said.index("What is hidden")]
    most = ("--out", "--model", "--format", "--canaries", "--repetitions", "--quick")
    assert [word for word in top.split() if word.startswith("--")] == list(most)
    options_alone = said[: said.index("Examples:")]
    assert max(map(len, options_alone.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "160")
    assert call("run", "--help").out == said  # a pipe has no width
    assert panels(call("demo", "--help").out) == ["Options"]


def test_every_example_of_a_help_can_be_called(call: Call) -> None:
    """Its words are read as flags of that command; the files that it names are not there."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = {name: command.epilog for name, command in commands.items() if command.epilog}
    assert shown.keys() >= {"run", "insert", "measure", "check", "report", "epsilon"}
    for name, epilog in shown.items():
        lines = [line for line in epilog.splitlines() if not line.startswith("  # ")]
        assert 2 <= len(lines) <= 4
        for words in lines:
            given = words.partition(" < ")[0].split()
            assert given[:2] == ["lmexposure", name]
            commands[name].make_context(name, given[2:])
