"""What was written, read back from the disk and held against what it came from.

Between the canaries every byte, or row, must be the source's. So the fills in the result are those
that the first pass found, and those in the inserted documents: no fill is longer than a line, and
these documents are whole lines.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from lmexposure.canaries.corpora.content import read_errors
from lmexposure.canaries.corpora.layouts import Layout
from lmexposure.canaries.corpora.merging import Occurrence
from lmexposure.canaries.corpora.rows import row_groups
from lmexposure.canaries.corpora.textfile import BOM, Block
from lmexposure.canaries.format import Format
from lmexposure.canaries.insertion import text_line
from lmexposure.canaries.search import Found, add_fills
from lmexposure.errors import CorpusError

_PIECE_BYTES = 1 << 20


class Additions:
    """The fills of a corpus, first as it was, then with those of each inserted document.

    Args:
        formats: whose fills.
        before: per format, those that stood in the corpus.

    Attributes:
        found: per format.
    """

    def __init__(self, formats: Sequence[Format], before: Mapping[str, Found]) -> None:
        self._formats = formats
        self.found = {
            name: Found(counts=one.counts.copy(), first_places=dict(one.first_places))
            for name, one in before.items()
        }

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Look for fills in a document's texts, each with its number."""
        add_fills(self.found, self._formats, texts, whole_lines=False)


class Readable(Protocol):
    """Whatever bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer at the end."""
        ...


class Passed:
    """Bytes that were read before, given as they pass."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._done = 0

    def add(self, data: bytes) -> None:
        """These are next."""
        self._pieces.append(data)

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer where fewer are left."""
        parts = []
        while size and self._pieces:
            part = self._pieces[0][self._done : self._done + size]
            parts.append(part)
            size, self._done = size - len(part), self._done + len(part)
            if self._done == len(self._pieces[0]):
                self._pieces.popleft()
                self._done = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


class ReadBack:
    """Follows a text as it is written.

    Args:
        source: what it comes from.
        written: path and content of the same with canaries.
        occurrences: what was inserted so far; more may come.
        layout: what a document is.
        additions: takes the inserted documents.
        hashed: takes all that was written.
    """

    def __init__(
        self,
        source: Readable,
        written: tuple[Path, IO[bytes]],
        *,
        occurrences: Sequence[Occurrence],
        layout: Layout,
        additions: Additions,
        hashed: Callable[[bytes], None],
    ) -> None:
        self._source, (self._name, self._written) = source, written
        self._occurrences, self._layout = occurrences, layout
        self._additions, self._hashed = additions, hashed
        self._at, self._seen, self._end = 0, 0, b""

    def advance(self, stop: int) -> None:
        """The first `stop` bytes are on the disk, whole documents: check them.

        Raises:
            CorpusError: another byte stands there than should.
        """
        while self._seen < len(self._occurrences):
            one = self._occurrences[self._seen]
            if one.offset >= stop:
                break
            self._same(one.offset)
            self._inserted(one)
            self._seen += 1
        self._same(stop)

    def finish(self) -> None:
        """All is on the disk: check the rest.

        Raises:
            CorpusError: another byte stands there than should, or one more, or one less.
        """
        if self._occurrences:
            last = self._occurrences[-1]
            self.advance(max(self._at, last.offset + last.length))
        while self._equal(_PIECE_BYTES):
            pass

    def _same(self, stop: int) -> None:
        while self._at < stop:
            if not self._equal(min(_PIECE_BYTES, stop - self._at)):
                raise _differs(self._name, f"it ends at byte {self._at}")

    def _equal(self, size: int) -> bool:
        """Compare so many bytes at most; False at the end of both."""
        before, after = self._source.read(size), self._read(size)
        if before != after:
            raise _differs(self._name, f"between byte {self._at} and {self._at + size}")
        self._take(after)
        return bool(after)

    def _inserted(self, one: Occurrence) -> None:
        whole = self._end in (b"", BOM) or self._end.endswith(b"\n")
        data = self._read(one.length)
        if not (whole and data.endswith(b"\n")):
            raise _differs(self._name, f"{one.id} at byte {one.offset} is not a line of its own")
        self._take(data)
        block = Block(first_line=one.document + 1, data=data, has_bom=False)
        self._additions.add(self._layout.texts(block))

    def _read(self, size: int) -> bytes:
        with read_errors(self._name):
            return self._written.read(size)

    def _take(self, data: bytes) -> None:
        self._hashed(data)
        self._at += len(data)
        self._end = (self._end + data[-len(BOM) :])[-len(BOM) :]


def read_back_rows(
    source: Path,
    written: Path,
    text_field: str,
    *,
    occurrences: Sequence[Occurrence],
    additions: Additions,
    hashed: Callable[[bytes], None],
) -> None:
    """Check a Parquet file that is whole: every column of every row.

    Raises:
        CorpusError: another row stands there than should.
    """
    row, waiting = 0, list(reversed(occurrences))
    for before, after in zip_longest(row_groups(source), row_groups(written)):
        if before is None or after is None:
            raise _differs(written, f"it has other row groups from row {row + 1} on")
        texts: list[str] = after.column(text_field).to_pylist()
        keep = np.ones(len(after), dtype=bool)
        while waiting and waiting[-1].offset < row + len(after):
            one = waiting.pop()
            keep[one.offset - row] = False
            additions.add([(one.document + 1, texts[one.offset - row])])
        if not _same_rows(before, after, keep):
            raise _differs(written, f"in rows {row + 1} to {row + len(after)}")
        for text in texts:
            hashed(text_line(0, text))
        row += len(after)


def _same_rows(before: Any, after: Any, keep: Any) -> bool:
    import pyarrow as pa

    kept = after.filter(pa.array(keep)) if not keep.all() else after
    # Arrow says that not-a-number differs from itself; as Python spells them, it does not.
    return kept.equals(before) or repr(kept.to_pylist()) == repr(before.to_pylist())


def _differs(path: Path, where: str) -> CorpusError:
    return CorpusError(
        f"{path} is not what was inserted: {where}; the corpus changed meanwhile, or the disk is "
        "at fault: insert again"
    )
