"""Which settings each command takes as flags, and what it is called with."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from pathlib import Path
from typing import IO, Annotated, Literal, ParamSpec, TypeAlias, TypeVar, get_origin

import typer
from typer.models import OptionInfo

from lmexposure._files import open_regular
from lmexposure._settings import Setting, build, settings_of
from lmexposure._style import sentence
from lmexposure.core import Thresholds, own_records
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.studies import (
    DP_SGD,
    FIXED_FOR_DEFENCES,
    HIDDEN,
    MACHINE,
    MEASURING,
    OF_METHOD,
    PANELS,
    PRIVACY,
    SETTINGS_OF_ROWS,
    TRAINING,
    CanifeSettings,
    DefencesSettings,
    FederatedSettings,
    MeasureSettings,
    RunSettings,
    SweepSettings,
    TrainingSettings,
    VerbatimSettings,
    read_settings_file,
    verbatim_run_names,
)

Given: TypeAlias = dict[str, object]
P = ParamSpec("P")
Overridable = TypeVar("Overridable", RunSettings, SweepSettings, DefencesSettings)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Flags of a command that become one of its arguments."""

    flags: Mapping[str, Setting]  # argument of the command line -> what is declared of it
    # those among them that people use most: they come first in the help, in no panel
    first: Sequence[str] = ()
    # other words for some of them, which mean less to this command
    help: Mapping[str, str] = field(default_factory=dict)
    # parameters that are no settings, such as a file of them
    more: Sequence[inspect.Parameter] = ()
    # what the command gets, of the flags that were given (not None) by their arguments
    make: Callable[[Given], object] = dict


def takes(**groups: Group) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Give a command these groups of flags, each for one of its arguments."""

    def command_of(function: Callable[P, None]) -> Callable[P, None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in groups
        ]
        parts = {name: _parameters(group) for name, group in groups.items()}

        def command(**given: object) -> None:
            made = {name: group.make(_given(parts[name], given)) for name, group in groups.items()}
            build(function, {**{p.name: given[p.name] for p in own}, **made})

        update_wrapper(command, function)
        every = [*own, *(parameter for part in parts.values() for parameter in part)]
        vars(command)["__signature__"] = inspect.Signature(every)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return command  # type: ignore[return-value]

    return command_of


def option_of(setting: Setting, *, panel: str | None = None, help: str | None = None) -> OptionInfo:
    """The flag of a setting."""
    return _option(
        setting.flag or "",
        help=help or help_of(setting),
        metavar=setting.metavar or None,
        panel=panel,
    )


def help_of(setting: Setting) -> str:
    """What a help says of a setting: a sentence, and its default."""
    words = sentence(setting.help)
    return words if setting.default is False else f"{words}  [default: {setting.shown_default}]"


def _option(
    flag: str,
    *,
    help: str | None = None,
    metavar: str | None = None,
    panel: str | None = None,
) -> OptionInfo:
    made: OptionInfo = typer.Option(..., flag, help=help, metavar=metavar, rich_help_panel=panel)
    return made


def _parameters(group: Group) -> list[inspect.Parameter]:
    """As Typer reads them; those that people use most come first, in their order."""
    names = [*group.first, *(name for name in group.flags if name not in group.first)]
    found = [_flag_of(name, group) for name in names]
    return [*found, *group.more]


def _flag_of(name: str, group: Group) -> inspect.Parameter:
    setting = group.flags[name]
    panel = None if name in group.first else setting.panel
    option = option_of(setting, panel=panel, help=group.help.get(name))
    return _parameter(name, option, _type_of(setting))


def _parameter(name: str, option: OptionInfo, kind: object) -> inspect.Parameter:
    option.default = None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _type_of(setting: Setting) -> object:
    """What the command line reads a flag as; a list where it may be repeated."""
    if setting.parse is not None or get_origin(setting.kind) is Literal:
        return str
    return list[str] if get_origin(setting.kind) is tuple else setting.kind


def _given(parameters: Sequence[inspect.Parameter], given: Mapping[str, object]) -> Given:
    """Those of a group's flags that were given."""
    return {flag.name: given[flag.name] for flag in parameters if given[flag.name] is not None}


def parsed(flags: Mapping[str, Setting], given: Given) -> Given:
    """The same, with the texts of flags read that have a way of their own to be written."""
    return {
        name: setting.parse(setting.flag or name, value)
        if (setting := flags.get(name)) is not None and setting.parse is not None
        else value
        for name, value in given.items()
    }


