"""What a command line is made of: words by their places, flags, and settings as flags."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Literal, TypeAlias, TypeVar, cast, get_origin

import typer

from lmexposure._saved_models import is_manifest, manifest_at
from lmexposure._settings import (
    Setting,
    Settings,
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
    DP_SGD,
    FLAGS,
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
Parameter: TypeAlias = inspect.Parameter
# What is declared of an argument or a flag, but for its help: that gives it as Typer reads it.
Argument: TypeAlias = Callable[[str], Parameter]
V = TypeVar("V")
AnySettings = TypeVar("AnySettings", bound=Settings)

FILES, OTHER = "Files for other tools", "Other"  # panels of a help, after those of settings
STDIN = "-"


def argument(
    name: str,
    kind: object = str,
    *,
    default: object = ...,
    metavar: str | None = None,
    callback: Callable[[V], object] | None = None,
) -> Argument:
    """A word by its place, for the function's argument of a name and a type."""

    def made(help: str) -> Parameter:
        found = typer.Argument(default, help=help, metavar=metavar, callback=callback)
        return Parameter(name, Parameter.KEYWORD_ONLY, default=found, annotation=kind)

    return made


def flag(  # noqa: PLR0913 - what a command line may say of one
    name: str,
    kind: object = str,
    *,
    word: str = "",
    default: object = None,
    panel: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    callback: Callable[[V], object] | None = None,
) -> Argument:
    """A flag, as its name or `word`; with a value unless its type is bool."""

    def made(help: str) -> Parameter:
        found = typer.Option(
            default,
            word or f"--{name.replace('_', '-')}",
            help=help,
            rich_help_panel=panel,
            metavar=metavar,
            min=least,
            callback=callback,
        )
        return Parameter(name, Parameter.KEYWORD_ONLY, default=found, annotation=kind)

    return made


def switch(name: str, *, panel: str | None = None) -> Argument:
    """A flag that says yes."""
    return flag(name, bool, default=False, panel=panel)


def out_flag(
    what: str, *, default: object = ..., panel: str | None = None
) -> Mapping[Argument, str]:
    """The flag --out, by its one rule, in every command that has it."""
    rule = (
        "A directory, created with its parents if it is missing; a file is refused, and the records"
        " of another run are not overwritten."
    )
    made = flag("out", Path, default=default, panel=panel, callback=_directory)
    return {made: f"{what} {rule}"}


def _directory(out: Path | None) -> Path | None:
    """What --out names, unless something that is no directory has the name."""
    for place in () if out is None else (out, *out.parents):
        if place.is_dir():
            break
        if place.exists():
            what = f"--out {out} is a file" if place == out else f"--out {out}: {place} is a file"
            raise SettingsError(f"{what}; --out names a directory: choose another name")
    return out


def manifest_file(path: Path | None) -> Path | None:
    """What is named as the manifest, or the manifest in the directory that is named."""
    return None if path is None else manifest_at(path)


def corpus_argument(
    what: str = "The corpus", *, pipe: str = "", default: object = ...
) -> Mapping[Argument, str]:
    """Files, as text, records or tables; with `pipe`, what standard input is for."""
    several = "several files" if pipe else "several"
    made = argument("corpus", list[str], default=default, callback=None if pipe else no_stdin)
    return {
        made: f"{what}: text, JSONL or Parquet; .gz and .zst too; {several}, or a pattern in "
        f"quotes, 'DIRECTORY/*' for a directory's files{pipe}."
    }


