"""One declaration for each setting: its default, words, range and flag. All else derives from it.

A record of settings is a frozen dataclass with a `PANEL` of the help, whose fields are made by
`setting`, or hold another such record (`part`). What is declared there gives the check of a value,
the flag of the command line and its help, the key of a settings file, the keyword of a Python call,
the command that does a run again, and the table of settings in a report. A name means one thing in
all of these: no record takes one name from two parts.
"""

import difflib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, partial
from operator import index
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from annotated_types import Interval

from lmexposure._types import BigInteger, Count, Found, Rows
from lmexposure._validate import LARGEST_SEED, flag, integer, of_type, one_of, text
from lmexposure.errors import SettingsError

T = TypeVar("T")
Rule = Callable[[str, Any], object]  # name and value; raises a SettingsError
Function = Callable[..., None]  # of a command

_KEY, _PART = "setting", "part"
_TRUTH = {"true": True, "false": False}  # as a text has it


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is declared of a setting."""

    name: str  # of the field
    default: Any  # its value where nothing is said
    help: str  # what it decides, a noun phrase without a stop
    panel: str  # of the help that it is shown in
    rule: Rule  # which values it takes; None is taken where it is the default
    usual: str  # what the default comes to, in words; empty: the default says it itself
    flag: str  # of the command line, where a command has one for it
    metavar: str  # the sign for its value in the help; empty: its type
    # reads the flag's text, given the name; None: the command line does, by the type
    parse: Rule | None
    kind: Any  # the type of its value, without None
    recorded: bool  # whether a file says it; not what changes speed alone, or is a secret
    remedy: str  # what else may be meant where a value is refused

    def check(self, value: object) -> None:
        """Refuse a value out of range."""
        if value is None and self.default is None:
            return
        try:
            self.rule(self.name, value)
        except SettingsError as failure:
            if not self.remedy:
                raise
            raise SettingsError(f"{failure}; {self.remedy}") from None

    def taken(self, given: object) -> Any:
        """A list as a tuple, and a whole number as one where several may be given."""
        if isinstance(given, list):
            return tuple(given)
        is_number = isinstance(given, int) and not isinstance(given, bool)
        return (given,) if is_number and self.kind == tuple[int, ...] else given

    @property
    def shown_default(self) -> str:
        """The default, for people."""
        if self.usual or self.default is None:
            return self.usual or "none"
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return str(self.default)

    @property
    def takes_none(self) -> bool:
        """Whether None is a value of it."""
        try:
            self.check(None)
        except (SettingsError, TypeError):
            return False
        return True

    def beginning(self, default: object) -> "Setting":
        """The same with another default, which says itself what it comes to."""
        return self if default == self.default else replace(self, default=default, usual="")

    @property
    def in_file(self) -> Any:
        """The type of its value in a file, with the range that its rule has."""
        limits = self.rule.keywords if isinstance(self.rule, partial) else {}
        kind = self.kind
        if "allowed" in limits:
            kind = Literal[limits["allowed"]]
        elif limits.get("high") == LARGEST_SEED:
            kind = BigInteger
        elif limits:
            kind = Annotated[Count, Interval(ge=limits["low"], le=limits["high"])]
        elif get_origin(kind) is tuple:
            rows: Any = Rows  # of a type that is known when this runs
            kind = rows[get_args(kind)[0]]
        return kind | None if self.default is None or self.takes_none else kind

    @property
    def range(self) -> str:
        """The values that it takes, for people; empty where its words say them."""
        if isinstance(self.rule, partial):
            low, high = self.rule.keywords.get("low"), self.rule.keywords.get("high")
            allowed = self.rule.keywords.get("allowed")
            if allowed is not None:
                return ", ".join(allowed)
            return f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
        return "true, false" if self.kind is bool else ""

    def read(self, text: str) -> object:
        """The value that a text gives, as `--set` has it; still to be checked."""
        if self.kind is bool:
            return _TRUTH.get(text.lower(), text)
        if not text and self.default is None:
            return None
        if self.parse is not None:
            return self.parse(self.name, text)
        if get_origin(self.kind) is tuple:
            kind, parts = get_args(self.kind)[0], _parts(text)
            return tuple(self._number(kind, part) for part in parts)
        return self._number(self.kind, text)

    def _number(self, kind: object, text: str) -> object:
        """The number that a text is, where the setting is one; else the text, to be refused."""
        for each in (int, float):
            if kind in (each, float):
                try:
                    return each(text)
                except ValueError:
                    continue
        return text

    def meaning(self, value: object) -> str:
        """What it decides, and what it comes to where it has no value: for a table of settings."""
        return f"{self.help}; none: {self.usual}" if value is None and self.usual else self.help


def _parts(text: str) -> list[str]:
    """The texts of a list: in JSON, which keeps commas and blanks in them, or between commas."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, list) and all(isinstance(part, str) for part in found):
            return found
    return [part.strip() for part in text.split(",")] if text else []


