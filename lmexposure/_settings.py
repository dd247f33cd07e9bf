"""One declaration for each setting: its default, words, range and flag. All else derives from it.

A record of settings is a frozen dataclass whose fields are made by `setting`; what is declared
there gives the check of its values, the flags of the command line and their help, the keys of a
settings file, the command that does a run again, and the table of settings in a report.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from types import UnionType
from typing import Any, TypeVar, get_args

from lmexposure._validate import flag, integer, one_of, text
from lmexposure.errors import SettingsError

T = TypeVar("T")
Rule = Callable[[str, Any], object]  # name and value; raises a SettingsError

_KEY = "setting"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is declared of a setting."""

    name: str  # of the field
    default: Any  # its value where nothing is said
    help: str  # what it decides, a noun phrase without a stop
    panel: str  # of the help that it is shown in
    rule: Rule  # which values it takes; None is taken where it is the default
    usual: str  # what the default comes to, in words; empty: the default says it itself
    flag: str | None  # of the command line; None: only a settings file sets it
    metavar: str  # the sign for its value in the help; empty: its type
    # reads the flag's text, given the name; None: the command line does, by the type
    parse: Rule | None
    kind: Any  # the type of its value, without None

    def check(self, value: object) -> None:
        """Refuse a value out of range."""
        if value is not None or self.default is not None:
            self.rule(self.name, value)

    @property
    def shown_default(self) -> str:
        """The default, for people."""
        if self.usual or self.default is None:
            return self.usual or "none"
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return str(self.default)

    def meaning(self, value: object) -> str:
        """What it decides, and what it comes to where it has no value: for a table of settings."""
        return f"{self.help}; none: {self.usual}" if value is None and self.usual else self.help


def setting(  # noqa: PLR0913 - what is declared of a setting, each by its name
    default: T,
    help: str,
    *,
    panel: str,
    rule: Rule | None = None,
    usual: str = "",
    by_flag: bool = True,
    flag_name: str | None = None,
    metavar: str = "",
    parse: Rule | None = None,
    secret: bool = False,
) -> T:
    """A field of a record of settings; see `Setting`."""
    declared = {
        "help": help,
        "panel": panel,
        "rule": rule or flag,
        "usual": usual,
        "flag": (flag_name or "--") if by_flag else None,
        "metavar": metavar,
        "parse": parse,
    }
    made: T = field(default=default, repr=not secret, metadata={_KEY: declared})
    return made


_FOUND: dict[type, dict[str, Setting]] = {}


def settings_of(record: type) -> dict[str, Setting]:
    """The settings that a record declares, by name, in its order."""
    if record not in _FOUND:
        _FOUND[record] = _declared(record)
    return _FOUND[record]


def _declared(record: type) -> dict[str, Setting]:
    found = {}
    for declared in fields(record):
        if _KEY in declared.metadata:
            attributes = dict(declared.metadata[_KEY])
            if attributes["flag"] == "--":
                attributes["flag"] = "--" + declared.name.replace("_", "-")
            default = None if declared.default is MISSING else declared.default
            kind = _without_none(declared.type)
            found[declared.name] = Setting(
                name=declared.name, default=default, kind=kind, **attributes
            )
    return found


def _without_none(kind: Any) -> Any:
    if not isinstance(kind, UnionType):
        return kind
    (only,) = (part for part in get_args(kind) if part is not type(None))
    return only


def check_settings(record: object) -> None:
    """Hold every setting of a record against its own rule; a list becomes a tuple."""
    for name, declared in settings_of(type(record)).items():
        value = getattr(record, name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(record, name, value)  # it is frozen from here on
        declared.check(value)


def whole(low: int, high: int | None = None) -> Rule:
    """The rule of whole numbers in [low, high]."""
    return partial(integer, low=low, high=high)


def choice(*words: str) -> Rule:
    """The rule of some words."""
    return partial(one_of, allowed=words)


def several(rule: Rule) -> Rule:
    """The rule of a tuple with at least one value, each by `rule`."""

    def check(name: str, values: object) -> None:
        if not isinstance(values, tuple) or not values:
            raise SettingsError(f"{name}={values!r} must be a list with at least one entry")
        for value in values:
            rule(name, value)

    return check


words = several(text)


def whole_numbers(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, as a flag takes them."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{flag}={text!r} must be whole numbers separated by commas, such as 1,4,16"
        ) from None


def numbers(flag: str, text: str) -> tuple[float, ...]:
    """Numbers separated by commas, as a flag takes them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{flag}={text!r} must be numbers separated by commas, such as 1,0.5,0"
        ) from None


def refuse_unknown(
    given: Iterable[str],
    known: Collection[str],
    *,
    what: str = "setting",
    elsewhere: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Refuse a name that is none of these, and name the nearest that is."""
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    name = unknown[0]
    for place, names in (elsewhere or {}).items():
        if name in names:
            raise SettingsError(f"{name!r} is no {what} here: it belongs in {place}; move it there")
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {near[0]!r}? There" if near else "there"
    raise SettingsError(f"unknown {what} {name!r}; {guess} are {', '.join(sorted(known))}")


def build(record: Callable[..., T], values: Mapping[str, Any]) -> T:
    """A record of these values; their types are checked by its own rules."""
    return record(**values)


def changed(record: T, values: Mapping[str, Any]) -> T:
    """A copy of a record with some values replaced; their types are checked by its own rules."""
    made: T = replace(record, **values)  # type: ignore[type-var]
    return made
