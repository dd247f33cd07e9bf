"""Which settings each command takes as flags, and what it is called with."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer
from typer.models import OptionInfo

from lmexposure._settings import Setting, settings_of, with_new_names
from lmexposure.cli.flags import Given, Group, option_of, parsed
from lmexposure.cli.help import OTHER
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.gate import (
    Thresholds,
)
from lmexposure.records import (
    HIDDEN,
    MACHINE,
    MEASURING,
    PANELS,
    PRIVACY,
    RENAMED,
    TRAINING,
    MeasureSettings,
    RunSettings,
    TrainingSettings,
    read_settings_file,
)

_FILE = "settings_file"
_OF_THE_GATE = {"the table [check]": settings_of(Thresholds).keys()}
_SEED_OF_A_MEASUREMENT = {"seed": "bootstrap_seed"}  # name of old -> name of today
_TRAINING = "training_"  # before the arguments that are settings of the training

# The one rule of --out, which every help of it ends with.
_OUT_RULE = (
    "A directory, made with its parents where it is missing; a file is refused, and the records of "
    "another run are not written over."
)


def out_option(what: str, *, panel: str | None = None) -> OptionInfo:
    """The flag --out, by its one rule, in every command that has it.

    Args:
        what: is written there, for the help.
        panel: of the help.
    """
    option: OptionInfo = typer.Option(
        "--out", help=f"{what} {_OUT_RULE}", callback=_directory, rich_help_panel=panel
    )
    return option


def _directory(out: Path | None) -> Path | None:
    """What --out names, unless something that is no directory has the name.

    Raises:
        SettingsError: a file, a pipe or a device has the name, or one of its parents has.
    """
    if out is None:
        return None
    for place in (out, *out.parents):
        if place.exists():
            if place.is_dir():
                return out
            what = f"--out {out} is a file" if place == out else f"--out {out}: {place} is a file"
            raise SettingsError(f"{what}; --out names a directory: choose another name")
    return out


STDIN = "-"
_CORPUS = (
    "The corpus: text, JSONL or Parquet; .gz and .zst too; several files, or a pattern in quotes, "
    "'DIRECTORY/*' for a directory's files; - reads standard input"
)
Corpus = Annotated[list[str], typer.Argument(help=f"{_CORPUS}.")]
PipedCorpus = Annotated[list[str], typer.Argument(help=f"{_CORPUS} and writes standard output.")]


def opened(corpus: list[str]) -> "list[str] | IO[bytes]":
    """The files and patterns of a corpus; of "-", standard input.

    Raises:
        CorpusError: standard input is closed.
    """
    if corpus != [STDIN]:
        return corpus
    if sys.stdin is None:
        from lmexposure.canaries import (
            NOT_TEXT,
        )

        raise CorpusError(NOT_TEXT)
    return sys.stdin.buffer


def _every_flag() -> dict[str, Setting]:
    """The settings of the whole path that have a flag, by their arguments."""
    found = {**settings_of(RunSettings)}
    found |= {f"{_TRAINING}{name}": told for name, told in settings_of(TrainingSettings).items()}
    found |= {n: told for n, told in settings_of(MeasureSettings).items() if n not in found}
    shown = sorted(found.items(), key=lambda item: PANELS.index(item[1].panel))
    return {name: told for name, told in shown if told.flag is not None}


_FLAGS = _every_flag()


def option(name: str) -> OptionInfo:
    """The flag of one setting, for a command that takes it by itself."""
    return option_of(_FLAGS[name])


def _settings(
    *panels: str,
    also: Collection[str] = (),
    without: Collection[str] = (),
    first: Sequence[str] = (),
    said: Mapping[str, str] | None = None,
    old: Mapping[str, type] | None = None,
    make: Callable[[Given], object] | None = None,
) -> Group:
    """The settings of these panels; a command gets `RunSettings`.

    Args:
        panels: of the help.
        also, without: settings that are taken, or not, whatever their panel.
        first, said, old, make: as in `Group`; make None: `merged`.
    """
    taken = {
        name: told
        for name, told in _FLAGS.items()
        if (told.panel in panels or name in also) and name not in without
    }
    return Group(
        flags=taken,
        first=first,
        said=said or {},
        more=[_file()],
        old=old or {},
        make=make or merged,
    )


def _file() -> inspect.Parameter:
    """The flag --settings."""
    words = "A TOML file of settings; flags win."
    made = typer.Option(None, "--settings", help=words, rich_help_panel=OTHER)
    return inspect.Parameter(_FILE, inspect.Parameter.KEYWORD_ONLY, default=made, annotation=Path)


def merged(given: Given, *, base: RunSettings | None = None) -> RunSettings:
    """Defaults, then the settings file, then the flags that were given.

    Args:
        given: flags by their arguments, the settings file among them.
        base: the defaults, where they are not those of `RunSettings`.

    Raises:
        SettingsError: a value out of range; what no setting is called; an old and a new name.
    """
    given = dict(given)
    file = given.pop(_FILE, None)
    said = {} if file is None else read_settings_file(Path(str(file)), elsewhere=_OF_THE_GATE)
    if given.get("coins") == "fixed":  # the old word against a file's probability
        said = _by_a_fixed_number(said)
    if "coins" in given:
        given["coins"] = _probability(str(given["coins"]))
    given = parsed(_FLAGS, with_new_names(given, RENAMED, shown="--{}"))
    training = {
        name.removeprefix(_TRAINING): given.pop(name)
        for name in list(given)
        if name.startswith(_TRAINING)
    }
    from_file = said.get("training", {})
    if isinstance(from_file, Mapping):
        given["training"] = {**from_file, **training}
    # Both at once, for one may be right only with the other.
    base = base or RunSettings()
    try:
        return base.override({**said, **given})
    except SettingsError as failure:
        if not said or str(failure) == _refused(base, given):
            raise
        raise SettingsError(f"{file}: {failure}") from None


def _refused(base: RunSettings, given: Given) -> str | None:
    """Why the flags alone are refused; None where they are not, and a file had its part in it."""
    try:
        base.override(given)
    except SettingsError as failure:
        return str(failure)
    return None


def _by_a_fixed_number(said: Mapping[str, object]) -> dict[str, object]:
    """What a file says of a plan whose number of canaries is fixed after all."""
    if "inclusion_probability" not in said:
        return dict(said)
    vain = ("inclusion_probability", "inclusion_seed", "canaries")
    return {name: value for name, value in said.items() if name not in vain}


def _probability(text: str) -> float | str:
    """A number where there is one; the settings judge anything else."""
    try:
        return float(text)
    except ValueError:
        return text


def _with_bootstrap_seed(given: Given) -> Given:
    """Of a measurement, which has no plan to draw: its --seed is --bootstrap-seed today."""
    return with_new_names(given, _SEED_OF_A_MEASUREMENT, shown="--{}")


def measurement(given: Given) -> RunSettings:
    """As `merged`, for a measurement, whose --seed of older versions is --bootstrap-seed today.

    Args:
        given: as for `merged`.
    """
    settings = merged(_with_bootstrap_seed(given))
    # Not read as the other: a result tells its bootstrap seed, and the plan's has the secrets.
    if settings.seed and settings.measure.bootstrap_seed == MeasureSettings.bootstrap_seed:
        import logging  # no help waits for it

        logging.getLogger(__name__).warning(
            "note: seed in a settings file is the plan's alone, and no longer that of a measurement"
            ", whose bootstrap_seed is now %d",
            settings.measure.bootstrap_seed,
        )
    return settings


_OLD_PLAN = {"coins": str, "candidates": int, "coin_seed": int}
_OLD_SEED = {"seed": int}

PLAN = _settings(HIDDEN, first=("formats", "canaries", "repetitions"), old=_OLD_PLAN)
LEARNING = _settings(
    TRAINING,
    MACHINE,
    also=("seed", "layout", "text_field"),
    without=("batch_size", "dtype"),
    first=("model", "training_epochs", "training_max_seconds"),
    said={"seed": "Of initial weights and of the order of training.  [default: 0]"},
)
MEASUREMENT = _settings(
    MEASURING,
    PRIVACY,
    MACHINE,
    first=("quick", "references", "method"),
    old=_OLD_SEED,
    make=measurement,
)
RUN = _settings(
    *PANELS,
    without=("batch_size",),
    first=("model", "formats", "canaries", "repetitions", "quick"),
    old=_OLD_PLAN,
)
DEMO = Group(
    flags={name: _FLAGS[name] for name in ("model", "seed", "training_epochs")},
    first=("model", "seed", "training_epochs"),
    said={"seed": "Decides all that is random but who is included.  [default: 0]"},
)
THRESHOLDS = Group(
    flags=settings_of(Thresholds), first=("max_exposure", "max_guesses", "max_epsilon")
)
# What only a measurement can follow, of a command that may do without one.
MEASURED_FIRST = Group(
    flags={
        name: _FLAGS[name]
        for name in (
            *("quick", "references", "delta", "claimed_epsilon", "bootstrap_seed"),
            *("device", "dtype", "offline", "revision"),
        )
    },
    old=_OLD_SEED,
    make=_with_bootstrap_seed,
)
