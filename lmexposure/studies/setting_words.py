"""Settings as people read them: facts with their meanings, and the flags that give them again."""

import json
import shlex
from collections.abc import Iterator, Mapping

from lmexposure._settings import Setting, own_values, settings_taken
from lmexposure._style import Value, setting_value
from lmexposure.canaries import KINDS
from lmexposure.core import Fact
from lmexposure.studies.settings import (
    HIDDEN,
    MACHINE,
    MEASURING,
    PRIVACY,
    SETTINGS_OF_ROWS,
    RunSettings,
)
from lmexposure.studies.training_settings import TRAINING

# The settings that a command has flags for, those that people use most first; --set has the rest.
FLAGS: Mapping[str, tuple[str, str]] = {
    "run": (
        "model formats canaries repetitions effort audit",
        "kinds texts inclusion_probability controls witness seed layout text_field "
        "chat_template epochs batch_size learning_rate lora method epsilon layers units "
        "estimate claimed_epsilon delta device offline",
    ),
    "insert": (
        "formats canaries repetitions audit",
        "kinds texts inclusion_probability controls witness seed layout text_field "
        "prompt_field completion_field form turn loss chat_template",
    ),
    "train": (
        "model epochs max_seconds",
        "seed layout text_field chat_template batch_size learning_rate lora method "
        "epsilon delta device offline",
    ),
    "dp-check": ("model epsilon delta noise_multiplier", "epochs batch_size lora device"),
    "measure": (
        "effort references estimate",
        "left_context loss chat_template claimed_epsilon delta device dtype load_in builder "
        "offline",
    ),
    "sweep": (
        "models formats canaries repetitions population model",
        "score attack base kinds texts seed layout epochs method device",
    ),
    "defences": ("methods target entire models formats canaries model", "repetitions seed device"),
    "identifiers": ("draws most left", "layout text_field seed device offline"),
    "verbatim": (
        "prefix_tokens suffix_tokens windows random_split samples",
        "tries documents layout text_field device offline",
    ),
    "canife": (
        "user_field rounds client_rate noise_multiplier clip every",
        "clients text_field mock_rounds iterations delta seed",
    ),
}

# Of a run's settings those that decide something of a part of it: panels, others, but these.
_OF_RECORDS = (
    *("seed", "layout", "text_field", "prompt_field", "completion_field", "delta"),
    *("form", "turn", *SETTINGS_OF_ROWS),
)
_MEASURED = ("dtype", "load_in", "builder", "device_map", "scoring_batch")
_LEARNING = ((TRAINING, MACHINE), _OF_RECORDS, _MEASURED)
_PARTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "insert": ((HIDDEN,), (), ()),
    "train": _LEARNING,
    "dp-check": (*_LEARNING[:2], (*_MEASURED, "method")),
    "measure": ((MEASURING, PRIVACY, MACHINE), SETTINGS_OF_ROWS, ()),
}

# Settings that are shown only where they were given.
RARE: tuple[str, ...] = (
    *("prompt_field", "completion_field"),
    *("form", "turn", "loss", "rendering", "other_turn", "system", "chat_template", "chat_date"),
    *("load_in", "builder", "device_map", "texts"),
)


def run_settings(asked: RunSettings) -> dict[str, Value]:
    """Each setting that is read but those of the training, by its name in a settings file."""
    others = (kind for name, kind in KINDS.items() if name not in asked.kinds)
    unread = {name for kind in others for name in kind.reads}
    return {name: value for name, value in own_values(asked).items() if name not in unread}


def named_facts(
    settings: Mapping[str, Value], declared: Mapping[str, Setting], table: str = ""
) -> Iterator[Fact]:
    """Each setting with its value, and what was declared of it."""
    for name, value in settings.items():
        meaning = declared[name].meaning(value) if name in declared else ""
        yield Fact(name=f"{table}{name}", value=setting_value(value), meaning=meaning)


def path_word(name: str) -> str:
    """A file's name that no command line takes for a flag."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def settings_for(command: str, record: type) -> dict[str, Setting]:
    """The settings of a record that have an effect on a command, those with flags first."""
    taken = settings_taken(record)
    names = [*flags_of(command), *taken]
    if command not in _PARTS:
        return {name: taken[name] for name in names}
    panels, also, without = _PARTS[command]
    own = {n for n, told in taken.items() if told.panel in panels or n in also}
    return {name: taken[name] for name in names if name in own and name not in without}


def flags_of(command: str) -> list[str]:
    """The settings that a command has flags for, those that people use most first."""
    first, others = FLAGS[command]
    return [*first.split(), *others.split()]


def flag_words(command: str, setting: Setting, value: Value) -> Iterator[str]:
    """A setting as a command reads it: bare if true, repeated if a list; else by --set."""
    yes, _, no = setting.flag.partition("/")
    if setting.name not in flags_of(command):
        yield set_words(setting.name, value)
    elif isinstance(value, bool):
        yield from filter(None, [yes if value else no])
    elif isinstance(value, tuple) and setting.parse is None:
        yield from (f"{yes} {word(part)}" for part in value)
    else:
        yield f"{yes} {word(value)}"


def set_words(name: str, value: Value) -> str:
    """A setting as --set reads it."""
    shown = str(value).lower() if isinstance(value, bool) else "" if value is None else value
    if isinstance(value, tuple | list) and any(_ambiguous(part) for part in value):
        shown = json.dumps(value, ensure_ascii=False)
    return f"--set {shlex.quote(f'{name}={_joined(shown)}')}"


def _ambiguous(part: Value) -> bool:
    """Whether a text of a list is another between commas."""
    return isinstance(part, str) and (
        not part or "," in part or part != part.strip() or part[0] == "["
    )


def word(value: Value) -> str:
    """A value as a command line takes it: lists by commas."""
    return shlex.quote(_joined(value))


def _joined(value: Value) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
