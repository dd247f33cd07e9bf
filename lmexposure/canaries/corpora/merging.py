"""Canaries among the blocks of a text corpus as they pass, whatever they come from and go to."""

from collections.abc import Iterable
from dataclasses import dataclass

from lmexposure.canaries.corpora.layouts import Layout, line_end
from lmexposure.canaries.corpora.textfile import Block, BlockNote, count_lines
from lmexposure.canaries.placing import Placement
from lmexposure.canaries.plan import Canary


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """Where one inserted document stands; it holds no secret.

    Attributes:
        id: of the canary.
        document: number of the document that it stands before, in the whole corpus, from 0.
        offset: in the content of its file with the canaries: the first byte, or the row, from 0.
        length: bytes or rows.
    """

    id: str
    document: int
    offset: int
    length: int


class Merger:
    """Gives each block back with its canaries in it; it must see all blocks in their order.

    Args:
        layout: what a document is.
        canaries: of a manifest.
        first_end: the line end for canaries before a line without one; by default that of the
            first line that passes.
    """

    def __init__(
        self, layout: Layout, canaries: Iterable[Canary], *, first_end: bytes = b""
    ) -> None:
        self.document = 0
        self.occurrences: list[Occurrence] = []
        self._layout, self._placement, self._first_end = layout, Placement(canaries), first_end
        self._offset = 0

    def begin_file(self) -> None:
        """What comes now is another file of the same corpus; numbers of documents go on."""
        self.occurrences, self._offset = [], 0

    def take(self, documents: int) -> list[tuple[int, Canary]]:
        """Count so many more documents: (document, canary before it) among them."""
        first, self.document = self.document, self.document + documents
        return self._placement.within(first, self.document)

    def merged(self, block: Block, note: BlockNote) -> list[bytes]:
        """The pieces of this block, byte order mark included, with its canaries among them."""
        self._first_end = (
            self._first_end or line_end(block.data[: block.data.find(b"\n") + 1]) or b"\n"
        )
        first = self.document
        places = self.take(note.documents)
        pieces = self._with(block, note, first, places) if places else [block.raw]
        self._offset += sum(map(len, pieces))
        return pieces

    def _with(
        self, block: Block, note: BlockNote, first: int, places: list[tuple[int, Canary]]
    ) -> list[bytes]:
        numbers = [place - first for place, _ in places]
        starts = self._layout.starts(block, note.after_blank, numbers)
        pieces, done = [block.raw[: len(block.raw) - len(block.data)]], 0
        written = self._offset + len(pieces[0])
        for (place, canary), start in zip(places, starts, strict=True):
            rendered = self._rendered(block, start, canary.text)
            pieces += [block.data[done:start], rendered]
            at = written + start - done
            self.occurrences.append(
                Occurrence(id=canary.id, document=place, offset=at, length=len(rendered))
            )
            done, written = start, at + len(rendered)
        return [*pieces, block.data[done:]]

    def _rendered(self, block: Block, start: int, text: str) -> bytes:
        stop = block.data.find(b"\n", start) + 1
        neighbour = block.data[start:stop] if stop else block.data[start:]
        # Only a record can be unfit, and counting takes its time.
        before = 0 if self._layout.scans_lines else count_lines(block.data[:start])
        return self._layout.render(
            text, neighbour, line_end(neighbour) or self._first_end, block.first_line + before
        )
