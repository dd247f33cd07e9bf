"""The numbers of results and records: what may be there, and how JSON spells it.

No pydantic at import: a result of the statistics has these types too, and is part of a record as it
is.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from annotated_types import Ge, Gt, Interval

from lmexposure._validate import LARGEST_NUMBER, LEAST_LEVEL

_MOST_DIGITS = 4000  # Python reads no more than 4,300
UNWRITTEN = {"written": False}  # metadata of a field that no file has: what is read has its default
LATER = {"later": True}  # metadata of a field that a file may lack: it has its default then
FROM_FILE = {"from": "a file"}  # how validation is told that it reads what was written
_T = TypeVar("_T")
_Schema: TypeAlias = dict[str, Any]  # pydantic's


class _Listed:
    """JSON has lists alone; what is read is kept as a tuple, for records are frozen."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], _Schema]
    ) -> _Schema:
        return handler(source) | {"strict": False}


class _Decimal:
    """An integer that may pass 2^53 is a decimal string in a file."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], _Schema]
    ) -> Any:
        from pydantic_core import core_schema as schema

        return schema.with_info_before_validator_function(
            _from_decimal,
            handler(source),
            serialization=schema.to_string_ser_schema(when_used="json"),
        )

    def __get_pydantic_json_schema__(self, made: object, handler: object) -> _Schema:
        return {"type": "string", "pattern": f"^[0-9]{{1,{_MOST_DIGITS}}}$"}


def _from_decimal(value: object, info: Any) -> object:
    """A file's decimal string as a number; a JSON number there may have been rounded."""
    from pydantic_core import PydanticCustomError

    if info.context is not FROM_FILE:
        return value
    decimal = isinstance(value, str) and value.isascii() and value.isdecimal()
    if not isinstance(value, str) or not decimal or len(value) > _MOST_DIGITS:
        # Not a ValueError: its message would have to show the value, which may be a secret.
        raise PydanticCustomError(
            "decimal_string", f"Input should be a decimal string of at most {_MOST_DIGITS:,} digits"
        )
    return int(value)


@dataclass(frozen=True)
class Matching:
    """A string is all of this pattern, which is a regular expression of JSON Schema."""

    pattern: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], _Schema]
    ) -> _Schema:
        return handler(source) | {"pattern": self.pattern}


BigInteger = Annotated[int, Ge(0), _Decimal()]
Count = Annotated[int, Interval(ge=0, le=10**15)]  # every one up to it is a float as well
Share = Annotated[float, Interval(ge=0, le=1)]
Level = Annotated[float, Interval(ge=LEAST_LEVEL, le=1)]  # of an interval; 1: it is proven
NotNegative = Annotated[float, Ge(0)]
Positive = Annotated[Count, Ge(1)]
Rate = Annotated[float, Interval(gt=0, lt=1)]
PValue = Annotated[float, Gt(0), Interval(le=1)]  # of a test that never shows 0
Delta = Annotated[float, Interval(ge=0, lt=1)]  # of differential privacy
ROUNDING = 1e-6  # bits
Number = Annotated[float, Interval(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]  # what a chart can show
Bits = Annotated[float, Interval(ge=-ROUNDING, le=LARGEST_NUMBER)]
Nats = Annotated[float, Interval(ge=0, le=LARGEST_NUMBER)]
Sha256 = Annotated[str, Matching("^[0-9a-f]{64}$")]
Rows = Annotated[tuple[_T, ...], _Listed()]


class Found:
    """A frozen dataclass that a record can hold: read to the leaf, all of it there, no more."""

    __pydantic_config__: ClassVar[_Schema] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "revalidate_instances": "always",  # what was computed, before it is written
    }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> _Schema:
        made: _Schema = handler(source)
        own = handler.resolve_ref_schema(made)
        own["strict"] = False  # a table of a file is as good as an instance
        for field, declared in zip(own["schema"]["fields"], fields(source), strict=True):  # type: ignore[arg-type]
            if declared.metadata == UNWRITTEN:
                field |= {"init": False, "serialization_exclude": True}
            # A default is for who computes it, not for a file.
            elif field["schema"]["type"] == "default" and declared.metadata != LATER:
                field["schema"] = field["schema"]["schema"]
        return made


class Checked(Found):
    """A `Found` whose `__post_init__` refuses all that no file holds: it is not looked at again."""

    __pydantic_config__: ClassVar[_Schema] = {
        **Found.__pydantic_config__,
        "revalidate_instances": "never",
    }