FILES, OTHER = "Files for other tools", "Other"  # panels of a help, after those of settings
_FILE = "settings_file"
_OF_THE_GATE = {"the table [check]": settings_of(Thresholds).keys()}
_TRAINING = "training_"  # before the arguments that are settings of the training

# The one rule of --out, with which every help of it ends.
_OUT_RULE = (
    "A directory, created with its parents if it is missing; a file is refused, and the records of "
    "another run are not overwritten."
)


def out_option(what: str, *, panel: str | None = None) -> OptionInfo:
    """The flag --out, by its one rule, in every command that has it."""
    option: OptionInfo = typer.Option(
        "--out", help=f"{what} {_OUT_RULE}", callback=_directory, rich_help_panel=panel
    )
    return option


def _directory(out: Path | None) -> Path | None:
    """What --out names, unless something that is no directory has the name."""
    if out is None:
        return None
    for place in (out, *out.parents):
        if place.exists():
            if place.is_dir():
                return out
            what = f"--out {out} is a file" if place == out else f"--out {out}: {place} is a file"
            raise SettingsError(f"{what}; --out names a directory: choose another name")
    return out


# What a run holds; the directories with all that is in them.
_RUN_FILES = (
    "manifest.json",
    "run.json",
    "result.json",
    "metrics.jsonl",
    "training.json",
    "scores.parquet",
    # Of sweeps.
    "plan.json",
    "base.npz",
    "matrices.npz",
    # Of comparisons of defences.
    "seeds.json",
    # Of memorised text.
    "passages.json",
    # The record of each kind of study.
    *own_records(),
)
_DIRECTORIES = (
    *("model", "corpus", "source", "charts", ".work"),
    *("tokenizer", "models", "failed", "work"),
)


def of_a_run(path: Path, home: Path) -> bool:
    """Whether a run in this directory holds such a file, by its place or through a link."""
    if any(path.is_relative_to(place.resolve()) for place in (home / d for d in _DIRECTORIES)):
        return True
    if path.parent == home.resolve() and (path.name in _RUN_FILES or path.stem == "report"):
        return True
    return path.exists() and any(
        member.exists() and path.samefile(member) for member in (home / name for name in _RUN_FILES)
    )


STDIN = "-"
_CORPUS = (
    "The corpus: text, JSONL or Parquet; .gz and .zst too; several files, or a pattern in quotes, "
    "'DIRECTORY/*' for a directory's files; - reads standard input"
)
Corpus = Annotated[list[str], typer.Argument(help=f"{_CORPUS}.")]
PipedCorpus = Annotated[list[str], typer.Argument(help=f"{_CORPUS} and writes standard output.")]


def opened(corpus: list[str]) -> "list[str] | IO[bytes]":
    """The files and patterns of a corpus; of "-", standard input."""
    if corpus != [STDIN]:
        return corpus
    if sys.stdin is None:
        raise CorpusError("standard input must be open; give a file")
    return sys.stdin.buffer


def reading(corpus: Sequence[str]) -> str:
    """What a command that reads a corpus says of it first."""
    if STDIN in corpus:
        return "reading standard input"
    return f"reading {corpus[0] if len(corpus) == 1 else f'{len(corpus)} files'}"


def is_manifest(name: str | Path) -> bool:
    """Whether a file begins as a manifest does."""
    try:
        with open_regular(Path(name)) as stream:
            return b'"schema": "lmexposure.manifest/' in stream.read(200)
    except (OSError, ValueError):
        return False


def refuse_swapped(names: Sequence[str], manifest: Path, what: str) -> None:
    """Refuse a manifest in the place of what comes before it: the corpus, or the model."""
    first = next(filter(is_manifest, names), None)
    if first is not None and not is_manifest(manifest):
        raise SettingsError(
            f"{first} is a manifest, and {manifest} is none; give the {what} first, then the "
            "manifest"
        )


def _every_flag() -> dict[str, Setting]:
    """The settings of the pipeline that have a flag, by their arguments."""
    found = {**settings_of(RunSettings)}
    found |= {
        f"{_TRAINING}{name}": setting for name, setting in settings_of(TrainingSettings).items()
    }
    found |= {n: setting for n, setting in settings_of(MeasureSettings).items() if n not in found}
    shown = sorted(found.items(), key=lambda item: PANELS.index(item[1].panel))
    return {name: setting for name, setting in shown if setting.flag is not None}


