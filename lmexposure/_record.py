"""What is read from a file: typed to the leaf, checked once at the door, attributes ever after.

A record's file is JSON with an envelope: `schema` names its kind and version, `content_sha256` is
the hash of everything else. Who reads it gets a `FileRecord` or an error that says what to do.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from lmexposure._files import canonical_json, content_hash, write_json
from lmexposure._integrity import CONTENT, take_hash
from lmexposure._text import visible
from lmexposure._validate import LARGEST_NUMBER, LEAST_LEVEL
from lmexposure.errors import InputError, ResultError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonTable: TypeAlias = dict[str, JsonValue]
Upgrades: TypeAlias = Mapping[int, Callable[[JsonTable, bool], JsonTable]]

_MOST_DIGITS = 4000  # Python reads no more than 4,300
_LONGEST_VERSION = 9  # digits
_SHOWN = 60  # characters of a value in a message
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FROM_FILE = {"from": "a file"}  # how validation is told that it reads what was written
_T = TypeVar("_T")


def _from_decimal(value: object, info: "ValidationInfo[object]") -> object:
    """A file's decimal string as a number; a JSON number there may have been rounded."""
    if info.context is not _FROM_FILE:
        return value
    decimal = isinstance(value, str) and value.isascii() and value.isdecimal()
    if not isinstance(value, str) or not decimal or len(value) > _MOST_DIGITS:
        # Not a ValueError: its message would have to show the value, which may be a secret.
        raise PydanticCustomError(
            "decimal_string", f"Input should be a decimal string of at most {_MOST_DIGITS:,} digits"
        )
    return int(value)


def is_date(value: str) -> bool:
    """Whether a text is a moment in UTC, to the second, that there was or will be."""
    if not _DATE.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # the 31st of February
        return False
    return True


def _dated(value: str) -> str:
    if not is_date(value):
        raise ValueError(f"{value[:40]!r} is no date in UTC such as 2026-11-22T06:30:00Z")
    return value


# An integer that may pass 2^53: a decimal string in files.
BigInteger = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(_from_decimal),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^[0-9]{{1,{_MOST_DIGITS}}}$"}),
]
Count = Annotated[int, Field(ge=0, le=10**15)]  # every whole number up to it is a float as well
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(ge=LEAST_LEVEL, le=1)]  # coverage of an interval; 1: it is proven
Utc = Annotated[str, AfterValidator(_dated)]
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[Count, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, lt=1)]
Delta = Annotated[float, Field(ge=0, lt=1)]  # of differential privacy
ROUNDING = 1e-6  # bits
Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]  # what a chart can show
Bits = Annotated[float, Field(ge=-ROUNDING, le=LARGEST_NUMBER)]
Nats = Annotated[float, Field(ge=0, le=LARGEST_NUMBER)]
# JSON has lists alone; what is read is kept as a tuple, for records are frozen.
Rows = Annotated[tuple[_T, ...], Field(strict=False)]


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


