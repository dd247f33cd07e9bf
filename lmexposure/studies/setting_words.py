"""Settings as people read them: facts with their meanings, and the flags that give them again."""

import shlex
from collections.abc import Iterator, Mapping

from lmexposure._settings import Setting
from lmexposure._style import Value, setting_value
from lmexposure.canaries import KINDS
from lmexposure.core import Fact
from lmexposure.studies.exposure.run_record import RunOptions

# Settings that are shown only where they were given.
RARE = (
    *("prompt_field", "completion_field"),
    *("form", "turn", "loss", "rendering", "other_turn", "system", "chat_template", "chat_date"),
    *("load_in", "device_map", "texts"),
)


def run_settings(options: RunOptions) -> dict[str, Value]:
    """Each setting that is read but those of the training, by its name in a settings file."""
    others = (kind for name, kind in KINDS.items() if name not in options.kinds)
    unread = (name for kind in others for name in kind.reads)
    apart = ("training", "candidates", *unread)
    settings: dict[str, Value] = {name: value for name, value in options if name not in apart}
    return settings | {"canaries": options.candidates or options.canaries}


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


def flag_words(setting: Setting, value: Value) -> Iterator[str]:
    """A setting as the command line reads it: bare if true, repeated if a list; else by --set."""
    yes, _, no = (setting.flag or "").partition("/")
    if not yes:
        shown = str(value).lower() if isinstance(value, bool | None) else value
        yield f"--set {shlex.quote(f'{setting.name}={_joined(shown)}')}"
    elif isinstance(value, bool):
        yield from filter(None, [yes if value else no])
    elif isinstance(value, tuple) and setting.parse is None:
        yield from (f"{yes} {word(part)}" for part in value)
    else:
        yield f"{yes} {word(value)}"


def word(value: Value) -> str:
    """A value as a command line takes it: lists by commas."""
    return shlex.quote(_joined(value))


def _joined(value: Value) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