_FLAGS = _every_flag()


def option(name: str) -> OptionInfo:
    """The flag of one setting, for a command that takes it by itself."""
    return option_of(_FLAGS[name])


def _settings(
    *panels: str,
    also: Collection[str] = (),
    without: Collection[str] = (),
    first: Sequence[str] = (),
    help: Mapping[str, str] | None = None,
    make: Callable[[Given], object] | None = None,
) -> Group:
    """The settings of these panels, `also` others, `without` some; the rest is as in `Group`."""
    taken = {
        name: setting
        for name, setting in _FLAGS.items()
        if (setting.panel in panels or name in also) and name not in without
    }
    return Group(
        flags=taken,
        first=first,
        help=help or {},
        more=[_file()],
        make=make or merged,
    )


def _file() -> inspect.Parameter:
    """The flag --settings."""
    words = "A TOML file of settings; flags win."
    made = typer.Option(None, "--settings", help=words, rich_help_panel=OTHER)
    return inspect.Parameter(_FILE, inspect.Parameter.KEYWORD_ONLY, default=made, annotation=Path)


def merged(given: Given, *, base: RunSettings | None = None) -> RunSettings:
    """Defaults, then the settings file, then the flags that were given."""
    given = dict(given)
    file = given.pop(_FILE, None)
    in_file = {} if file is None else read_settings_file(Path(str(file)), elsewhere=_OF_THE_GATE)
    return _overridden(base or RunSettings(), in_file, given, file)


def swept(given: Given) -> SweepSettings:
    """As `merged`, for a sweep."""
    given, own = dict(given), settings_of(SweepSettings)
    file = given.pop(_FILE, None)
    in_file = (
        {}
        if file is None
        else read_settings_file(Path(str(file)), elsewhere=_OF_THE_GATE, more=own)
    )
    return _overridden(SweepSettings(), in_file, parsed(own, given), file)


def compared(given: Given) -> DefencesSettings:
    """As `swept`, for a comparison of defences."""
    given = dict(given)
    own = {**settings_of(SweepSettings), **settings_of(DefencesSettings)}
    file = given.pop(_FILE, None)
    in_file = (
        {}
        if file is None
        else read_settings_file(Path(str(file)), elsewhere=_OF_THE_GATE, more=own)
    )
    return _overridden(DefencesSettings(), in_file, parsed(own, given), file)


def looked(given: Given) -> VerbatimSettings:
    """As `merged`, for a look at memorised text."""
    given = dict(given)
    own = settings_of(VerbatimSettings)
    file = given.pop(_FILE, None)
    in_file = (
        {}
        if file is None
        else read_settings_file(Path(str(file)), elsewhere=_OF_THE_GATE, more=own)
    )
    try:
        return VerbatimSettings().override({**in_file, **parsed(_LOOKED, given)})
    except SettingsError as failure:
        if file is None:
            raise
        raise SettingsError(f"{file}: {failure}") from None


def federated(given: Given) -> tuple[FederatedSettings, CanifeSettings]:
    """Defaults and the flags that were given, of a federated training and of its attacks."""

    def of(kind: type) -> dict[str, object]:
        return {name: value for name, value in given.items() if name in settings_of(kind)}

    return (
        build(FederatedSettings, of(FederatedSettings)),
        build(CanifeSettings, of(CanifeSettings)),
    )


def _overridden(
    base: Overridable, in_file: Mapping[str, object], given: Given, file: object
) -> Overridable:
    """Defaults, then a file's settings and flags at once, for one may need the other."""
    given = parsed(_FLAGS, given)
    training = {
        name.removeprefix(_TRAINING): given.pop(name)
        for name in list(given)
        if name.startswith(_TRAINING)
    }
    from_file = in_file.get("training", {})
    if isinstance(from_file, Mapping):
        given["training"] = {**from_file, **training}
    try:
        return base.override({**in_file, **given})
    except SettingsError as failure:
        if not in_file or str(failure) == _refused(base, given):
            raise
        raise SettingsError(f"{file}: {failure}") from None


def _refused(base: RunSettings | SweepSettings | DefencesSettings, given: Given) -> str | None:
    """Why the flags alone are refused; None where they are not, and a file had its part in it."""
    try:
        base.override(given)
    except SettingsError as failure:
        return str(failure)
    return None


