"""What was written, read back from the disk and held against what it came from.

Between the canaries every byte, or row, must be the source's. So the fills in the result are those
that the first pass found, and those in the inserted documents: no fill is longer than a line, and
these documents are whole lines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmexposure.canaries.content import open_apart, read_errors
from lmexposure.canaries.format import CanaryFormat
from lmexposure.canaries.insertion import text_line
from lmexposure.canaries.layouts import Layout
from lmexposure.canaries.merging import Occurrence
from lmexposure.canaries.rows import row_groups
from lmexposure.canaries.search import Found, add_fills
from lmexposure.canaries.textfile import BOM, Block
from lmexposure.errors import CorpusError

__all__ = ["Additions", "ReadBack", "read_back", "read_back_rows"]

_PIECE_BYTES = 1 << 20


class Additions:
    """The fills of a corpus, first as it was, then with those of each inserted document.

    Args:
        formats: whose fills.
        before: per format, those that stood in the corpus.

    Attributes:
        found: per format.
    """

    def __init__(self, formats: Sequence[CanaryFormat], before: Mapping[str, Found]) -> None:
        self._formats = formats
        self.found = {
            name: Found(counts=one.counts.copy(), first_places=dict(one.first_places))
            for name, one in before.items()
        }

    def add(self, texts: Iterator[tuple[int, str]]) -> None:
        """Look for fills in a document's texts, each with its number."""
        add_fills(self.found, self._formats, texts, whole_lines=False)


class ReadBack:
    """Follows a text as it is written.

    Args:
        source: path and content of what it comes from.
        written: of the same with canaries.
        occurrences: what was inserted so far; more may come.
        layout: what a document is.
        additions: takes the inserted documents.
        hashed: takes all that was written.
    """

    def __init__(
        self,
        source: tuple[Path, IO[bytes]],
        written: tuple[Path, IO[bytes]],
        *,
        occurrences: Sequence[Occurrence],
        layout: Layout,
        additions: Additions,
        hashed: Callable[[bytes], None],
    ) -> None:
        self._source, self._written, self._name = source, written, written[0]
        self._occurrences, self._layout = occurrences, layout
        self._additions, self._hashed = additions, hashed
        self._at, self._seen, self._end = 0, 0, b""

    def advance(self, stop: int) -> None:
        """The first `stop` bytes are on the disk: check them.

        Raises:
            CorpusError: another byte stands there than should.
        """
        while self._seen < len(self._occurrences):
            self._same(self._occurrences[self._seen].offset)
            self._inserted(self._occurrences[self._seen])
            self._seen += 1
        self._same(stop)

    def finish(self) -> None:
        """All is on the disk: check the rest.

        Raises:
            CorpusError: another byte stands there than should, or one more, or one less.
        """
        self.advance(self._at)
        while self._equal(_PIECE_BYTES):
            pass

    def _same(self, stop: int) -> None:
        while self._at < stop:
            if not self._equal(min(_PIECE_BYTES, stop - self._at)):
                raise _differs(self._name, f"it ends at byte {self._at}")

    def _equal(self, size: int) -> bool:
        """Compare so many bytes at most; False at the end of both."""
        before, after = _read(self._source, size), _read(self._written, size)
        if before != after:
            raise _differs(self._name, f"between byte {self._at} and {self._at + size}")
        self._take(after)
        return bool(after)

    def _inserted(self, one: Occurrence) -> None:
        whole = self._end in (b"", BOM) or self._end.endswith(b"\n")
        data = _read(self._written, one.length)
        if not (whole and data.endswith(b"\n")):
            raise _differs(self._name, f"{one.id} at byte {one.offset} is not a line of its own")
        self._take(data)
        block = Block(first_line=one.document + 1, data=data, has_bom=False)
        self._additions.add(self._layout.texts(block))

    def _take(self, data: bytes) -> None:
        self._hashed(data)
        self._at += len(data)
        self._end = (self._end + data)[-len(BOM) :] if len(data) < len(BOM) else data[-len(BOM) :]


@contextmanager
def read_back(
    source: Path,
    written: Path,
    *,
    occurrences: Sequence[Occurrence],
    layout: Layout,
    additions: Additions,
    hashed: Callable[[bytes], None],
) -> Iterator[ReadBack]:
    """Open both files; see `ReadBack`."""
    with open_apart(source) as before, open_apart(written) as after:
        yield ReadBack(
            (source, before),
            (written, after),
            occurrences=occurrences,
            layout=layout,
            additions=additions,
            hashed=hashed,
        )


def _read(opened: tuple[Path, IO[bytes]], size: int) -> bytes:
    path, stream = opened
    with read_errors(path):
        return stream.read(size)


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
            additions.add(iter([(one.document + 1, texts[one.offset - row])]))
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
