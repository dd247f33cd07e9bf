"""What is read from a file: typed to the leaf, checked once at the door, attributes ever after.

A record's file is JSON with an envelope: `schema` names its kind and version, `content_sha256` is
the hash of everything else. Who reads it gets a `FileRecord` or an error that says what to do.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lmexposure._files import canonical_json, content_hash, read_bytes, write_json
from lmexposure._integrity import CONTENT, take_hash
from lmexposure._style import visible
from lmexposure._types import FROM_FILE
from lmexposure._types import ROUNDING as ROUNDING
from lmexposure._types import BigInteger as BigInteger
from lmexposure._types import Bits as Bits
from lmexposure._types import Count as Count
from lmexposure._types import Delta as Delta
from lmexposure._types import Level as Level
from lmexposure._types import Nats as Nats
from lmexposure._types import NotNegative as NotNegative
from lmexposure._types import Number as Number
from lmexposure._types import Positive as Positive
from lmexposure._types import Rate as Rate
from lmexposure._types import Rows as Rows
from lmexposure._types import Sha256 as Sha256
from lmexposure._types import Share as Share
from lmexposure.errors import InputError, ResultError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonTable: TypeAlias = dict[str, JsonValue]

_SHOWN = 60  # characters of a value in a message
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of a record, and of a dataclass
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def _dated(value: str) -> str:
    """A moment in UTC, to the second, that there was or will be."""
    try:
        if _DATE.fullmatch(value) and datetime.fromisoformat(value):
            return value
    except ValueError:  # the 31st of February
        pass
    raise ValueError(f"{value[:40]!r} is no date in UTC such as 2026-11-22T06:30:00Z")


Utc = Annotated[str, AfterValidator(_dated)]


class Record(BaseModel):
    """A part of a file: every field is there, of its type, finite, and nothing else is."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),
    )

    def __dir__(self) -> list[str]:
        """Its own names, for the Tab key, without those of pydantic."""
        own = (name for name in super().__dir__() if not name.startswith("_"))
        return sorted(set(own) - set(dir(BaseModel)))


class FileRecord(Record):
    """A whole file."""

    NAME: ClassVar[str]  # of the file, as lmexposure writes it
    # FAMILY, VERSION: of its schema, written "family/version"
    FAMILY: ClassVar[str]
    VERSION: ClassVar[int]
    ERROR: ClassVar[type[InputError]] = ResultError  # what is raised of a file that cannot be used
    AGAIN: ClassVar[str]  # how to get a file that can: the end of every message
    ANEW: ClassVar[str] = ""  # the same of a file of another version, where AGAIN leads nowhere
    SECRET: ClassVar[bool] = False  # whether a value may be a secret, so that no message shows one

    @classmethod
    def schema_name(cls) -> str:
        """What `schema` says in a file of today: "lmexposure.result/2"."""
        return f"{cls.FAMILY}/{cls.VERSION}"

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Self:
        """The record of a file of this version."""
        try:
            values = json.loads(content.decode("utf-8"), object_pairs_hook=_each_once)
            _refuse_half_characters(values, content)
        except (ValueError, RecursionError) as failure:
            secret = cls.SECRET and isinstance(failure, _TwiceError)
            why = "a key is there twice" if secret else failure
            refused = cls.ERROR(f"{path} is not readable JSON ({why}); {cls.AGAIN}")
            raise refused from (None if secret else failure)
        cls.refuse_version(values, path)
        if not isinstance(values, dict) or values.get("schema") != cls.schema_name():
            raise cls.ERROR(
                f"{path} has schema {_schema_of(values)}; expected {cls.schema_name()!r}: give a "
                f"{cls.NAME} that lmexposure wrote"
            )
        if not take_hash(values):
            raise cls.ERROR(
                f"{path} does not fit its {CONTENT}: it was edited or damaged after it was "
                f"written; {cls.AGAIN}"
            )
        del values["schema"]
        return cls._validated(values, path)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read such a file, or that of its directory."""
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise cls.ERROR(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)

    def write(self, path: Path, *, mode: int = 0o644) -> None:
        """Write the file, whole or not at all, with the hash of its own content."""
        values = self.to_dict()
        write_json(path, {**values, CONTENT: content_hash(values)}, mode=mode)

    def to_dict(self) -> JsonTable:
        """The file's contents but for the hash."""
        values: JsonTable = {"schema": self.schema_name()}
        values.update(self.model_dump(mode="json"))
        return values

    @classmethod
    def json_schema(cls) -> JsonTable:
        """The JSON Schema (draft 2020-12) of such a file, envelope and all."""
        made: JsonTable = cls.model_json_schema(mode="serialization")
        envelope: JsonTable = {
            "schema": {"const": cls.schema_name()},
            CONTENT: {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        }
        inner, required = made["properties"], made["required"]
        assert isinstance(inner, dict)
        assert isinstance(required, list)
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": cls.schema_name(),
            **made,
            "properties": {**envelope, **inner},
            "required": [*envelope, *required],
        }

    @classmethod
    def refuse_version(cls, values: object, path: Path) -> None:
        """Refuse a file of this kind by another version, older or newer: it may be whole."""
        refuse_other_version(
            values, path, cls.schema_name(), cls.ANEW or cls.AGAIN, error=cls.ERROR
        )

    @classmethod
    def _validated(cls, values: JsonTable, path: Path) -> Self:
        try:
            return cls.model_validate(values, context=FROM_FILE)
        except ValidationError as failure:
            problem = first_problem(failure, shown=not cls.SECRET)
            raise cls.ERROR(f"{path}: {problem}; {cls.AGAIN}") from None
        except RecursionError:
            raise cls.ERROR(f"{path} is nested too deeply; {cls.AGAIN}") from None