class FileRecord(Record):
    """A whole file.

    Attributes:
        NAME: of the file, as lmexposure writes it.
        FAMILY, VERSION: of its schema, written "family/version".
        ERROR: what is raised of a file that cannot be used.
        AGAIN: how to get a file that can: the end of every message.
        SECRET: whether a value may be a secret, so that no message shows one.
        UPGRADES: from each older version the function that makes its contents those of the next,
            told whether they carried a hash; kept for good.
        UNHASHED: versions of which there are files without a hash; every other carries one.
    """

    NAME: ClassVar[str]
    FAMILY: ClassVar[str]
    VERSION: ClassVar[int]
    ERROR: ClassVar[type[InputError]] = ResultError
    AGAIN: ClassVar[str]
    SECRET: ClassVar[bool] = False
    UPGRADES: ClassVar[Upgrades] = {}
    UNHASHED: ClassVar[frozenset[int]] = frozenset()

    @classmethod
    def schema_name(cls) -> str:
        """What `schema` says in a file of today: "lmexposure.result/2"."""
        return f"{cls.FAMILY}/{cls.VERSION}"

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Self:
        """The record of a file of this or an older version.

        Args:
            content: of the file.
            path: its name, for messages.

        Raises:
            InputError: of class `ERROR`: no JSON, of another kind or a newer version, edited or
                damaged since it was written, or with a part that no such file holds.
        """
        try:
            values = json.loads(content.decode("utf-8"), object_pairs_hook=_each_once)
            _refuse_half_characters(values, content)
        except (ValueError, RecursionError) as failure:
            secret = cls.SECRET and isinstance(failure, _TwiceError)
            why = "a key is there twice" if secret else failure
            refused = cls.ERROR(f"{path} is not readable JSON ({why}); {cls.AGAIN}")
            raise refused from (None if secret else failure)
        version = cls._version(values, path)
        hashed = CONTENT in values
        lacking = not hashed and version in {*cls.UPGRADES, cls.VERSION} - cls.UNHASHED
        if not take_hash(values) or lacking:
            raise cls.ERROR(
                f"{path} does not fit its {CONTENT}: it was edited or damaged after it was "
                f"written; {cls.AGAIN}"
            )
        values.pop("schema", None)
        return cls._validated(cls._upgraded(values, version, hashed, path), path)

    def write(self, path: Path, *, mode: int = 0o644) -> None:
        """Write the file, whole or not at all, with the hash of its own content.

        Raises:
            FileError: the disk refused.
        """
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
    def is_newer(cls, schema: object) -> bool:
        """Whether this is the schema of a later version: such a file is whole, and kept."""
        family, _, version = str(schema).partition("/")
        digits = version.isascii() and version.isdecimal()
        late = digits and (len(version) > _LONGEST_VERSION or int(version) > cls.VERSION)
        return family == cls.FAMILY and late

    @classmethod
    def _version(cls, values: object, path: Path) -> int:
        """Of the schema; 0 where a file has none and there were such files."""
        schema = values.get("schema") if isinstance(values, dict) else None
        if schema is None and isinstance(values, dict) and 0 in cls.UPGRADES:
            return 0
        family, _, version = str(schema).partition("/")
        shown = ascii(schema) if len(str(schema)) <= _SHOWN else f"{ascii(schema)[:_SHOWN]}..."
        if family != cls.FAMILY or not (version.isascii() and version.isdecimal()):
            raise cls.ERROR(
                f"{path} has schema {shown}; expected {cls.schema_name()!r}: give a {cls.NAME} "
                "that lmexposure wrote"
            )
        if cls.is_newer(schema):
            raise cls.ERROR(
                f"{path} has schema {shown}, newer than {cls.schema_name()!r}; install a newer "
                "lmexposure"
            )
        return int(version)

    @classmethod
    def _upgraded(cls, values: JsonTable, version: int, hashed: bool, path: Path) -> JsonTable:
        """The contents as of today; an upgrade looks at nothing but what it moves."""
        for number in range(version, cls.VERSION):
            if number not in cls.UPGRADES:
                raise cls.ERROR(f"{path} has schema {cls.FAMILY}/{number}, which there never was")
            try:
                values = cls.UPGRADES[number](values, hashed)
            except cls.ERROR as failure:  # of ours, and says all itself
                raise cls.ERROR(f"{path}: {failure}") from failure
            except (LookupError, TypeError, ValueError) as failure:
                lacks = "it lacks " if isinstance(failure, LookupError) else ""
                what = f"{cls.FAMILY}/{version}" if version else f"{cls.NAME} without a schema"
                raise cls.ERROR(
                    f"{path} is no sound {what}: {lacks}{visible(failure)[:_SHOWN]}; {cls.AGAIN}"
                ) from failure
        return values

    @classmethod
    def _validated(cls, values: JsonTable, path: Path) -> Self:
        try:
            return cls.model_validate(values, context=_FROM_FILE)
        except ValidationError as failure:
            problem = first_problem(failure, shown=not cls.SECRET)
            raise cls.ERROR(f"{path}: {problem}; {cls.AGAIN}") from None
        except RecursionError:
            raise cls.ERROR(f"{path} is nested too deeply; {cls.AGAIN}") from None


def first_problem(failure: ValidationError, *, shown: bool = True) -> str:
    """The first thing that is wrong, in words: where it is, what is there, what may be.

    Args:
        failure: as pydantic raised it.
        shown: whether the value may be shown; one of a manifest may be a secret.

    >>> class Example(Record):
    ...     bits: float
    >>> try:
    ...     Example.model_validate({"bits": "3"})
    ... except ValidationError as failure:
    ...     print(first_problem(failure))
    bits='3': Input should be a valid number
    """
    problem = failure.errors(include_url=False)[0]
    unknown = problem["type"] == "extra_forbidden"
    place = _place(problem["loc"][:-1] if unknown and not shown else problem["loc"])
    rule = problem.get("ctx", {}).get("error")
    if rule is not None:  # of ours, and says all itself
        return f"{place}: {rule}" if place else str(rule)
    value = visible(repr(problem["input"]))
    known = shown and not unknown and problem["type"] != "missing"
    what = f"{place}={value[:_SHOWN]}" if known else place
    return f"{what}: {problem['msg']}" if what else problem["msg"]


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


def table_of(value: JsonValue, where: str) -> JsonTable:
    """A part of an older file as a table, for an upgrade.

    Raises:
        TypeError: it is none; names the part.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{where} is no table")
    return value


def list_of(value: JsonValue, where: str) -> list[JsonValue]:
    """A part of an older file as a list, for an upgrade.

    Raises:
        TypeError: it is none; names the part.
    """
    if not isinstance(value, list):
        raise TypeError(f"{where} is no list")
    return value


def plain(value: object) -> JsonValue:
    """A value as JSON can hold it: numbers not finite become None, numpy becomes Python."""
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
