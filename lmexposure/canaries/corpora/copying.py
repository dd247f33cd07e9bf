"""The second pass over the files: all as it was, the canaries in their places, and read back."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lmexposure.canaries.checking import check_inserted
from lmexposure.canaries.corpora.background import CorpusHashes, behind, corpus_hashes
from lmexposure.canaries.corpora.content import open_content, packed_writer, unpacked_name
from lmexposure.canaries.corpora.layouts import Layout
from lmexposure.canaries.corpora.merging import Occurrence
from lmexposure.canaries.corpora.reading_back import (
    Additions,
    Passed,
    Readable,
    ReadBack,
    read_back_rows,
)
from lmexposure.canaries.corpora.rows import Rows, copy_rows
from lmexposure.canaries.corpora.shapes import Shape, merger_for
from lmexposure.canaries.corpora.surveying import FileSurvey, named_errors, unchanged
from lmexposure.canaries.corpora.textfile import Block, BlockNote, noted_blocks
from lmexposure.canaries.format import Format
from lmexposure.canaries.plan import Canary


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a file was, and which documents were inserted.

    Attributes:
        name: of the file, without its directory.
        first_document: number of its first document in the whole corpus, from 0.
        documents: how many it had.
        occurrences: the inserted ones, in their order.
        sha256: of its content before; "" where nothing was checked.
        sha256_inserted: of its content with the canaries, as it stands on the disk; "" where
            nothing was checked.
    """

    name: str
    first_document: int
    documents: int
    occurrences: tuple[Occurrence, ...]
    sha256: str
    sha256_inserted: str


class CorpusCopy:
    """Writes the files of a corpus with their canaries, one after another; see `corpus_copy`."""

    def __init__(
        self,
        survey: FileSurvey,
        shape: Shape,
        canaries: Sequence[Canary],
        formats: Sequence[Format],
        hashes: CorpusHashes,
    ) -> None:
        self._survey, self._shape, self._canaries = survey, shape, canaries
        self._merger = merger_for(shape, canaries, survey)
        self._checked, self._hashes = bool(formats), hashes
        self._additions = Additions(formats, survey.fills)

    def file(self, source: Path, stream: IO[bytes]) -> Copied:
        """Write the next file of the corpus, packed as it was, and read it back.

        Args:
            source: the file.
            stream: a new file, which has a name.

        Raises:
            CorpusError: the file cannot be read, is not what the first pass found, or what stands
                on the disk is not what was written.
        """
        number, merger = len(self._hashes.files), self._merger
        merger.begin_file()
        first = merger.document
        with (
            self._hashes.file(),
            named_errors(source),
            unchanged(source, self._survey.states[number]),
        ):
            if isinstance(self._shape, Rows):
                self._rows(source, stream, self._shape)
            else:
                self._text(source, stream, self._shape, self._survey.notes[number])
        return Copied(
            name=source.name,
            first_document=first,
            documents=merger.document - first,
            occurrences=tuple(merger.occurrences),
            sha256=self._survey.hashes[number],
            sha256_inserted=self._hashes.files[number],
        )

    def finish(self, set_aside: Mapping[str, Collection[int]]) -> tuple[str, str]:
        """All files are written: (hash of the corpus before, after); "" where nothing was checked.

        Raises:
            CorpusError: see `check_inserted`.
        """
        if self._checked:
            check_inserted(self._canaries, self._additions.found, set_aside)
        return self._survey.sha256, self._hashes.total

    def _text(
        self, source: Path, stream: IO[bytes], layout: Layout, notes: Sequence[BlockNote]
    ) -> None:
        blocks, written = self._written(source, stream, notes), Path(stream.name)
        if self._checked and unpacked_name(source) == source.name:
            self._follow(blocks, stream, layout)
            return
        for _ in blocks:
            pass
        if self._checked:  # What is packed can be read when it is whole.
            with open_content(source) as before, open_content(written) as after:
                self._read_back(before, (written, after), layout).finish()

    def _written(
        self, source: Path, stream: IO[bytes], notes: Sequence[BlockNote]
    ) -> Iterator[Block]:
        """The blocks of the source, each when it was written with its canaries."""
        with packed_writer(stream, source) as write:
            for block, note in noted_blocks(source, notes):
                for piece in self._merger.merged(block, note):
                    write(piece)
                yield block
        stream.flush()

    def _follow(self, blocks: Iterator[Block], stream: IO[bytes], layout: Layout) -> None:
        """Read back each block while the next one is written."""
        passed, written = Passed(), Path(stream.name)
        with open(written, "rb") as after, behind() as calls:
            back = self._read_back(passed, (written, after), layout)
            for block in blocks:
                stream.flush()
                passed.add(block.raw)
                calls.call(back.advance, stream.tell())
            calls.finish()
            back.finish()

    def _read_back(
        self, before: Readable, written: tuple[Path, IO[bytes]], layout: Layout
    ) -> ReadBack:
        return ReadBack(
            before,
            written,
            occurrences=self._merger.occurrences,
            layout=layout,
            additions=self._additions,
            hashed=self._hashes.update,
        )

    def _rows(self, source: Path, stream: IO[bytes], rows: Rows) -> None:
        copy_rows(source, stream, rows, self._merger)
        stream.flush()
        if self._checked:
            read_back_rows(
                source,
                Path(stream.name),
                rows.text_field,
                occurrences=self._merger.occurrences,
                additions=self._additions,
                hashed=self._hashes.update,
            )


@contextmanager
def corpus_copy(
    survey: FileSurvey,
    shape: Shape,
    canaries: Sequence[Canary],
    formats: Sequence[Format],
) -> Iterator[CorpusCopy]:
    """What writes the files of a corpus with their canaries.

    Args:
        survey: of all files.
        shape: what a document is.
        canaries: of the manifest.
        formats: whose fills to look for in what was written; none: write only.
    """
    with corpus_hashes(on=bool(formats), several=len(survey.states) > 1) as hashes:
        yield CorpusCopy(survey, shape, canaries, formats, hashes)
