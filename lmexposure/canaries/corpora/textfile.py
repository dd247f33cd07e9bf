"""A corpus file read in blocks of whole lines: first checked to be UTF-8 text, then as noted."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from lmexposure.canaries.corpora.background import ahead
from lmexposure.canaries.corpora.content import open_content
from lmexposure.errors import CorpusError

BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
_STRETCH = 1 << 16
_LONGEST_LINE = 1 << 26  # 64 MiB; whatever a small packed file says, it takes no more memory
_LINE_END = ord("\n")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some whole lines of a file.

    Attributes:
        first_line: number of the first line, from 1.
        data: the lines as they stand, without a byte order mark.
        has_bom: a byte order mark stands before the first line (and is not in `data`).
    """

    first_line: int
    data: bytes
    has_bom: bool

    @property
    def raw(self) -> bytes:
        """The bytes of the file, byte order mark included."""
        return BOM + self.data if self.has_bom else self.data

    @property
    def size(self) -> int:
        """How many bytes of the file."""
        return len(BOM) * self.has_bom + len(self.data)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines with their line ends; they end at "\\n" only."""
        lines = self.data.split(b"\n")
        return [line + b"\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])

    @cached_property
    def text(self) -> str:
        """The lines, decoded."""
        return self.data.decode()

    @cached_property
    def _ends(self) -> list[int]:
        return _line_ends(self.data)

    @cached_property
    def line_count(self) -> int:
        """How many lines."""
        return sum(self._ends) + bool(self.data and not self.data.endswith(b"\n"))

    def line_start(self, number: int) -> int:
        """At which byte this line begins; from 0, less than `line_count`."""
        if number == 0:
            return 0
        stretch, before = 0, 0
        while before + self._ends[stretch] < number:
            before += self._ends[stretch]
            stretch += 1
        start = stretch * _STRETCH
        letters = np.frombuffer(self.data[start : start + _STRETCH], np.uint8)
        return start + int(np.flatnonzero(letters == _LINE_END)[number - before - 1]) + 1

    @property
    def ends_blank(self) -> bool:
        """Whether the last line is blank."""
        return not self.data[self.data.rfind(b"\n", 0, -1) + 1 :].strip()


class BlockNote(NamedTuple):
    """What the first pass over a file knows of a block, so that the next one need not look again.

    Attributes:
        size: bytes, a byte order mark included.
        first_line: number of the first line, from 1.
        documents: how many begin in it.
        after_blank: whether it stands after a blank line, or first.
    """

    size: int
    first_line: int
    documents: int
    after_blank: bool


def text_blocks(
    path: Path,
    *,
    block_bytes: int = _BLOCK_BYTES,
    checked: bool = False,
    taken: Callable[[bytes], object] | None = None,
) -> Iterator[Block]:
    """Read a file in constant memory (plus its longest line, of at most 64 MiB), beside the work on
    what was read.

    Args:
        path: plain, .gz or .zst.
        block_bytes: about how many at a time.
        checked: whether anything may stand in it.
        taken: called with all that was read, on the thread that reads.

    Raises:
        CorpusError: missing, not a file, not readable, cut short, empty, binary, not UTF-8, or a
            line too long; for the last three it names the byte offset in the content, from 0.
    """
    _keep_freed_blocks()
    with open_content(path) as stream:
        pieces = _whole_lines(str(path), stream, block_bytes)
        if taken is not None:
            pieces = _given_to(taken, pieces)
        with closing(ahead(pieces)) as ready:
            yield from _blocks(str(path), ready, checked=checked)


def stream_blocks(name: str, stream: IO[bytes]) -> Iterator[Block]:
    """The same for a stream, which messages call `name`; no more is read than is asked for.

    Raises:
        CorpusError: empty, binary, not UTF-8, or a line too long.
    """
    yield from _blocks(name, _whole_lines(name, stream, _BLOCK_BYTES), checked=False)


def _given_to(taken: Callable[[bytes], object], pieces: Iterable[bytes]) -> Iterator[bytes]:
    for data in pieces:
        taken(data)
        yield data


def _blocks(name: str, pieces: Iterable[bytes], *, checked: bool) -> Iterator[Block]:
    offset, number = 0, 1
    for data in pieces:
        text = None if checked else _checked_text(name, data, offset)
        block = _block(data, number, first=offset == 0)
        offset += len(data)
        if text is not None:  # It is decoded already.
            vars(block)["text"] = text[block.has_bom :]
        if block.data:
            yield block
        number += block.line_count
    if number == 1:
        raise CorpusError(f"the corpus {name} is empty; give a file with text in it")


def noted_blocks(path: Path, notes: Sequence[BlockNote]) -> Iterator[tuple[Block, BlockNote]]:
    """The blocks of a file that was read before, each with its note.

    Raises:
        CorpusError: missing, not readable or cut short.
    """
    _keep_freed_blocks()
    with open_content(path) as stream, closing(ahead(noted_stream(stream, notes))) as ready:
        yield from ready


def noted_stream(
    stream: IO[bytes], notes: Iterable[BlockNote]
) -> Iterator[tuple[Block, BlockNote]]:
    """The same for a stream, which stands at its beginning."""
    for number, note in enumerate(notes):
        yield _block(stream.read(note.size), note.first_line, first=number == 0), note


@cache
def _keep_freed_blocks() -> None:
    """Spare the system to clear memory for each block; that halves the time to read a file.

    The C library of Linux gives a block back as soon as it is freed, unless it has met a larger
    one, of 32 MiB at most. None of these bytes is ever touched.
    """
    bytes(31 << 20)


def _block(data: bytes, first_line: int, *, first: bool) -> Block:
    has_bom = first and data.startswith(BOM)
    return Block(first_line=first_line, data=data[len(BOM) * has_bom :], has_bom=has_bom)


def _whole_lines(name: str, stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Pieces of about so many bytes that end with a line, or the stream."""
    done = 0
    on_disk = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
    take = _read_on_disk if on_disk and stream.seekable() else _read
    while data := take(stream, size):
        if len(data) > _LONGEST_LINE and not data.endswith(b"\n"):
            start = done + data.rfind(b"\n") + 1
            raise CorpusError(
                f"the corpus {name} has a line of more than {_LONGEST_LINE >> 20} MiB, from byte "
                f"offset {start} on; break it into several documents"
            )
        done += len(data)
        yield data


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    return data if data.endswith(b"\n") else data + stream.readline(_LONGEST_LINE)


