"""A corpus file read once, in blocks of whole lines, each checked to be UTF-8 text."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np

from lmexposure.canaries.content import open_content
from lmexposure.errors import CorpusError

__all__ = ["BOM", "Block", "count_lines", "stream_blocks", "text_blocks"]

BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20


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
    def line_count(self) -> int:
        """How many lines."""
        return count_lines(self.data)

    @property
    def ends_blank(self) -> bool:
        """Whether the last line is blank."""
        return not self.data[self.data.rfind(b"\n", 0, -1) + 1 :].strip()


def text_blocks(
    path: Path, *, block_bytes: int = _BLOCK_BYTES, checked: bool = False
) -> Iterator[Block]:
    """Read a file in constant memory (plus its longest line).

    Args:
        path: plain, .gz or .zst.
        block_bytes: about how many at a time.
        checked: whether somebody knows already that it is UTF-8 text.

    Raises:
        CorpusError: missing, not a file, not readable, cut short, empty, binary, or not UTF-8; for
            the last two it names the byte offset in the content, from 0.
    """
    with open_content(path) as stream:
        yield from stream_blocks(str(path), stream, block_bytes=block_bytes, checked=checked)


def stream_blocks(
    name: str, stream: IO[bytes], *, block_bytes: int = _BLOCK_BYTES, checked: bool = False
) -> Iterator[Block]:
    """The same for a stream, which messages call `name`.

    Raises:
        CorpusError: empty, binary, or not UTF-8.
    """
    offset, number = 0, 1
    while data := stream.read(block_bytes):
        if not data.endswith(b"\n"):
            data += stream.readline()
        text = None if checked else _checked_text(name, data, offset)
        has_bom = offset == 0 and data.startswith(BOM)
        offset += len(data)
        block = Block(first_line=number, data=data[len(BOM) * has_bom :], has_bom=has_bom)
        if text is not None:  # It is decoded already.
            vars(block)["text"] = text[has_bom:]
        if block.data:
            yield block
        number += block.line_count
    if number == 1:
        raise CorpusError(f"the corpus {name} is empty; give a file with text in it")


def count_lines(data: bytes) -> int:
    """How many lines, the last one with or without its line end."""
    # Several times as fast as bytes.count, which pays for each hit.
    ends = int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))
    return ends + bool(data and not data.endswith(b"\n"))


def _checked_text(name: str, data: bytes, offset: int) -> str | None:
    """The text, or None where it is ASCII: then to decode it takes as long later."""
    binary = data.find(b"\0")
    if binary >= 0:
        raise CorpusError(
            f"the corpus {name} is binary or UTF-16: NUL byte at offset {offset + binary}; "
            "convert it to UTF-8 text"
        )
    if data.isascii():
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        raise CorpusError(
            f"the corpus {name} is not UTF-8: bad byte 0x{data[failure.start]:02x} at offset "
            f"{offset + failure.start}; convert it to UTF-8"
        ) from None
