"""The second pass over a file: every byte or row as it was, and the canaries in their places."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lmexposure.canaries.background_hash import BackgroundHash, background_hash
from lmexposure.canaries.content import packed_writer
from lmexposure.canaries.insertion import text_line
from lmexposure.canaries.layouts import Layout
from lmexposure.canaries.merging import Merger, Occurrence
from lmexposure.canaries.rows import Rows, copy_rows
from lmexposure.canaries.surveying import file_state
from lmexposure.canaries.textfile import text_blocks
from lmexposure.errors import CorpusError

__all__ = ["Copied", "Hashes", "copy_file"]


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a file was, and which documents were inserted.

    Attributes:
        name: of the file, without its directory.
        first_document: number of its first document in the whole corpus, from 0.
        documents: how many it had.
        occurrences: the inserted ones, in their order.
        sha256: of its content before; "" where hashing was off.
        sha256_inserted: of its content with the canaries; "" where hashing was off.
    """

    name: str
    first_document: int
    documents: int
    occurrences: tuple[Occurrence, ...]
    sha256: str
    sha256_inserted: str


class Hashes:
    """Of a corpus before and after, or of none of it; each is worked out beside the copying.

    Args:
        stack: ends the threads.
        on: whether to hash at all.
    """

    def __init__(self, stack: ExitStack, *, on: bool) -> None:
        self._pair: tuple[BackgroundHash, ...] = ()
        if on:
            self._pair = tuple(stack.enter_context(background_hash()) for _ in range(2))

    def update(self, before: bytes, after: bytes) -> None:
        """Hash some more of both."""
        for one, data in zip(self._pair, (before, after), strict=False):
            one.update(data)

    def digests(self) -> tuple[str, str]:
        """(before, after) in hexadecimal; "" where hashing is off."""
        if not self._pair:
            return "", ""
        return self._pair[0].hexdigest(), self._pair[1].hexdigest()


def copy_file(
    source: Path,
    stream: IO[bytes],
    *,
    shape: Layout | Rows,
    merger: Merger,
    state: tuple[int, ...],
    hashed: bool = True,
    total: Hashes | None = None,
) -> Copied:
    """Write a file of the corpus with its canaries, packed as it was.

    Args:
        source: the next file of the corpus.
        stream: where to.
        shape: what a document is.
        merger: has seen all files before this one.
        state: what the first pass found; see `file_state`.
        hashed: whether to hash the file.
        total: takes the content of this file too.

    Raises:
        CorpusError: the file cannot be read, or is not what the first pass found.
    """
    merger.begin_file()
    first = merger.document
    with ExitStack() as stack:
        own = Hashes(stack, on=hashed)
        for before, after in _pieces(source, stream, shape, merger):
            own.update(before, after)
            if total is not None:
                total.update(before, after)
        if file_state(source) != state:
            raise CorpusError(f"the corpus {source} changed while it was read; try again")
        sha256, sha256_inserted = own.digests()
    return Copied(
        name=source.name,
        first_document=first,
        documents=merger.document - first,
        occurrences=tuple(merger.occurrences),
        sha256=sha256,
        sha256_inserted=sha256_inserted,
    )


def _pieces(
    source: Path, stream: IO[bytes], shape: Layout | Rows, merger: Merger
) -> Iterator[tuple[bytes, bytes]]:
    """What is hashed of each piece that was written, (before, after)."""
    if isinstance(shape, Rows):
        for texts in copy_rows(source, stream, shape, merger):
            before, after = (b"".join(text_line(0, text) for text in one) for one in texts)
            yield before, after
        return
    with packed_writer(stream, source) as write:
        for block in text_blocks(source, checked=True):
            data = merger.merged(block)
            write(data)
            yield block.raw, data