def _read_on_disk(stream: IO[bytes], size: int) -> bytes:
    # Going back costs nothing here: the line's end is looked for first, and no block is copied.
    start = stream.tell()
    stream.seek(start + size - 1)
    tail = stream.readline(_LONGEST_LINE)
    stream.seek(start)
    return stream.read(size - 1 + len(tail))


def count_lines(data: bytes) -> int:
    """How many lines, the last one with or without its line end."""
    return sum(_line_ends(data)) + bool(data and not data.endswith(b"\n"))


def _line_ends(data: bytes) -> list[int]:
    """How many stand in each stretch of `_STRETCH` bytes."""
    # Several times as fast as bytes.count, which pays for each hit.
    ends = np.frombuffer(data, np.uint8) == _LINE_END
    stretches = range(0, len(data), _STRETCH)
    return [int(np.count_nonzero(ends[n : n + _STRETCH])) for n in stretches]


def _checked_text(name: str, data: bytes, offset: int) -> str | None:
    """The text, or None where nobody needed to decode it to check it."""
    binary = data.find(b"\0")
    if binary >= 0:
        raise CorpusError(
            f"the corpus {name} is binary or UTF-16: NUL byte at offset {offset + binary}; "
            "convert it to UTF-8 text"
        )
    if data.isascii():
        return None
    if len(data) >= _BLOCK_BYTES and _is_utf8(data):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        raise CorpusError(
            f"the corpus {name} is not UTF-8: bad byte 0x{data[failure.start]:02x} at offset "
            f"{offset + failure.start}; convert it to UTF-8"
        ) from None


def _is_utf8(data: bytes) -> bool:
    """The same as to decode it, at three times the speed; loaded for large files only."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