def no_stdin(names: list[str] | None) -> list[str] | None:
    """The names of files that are read more than once, unless one is standard input."""
    if STDIN in (names or ()):
        raise SettingsError(
            "these files are read more than once, and standard input can be read only once; write "
            "it to a file and name that"
        )
    return names


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that become one argument of a command's function."""

    settings: Mapping[str, Setting]  # all that it takes, those with flags first
    flags: Sequence[str]  # those of them that are flags; a file and --set give the others
    # those among them that people use most: they come first in the help, in no panel
    first: Sequence[str] = ()
    # other words for some of them, which mean less to this command
    help: Mapping[str, str] = field(default_factory=dict)
    # flags that are no settings, such as a file of them
    more: Mapping[Argument, str] = field(default_factory=dict)
    # what the function gets, of the flags that were given (not None)
    make: Callable[[Given], object] = dict

    def words(self, name: str) -> tuple[str, str]:
        """A setting's default, and what it decides, as this command says it."""
        told = self.settings[name]
        said, _, default = self.help.get(name, told.help).partition("  [default: ")
        return default.removesuffix("]") or told.shown_default, said

    def parameters(self) -> list[Parameter]:
        """As Typer reads them; those that people use most come first, in their order."""
        names = dict.fromkeys([*self.first, *self.flags])
        declared = [*map(self.flag, names), *self.more.items()]
        return [made(help) for made, help in declared]

    def flag(self, name: str) -> tuple[Argument, str]:
        """One setting as a flag: a sentence, and its default where that is no absent flag."""
        told = self.settings[name]
        said = self.help.get(name) or sentence(told.help)
        if told.default is not False and "[default:" not in said:
            said += f"  [default: {told.shown_default}]"
        kind = list[str] if get_origin(told.kind) is tuple else told.kind
        if told.parse is not None or get_origin(kind) is Literal:
            kind = str
        panel = None if name in self.first else told.panel
        metavar = told.metavar or None
        return flag(name, kind, word=told.flag, panel=panel, metavar=metavar), said


# What a run holds; the directories with all that is in them.
_RUN_FILES = (
    *("manifest.json", "run.json", "metrics.jsonl", "training.json", "scores.parquet"),
    *("plan.json", "base.npz", "matrices.npz"),  # of sweeps
    "seeds.json",  # of comparisons of defences
    "passages.json",  # of memorised text
    *own_records(),
)
_DIRECTORIES = (
    *("model", "corpus", "source", "charts", ".work"),
    *("tokenizer", "models", "failed", "work"),
)


def of_a_run(path: Path, home: Path) -> bool:
    """Whether a run in this directory holds such a file, by its place or through a link."""
    if any(path.is_relative_to((home / name).resolve()) for name in _DIRECTORIES):
        return True
    if path.parent == home.resolve() and (path.name in _RUN_FILES or path.stem == "report"):
        return True
    return path.exists() and any(
        member.exists() and path.samefile(member) for member in (home / name for name in _RUN_FILES)
    )


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


def refuse_swapped(names: Sequence[str], manifest: Path, what: str) -> None:
    """Refuse a manifest in the place of what comes before it: the corpus, or the model."""
    first = next((name for name in names if is_manifest(manifest_at(name))), None)
    if first is not None and not is_manifest(manifest):
        raise SettingsError(
            f"{first} is a manifest, and {manifest} is none; give the {what} first, then the "
            "manifest"
        )


_FILE, _SET = "settings_file", "set_values"


def parsed(known: Mapping[str, Setting], given: Given) -> Given:
    """What flags gave, with the texts of those read that have a way of their own to be written."""
    return {
        name: value if (parse := known[name].parse) is None else parse(name, value)
        for name, value in given.items()
    }


def asked(
    record: AnySettings, given: Given, *, names: Collection[str] | None = None
) -> AnySettings:
    """These settings, then a file's, then flags and --set; all at once, for some need others."""
    kind, file, chosen = type(record), given.get(_FILE), on_the_line(type(record), given, names)
    tables = {"check": settings_of(Thresholds).keys()}  # of a settings file, each with its names
    in_file = {} if file is None else settings_in(Path(str(file)), kind, elsewhere=tables)
    try:
        return record.override({**in_file, **chosen})
    except SettingsError as failure:
        if not in_file or str(failure) == _refused(record, chosen):
            raise
        raise SettingsError(f"{file}: {failure}") from None


