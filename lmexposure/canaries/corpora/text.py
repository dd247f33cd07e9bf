"""Text: lines, paragraphs or JSON records, read in blocks of whole lines."""

import io
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries.corpora.files import open_content, packed_writer
from lmexposure.canaries.fills import Sought
from lmexposure.canaries.insertion import Merged, Same, Taken, Written
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.text_search import check_text
from lmexposure.errors import CorpusError

BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 26  # 64 MiB; whatever a small packed file says, it takes no more memory
_LINE_END = ord("\n")
_NO_TEXT = b" \t\n\r\v\f" + BOM
_BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))
_MANY = 1000  # places in a block; one by one, more of them take longer than all of it
_FEW = 3  # blocks read ahead: even out who is faster at the moment, in constant memory
_Item = TypeVar("_Item")


def line_end(line: bytes) -> bytes:
    r"""b"\r\n", b"\n", or b"" when the line has none; a lone \r belongs to the content."""
    return next((end for end in (b"\r\n", b"\n") if line.endswith(end)), b"")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some whole lines of a text, as a part of a corpus (see `insertion.Part`)."""

    layout: "Lines"  # what a document is
    data: bytes  # the lines as they are, without a byte order mark
    first_line: int = 1  # number of the first line, from 1
    has_bom: bool = False  # a byte order mark is before the first line (and not in `data`)
    after_blank: bool = True  # the line before it is blank, or it is the first
    # the line end for canaries before a line without one; b"": a line feed
    default_end: bytes = b""

    @property
    def content(self) -> bytes:
        """The bytes as they are in the file."""
        return BOM + self.data if self.has_bom else self.data

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content)

    @property
    def visible(self) -> bool:
        """Whether any of it is more than white space."""
        return not self.data.isspace()

    @property
    def scans_lines(self) -> bool:
        """Whether a searched text is many lines."""
        return self.layout.scans_lines

    @cached_property
    def documents(self) -> int:
        """How many begin here."""
        return self.lines if self._starts is None else len(self._starts)

    @cached_property
    def _starts(self) -> NDArray[np.int64] | None:
        return self.layout.starts(self)

    def _places(self, documents: Iterable[int]) -> list[int]:
        """At which bytes these documents begin."""
        starts = self.line_starts if self._starts is None else self._starts
        return [int(starts[number]) for number in documents]

    @cached_property
    def lines(self) -> int:
        """How many there are, with one that has no line end."""
        ends = int(np.count_nonzero(self.letters == _LINE_END))
        return ends + bool(self.data and not self.data.endswith(b"\n"))

    @cached_property
    def split(self) -> list[bytes]:
        r"""The lines with their line ends; they end at "\n" only."""
        return io.BytesIO(self.data).readlines()

    @cached_property
    def line_starts(self) -> NDArray[np.int64]:
        """At which byte each line begins."""
        ends = np.flatnonzero(self.letters == _LINE_END)
        starts = np.concatenate([[0], ends + 1])
        return starts[starts < len(self.data)]

    @cached_property
    def filled(self) -> NDArray[np.bool_]:
        """Of each line, whether it is not blank."""
        starts = self.line_starts
        filled: NDArray[np.bool_] = ~_BLANK[self.letters[starts]]
        for number in np.flatnonzero(~filled).tolist():
            filled[number] = bool(self._line(int(starts[number])).strip())
        return filled

    @property
    def ends_blank(self) -> bool:
        """Whether the last line is blank."""
        return not self.data[self.data.rfind(b"\n", 0, -1) + 1 :].strip()

    def searched(self, sought: Sought) -> Iterable[tuple[int, str]]:
        """What may hold fills; see `insertion.Part`."""
        return self.layout.searched(self, sought)

    def merged(self, added: Sequence[tuple[int, str]]) -> Merged:
        """With documents more; see `insertion.Part`."""
        if not added:
            return Merged(self, [])
        pieces, spans, done = [], [], 0
        written = self.size - len(self.data)
        starts = self._places(number for number, _ in added)
        for start, (_, text) in zip(starts, added, strict=True):
            neighbour = self._line(start)
            end = line_end(neighbour) or self.default_end or b"\n"
            # Only a record can be unfit, and counting takes its time.
            before = 0 if self.layout.scans_lines else self.data.count(b"\n", 0, start)
            rendered = self.layout.render(text, neighbour, end, self.first_line + before)
            pieces += [self.data[done:start], rendered]
            written += start - done
            spans.append((written, len(rendered)))
            written, done = written + len(rendered), start
        return Merged(replace(self, data=b"".join([*pieces, self.data[done:]])), spans)

    def without(self, documents: Sequence[int]) -> tuple["Block", list[str | None]]:
        """The rest without these documents, and their texts; see `insertion.Part`."""
        if not documents:
            return self, []
        pieces, texts, done = [], [], 0
        for start in self._places(documents):
            line = self._line(start)
            texts.append(self.layout.text(line))
            pieces.append(self.data[done:start])
            done = self.layout.stop(self.data, start + len(line))
        return replace(self, data=b"".join([*pieces, self.data[done:]])), texts

    def same(self, other: Any) -> bool:
        """Whether the bytes are the same."""
        return bool(self.content == other.content)

    def _line(self, start: int) -> bytes:
        return self.data[start : self.data.find(b"\n", start) + 1 or len(self.data)]

    @property
    def letters(self) -> NDArray[np.uint8]:
        """The bytes as numbers."""
        return np.frombuffer(self.data, np.uint8)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Every line is a document, blank ones included."""

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "lines"
    separator: ClassVar[str | None] = "\n"
    scans_lines: ClassVar[bool] = True
    place: ClassVar[str] = "line"
    schema: RowSchema  # what of a line is its text, and what a canary makes of it

    def starts(self, block: Block) -> NDArray[np.int64] | None:
        """At which bytes of the block its documents begin; None: wherever a line does."""
        return None

    def searched(self, block: Block, sought: Sought) -> Iterator[tuple[int, str]]:
        """The lines that may hold a fill, or all of the block; no fill is longer than a line."""
        data, number, stop = block.data, block.first_line, 0
        places = sought.places(data)
        if places is None or len(places) > _MANY:
            yield number, data.decode()
            return
        for at in places:  # ascending
            if at >= stop:
                start = max(data.rfind(b"\n", stop, at) + 1, stop)
                number += data.count(b"\n", stop, start)
                stop = data.find(b"\n", at) + 1 or len(data)
                yield number, data[start:stop].decode(errors="replace")
                number += 1

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        """The bytes to insert before line `number`, `neighbour`; `end` is the line end to use."""
        return text.encode() + end

    def text(self, line: bytes) -> str | None:
        """The text of a document of this line; None: it is none."""
        return line.removesuffix(line_end(line)).decode(errors="replace")

    def stop(self, data: bytes, stop: int) -> int:
        """Where an inserted document ends whose line ends at `stop`."""
        return stop

    def documents(self, path: Path) -> Iterator[str]:
        """The text of each document."""
        for block in self.parts(path):
            for line in block.split:
                yield line.removesuffix(line_end(line)).decode()

    def records(self, path: Path) -> Iterator[dict[str, Any]]:
        """None has fields."""
        return iter(())

    def parts(
        self,
        path: Path,
        *,
        name: str = "",
        taken: Taken | None = None,
        known: bool = False,
        first_end: bytes = b"",
        block_bytes: int = _BLOCK_BYTES,
    ) -> Iterator[Block]:
        """Blocks of about this many bytes, each read (and taken) while others are worked on."""
        _keep_freed_blocks()
        name = name or str(path)
        offset, number, after_blank = 0, 1, True
        with (
            open_content(path) as stream,
            closing(ahead(_whole_lines(name, stream, block_bytes, taken))) as ready,
        ):
            for data in ready:
                if not known:
                    check_text(name, data, offset)
                has_bom = offset == 0 and data.startswith(BOM)
                offset += len(data)
                data = data[len(BOM) * has_bom :]
                first_end = first_end or line_end(data[: data.find(b"\n") + 1])
                block = Block(
                    layout=self,
                    data=data,
                    first_line=number,
                    has_bom=has_bom,
                    after_blank=after_blank,
                    default_end=first_end,
                )
                if data:
                    yield block
                number, after_blank = number + block.lines, block.ends_blank
        if number == 1:
            raise CorpusError(f"the corpus {name} is empty; give a file with text in it")

    @contextmanager
    def compared(self, path: Path) -> Iterator[Same]:
        """By the bytes, however these are cut."""
        with open_content(path) as stream:

            def same(written: Written | None) -> bool:
                if written is None:
                    return not stream.read(1)
                return bool(stream.read(written.rest.size) == written.rest.content)

            yield same

    @contextmanager
    def writer(self, stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
        """A function that writes blocks into a stream, packed as the file `like`."""
        with packed_writer(stream, like) as write:
            yield lambda block: write(block.content)


@dataclass(frozen=True, kw_only=True)
class Paragraphs(Lines):
    """Every run of lines that are not blank is a document."""

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "paragraphs"
    separator: ClassVar[str | None] = "\n\n"

    def starts(self, block: Block) -> NDArray[np.int64]:
        """At which bytes a line begins that is not blank and follows a blank one."""
        before = np.concatenate([[not block.after_blank], block.filled[:-1]])
        starts: NDArray[np.int64] = block.line_starts[block.filled & ~before]
        return starts

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        """The text and a blank line."""
        return text.encode() + end + end

    def stop(self, data: bytes, stop: int) -> int:
        """Past the blank line after it, which is in the same block."""
        following = data.find(b"\n", stop) + 1
        return following if following and not data[stop:following].strip() else stop

    def documents(self, path: Path) -> Iterator[str]:
        """The text of each paragraph."""
        lines = (line for block in self.parts(path) for line in block.split)
        for filled, paragraph in groupby(lines, lambda line: bool(line.strip())):
            if filled:
                joined = b"".join(paragraph)
                yield joined.removesuffix(line_end(joined)).decode()


@dataclass(frozen=True, kw_only=True)
class Records(Lines):
    """Every line that is not blank is a JSON object; its text is a field, or a chat's strings."""

    name: ClassVar[Literal["lines", "paragraphs", "jsonl"]] = "jsonl"
    separator: ClassVar[str | None] = None
    scans_lines: ClassVar[bool] = False

    def starts(self, block: Block) -> NDArray[np.int64]:
        """At which bytes a line begins that is not blank."""
        starts = block.line_starts
        if (block.letters[starts] == ord("{")).all():
            return starts
        return starts[block.filled]

    def searched(self, block: Block, sought: Sought) -> Iterator[tuple[int, str]]:
        """The texts of the records that may hold a fill."""
        return sought.among(self._texts(block))

    def render(self, text: str, neighbour: bytes, end: bytes, number: int) -> bytes:
        """A record like its neighbour, with this text and the constants."""
        record = json_object(neighbour, number)
        if not self.schema.chat:
            self._text(record, number)  # refuses a record without one
        return json.dumps(self.schema.row(record, text)).encode() + end

    def text(self, line: bytes) -> str | None:
        """The text of the record of this line; None: it is none."""
        try:
            found = self.schema.canary(json_object(line, 1))
        except CorpusError:
            return None
        return found if isinstance(found, str) else None

    def documents(self, path: Path) -> Iterator[str]:
        """The text of each record."""
        for block in self.parts(path):
            for _, text in self._texts(block):
                yield text

    def records(self, path: Path) -> Iterator[dict[str, Any]]:
        """Each record with all its fields."""
        for block in self.parts(path):
            for number, line in _filled(block):
                yield json_object(line, number)

    def _texts(self, block: Block) -> Iterator[tuple[int, str]]:
        """(number of the line, text) of each record."""
        texts = None if self.schema.chat else self._quick_texts(block)
        if texts is not None:
            yield from enumerate(texts, block.first_line)
            return
        for number, line in _filled(block):
            try:
                record = self._loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):  # what is wrong, or what orjson does not read
                record = json_object(line, number)
            yield number, self._text(record, number)

    @cached_property
    def _loads(self) -> Callable[[bytes], Any]:
        """Orjson where it is there, only to read: an insertion takes 2.4 times as long without."""
        try:
            import orjson
        except ImportError:
            return json.loads
        loads: Callable[[bytes], Any] = orjson.loads
        return loads

    def _quick_texts(self, block: Block) -> list[str] | None:
        """The texts, or None where a line is blank, or must be read on its own."""
        loads, name = self._loads, self.schema.name
        try:
            texts = [loads(line)[name] for line in block.split]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None  # The strict reader says what is wrong, or reads what orjson does not.
        if set(map(type, texts)) != {str}:
            return None
        # orjson refuses half of a surrogate pair; text that can be printed holds none.
        quick = loads is not json.loads or all(map(str.isprintable, texts))
        return texts if quick else None

    def _text(self, record: dict[str, Any], number: int) -> str:
        name = self.schema.name
        if not self.schema.chat and not isinstance(record.get(str(name)), str):
            what = "is not a string" if name in record else "is missing"
            raise CorpusError(
                f"line {number}: field {name!r} {what}; name the field that holds the "
                f"text (this record has {', '.join(map(repr, record)) or 'none'})"
            )
        text = str(self.schema.text(number, record))
        try:
            text.encode()
        except UnicodeEncodeError as failure:
            raise CorpusError(
                f"line {number}: the text holds a lone surrogate at character {failure.start}, "
                "which is no character; mend the record"
            ) from None
        return text


