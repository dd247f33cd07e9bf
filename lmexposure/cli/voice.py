"""What the library says of an argument, as the command line says it: epochs=3 is --epochs 3.

Errors and warnings name arguments as Python does; a command names those that it has a flag for by
the flag, and other settings that it takes by --set. Texts in quotes, paths, addresses and words
that were typed stay as they are, and so does what is said of the content of a file ("mine.toml:
epochs=0 must be ...").
"""

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TypeAlias

from typer.core import TyperOption

from lmexposure.cli.options import TAKEN
from lmexposure.studies import set_words

_IN_FILE = r"\A[^'\",;]*\.(?:toml|json): (?s:.*)"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_VALUE = rf"{_QUOTED}|\[(?:{_QUOTED}|[^]'\"])*\]|\((?:{_QUOTED}|[^)'\"])*\)|\.\.\.|[-+.\w]*\w"
# An argument with its value; the epsilon of a claim is none.
_ARGUMENT = rf"(?<![\w./\\-])(?<!claim of )([a-z]\w*)=({_VALUE})(?=[.:]?(?:\s|$)|[,;)`])"
_APART = rf"(?<!\w)(?:{_QUOTED})|\w\([^()]*\)|(?<![^\s(])[^\s(=]*[/\\]\S*"

# The arguments that a command takes: by a flag, or (None) by --set.
Arguments: TypeAlias = dict[str, TyperOption | None]
_running: Arguments = {}


def listen(command: str, parameters: Iterable[object]) -> None:
    """Speak as this command from now on."""
    _running.clear()
    _running.update(arguments_of(command, parameters))


def said(message: str) -> str:
    """A message in the words of the command that runs."""
    return spoken(message, _running, typed=sys.argv[1:])


def arguments_of(command: str, parameters: Iterable[object]) -> Arguments:
    """What a command takes, by the names of its arguments and of its flags."""
    flags = [each for each in parameters if isinstance(each, TyperOption)]
    by_flag = {each.opts[0].removeprefix("--").replace("-", "_"): each for each in flags}
    by_set = dict.fromkeys(TAKEN[command].settings) if command in TAKEN else {}
    return {**by_set, **by_flag, **{str(each.name): each for each in flags}}


def spoken(message: str, flags: Arguments, *, typed: Sequence[str] = ()) -> str:
    """A message with every argument named by its flag, where it has one; `typed` words are kept."""

    def by_flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags:
            return found[0]
        flag = flags[name]
        return _set(name, value) if flag is None else _shown(flag, value) or found[0]

    words = [*typed, *(word.partition("=")[2] for word in typed if word.startswith("--"))]
    kept = [rf"(?<![\w/]){re.escape(word)}(?!\w)" for word in words if "=" in word]
    return re.sub("|".join([_IN_FILE, *kept, _ARGUMENT, _APART]), by_flag, message)


def _set(name: str, text: str) -> str:
    """A setting that has no flag, with its value; its name alone where that is "..."."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    return f"--set {name}=..." if value is ... or value == [...] else set_words(name, value)


def _shown(flag: TyperOption, text: str) -> str | None:
    """A flag with its value, alone where that is "..."; None: no flag gives such a value."""
    yes, no = flag.opts[0], next(iter(flag.secondary_opts), None)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text if text.lstrip("+-") in ("nan", "inf") else None
    if isinstance(value, bool | None):
        return {True: yes, False: no, None: None}[value]
    values = value if isinstance(value, tuple | list) else [value]
    if ... in values:
        return yes
    words = [quote(str(each)) for each in values]
    shown = words if flag.multiple or not words else [",".join(words)]
    return " ".join(f"{yes} {each}" for each in shown)
