"""Blocks and row groups without the canaries in them; each is looked at before it is left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lmexposure.canaries.corpora.layouts import Layout, Paragraphs, Records, line_end
from lmexposure.canaries.corpora.textfile import Block
from lmexposure.canaries.plan import Canary
from lmexposure.errors import CorpusError


class Restorer:
    """Leaves the inserted documents out; it must see all blocks or row groups in their order.

    Args:
        targets: (number of the inserted document among all that pass, from 0; its canary),
            ascending.
    """

    def __init__(self, targets: Sequence[tuple[int, Canary]]) -> None:
        self.removed = 0
        self._targets, self._document = targets, 0
        self.begin_file()

    def begin_file(self) -> None:
        """What comes now is another file; numbers of documents go on."""
        self._after_blank, self._skip_line = True, False

    def kept(self, block: Block, layout: Layout) -> bytes:
        """The bytes of this block without its canaries.

        Raises:
            CorpusError: another document stands where a canary should.
        """
        first, data = self._document, block.data
        pieces = [block.raw[: len(block.raw) - len(data)]]
        done = self._skipped(block, 0) if self._skip_line else 0
        hits = self._take(layout.count(block, self._after_blank))
        numbers = [number - first for number, _ in hits]
        starts = layout.starts(block, self._after_blank, numbers) if hits else []
        for (number, canary), start in zip(hits, starts, strict=True):
            stop = data.find(b"\n", start) + 1 or len(data)
            self._check(_text(data[start:stop], layout) == canary.text, number, canary)
            pieces.append(data[done:start])
            done = self._skipped(block, stop) if isinstance(layout, Paragraphs) else stop
        self._after_blank = block.ends_blank
        return b"".join([*pieces, data[done:]])

    def kept_rows(self, table: Any, text_field: str) -> Any:
        """The row group without its canaries.

        Raises:
            CorpusError: another row stands where a canary should.
        """
        import pyarrow as pa

        first, keep = self._document, np.ones(len(table), dtype=bool)
        for number, canary in self._take(len(table)):
            text = table.column(text_field)[number - first].as_py()
            self._check(text == canary.text, number, canary)
            keep[number - first] = False
        return table.filter(pa.array(keep)) if not keep.all() else table

    def finish(self) -> None:
        """All has passed.

        Raises:
            CorpusError: some canaries have not.
        """
        if self.removed < len(self._targets):
            number, canary = self._targets[self.removed]
            self._check(False, number, canary)

    def _take(self, documents: int) -> Sequence[tuple[int, Canary]]:
        """The targets among the next so many documents."""
        self._document += documents
        first, last = self.removed, self.removed
        while last < len(self._targets) and self._targets[last][0] < self._document:
            last += 1
        self.removed = last
        return self._targets[first:last]

    def _skipped(self, block: Block, start: int) -> int:
        """Past the blank line after a paragraph; it may stand in the next block."""
        self._skip_line = start >= len(block.data)
        stop = block.data.find(b"\n", start) + 1
        return stop if stop and not block.data[start:stop].strip() else start

    def _check(self, same: bool, number: int, canary: Canary) -> None:
        if not same:
            raise CorpusError(
                f"document {number + 1} is not {canary.id}, which the manifest says stands there: "
                "the corpus changed since insertion; give the copy that insertion wrote"
            )


def _text(line: bytes, layout: Layout) -> str | None:
    """None: no document of this layout."""
    if not isinstance(layout, Records):
        return line.removesuffix(line_end(line)).decode(errors="replace")
    block = Block(first_line=1, data=line, has_bom=False)
    try:
        return next(text for _, text in layout.texts(block))
    except CorpusError:
        return None
