"""Which settings each command takes as flags, and what it is called with."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from pathlib import Path
from typing import IO, Annotated, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from lmexposure._files import open_regular
from lmexposure._settings import (
    Setting,
    Settings,
    build,
    refuse_unknown,
    settings_in,
    settings_left_out,
    settings_of,
    settings_taken,
)
from lmexposure._style import sentence
from lmexposure.core import Thresholds, own_records
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.studies import (
    FLAGS,
    MACHINE,
    SETTINGS_OF_ROWS,
    CanifeStudySettings,
    DefencesSettings,
    IdentifierSettings,
    RunSettings,
    SweepSettings,
    VerbatimSettings,
    flags_of,
    settings_for,
)

Given: TypeAlias = dict[str, object]
P = ParamSpec("P")
AnySettings = TypeVar("AnySettings", bound=Settings)


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
    # all that a command takes, its flags first, where a settings file and --set give others
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def words(self, name: str) -> tuple[str, str]:
        """A setting's default, and what it decides, as this command says it."""
        told = self.settings[name]
        said, _, default = self.help.get(name, told.help).partition("  [default: ")
        return default.removesuffix("]") or told.shown_default, said


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
        if any(name not in group.first for group in groups.values() for name in group.flags):
            every.append(_help_all())
        vars(command)["__signature__"] = inspect.Signature(every)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return command  # type: ignore[return-value]

    return command_of


def option_of(setting: Setting, *, panel: str | None = None, help: str | None = None) -> OptionInfo:
    """The flag of a setting."""
    return _option(
        setting.flag,
        help=_with_default(help, setting) if help else help_of(setting),
        metavar=setting.metavar or None,
        panel=panel,
    )


def help_of(setting: Setting) -> str:
    """What a help says of a setting: a sentence, and its default."""
    return _with_default(sentence(setting.help), setting)


def _with_default(words: str, setting: Setting) -> str:
    """The words with the default, unless they have it or it is that a flag is not given."""
    if setting.default is False or "[default:" in words:
        return words
    return f"{words}  [default: {setting.shown_default}]"


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
        name: setting.parse(setting.name, value)
        if (setting := flags.get(name)) is not None and setting.parse is not None
        else value
        for name, value in given.items()
    }


HELP_ALL, EVERYTHING = "--help-all", "lmexposure.help"  # the flag, and what the context has of it


def _help_all() -> inspect.Parameter:
    """The flag of a help that leaves no option out."""

    def show(context: typer.Context, wanted: bool) -> None:
        if wanted:
            context.meta[EVERYTHING] = True
            typer.echo(context.get_help())
            raise typer.Exit

    option: OptionInfo = typer.Option(
        HELP_ALL,
        callback=show,
        is_eager=True,
        show_default=False,
        help="Show every option and exit.",
        rich_help_panel=OTHER,
    )
    kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[bool, option]
    return inspect.Parameter("help_all", kind, default=False, annotation=annotation)


FILES, OTHER = "Files for other tools", "Other"  # panels of a help, after those of settings
_FILE, _SET = "settings_file", "set_values"
TABLES = {"check": settings_of(Thresholds).keys()}  # of a settings file, each with its names

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
Manifest = Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")]
Workers = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=MACHINE,
        help="Models side by side, by Ray; 1 does without it.  [default: as many as there are "
        "cores, or GPUs; 1 where Ray is not installed]",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        rich_help_panel=MACHINE,
        help="A Ray cluster, whose machines share OUT; auto finds the one that runs here.  "
        "[default: this machine]",
    ),
]


def files_argument(what: str = "The corpus") -> ArgumentInfo:
    """Files that are read more than once, so that standard input cannot be one of them."""
    argument: ArgumentInfo = typer.Argument(
        help=f"{what}: text, JSONL or Parquet; .gz and .zst too; several, or a pattern in quotes, "
        "'DIRECTORY/*' for a directory's files.",
        callback=no_stdin,
    )
    return argument


def no_stdin(names: list[str] | None) -> list[str] | None:
    """The names, unless one of them is standard input."""
    if STDIN in (names or ()):
        raise SettingsError(
            "these files are read more than once, and standard input can be read only once; write "
            "it to a file and name that"
        )
    return names


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


