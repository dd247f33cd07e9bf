"""What a document is in a file: a line, a paragraph, or a JSON record."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import one_of
from lmexposure.canaries.corpora.textfile import Block
from lmexposure.canaries.corpora.words import word_places
from lmexposure.errors import CorpusError

LAYOUTS = ("lines", "paragraphs", "jsonl")
_MANY = 1000  # places in a block; one by one, more of them take longer than all of it
_SEPARATORS = {"lines": "\n", "paragraphs": "\n\n"}


def separator_of(layout: str) -> str | None:
    """The text between two documents, which a canary is scored after; None: a token's work."""
    return _SEPARATORS.get(layout)


def line_end(line: bytes) -> bytes:
    r"""b"\r\n", b"\n", or b"" when the line has none; a lone \r belongs to the content."""
    if line.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if line.endswith(b"\n") else b""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Every line is a document, blank ones included."""

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "lines"
    scans_lines: ClassVar[bool] = True

    def count(self, block: Block, after_blank: bool) -> int:
        """How many documents begin in the block; `after_blank`: its first line follows a blank."""
        return block.line_count

    def starts(self, block: Block, after_blank: bool, numbers: Sequence[int]) -> list[int]:
        """At which byte of the block these of its documents begin, numbered from 0."""
        return [block.line_start(number) for number in numbers]

    def texts(self, block: Block) -> Iterator[tuple[int, str]]:
        """What may hold fills: (number of the first line, text)."""
        yield block.first_line, block.text

    def searched(self, block: Block, words: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The same, without what surely holds none of these words, where there are any."""
        places = sorted({at for one in words for at in word_places(block.data, one.encode())})
        if not words or len(places) > _MANY:
            yield from self.texts(block)
        else:
            yield from _lines_at(block, places)

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        """The bytes to insert before line `number`, `neighbour`; `end` is the line end to use."""
        return text.encode() + end

    def documents(self, blocks: Iterable[Block]) -> Iterator[str]:
        """The text of each document."""
        for block in blocks:
            for line in block.lines:
                yield line.removesuffix(line_end(line)).decode()


@dataclass(frozen=True, kw_only=True)
class Paragraphs(Lines):
    """Every run of lines that are not blank is a document."""

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "paragraphs"

    def count(self, block: Block, after_blank: bool) -> int:
        return len(self._starts(block, after_blank))

    def starts(self, block: Block, after_blank: bool, numbers: Sequence[int]) -> list[int]:
        return _chosen(self._starts(block, after_blank), numbers)

    def _starts(self, block: Block, after_blank: bool) -> NDArray[np.int64]:
        filled = [bool(line.strip()) for line in block.lines]
        previous = [not after_blank, *filled]
        return _marked_starts(block, [a and not b for a, b in zip(filled, previous, strict=False)])

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        return text.encode() + end + end

    def documents(self, blocks: Iterable[Block]) -> Iterator[str]:
        gathered: list[bytes] = []
        for block in blocks:
            for line in block.lines:
                if line.strip():
                    gathered.append(line)
                elif gathered:
                    yield _joined(gathered)
                    gathered = []
        if gathered:
            yield _joined(gathered)


def _joined(lines: list[bytes]) -> str:
    joined = b"".join(lines)
    return joined.removesuffix(line_end(joined)).decode()


