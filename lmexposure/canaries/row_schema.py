"""What of a row is its text, and which row a canary makes: as a text, or as a turn of a chat."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lmexposure._validate import of_type
from lmexposure.canaries.chat_checks import CHANGING, check_chat
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.format import Format
from lmexposure.canaries.insertion import About, constants_of
from lmexposure.canaries.manifest import Manifest, WrappingRecord
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError

_EXAMPLE = 'Wrapping(...), such as Wrapping(turn="assistant")'
_OPTIONAL = "input"  # of an instruction; where records lack it, those of canaries do, too

_REPEATED = "prompt"  # of an implicit preference, where records have it beside


@dataclass(frozen=True)
class RowSchema:
    """What of a row is its text, and which row a canary makes.

    Attributes:
        name: of the field that holds the text, or of a chat where the canary is, such as
            "messages[1].content"; None: a row is its text.
        fields: constants for fields of inserted rows; the rest is copied from the row that follows.
        chat: whether a row is a chat, or a prompt with what follows it; all its strings together
            are its text.
        wrapping: for chats; None: nothing is inserted.
        record: what a manifest says of the wrapping; None: nothing, since it holds plain texts.
        place: what messages call a row: "record", "line", "row" or "document".
    """

    name: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    chat: bool = False
    wrapping: Wrapping | None = None
    record: WrappingRecord | None = None
    place: Literal["record", "line", "row", "document"] = "record"

    @classmethod
    def of(cls, manifest: Manifest, text_field: str | None = None) -> "RowSchema":
        """Of the rows that a manifest's canaries went into; another text field holds no chats."""
        name = text_field or manifest.corpus.text_field or "text"
        if text_field is not None:
            return cls(name)
        known = manifest.corpus.wrapping
        return cls(name, chat=manifest.layout == "chat" or known is not None, record=known)

    @classmethod
    def around(
        cls, wrapping: Wrapping | WrappingRecord, fields: Mapping[str, Any] | None = None
    ) -> "RowSchema":
        """Of rows that canaries go into in a wrapping.

        Args:
            wrapping: where in a record a canary goes, also as a manifest says it.
            fields: constants for other fields.

        Raises:
            CorpusError: no wrapping; or constants for the fields of the canary.
        """
        of_type("wrapping", wrapping, (Wrapping, WrappingRecord), _EXAMPLE, error=CorpusError)
        known = wrapping if isinstance(wrapping, Wrapping) else wrapping.wrapping()
        said = wrapping if isinstance(wrapping, WrappingRecord) else None
        if said is None and known.form != "text":
            said = WrappingRecord.of(known)
        made = cls(known.place, constants_of(fields), chat=True, wrapping=known, record=said)
        for name in sorted(made.fields.keys() & made.wrapped("")):
            raise CorpusError(f"fields must leave out {name!r}: the canary goes there")
        return made

    def about(self) -> About:
        """What a manifest says of such rows."""
        if self.name is None:
            return About("texts")
        return About(
            "dataset", text_field=self.name, constant_fields=self.fields, wrapping=self.record
        )

    def text(self, number: int, row: Any) -> Any:
        """What is hashed and searched of a row; numbers are from 1.

        Raises:
            CorpusError: it has none.
        """
        if self.name is None:
            return row
        if self.wrapping is not None or not self.chat:
            self._check_record(number, row)
        return "\n".join(_strings(row)) if self.chat else row[self.name]

    def canary(self, row: Any) -> Any:
        """The text of an inserted row; None where none can be read."""
        known = None if self.record is None else self.record.wrapping()
        steps: Sequence[Any] = () if self.name is None else (self.name,)
        if known is not None:
            steps = known.steps
        elif self.chat:  # of before version 4
            found = re.findall(r"\w+", str(self.name))
            steps = [int(step) if step.isdigit() else step for step in found]
        try:
            for step in steps:
                row = row[step]
        except (KeyError, IndexError, TypeError):
            return None
        return row.removeprefix(known.before) if known and isinstance(row, str) else row

    def row(self, following: Any, text: str) -> Any:
        """The row of a canary."""
        return text if self.name is None else {**following, **self.written(text, following)}

    def written(self, text: str, there: Iterable[Any]) -> dict[str, Any]:
        """The fields of a canary's row that are not copied, where rows have these fields."""
        fields, names = {**self.fields, **self.wrapped(text)}, list(there)
        if self.record is None:
            return fields
        if _OPTIONAL in fields and _OPTIONAL not in names:
            del fields[_OPTIONAL]
        if self.record.form == "implicit_preference" and _REPEATED in names and self.wrapping:
            fields.setdefault(_REPEATED, self.wrapping.asked)
        # Each canary is rendered as it will be scored, whatever the record that follows calls.
        without = {name: None for name in CHANGING if name in names and name not in fields}
        return {**fields, **without}

    def wrapped(self, text: str) -> Mapping[str, Any]:
        """The fields that a text goes into."""
        fields: Mapping[str, Any] = {} if self.name is None or self.chat else {self.name: text}
        return fields if self.wrapping is None else self.wrapping.record(text)

    def check_columns(self, there: Iterable[Any], *, where: str = "") -> None:
        """Refuse fields among which one for the text or for a constant is missing.

        Raises:
            CorpusError: it names the field.
        """
        names = list(there)
        chats = not self.chat and not {"messages", "prompt"}.isdisjoint(names)
        hint = "; chats take a wrapping" if chats else ""
        wanted = [name for name in self.written("", names) if name not in self.fields]
        for name in wanted if where else ():
            if name not in names:
                raise CorpusError(
                    f"{where} has no {name!r}; it has {', '.join(map(str, names)) or 'nothing'}: "
                    f"name the text_field{hint}"
                )
        check_columns(names, wanted, hint)
        check_columns(names, self.fields)

    def check_constants(self, number: int, row: Any) -> None:
        """Refuse a record without a field that a constant is given for: it would mark canaries."""
        missing = [] if not isinstance(row, Mapping) else [n for n in self.fields if n not in row]
        if missing:
            raise CorpusError(
                f"{self.place} {number} has no field {missing[0]!r}, for which fields gives a "
                f"constant; it has {', '.join(map(str, row)) or 'none'}: leave it out of fields, "
                "or give it to each record"
            )

    def check_around(self, formats: Sequence[Format]) -> None:
        """Refuse a wrapping, or constants, that hold a fill: each canary would bring it along.

        Raises:
            CorpusError: it names the format.
        """
        if not self.chat:
            return
        around = "\n".join(_strings(self.written("", self.wrapped(""))))
        for name, found in count_fills(formats, [(1, around)], whole_lines=False).items():
            if found.counts:
                raise CorpusError(
                    f"the other turns or constants of the canaries' records hold a fill of format "
                    f"{name!r}, which would go in with each of them; change the text of the other "
                    "turn, of the system or of the constants"
                )

    def _check_record(self, number: int, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise CorpusError(
                f"{self.place} {number} is {kind_of(row)}, and must be fields by name"
            )
        if self.wrapping is not None:
            self._check_chat(number, row, self.wrapping)
        elif self.name not in row:
            self.check_columns(row, where=f"{self.place} {number}")

    def _check_chat(self, number: int, row: Mapping[str, Any], wrapping: Wrapping) -> None:
        where = f"{self.place} {number}"
        missing = sorted(self.written("", row).keys() - row.keys() - self.fields.keys())
        if missing:
            raise CorpusError(
                f"{where} has no field {missing[0]!r}, which this wrapping writes; it has "
                f"{', '.join(map(str, row)) or 'none'}: choose another wrapping, or rename fields"
            )
        check_chat(where, {**row, **self.fields}, wrapping, constants=self.fields)
        self.check_constants(number, row)


def kind_of(value: Any) -> str:
    """What something is, for a message."""
    return "one text" if isinstance(value, str) else f"of type {type(value).__name__}"


def check_once(names: Sequence[Any], name: str) -> None:
    """Refuse two columns of one name."""
    if list(names).count(name) > 1:
        raise CorpusError(f"there are two columns {name!r}; rename one")


def check_columns(names: Sequence[Any], wanted: Iterable[str], hint: str = "") -> None:
    """Refuse rows without one of these columns, and name those that are there; or with two."""
    for name in wanted:
        check_once(names, name)
        if name not in names:
            listed = ", ".join(map(str, names)) or "none"
            raise CorpusError(f"no column {name!r}; there are {listed}{hint}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)
    elif hasattr(value, "tolist") and isinstance(listed := value.tolist(), list):
        yield from _strings(listed)  # of an array: pandas has them where Parquet has lists
