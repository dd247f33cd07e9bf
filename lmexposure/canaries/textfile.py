"""A corpus file read once, in blocks of whole lines, each checked to be UTF-8 text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lmexposure.errors import CorpusError

__all__ = ["BOM", "Block", "text_blocks"]

BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some whole lines of a file.

    Attributes:
        first_line: number of the first line, from 1.
        lines: the lines with their line ends; they end at "\\n" only.
        text: the same, decoded.
        has_bom: a byte order mark stands before the first line (and is not in `lines`).
    """

    first_line: int
    lines: list[bytes]
    text: str
    has_bom: bool


def text_blocks(path: Path, *, block_bytes: int = _BLOCK_BYTES) -> Iterator[Block]:
    """Read a file in constant memory (plus its longest line).

    Raises:
        CorpusError: missing, not a file, not readable, empty, binary, or not UTF-8; for the last
            two it names the byte offset, from 0.
    """
    try:
        with open(path, "rb") as stream:
            yield from _blocks(path, stream, block_bytes)
    except OSError as failure:
        raise CorpusError(
            f"cannot read the corpus {path}: {failure.strerror or failure}; give a text file"
        ) from failure


def _blocks(path: Path, stream: IO[bytes], block_bytes: int) -> Iterator[Block]:
    offset, number = 0, 1
    while lines := stream.readlines(block_bytes):
        has_bom = offset == 0 and lines[0].startswith(BOM)
        text = _decoded(path, b"".join(lines), offset)
        offset += sum(map(len, lines))
        if has_bom:
            text = text[1:]
            lines = [line for line in (lines[0][len(BOM) :], *lines[1:]) if line]
        if lines:
            yield Block(first_line=number, lines=lines, text=text, has_bom=has_bom)
        number += len(lines)
    if number == 1:
        raise CorpusError(f"the corpus {path} is empty; give a file with text in it")


def _decoded(path: Path, data: bytes, offset: int) -> str:
    binary = data.find(b"\0")
    if binary >= 0:
        raise CorpusError(
            f"the corpus {path} is binary or UTF-16: NUL byte at offset {offset + binary}; "
            "convert it to UTF-8 text"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        raise CorpusError(
            f"the corpus {path} is not UTF-8: bad byte 0x{data[failure.start]:02x} at offset "
            f"{offset + failure.start}; convert it to UTF-8"
        ) from None