def asked(
    record: AnySettings, given: Given, *, names: Collection[str] | None = None
) -> AnySettings:
    """These settings, then a file's, then flags and --set; all at once, for some need others.

    A file may be of several commands; --set takes these names alone.
    """
    given, kind = dict(given), type(record)
    file, pairs = given.pop(_FILE, None), given.pop(_SET, None)
    known = settings_taken(kind)
    chosen = parsed(known, given)
    for name, value in dict(map(_pair, cast("Sequence[str]", pairs or ()))).items():
        if name in known.keys() - set(names or known) | settings_left_out(kind):
            raise SettingsError(f"{name!r} has no effect here; leave it out")
        refuse_unknown([name], names or known)
        if name in chosen:
            raise SettingsError(f"--set {name}={value} and {known[name].flag} say two things of it")
        chosen[name] = known[name].read(value)
    in_file = {} if file is None else settings_in(Path(str(file)), kind, elsewhere=TABLES)
    try:
        return record.override({**in_file, **chosen})
    except SettingsError as failure:
        if not in_file or str(failure) == _refused(record, chosen):
            raise
        raise SettingsError(f"{file}: {failure}") from None


def _pair(text: str) -> tuple[str, str]:
    """Name and value of --set."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"--set {text!r} must be NAME=VALUE, such as '--set epochs=5'")
    return name.strip().replace("-", "_"), value


def _refused(record: Settings, given: Given) -> str | None:
    """Why the flags alone are refused; None where they are not, and a file had its part in it."""
    try:
        record.override(given)
    except SettingsError as failure:
        return str(failure)
    return None


def _files() -> list[inspect.Parameter]:
    """The flags --settings and --set."""
    words = {
        _FILE: ("--settings", "A TOML file of settings; flags win.", None, Path),
        _SET: (
            "--set",
            "Any setting by its name, where it has no flag; may be repeated. `lmexposure settings` "
            "lists them.",
            "NAME=VALUE",
            list[str],
        ),
    }
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, flag, help=said, metavar=metavar, rich_help_panel=OTHER),
            annotation=kind,
        )
        for name, (flag, said, metavar, kind) in words.items()
    ]


_KNOWN = settings_taken(RunSettings)
_OF_ROWS = {
    name: f"{_KNOWN[name].help[0].upper()}{_KNOWN[name].help[1:]}.  [default: as the manifest, or "
    "the rows of the training, have it]"
    for name in SETTINGS_OF_ROWS
}
_PROMISED = "Of dp-sgd, the delta next to epsilon, at most 1 / documents.  [default: 1e-05]"
_OF_TRAINING = {
    "seed": "Seed of initial weights and of the order of training.  [default: 0]",
    "delta": _PROMISED,
}
_OF_SWEEPS = {
    "delta": _PROMISED,
    "canaries": "Secrets per format and class of repetitions, each in about half of the models.",
    "repetitions": "How often a canary is in a model that has it.",
}
# Each command's settings, and what means something else to it than to a run.
_COMMANDS: Mapping[str, tuple[Settings, Mapping[str, str]]] = {
    "run": (RunSettings(), {}),
    "insert": (RunSettings(), {}),
    "train": (RunSettings(), _OF_TRAINING),
    "dp-check": (RunSettings(), _OF_TRAINING),
    "measure": (RunSettings(), _OF_ROWS),
    "sweep": (SweepSettings(), _OF_SWEEPS),
    "defences": (
        DefencesSettings(),
        {
            "models": "Models of each method.  [default: 32; with --full 64]",
            "canaries": _OF_SWEEPS["canaries"],
            "repetitions": "How often a canary is in a model that has it; two copies are a pair, "
            "which methods that protect a text by itself do not cover.",
        },
    ),
    "identifiers": (IdentifierSettings(), {}),
    "verbatim": (VerbatimSettings(), {}),
    "canife": (CanifeStudySettings(), {}),
}


def _group(command: str, record: Settings, words: Mapping[str, str]) -> Group:
    """The settings of a record for a command, some of them as flags."""
    taken = settings_for(command, type(record))
    return Group(
        flags={name: taken[name] for name in flags_of(command)},
        first=FLAGS[command][0].split(),
        help=words,
        more=_files(),
        make=partial(asked, record, names=taken),
        settings=taken,
    )


def option(name: str) -> OptionInfo:
    """The flag of one setting of a run, for a command that takes it by itself."""
    return option_of(_KNOWN[name])


def told(command: str) -> Group:
    """The settings of a command."""
    return TAKEN[command]


TAKEN = {command: _group(command, *settings) for command, settings in _COMMANDS.items()}
DEMO = Group(
    flags={name: _KNOWN[name] for name in ("model", "seed", "epochs")},
    first=("model", "seed", "epochs"),
    help={"seed": "Seed of all that is random, except who is included.  [default: 0]"},
)
THRESHOLDS = Group(
    settings=settings_of(Thresholds),
    flags=settings_of(Thresholds),
    first=("max_exposure", "max_guesses", "max_epsilon", "max_worst_tpr"),
)
# Settings of a measurement, for a command that need not measure.
MEASURED_FIRST = Group(flags={name: _KNOWN[name] for name in ("quick", "device")})
