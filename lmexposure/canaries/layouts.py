"""What a document is in a file: a line, a paragraph, or a JSON record."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lmexposure._validate import one_of
from lmexposure.canaries.textfile import Block, text_blocks
from lmexposure.errors import CorpusError

__all__ = [
    "LAYOUTS",
    "Layout",
    "Lines",
    "Paragraphs",
    "Records",
    "guess_layout",
    "layout_named",
    "line_end",
    "read_documents",
    "separator_of",
]

LAYOUTS = ("lines", "paragraphs", "jsonl")
_SEPARATORS = {"lines": "\n", "paragraphs": "\n\n"}


def separator_of(layout: str) -> str | None:
    """The text between two documents, which a canary is scored after; None: a token's work."""
    return _SEPARATORS.get(layout)


def guess_layout(path: str | Path) -> str:
    """ "jsonl" for .jsonl and .ndjson files, "lines" for all others."""
    return "jsonl" if Path(path).suffix.lower() in {".jsonl", ".ndjson"} else "lines"


def line_end(line: bytes) -> bytes:
    r"""b"\r\n", b"\n", or b"" when the line has none; a lone \r belongs to the content."""
    if line.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if line.endswith(b"\n") else b""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Every line is a document, blank ones included."""

    name: ClassVar[str] = "lines"
    scans_lines: ClassVar[bool] = True

    def begins(self, line: bytes, after_blank: bool) -> bool:
        """Whether a document begins with this line."""
        return True

    def texts(self, block: Block) -> Iterator[tuple[int, str]]:
        """What may hold fills: (number of the first line, text)."""
        yield block.first_line, block.text

    def render(self, text: str, neighbour: bytes, end: bytes) -> bytes:
        """The bytes to insert before the line `neighbour`; `end` is the line end to use."""
        return text.encode() + end

    def documents(self, blocks: Iterable[Block]) -> Iterator[str]:
        """The text of each document."""
        for block in blocks:
            for line in block.lines:
                yield line.removesuffix(line_end(line)).decode()


@dataclass(frozen=True, kw_only=True)
class Paragraphs(Lines):
    """Every run of lines that are not blank is a document."""

    name: ClassVar[str] = "paragraphs"

    def begins(self, line: bytes, after_blank: bool) -> bool:
        return after_blank and bool(line.strip())

    def render(self, text: str, neighbour: bytes, end: bytes) -> bytes:
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

    name: ClassVar[str] = "jsonl"
    scans_lines: ClassVar[bool] = False
    text_field: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def begins(self, line: bytes, after_blank: bool) -> bool:
        return bool(line.strip())

    def texts(self, block: Block) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(block.lines, block.first_line):
            if line.strip():
                yield number, self._record(line, number)[self.text_field]

    def render(self, text: str, neighbour: bytes, end: bytes) -> bytes:
        record = {**json.loads(neighbour), **self.fields, self.text_field: text}
        return json.dumps(record).encode() + end

    def documents(self, blocks: Iterable[Block]) -> Iterator[str]:
        for block in blocks:
            for _, text in self.texts(block):
                yield text

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


def read_documents(path: str | Path, *, layout: str, text_field: str = "text") -> Iterator[str]:
    r"""The documents of a file, one after another, in constant memory.

    A document's last line end is not part of it; line ends within a paragraph stand as they are.

    Raises:
        CorpusError: the file or a record cannot be used; see `text_blocks` and `Records`.
    """
    return layout_named(layout, text_field=text_field).documents(text_blocks(Path(path)))