@dataclass(frozen=True, kw_only=True)
class Records:
    """Every line that is not blank is a JSON object; the document is one of its fields.

    An inserted record copies its other fields from the record that it stands before, except those
    for which `fields` gives a constant.
    """

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "jsonl"
    scans_lines: ClassVar[bool] = False
    text_field: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def count(self, block: Block, after_blank: bool) -> int:
        return len(self._starts(block))

    def starts(self, block: Block, after_blank: bool, numbers: Sequence[int]) -> list[int]:
        return _chosen(self._starts(block), numbers)

    def _starts(self, block: Block) -> NDArray[np.int64]:
        starts = _line_starts(block)
        if (np.frombuffer(block.data, np.uint8)[starts] == ord("{")).all():
            return starts
        return _marked_starts(block, [not line.isspace() for line in block.lines])

    def texts(self, block: Block) -> Iterator[tuple[int, str]]:
        texts = self._quick_texts(block)
        if texts is not None:
            yield from enumerate(texts, block.first_line)
            return
        for number, line in enumerate(block.lines, block.first_line):
            if not line.isspace():
                yield number, str(self._record(line, number)[self.text_field])

    def searched(self, block: Block, words: Sequence[str]) -> Iterator[tuple[int, str]]:
        texts = self._quick_texts(block)
        if texts is None or not words:
            yield from self.texts(block)
            return
        joined = "\n".join(texts)
        # What is in no text of them all is not in one of them.
        present = [word for word in words if word in joined]
        for number, text in enumerate(texts, block.first_line) if present else ():
            if any(word in text for word in present):
                yield number, text

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        record = {**self._record(neighbour, number), **self.fields, self.text_field: text}
        return json.dumps(record).encode() + end

    def documents(self, blocks: Iterable[Block]) -> Iterator[str]:
        for block in blocks:
            for _, text in self.texts(block):
                yield text

    @cached_property
    def _loads(self) -> Callable[[bytes], Any]:
        return _quick_loads()

    def _quick_texts(self, block: Block) -> list[str] | None:
        """The texts, or None where a line is blank, or needs to be looked at on its own."""
        loads, name = self._loads, self.text_field
        try:
            texts = [loads(line)[name] for line in block.lines]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None  # The strict reader says what is wrong, or reads what orjson does not.
        if set(map(type, texts)) != {str}:
            return None
        # orjson refuses half of a surrogate pair; text that can be printed holds none.
        quick = loads is not json.loads or all(map(str.isprintable, texts))
        return texts if quick else None

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as failure:
            reason = failure.msg if isinstance(failure, json.JSONDecodeError) else "not readable"
            raise CorpusError(
                f"line {number} is not JSON: {reason}; give one object a line, or another layout"
            ) from None
        if not isinstance(record, dict):
            raise CorpusError(f"line {number} is a JSON {type(record).__name__}, not an object")
        if not isinstance(record.get(self.text_field), str):
            what = "is not a string" if self.text_field in record else "is missing"
            raise CorpusError(
                f"line {number}: field {self.text_field!r} {what}; name the field that holds the "
                f"text (this record has {', '.join(map(repr, record)) or 'none'})"
            )
        if not record[self.text_field].isprintable():
            _check_encodes(record[self.text_field], number)
        return record


def _quick_loads() -> Callable[[bytes], Any]:
    """orjson where it is there. It only reads: what is written is the same without it."""
    try:
        import orjson
    except ImportError:
        return json.loads
    loads: Callable[[bytes], Any] = orjson.loads
    return loads


def _lines_at(block: Block, places: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The lines that hold these bytes, ascending, each with its number; no fill is longer."""
    data, number, stop = block.data, block.first_line, 0
    for at in places:
        if at >= stop:
            start = max(data.rfind(b"\n", stop, at) + 1, stop)
            number += data.count(b"\n", stop, start)
            stop = data.find(b"\n", at) + 1 or len(data)
            yield number, data[start:stop].decode(errors="replace")
            number += 1


def _line_starts(block: Block) -> NDArray[np.int64]:
    """At which byte each line begins."""
    ends = np.flatnonzero(np.frombuffer(block.data, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends + 1])
    return starts[starts < len(block.data)]


def _chosen(starts: NDArray[np.int64], numbers: Sequence[int]) -> list[int]:
    chosen: list[int] = starts[list(numbers)].tolist()
    return chosen


def _marked_starts(block: Block, begins: list[bool]) -> NDArray[np.int64]:
    """At which byte the lines begin that are marked."""
    offsets = np.fromiter(accumulate(map(len, block.lines), initial=0), np.int64)[:-1]
    starts: NDArray[np.int64] = offsets[np.array(begins, dtype=bool)]
    return starts


def _check_encodes(text: str, number: int) -> None:
    """JSON can spell half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise CorpusError(
            f"line {number}: the text holds a lone surrogate at character {failure.start}, which "
            "is no character; mend the record"
        ) from None


Layout = Lines | Paragraphs | Records


def layout_named(
    name: str, *, text_field: str = "text", fields: Mapping[str, Any] | None = None
) -> Layout:
    """The layout with this name.

    Args:
        name: one of `LAYOUTS`.
        text_field: for "jsonl", the field that holds the text.
        fields: for "jsonl", constants for other fields of inserted records.

    Raises:
        CorpusError: an unknown name; constants where no records are, for the text field, or that
            are not JSON.
    """
    one_of("layout", name, LAYOUTS, error=CorpusError)
    constants = dict(fields or {})
    if constants and name != "jsonl":
        raise CorpusError(f"fields={sorted(constants)} go with layout 'jsonl', not {name!r}")
    if text_field in constants:
        raise CorpusError(
            f"fields must leave out the text field {text_field!r}: the canary goes there"
        )
    try:
        json.dumps(constants)
    except (TypeError, ValueError) as failure:
        raise CorpusError(f"fields={sorted(constants)} must be JSON values: {failure}") from None
    if name == "jsonl":
        return Records(text_field=text_field, fields=constants)
    return Lines() if name == "lines" else Paragraphs()