def on_the_line(kind: type, given: Given, names: Collection[str] | None = None) -> Given:
    """The settings that flags and --set gave, each in one way; --set takes these names alone."""
    known = settings_taken(kind)
    chosen = parsed(known, {n: value for n, value in given.items() if n not in (_FILE, _SET)})
    by_set = {}
    for text in cast("Sequence[str]", given.get(_SET) or ()):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"--set {text!r} must be NAME=VALUE, such as '--set epochs=5'")
        by_set[name.strip().replace("-", "_")] = value
    for name, value in by_set.items():
        if name in known.keys() - set(names or known) | settings_left_out(kind):
            raise SettingsError(f"{name!r} has no effect here; leave it out")
        refuse_unknown([name], names or known)
        if name in chosen:
            raise SettingsError(f"--set {name}={value} and {known[name].flag} say two things of it")
        chosen[name] = known[name].read(value)
    return chosen


def _asked_of_training(record: AnySettings, given: Given, *, names: Collection[str]) -> AnySettings:
    """As `asked`; a delta is for private trainings, unless a file has it for another command."""
    settings = asked(record, given, names=names)
    assert isinstance(settings, RunSettings)
    delta = on_the_line(RunSettings, given).get("delta")
    if delta is not None and settings.training.get("method") != DP_SGD:
        raise SettingsError(
            f"delta={delta!r} is of differential privacy, and the training would promise none; add "
            f"method={DP_SGD!r}, or leave it out"
        )
    return settings


def _refused(record: Settings, given: Given) -> str | None:
    """Why the flags alone are refused; None where they are not, and a file had its part in it."""
    try:
        record.override(given)
    except SettingsError as failure:
        return str(failure)
    return None


_KNOWN = settings_taken(RunSettings)
_FROM_ELSEWHERE = {
    flag(_FILE, Path, word="--settings", panel=OTHER): "A TOML file of settings; flags win.",
    flag(_SET, list[str], word="--set", panel=OTHER, metavar="NAME=VALUE"): "Any setting by its "
    "name, where it has no flag; may be repeated. `lmexposure settings` lists them.",
}
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
_OF_DEFENCES = {
    "models": "Models of each method.  [default: 32; with --entire 64]",
    "canaries": _OF_SWEEPS["canaries"],
    "repetitions": "How often a canary is in a model that has it; two copies are a pair, which "
    "methods that protect a text by itself do not cover.",
}


def _group(command: str, record: Settings, words: Mapping[str, str]) -> Group:
    """The settings of a record for a command, some of them as flags."""
    taken = settings_for(command, type(record))
    return Group(
        settings=taken,
        flags=flags_of(command),
        first=FLAGS[command][0].split(),
        help=words,
        more=_FROM_ELSEWHERE,
        make=partial(_asked_of_training if command == "train" else asked, record, names=taken),
    )


# Each command's settings, and what means something else to it than to a run.
TAKEN = {
    name: _group(name, record, words)
    for name, record, words in (
        ("run", RunSettings(), {}),
        ("insert", RunSettings(), {}),
        ("train", RunSettings(), _OF_TRAINING),
        ("dp-check", RunSettings(), _OF_TRAINING),
        ("measure", RunSettings(), _OF_ROWS),
        ("sweep", SweepSettings(), _OF_SWEEPS),
        ("defences", DefencesSettings(), _OF_DEFENCES),
        ("identifiers", IdentifierSettings(), {}),
        ("verbatim", VerbatimSettings(), {}),
        ("canife", CanifeStudySettings(), {}),
    )
}
DEMO = Group(
    settings=_KNOWN,
    flags=("effort", "model", "seed", "epochs"),
    first=("effort", "model", "seed", "epochs"),
    help={"seed": "Seed of all that is random, except who is included.  [default: 0]"},
)
THRESHOLDS = Group(
    settings=settings_of(Thresholds),
    flags=list(settings_of(Thresholds)),
    first=("max_exposure", "max_guesses", "max_epsilon", "max_worst_tpr"),
)
EVERY = {**TAKEN, "check": THRESHOLDS}
# Settings of a measurement, for a command that need not measure.
MEASURED_FIRST = Group(settings=_KNOWN, flags=("effort", "device"))
