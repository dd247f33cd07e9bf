"""What of a row is its text, and which row a canary makes: as a text, or as a turn of a chat."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmexposure.canaries.corpora.tables import check_columns
from lmexposure.canaries.insertion import About
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError

_CHANGING = ("tools", "chat_template_kwargs")  # how a chat is rendered


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
    """

    name: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    chat: bool = False
    wrapping: Wrapping | None = None

    @classmethod
    def of(cls, manifest: Manifest, text_field: str | None = None) -> "RowSchema":
        """Of the rows that a manifest's canaries went into; another text field holds no chats."""
        name = text_field or manifest.corpus.text_field or "text"
        return cls(name, chat=manifest.layout == "chat" and text_field is None)

    def about(self) -> About:
        """What a manifest says of such rows."""
        if self.name is None:
            return About("texts")
        # A plain score of a canary in a chat would look like privacy.
        layout = "dataset" if self.wrapping is None or self.wrapping.turn == "plain" else "chat"
        return About(layout, text_field=self.name, constant_fields=self.fields)

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
        steps: list[Any] = [] if self.name is None else [self.name]
        if self.chat:
            found = re.findall(r"\w+", str(self.name))
            steps = [int(step) if step.isdigit() else step for step in found]
        try:
            for step in steps:
                row = row[step]
        except (KeyError, IndexError, TypeError):
            return None
        return row

    def row(self, following: Any, text: str) -> Any:
        """The row of a canary."""
        return text if self.name is None else {**following, **self.fields, **self.wrapped(text)}

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
        for name in self.wrapped("") if where else ():
            if name not in names:
                raise CorpusError(
                    f"{where} has no {name!r}; it has {', '.join(map(str, names)) or 'nothing'}: "
                    f"name the text_field{hint}"
                )
        check_columns(names, self.wrapped(""), hint)
        check_columns(names, self.fields)

    def check_constants(self, number: int, row: Any) -> None:
        """Refuse a record without a field that a constant is given for: it would mark canaries."""
        missing = [] if not isinstance(row, Mapping) else [n for n in self.fields if n not in row]
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, for which fields gives a constant; "
                f"it has {', '.join(map(str, row)) or 'none'}: leave it out of fields, or give it "
                "to each record"
            )

    def _check_record(self, number: int, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise CorpusError(f"record {number} is {kind_of(row)}, and must be fields by name")
        if self.chat:
            self._check_chat(number, row)
        elif self.name not in row:
            self.check_columns(row, where=f"record {number}")

    def _check_chat(self, number: int, row: Mapping[str, Any]) -> None:
        missing = sorted(self.wrapped("").keys() - row.keys())
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, which this wrapping writes; it has "
                f"{', '.join(map(str, row)) or 'none'}: choose another wrapping, or rename fields"
            )
        self._check_types(number, row)
        both = {**row, **self.fields}
        plain = self.wrapping is None or self.wrapping.turn == "plain"
        changing = [] if plain else [name for name in _CHANGING if both.get(name)]
        if changing:
            raise CorpusError(
                f"record {number} has {changing[0]!r}, by which its chat is rendered otherwise; an "
                "inserted record would copy it, and be trained in another wrapping than it is "
                "scored in: insert into the records without it, and add the others then"
            )
        self.check_constants(number, row)

    def _check_types(self, number: int, row: Mapping[str, Any]) -> None:
        """Refuse a record with a string where the wrapping writes messages, or the other way."""
        for name, written in self.wrapped("").items():
            wants_text = isinstance(written, str)
            if isinstance(row[name], str) == wants_text and not isinstance(
                row[name], int | float | None
            ):
                continue
            raise CorpusError(
                f"record {number}: {name!r} is of type {type(row[name]).__name__}, and must be "
                f"{'a string' if wants_text else 'a list of messages'}, as this wrapping writes; "
                "choose another wrapping, or rewrite it"
            )


def kind_of(value: Any) -> str:
    """What something is, for a message."""
    return "one text" if isinstance(value, str) else f"of type {type(value).__name__}"


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