def setting(  # noqa: PLR0913 - what is declared of a setting, each by its name
    default: T,
    help: str,
    *,
    panel: str = "",  # where it is not that of its record
    rule: Rule | None = None,
    usual: str = "",
    flag_name: str | None = None,
    metavar: str = "",
    parse: Rule | None = None,
    secret: bool = False,
    recorded: bool = True,
    remedy: str = "",
) -> T:
    """A field of a record of settings; see `Setting`."""
    declared = {
        "help": help,
        "panel": panel,
        "rule": rule or flag,
        "usual": usual,
        "flag": flag_name,
        "metavar": metavar,
        "parse": parse,
        "recorded": recorded and not secret,
        "remedy": remedy,
    }
    made: T = field(default=default, repr=not secret, metadata={_KEY: declared})
    return made


@cache
def settings_of(record: type) -> dict[str, Setting]:
    """The settings that a record declares, by name, in its order."""
    found = {}
    for declared in fields(record):
        if _KEY in declared.metadata:
            attributes = dict(declared.metadata[_KEY])
            attributes["panel"] = attributes["panel"] or record.PANEL  # type: ignore[attr-defined]
            if attributes["flag"] is None:
                attributes["flag"] = "--" + declared.name.replace("_", "-")
            default = None if declared.default is MISSING else declared.default
            kind: Any = declared.type
            if isinstance(kind, UnionType):
                (kind,) = (part for part in get_args(kind) if part is not NoneType)
            found[declared.name] = Setting(
                name=declared.name, default=default, kind=kind, **attributes
            )
    return found


@dataclass(frozen=True, kw_only=True)
class Part:
    """A field that holds other settings, whose names are given without it."""

    record: type
    names: Collection[str] | None = None  # that can be given; None: all of them
    without: Collection[str] = ()  # but these
    as_given: bool = False  # it holds those alone that were given, by name
    recorded: bool = True  # whether a file says it

    def settings(self, made: object) -> dict[str, Setting]:
        """What can be given of it, by name, with the defaults that this one has."""
        found = settings_taken(self.record, made=None if self.as_given else made)
        wanted = found if self.names is None else self.names
        return {name: found[name] for name in wanted if name not in self.without}


def part(record: type, **how: Any) -> dict[str, Part]:
    """What a field that holds other settings has as its metadata; see `Part`."""
    return {_PART: Part(record=record, **how)}


def parts_of(record: type) -> dict[str, Part]:
    """The parts of a record of settings, by the name of their field."""
    return {
        declared.name: declared.metadata[_PART]
        for declared in fields(record)
        if _PART in declared.metadata
    }


def settings_taken(record: type, *, made: object = None) -> dict[str, Setting]:
    """Every setting that can be given to a record, by name: its own, then those of its parts."""
    made = record() if made is None else made
    found = {
        name: told.beginning(getattr(made, name)) for name, told in settings_of(record).items()
    }
    for name, held in parts_of(record).items():
        inner = held.settings(getattr(made, name)).items()
        found |= {n: told for n, told in inner if n not in found}
    return found


def refuse_untaken(
    values: Iterable[str], record: type, *, elsewhere: Mapping[str, Collection[str]] | None = None
) -> None:
    """Refuse names that a record does not take, those of its parts that it leaves out apart."""
    for name in sorted(settings_left_out(record).intersection(values)):
        raise SettingsError(f"{name!r} has no effect here; leave it out")
    refuse_unknown(values, settings_taken(record), elsewhere=elsewhere)


def settings_left_out(record: type) -> set[str]:
    """The names of its parts that a record does not take."""
    parts = parts_of(record).values()
    names = {name for held in parts for name in settings_taken(held.record)}
    return names - set(settings_taken(record))


_AS_GIVEN = dict[str, bool | int | float | str | Rows[int | float | str] | None]