def _filled(block: Block) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    lines = enumerate(block.split, block.first_line)
    return ((number, line) for number, line in lines if not line.isspace())


def json_object(line: bytes, number: int) -> dict[str, Any]:
    """The record of a line, whatever its fields."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as failure:
        reason = failure.msg if isinstance(failure, json.JSONDecodeError) else "not readable"
        raise CorpusError(
            f"line {number} is not JSON: {reason}; give one object a line, or another layout"
        ) from None
    if not isinstance(record, dict):
        raise CorpusError(f"line {number} is a JSON {type(record).__name__}, not an object")
    return record


def layout_of(name: str, schema: RowSchema) -> Lines:
    """The layout with this name; constants must be JSON, and go with records, as chats do."""
    fields = sorted(schema.fields)
    if name != Records.name and fields:
        raise CorpusError(f"fields={fields} go with layout 'jsonl', not {name!r}")
    try:
        json.dumps(schema.fields)
    except (TypeError, ValueError) as failure:
        raise CorpusError(f"fields={fields} must be JSON values: {failure}") from None
    kinds: tuple[type[Lines], ...] = (Lines, Paragraphs, Records)
    return next(kind for kind in kinds if kind.name == name)(schema=schema)


@cache
def _keep_freed_blocks() -> None:
    """Spare the system to clear memory for each block: without, an insertion takes 1.5 times."""
    bytes(31 << 20)


def _whole_lines(name: str, stream: IO[bytes], size: int, taken: Taken | None) -> Iterator[bytes]:
    """Pieces of about this many bytes that end with a line, or the stream."""
    done = 0
    while data := stream.read(size):
        if not data.endswith(b"\n"):
            data += stream.readline(LONGEST_LINE)
        if data.endswith(b"\n") and data[data.rfind(b"\n", 0, -1) + 1 :].strip(_NO_TEXT):
            data += stream.readline(LONGEST_LINE)
        start = data.rfind(b"\n") + 1
        if len(data) - start >= LONGEST_LINE:
            raise CorpusError(
                f"the corpus {name} has a line of more than {LONGEST_LINE >> 20} MiB, from byte "
                f"offset {done + start} on; break it into several documents"
            )
        done += len(data)
        if taken is not None:
            taken(data)
        yield data


def ahead(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """The same items, none of them None; the next few are made while this one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = deque(pool.submit(next, items, None) for _ in range(_FEW))
        while (found := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(next, items, None))
            yield found