PLAN = _settings(HIDDEN, first=("formats", "canaries", "repetitions"))
LEARNING = _settings(
    TRAINING,
    MACHINE,
    also=(
        *("seed", "layout", "text_field", "prompt_field", "completion_field"),
        *("form", "turn", "loss", "rendering", "chat_template", "chat_date"),
    ),
    without=("batch_size", "dtype", "load_in", "device_map"),
    first=("model", "training_epochs", "training_max_seconds"),
    help={"seed": "Seed of initial weights and of the order of training.  [default: 0]"},
)
_OF_ROWS = {
    name: f"{_FLAGS[name].help[0].upper()}{_FLAGS[name].help[1:]}.  [default: as the manifest, or "
    "the rows of the training, have it]"
    for name in SETTINGS_OF_ROWS
}
MEASUREMENT = _settings(
    MEASURING,
    PRIVACY,
    MACHINE,
    also=tuple(_OF_ROWS),
    first=("quick", "references", "method"),
    help=_OF_ROWS,
)
LOADING = Group(
    flags={name: _FLAGS[name] for name in ("device", "dtype", "offline", "revision")},
    make=merged,
)
RUN = _settings(
    *PANELS,
    without=("batch_size", "training_delta"),  # the delta that is measured at is the promised one
    first=("model", "formats", "canaries", "repetitions", "quick"),
)
_SWEPT = _settings(
    HIDDEN,
    TRAINING,
    MACHINE,
    without=(
        # Each has coins of its own, which also show that a model read its share.
        *("inclusion_probability", "inclusion_seed", "controls", "witness", "chat_template"),
        *("dtype", "load_in", "device_map", "threads", "batch_size"),  # of a measurement
    ),
)
SWEEP = Group(
    flags={
        **{name: told for name, told in settings_of(SweepSettings).items() if told.flag},
        **_SWEPT.flags,
    },
    first=("models", "formats", "canaries", "repetitions", "population", "model"),
    help={
        "canaries": "Secrets per format and class of repetitions, each in about half of the "
        "models.  [default: 100]",
        "repetitions": "How often a canary is in a model that has it.  [default: 1]",
    },
    more=_SWEPT.more,
)
# A comparison says itself by which methods models are trained.
_OF_METHODS = {f"{_TRAINING}{name}" for name in (*OF_METHOD[DP_SGD], "method")}
DEFENCES = Group(
    flags={
        **{name: told for name, told in settings_of(DefencesSettings).items() if told.flag},
        **{
            name: told
            for name, told in SWEEP.flags.items()
            if name not in FIXED_FOR_DEFENCES and name not in _OF_METHODS
        },
    },
    first=("methods", "target", "full", "models", "formats", "canaries", "model"),
    help={
        "models": "Models of each method.  [default: 32; with --full 64]",
        "canaries": "Secrets per format and class of repetitions, each in about half of the "
        "models.  [default: 48]",
        "repetitions": "How often a canary is in a model that has it; two copies are a pair, which "
        "methods that protect a text by itself do not cover.  [default: 1,2]",
    },
    more=_SWEPT.more,
)
_LOOKED = {**settings_of(VerbatimSettings), **verbatim_run_names()}
ROUNDS = Group(
    flags={**settings_of(FederatedSettings), **settings_of(CanifeSettings)},
    first=("rounds", "client_rate", "noise_multiplier", "clip", "every"),
)
LOOK = Group(
    flags={name: told for name, told in _LOOKED.items() if told.flag},
    first=("prefix_tokens", "suffix_tokens", "windows", "random_split", "samples"),
    more=_SWEPT.more,
)
DEMO = Group(
    flags={name: _FLAGS[name] for name in ("model", "seed", "training_epochs")},
    first=("model", "seed", "training_epochs"),
    help={"seed": "Seed of all that is random, except who is included.  [default: 0]"},
)
THRESHOLDS = Group(
    flags=settings_of(Thresholds),
    first=("max_exposure", "max_guesses", "max_epsilon", "max_worst_tpr"),
)
# Settings of a measurement, for a command that need not measure.
MEASURED_FIRST = Group(
    flags={
        name: _FLAGS[name]
        for name in (
            *("quick", "references", "delta", "claimed_epsilon", "bootstrap_seed", "left_context"),
            *("device", "dtype", "offline", "revision", *_OF_ROWS),
        )
    },
    help=_OF_ROWS,
)