class Settings(Found):
    """What a person may choose: a frozen dataclass whose fields are settings and parts."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        made = super().__get_pydantic_core_schema__(source, handler)
        own, told, parts = handler.resolve_ref_schema(made), settings_of(source), parts_of(source)
        kept = []
        for declared in own["schema"]["fields"]:
            name = declared["name"]
            if (told | parts)[name].recorded:
                kept.append(declared)
            if name in told:
                declared["schema"] = handler.generate_schema(told[name].in_file)
            elif parts[name].as_given:
                declared["schema"] = handler.generate_schema(_AS_GIVEN)
        own["schema"]["fields"] = kept
        own["fields"] = [declared["name"] for declared in kept]
        return made

    PANEL: ClassVar[str]  # of the help, where a setting has no other

    def __post_init__(self) -> None:
        """Hold every setting against its own rule; a list becomes a tuple, 1 a 1.0."""
        kind: Any = type(self)
        for name, declared in settings_of(kind).items():
            given = getattr(self, name)
            value: Any = declared.taken(given)
            declared.check(value)
            if declared.kind is float and value is not None:
                value = float(value)
            if value is not given:
                object.__setattr__(self, name, value)  # it is frozen from here on
        for name, held in parts_of(kind).items():
            if not held.as_given:
                wanted = f"{held.record.__name__}(...)"
                of_type(name, getattr(self, name), held.record, wanted)

    @staticmethod
    def completed(values: Mapping[str, object]) -> Mapping[str, object]:
        """The same values, with what some of them bring along where it is not given."""
        return values

    def override(self: T, values: Mapping[str, Any]) -> T:
        """A copy with some values replaced; names of its parts reach into them."""
        kind: Any = type(self)
        refuse_untaken(values, kind)
        values = {name: plain_numbers(value) for name, value in values.items()}
        left = dict(kind.completed(values))
        new: dict[str, Any] = {name: left.pop(name) for name in settings_of(kind) if name in left}
        for field_name, held in parts_of(kind).items():
            before = getattr(self, field_name)
            given = {name: left.pop(name) for name in held.settings(before) if name in left}
            new[field_name] = {**before, **given} if held.as_given else before.override(given)
        return replace(self, **new)  # type: ignore[type-var]


def settings_in(
    path: Path, record: type, *, elsewhere: Mapping[str, Collection[str]]
) -> dict[str, object]:
    """The settings of a TOML file, each checked by itself; tables (`elsewhere`) are for others."""
    from lmexposure._files import read_toml  # no help waits for it

    values = {n: value for n, value in read_toml(path).items() if n not in elsewhere}
    known = settings_taken(record)
    tables = {f"the table [{name}]": names for name, names in elsewhere.items()}
    try:
        refuse_untaken(values, record, elsewhere=tables)
        for name, value in values.items():
            if known[name].parse is not None and isinstance(value, str):
                values[name] = value = known[name].read(value)
            known[name].check(known[name].taken(value))
    except SettingsError as failure:
        raise SettingsError(f"{path}: {failure}") from None
    return values


def own_values(record: object) -> dict[str, Any]:
    """The values of a record's own settings that a file says, without those of its parts."""
    kind: Any = type(record)
    told = settings_of(kind).items()
    return {name: getattr(record, name) for name, setting in told if setting.recorded}


def plain_numbers(value: Any) -> Any:
    """The same with numpy's whole numbers as Python's own, in lists too."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain_numbers, value))
    return index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def recorded_values(record: object) -> dict[str, Any]:
    """What a file says of settings, those of its parts among them, each by its own name."""
    values = own_values(record)
    for name, held in parts_of(type(record)).items():
        inner = getattr(record, name)
        if held.recorded:
            values |= inner if held.as_given else recorded_values(inner)
    return values


def whole(low: int, high: int | None = None) -> Rule:
    """The rule of whole numbers in [low, high]."""
    return partial(integer, low=low, high=high)


SEED = whole(0, LARGEST_SEED)


def at_least_0(words: str, *, below: float = math.inf) -> Rule:
    """The rule of numbers from 0 on, in words."""

    def check(name: str, value: object) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < below:  # type: ignore[operator]
            raise SettingsError(f"{name}={value!r} must be {words}")

    return check


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
    """Refuse a name that is none of these, and name those that are spelled nearly so."""
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    name = unknown[0]
    for place, names in (elsewhere or {}).items():
        if name in names:
            raise SettingsError(f"{name!r} is no {what} here: it belongs in {place}; move it there")
    near = " or ".join(map(repr, difflib.get_close_matches(name, known)))
    guess = f"; did you mean {near}?" if near else ";"
    listing = "lmexposure settings COMMAND lists them all"
    if what == "command":
        listing = f"{'There' if near else 'there'} are {', '.join(known)}"
    raise SettingsError(f"unknown {what} {name!r}{guess} {listing}")


def build(record: Callable[..., T], values: Mapping[str, Any]) -> T:
    """A record of these values; their types are checked by its own rules."""
    return record(**values)
