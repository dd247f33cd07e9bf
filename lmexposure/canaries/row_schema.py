"""What of a row is its text, and which row a canary makes: as a text, or as a turn of a chat."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lmexposure._validate import of_type
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.format import Format
from lmexposure.canaries.insertion import constants_of
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.wrapping import SPEAKERS, Wrapping
from lmexposure.errors import CorpusError

_EXAMPLE = 'Wrapping(...), such as Wrapping(turn="assistant")'
_OPTIONAL = "input"  # of an instruction; it may be empty, and where it lacks, it does in canaries
_REPEATED = "prompt"  # of an implicit preference, where records have it beside
# Fields that say how a chat is rendered; canaries' records leave them empty.
_CHANGING = ("tools", "chat_template_kwargs")
_IMAGES = ("images", "image")
_CALLS = ("tool_calls", "function_call")
_OF_TOOLS = ("tool", "function", "function_call", "observation", "function_response")


@dataclass(frozen=True)
class RowSchema:
    """What of a row is its text, and which row a canary makes."""

    # of the field that holds the text, or of a chat where the canary is, such as
    # "messages[1].content"; None: a row is its text
    name: str | None = None
    # constants for fields of inserted rows; the rest is copied from the row that follows
    fields: Mapping[str, Any] = field(default_factory=dict)
    # whether a row is a chat, or a prompt with what follows it; all its strings together are its
    # text
    chat: bool = False
    wrapping: Wrapping | None = None  # for chats; None: nothing is inserted
    # what a manifest says of the wrapping; None: nothing, since it holds plain texts
    record: Wrapping | None = None
    # what messages call a row: "record", "line", "row" or "document"
    place: Literal["record", "line", "row", "document"] = "record"

    @classmethod
    def of(cls, manifest: Manifest, text_field: str | None = None) -> "RowSchema":
        """Of the rows that a manifest's canaries went into; another text field holds no chats."""
        name = text_field or manifest.corpus.text_field or "text"
        if text_field is not None:
            return cls(name)
        known = manifest.corpus.wrapping
        return cls(name, chat=known is not None, record=known)

    @classmethod
    def around(cls, wrapping: Wrapping, fields: Mapping[str, Any] | None = None) -> "RowSchema":
        """Of rows that canaries go into in a wrapping."""
        of_type("wrapping", wrapping, Wrapping, _EXAMPLE, error=CorpusError)
        wrapping = replace(wrapping, context="", chat_template=None)  # which no manifest has
        said = None if wrapping.form == "text" else wrapping
        made = cls(wrapping.place, constants_of(fields), chat=True, wrapping=wrapping, record=said)
        for name in sorted(made.fields.keys() & made.wrapped("")):
            raise CorpusError(f"fields must leave out {name!r}: the canary goes there")
        return made

    def about(self) -> CorpusRecord:
        """What a manifest says of such rows."""
        return CorpusRecord(
            layout="texts" if self.name is None else "dataset",
            text_field=self.name,
            constant_fields=tuple(sorted(self.fields)),
            wrapping=self.record,
        )

    def text(self, number: int, row: Any) -> Any:
        """What is hashed and searched of a row; numbers are from 1."""
        if self.name is None:
            return row
        if self.wrapping is not None or not self.chat:
            self._check_record(number, row)
        return "\n".join(_strings(row)) if self.chat else row[self.name]

    def canary(self, row: Any) -> Any:
        """The text of an inserted row; None where none can be read."""
        known = self.record
        steps: Sequence[Any] = () if self.name is None else (self.name,)
        if known is not None:
            steps = known.steps
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
        without = {name: None for name in _CHANGING if name in names and name not in fields}
        return {**fields, **without}

    def wrapped(self, text: str) -> Mapping[str, Any]:
        """The fields that a text goes into."""
        fields: Mapping[str, Any] = {} if self.name is None or self.chat else {self.name: text}
        return fields if self.wrapping is None else self.wrapping.record(text)

    def check_columns(self, there: Iterable[Any], *, where: str = "") -> None:
        """Refuse fields among which one for the text or for a constant is missing."""
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
        """Refuse a wrapping, or constants, that hold a fill: each canary would bring it along."""
        if not self.chat:
            return
        around = "\n".join(_strings(self.written("", self.wrapped(""))))
        for name, found in count_fills(formats, [(1, around)], whole_lines=False).items():
            if found.counts:
                raise CorpusError(
                    f"the other turns or constants of the canaries' records hold a secret of "
                    f"format {name!r}, which would go in with each of them; change the text of the "
                    "other turn, of the system or of the constants"
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
        _check_chat(where, {**row, **self.fields}, wrapping, constants=self.fields)
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


def _check_chat(
    where: str, row: Mapping[str, Any], wrapping: Wrapping, *, constants: Mapping[str, Any]
) -> None:
    """Refuse a record whose kind or training would not be that of the canaries' records."""
    written = {name: value for name, value in wrapping.record("").items() if name in row}
    for name, value in written.items():
        there, is_text = row[name], isinstance(value, str)
        if isinstance(there, str) != is_text or isinstance(there, int | float | None):
            wanted = "a string" if is_text else "a list of messages"
            raise CorpusError(
                f"{where}: {name!r} is of type {type(there).__name__}, and must be {wanted}, as "
                "this wrapping writes; choose another wrapping, or rewrite it"
            )
    if wrapping.form == "text":
        return
    changing = [name for name in _CHANGING if _holds(constants.get(name))]
    if changing:
        raise CorpusError(
            f"{changing[0]!r} is given to the canaries' records, which the template would write "
            "otherwise than they are scored; leave it out of fields"
        )
    images = [name for name in _IMAGES if _holds(row.get(name))]
    if images:
        raise CorpusError(_of_images(f"{where} has {images[0]!r}:"))
    for name, value in written.items():
        if not isinstance(value, str):
            _check_turns(f"{where}: {name!r}", row[name], wrapping)
        elif name != _OPTIONAL and not row[name].strip():
            raise CorpusError(_empty(f"{where}: {name!r}"))


def _check_turns(where: str, value: Any, wrapping: Wrapping) -> None:
    """Refuse messages that are not what trainers read."""
    shared = wrapping.form == "conversations"
    speaker, said = ("from", "value") if shared else ("role", "content")
    roles = tuple(SPEAKERS.values() if shared else SPEAKERS)
    turns = list(_turns(value))
    if not turns:
        raise CorpusError(f"{where} has no turns; leave such records out")
    for number, turn in enumerate(turns, 1):
        place = f"{where}, turn {number}"
        calls = isinstance(turn, Mapping) and any(_holds(turn.get(name)) for name in _CALLS)
        if not isinstance(turn, Mapping) or speaker not in turn or not (calls or said in turn):
            has = ", ".join(map(repr, turn)) if isinstance(turn, Mapping) else type(turn).__name__
            raise CorpusError(
                f"{place} must have {speaker!r} and {said!r}; it has {has or 'none'}: rename them, "
                "or choose another form"
            )
        if calls or turn[speaker] in _OF_TOOLS:
            continue  # a call of a tool, or its answer, may say nothing else
        if (role := turn[speaker]) not in roles:
            shown = repr(role) if isinstance(role, str) else f"of type {type(role).__name__}"
            raise CorpusError(
                f"{place}: the role {shown} is unknown; the roles here are {', '.join(roles)}: "
                "rename it, or leave such records out"
            )
        _check_content(f"{place}: {said!r}", turn[said], parts=wrapping.parts)


def _check_content(where: str, content: Any, *, parts: bool) -> None:
    """Refuse a content that is not of the kind that canaries' records have; `parts`: a list."""
    found = list(_turns(content))
    kinds = [str(part.get("type")) for part in found if isinstance(part, Mapping)]
    images = [kind for kind in kinds if "image" in kind]
    if images:
        raise CorpusError(_of_images(f"{where} holds a part of type {images[0]!r}:"))
    is_text = isinstance(content, str)
    if is_text == parts or not (kinds or is_text):
        what = "a list of parts" if kinds else f"of type {type(content).__name__}"
        what = "a string" if is_text else what
        wanted = "a list of parts" if parts else "a string"
        raise CorpusError(f"{where} is {what}, and must be {wanted}; write its text as {wanted}")
    texts = [content] if is_text else [_text_of(part) for part in found]
    if None in texts:
        raise CorpusError(
            f"{where} holds a part that is no text, such as {{'type': 'text', 'text': ...}}; leave "
            "such records out"
        )
    if not "".join(map(str, texts)).strip():
        raise CorpusError(_empty(where))


def _text_of(part: Any) -> str | None:
    """The text of a part of a content; None: it is something else."""
    is_text = isinstance(part, Mapping) and part.get("type") == "text"
    return part["text"] if is_text and isinstance(part.get("text"), str) else None


def _empty(where: str) -> str:
    return f"{where} is empty; leave out such records, or such turns"


def _of_images(what: str) -> str:
    return f"{what} images are not measured, text is; leave such records out"


def _holds(value: Any) -> bool:
    """Whether a field is more than null or empty; of an array, too."""
    if value is None:
        return False
    return bool(len(value)) if hasattr(value, "__len__") else bool(value)


def _turns(value: Any) -> Iterator[Any]:
    """The items of a list, also of an array or what datasets gives for a list."""
    if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
        return
    yield from value