def refuse_other_version(
    values: object, path: Path, known: str, again: str, *, error: type[InputError] = ResultError
) -> None:
    """Refuse what has the family of a known schema, and another version than its."""
    schema = values.get("schema") if isinstance(values, dict) else None
    family, _, version = str(schema).partition("/")
    numbered = version.isascii() and version.isdecimal()
    if family == known.partition("/")[0] and numbered and schema != known:
        raise error(
            f"{path} has schema {_schema_of(values)}, and this version of lmexposure reads "
            f"{known!r} alone; use the version of lmexposure that wrote it; else {again}"
        )


def _schema_of(values: object) -> str:
    """For a message."""
    schema = values.get("schema") if isinstance(values, dict) else None
    return ascii(schema) if len(str(schema)) <= _SHOWN else f"{ascii(schema)[:_SHOWN]}..."


def first_problem(failure: ValidationError, *, shown: bool = True) -> str:
    """The first thing that is wrong, in words: where it is, what is there, what may be.

    >>> class Example(Record):
    ...     bits: float
    >>> try:
    ...     Example.model_validate({"bits": "3"})
    ... except ValidationError as failure:
    ...     print(first_problem(failure))
    bits='3': Input should be a valid number
    """
    problem = failure.errors(include_url=False)[0]
    unknown = problem["type"] in _UNKNOWN
    place = _place(problem["loc"][:-1] if unknown and not shown else problem["loc"])
    rule = problem.get("ctx", {}).get("error")
    if rule is not None:  # of ours, and says all itself
        return f"{place}: {rule}" if place else str(rule)
    value = visible(repr(problem["input"]))
    known = shown and not unknown and problem["type"] != "missing"
    what = f"{place}={value[:_SHOWN]}" if known else place
    said = "Extra inputs are not permitted" if unknown else problem["msg"]
    return f"{what}: {said}" if what else said


def _place(path: tuple[int | str, ...]) -> str:
    """Where in a file: canaries[3].exposure.value."""
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{visible(part)[:_SHOWN]}" for part in path
    )
    return "".join(parts).removeprefix(".")


class _TwiceError(ValueError):
    """A table has two values for one key."""


def _each_once(pairs: list[tuple[str, JsonValue]]) -> JsonTable:
    """A table; of a key that is there twice, one reader takes the first and another the last."""
    table = dict(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _TwiceError(f"the key {visible(twice)[:_SHOWN]!r} is there twice")
    return table


def _refuse_half_characters(values: object, content: bytes) -> None:
    """JSON can spell half of a surrogate pair, which is no character and cannot be written."""
    if b"\\ud" not in content.lower():
        return
    try:
        canonical_json(values)
    except UnicodeEncodeError as failure:
        half = failure.object[failure.start : failure.end]
        raise ValueError(f"it holds half a character, {half!a}") from None


def plain(value: object) -> JsonValue:
    """A value as JSON can hold it: numbers not finite become None, arrays and results plain."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):  # numpy's
        return plain(value.tolist())
    raise TypeError(f"a {type(value).__name__} is nothing that JSON holds")
