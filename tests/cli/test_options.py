"""Flags and keys of a settings file: declared once, and what is wrong with them is said by name."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli.conftest import Call

from lmexposure.cli import options
from lmexposure.cli.app import app
from lmexposure.errors import SettingsError
from lmexposure.studies import RunSettings, flag_words, set_words


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


@pytest.mark.parametrize("command", options.TAKEN)
def test_a_command_has_the_flags_of_the_table_and_takes_every_other_setting(command: str) -> None:
    group = options.TAKEN[command]
    said = {part for name in group.flags for part in group.settings[name].flag.split("/")}
    assert said | {"--settings", "--set"} <= flags_of(command)
    others = {told.flag.split("/")[0] for n, told in group.settings.items() if n not in group.flags}
    assert not others & (flags_of(command) - {"--format", "--layers"})
    for name, told in group.settings.items():
        given = shlex.split(set_words(name, told.default))[1].partition("=")[2]
        assert told.read(given) == told.default, name


# Texts that a comma, a blank or a sign of a list could cut, or a shell.
TEXTS = (
    *("a,b", " a", "a\t", 'say "a"', "it's", "[a", '["a"]', "[1]", "-a", "--a=b", "$a `b` \\n"),
    "é",
)


@pytest.mark.parametrize("command", options.TAKEN)
def test_texts_and_lists_come_back_from_the_command_of_a_report(command: str) -> None:
    group, found = options.TAKEN[command], typer.main.get_command(app)
    kind = type(group.make.args[0])  # type: ignore[attr-defined]
    for name, told in group.settings.items():
        if told.parse is not None or told.kind not in (str, tuple[str, ...]):
            continue
        values = TEXTS if told.kind is str else ((), TEXTS, *((text,) for text in TEXTS))
        for value in values:
            words = shlex.split(" ".join(flag_words(command, told, value)))
            context = found.commands[command].make_context(  # type: ignore[attr-defined]
                command, list(words), resilient_parsing=True
            )
            typed = {each.name: context.params[each.name] for each in group.parameters()}
            given = {n: value for n, value in typed.items() if value not in (None, [], ())}
            read = options.on_the_line(kind, given).get(name, ())
            assert (tuple(read) if isinstance(read, list) else read) == value, name


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("zzz = 4", "unknown setting 'zzz'; lmexposure settings"),
        ("epoch = 4", "unknown setting 'epoch'; did you mean 'epochs'"),
        ("[training]\nepochs = 4", "unknown setting 'training'"),
        ('epochs = "2"', "epochs='2' must be a whole number at least 1"),
        ("snapshot_epochs = 3", "snapshot_epochs=3 must be a list of epochs"),
        (
            "[check]\nmax_guess = 4",
            r"\[check\] unknown threshold 'max_guess'; did you mean 'max_guesses'",
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
def test_what_is_wrong_in_a_settings_file(call: Call, file: str, message: str) -> None:
    path = Path("settings.toml")
    path.write_text(file)
    words = ("check", ".") if file.startswith("[check]") else ("train", "c", "--out", "o")
    seen = call(*words, "--settings", path)
    assert seen.code == 3
    assert re.search(f"settings.toml: {message}", seen.err.replace("\n", "")), seen.err


def test_a_setting_is_set_by_its_name() -> None:
    """The last of two wins, as of a flag; hyphens are as good as underscores."""
    pairs = ["epochs=4", "draws=50", "formats=pin,email", "effort=quick", "learning-rate=1e-3"]
    pairs += ["chat_date=", "system=a = b, c", "left_context=none", "draws=60"]
    chosen = options.TAKEN["run"].make({"set_values": pairs, "canaries": 5})
    assert isinstance(chosen, RunSettings)
    assert (chosen.training, chosen.formats) == (
        {"epochs": 4, "learning_rate": 1e-3},
        ("pin", "email"),
    )
    assert (chosen.measure.draws, chosen.measure.quick, chosen.canaries) == (60, True, 5)
    assert (chosen.chat_date, chosen.system) == (None, "a = b, c")
    assert chosen.measure.left_context == "none"  # a word of that setting, and no missing value


PROMISES = (
    "delta=1e-05 is of differential privacy, and the training would promise none; add "
    "method='dp-sgd', or leave it out"
)


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("run", {"set_values": ["epochs"]}, "--set 'epochs' must be NAME=VALUE, such as"),
        ("run", {"set_values": ["=3"]}, "--set '=3' must be NAME=VALUE"),
        ("run", {"set_values": ["epoch=3"]}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ("run", {"set_values": ["epochs=abc"]}, "epochs='abc' must be a whole number"),
        ("run", {"set_values": ["epochs=3"], "epochs": 3}, "--set epochs=3 and --epochs say two"),
        ("sweep", {"set_values": ["controls=3"]}, "'controls' has no effect here"),
        ("measure", {"set_values": ["epochs=3"]}, "'epochs' has no effect here"),
        ("insert", {"set_values": ["draws=30"]}, "'draws' has no effect here"),
        ("train", {"delta": 1e-5}, PROMISES),
        ("train", {"set_values": ["delta=1e-5", "method=plain"]}, PROMISES),
        ("run", {"set_values": ["lora=maybe"]}, "lora='maybe' must be true or false"),
        ("run", {"set_values": ["repetitions=1,x"]}, "repetitions='1,x' must be whole numbers"),
    ],
)
def test_what_cannot_be_set_is_refused(command: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        options.TAKEN[command].make(given)


def test_a_delta_is_for_a_private_training_or_of_a_file_for_others() -> None:
    path, private = Path("settings.toml"), {"method": "dp-sgd", "epsilon": 8.0}
    path.write_text("claimed_epsilon = 4\ndelta = 1e-5\n")
    cases: list[dict[str, object]] = [
        {"settings_file": path},
        {"delta": 1e-5, **private},
        {"delta": 1e-5, "set_values": ["method=dp-sgd", "epsilon=8"]},
    ]
    for given in cases:
        assert options.TAKEN["train"].make(given).measure.delta == 1e-5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("file", "flags", "message"),
    [
        (
            "claimed_epsilon = 4",
            {},
            r"settings.toml: a claim of epsilon=4\.0 says nothing without its",
        ),
        ("inclusion_seed = 3", {}, "settings.toml: inclusion_seed=... needs inclusion_probability"),
        ("delta = 1e-5", {"epochs": 0}, "epochs=0 must be a whole number"),
        ("draws = 100", {"claimed_epsilon": 4.0}, r"a claim of epsilon=4\.0 says nothing without"),
    ],
)
def test_a_file_is_named_where_it_had_its_part(
    file: str, flags: dict[str, object], message: str
) -> None:
    path = Path("settings.toml")
    path.write_text(file)
    with pytest.raises(SettingsError) as refused:
        options.TAKEN["run"].make({"settings_file": path, **flags})
    assert re.match(rf"(.*/)?{message}", str(refused.value))


def test_thresholds_at_the_top_say_where_they_belong(call: Call) -> None:
    path = Path("settings.toml")
    path.write_text("max_guesses = 10\n")
    for words in (("insert", "c.txt", "--out", "o"), ("check", ".")):
        message = "'max_guesses' is no setting here: it belongs in the table [check]; mo"
        call(*words, "--settings", path).refused(message)


def panels(text: str) -> list[str]:
    """The titles of a help."""
    return [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]


def test_a_help_has_panels_and_examples(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, said = call("run", "--help").out, call("run", "--help-all").out
    assert panels(usual) == ["Arguments", "Most used", "Examples"]
    assert "--help-all             Show 28 more options." in usual
    assert panels(said) == [
        *("Arguments", "Most used", "What is hidden", "Training", "Measuring", "Privacy"),
        *("Machine", "Other", "Examples"),
    ]
    top = said[said.index("Most used") : said.index("What is hidden")]
    most = ("--out", "--model", "--format", "--canaries", "--repetitions", "--effort", "--audit")
    assert [word for word in top.split() if word.startswith("--")] == list(most)
    options_alone = said[: said.index("Examples:")]
    assert max(map(len, options_alone.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "160")
    assert call("run", "--help-all").out == said  # a pipe has no width
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


def test_a_setting_that_is_typed_as_a_flag_is_said_to_be_set(call: Call) -> None:
    seen = call("run", "c.txt", "--out", "o", "--noise-multiplier", "3")
    assert "No such option: --noise-multiplier; it is given by --set noise_multiplier=" in seen.err
