"""The first pass over the files of a corpus: check, count, look for fills."""

import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lmexposure.canaries.corpora.background import CorpusHashes, corpus_hashes
from lmexposure.canaries.corpora.layouts import Layout, line_end
from lmexposure.canaries.corpora.rows import Rows, row_texts
from lmexposure.canaries.corpora.textfile import Block, BlockNote, text_blocks
from lmexposure.canaries.format import Format
from lmexposure.canaries.insertion import Survey, text_line
from lmexposure.canaries.search import Found, add_fills, sure_words
from lmexposure.errors import CorpusError


@dataclass(frozen=True, kw_only=True)
class FileSurvey(Survey):
    """A survey of the files of a corpus.

    Attributes:
        first_end: the first line end, a line feed where there is none.
        states: of each file, by which a change before the copy is noticed.
        hashes: of the content of each file; "" where nothing was checked.
        notes: of each file, its blocks; none of Parquet.
    """

    first_end: bytes
    states: tuple[tuple[int, ...], ...]
    hashes: tuple[str, ...]
    notes: tuple[tuple[BlockNote, ...], ...]


class Seen:
    """What the blocks or rows that passed so far told.

    Args:
        formats: whose fills to look for.
    """

    def __init__(self, formats: Sequence[Format]) -> None:
        self.fills = {one.name: Found() for one in formats}
        self.documents, self.visible, self.first_end = 0, False, b""
        self._formats, self._lines_before = formats, 0
        self._words = sure_words(formats)
        self.begin_file()

    def begin_file(self) -> None:
        """What comes now is another file of the same corpus."""
        self._after_blank, self._lines = True, 0

    def end_file(self) -> None:
        """Numbers of lines go on over all files."""
        self._lines_before += self._lines

    def block(self, block: Block, layout: Layout) -> BlockNote:
        """Look at some lines."""
        if not self.first_end:
            self.first_end = line_end(block.data[: block.data.find(b"\n") + 1])
        after_blank, self._after_blank = self._after_blank, block.ends_blank
        documents = layout.count(block, after_blank)
        self.documents += documents
        self._lines = block.first_line - 1 + block.line_count
        self.visible = self.visible or not block.data.isspace()
        if self._formats:
            self._add(layout.searched(block, self._words), whole_lines=layout.scans_lines)
        return BlockNote(block.size, block.first_line, documents, after_blank)

    def row(self, number: int, text: str) -> None:
        """Look at a numbered text that is a document."""
        self.documents, self._lines = self.documents + 1, number
        self.visible = self.visible or bool(text.strip())
        if self._formats:
            self._add([(number, text)], whole_lines=False)

    def _add(self, texts: Iterable[tuple[int, str]], *, whole_lines: bool) -> None:
        numbered = ((self._lines_before + number, text) for number, text in texts)
        add_fills(self.fills, self._formats, numbered, whole_lines=whole_lines)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Errors about a line say of which file."""
    try:
        yield
    except CorpusError as failure:
        if str(path) in str(failure):
            raise
        raise CorpusError(f"{path}: {failure}") from failure


def survey_files(
    paths: Sequence[Path], shape: Layout | Rows, formats: Sequence[Format]
) -> FileSurvey:
    """Look through all files once.

    Args:
        paths: in the order of the corpus.
        shape: what a document is.
        formats: whose fills to look for; none: only count, whatever the bytes are, without a hash.

    Raises:
        CorpusError: a file cannot be used, or all hold only blank lines.
    """
    seen, states, notes = Seen(formats), [], []
    with corpus_hashes(on=bool(formats), several=len(paths) > 1) as hashes:
        for path in paths:
            with named_errors(path), hashes.file():
                seen.begin_file()
                states.append(file_state(path))
                passed = _look_through(path, shape, seen, hashes, known=not formats)
                notes.append(tuple(passed))
                seen.end_file()
        total = hashes.total
    if not seen.visible:
        named = paths[0] if len(paths) == 1 else f"of {len(paths)} files"
        raise CorpusError(f"the corpus {named} holds only blank lines; give a file with text in it")
    place = "row" if isinstance(shape, Rows) else "line"
    return FileSurvey(
        documents=seen.documents,
        sha256=total,
        fills=seen.fills,
        place=place if len(paths) == 1 else f"{place}, counted over all files,",
        first_end=seen.first_end or b"\n",
        states=tuple(states),
        hashes=tuple(hashes.files),
        notes=tuple(notes),
    )


def file_state(path: Path) -> tuple[int, ...]:
    """What changes when a file does: size, time of the last change, and which file it is.

    Raises:
        CorpusError: there is no such file, or it is a pipe.
    """
    try:
        found = path.stat()
    except OSError as failure:
        raise CorpusError(
            f"cannot read the corpus {path}: {failure.strerror}; give a text file"
        ) from failure
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise CorpusError(
            f"the corpus {path} is a pipe, and would be read twice; write it to a file, or give it "
            "as standard input: -"
        )
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@contextmanager
def unchanged(path: Path, state: tuple[int, ...]) -> Iterator[None]:
    """Whatever goes wrong meanwhile, a corpus that is not what it was is the reason.

    Raises:
        CorpusError: it changed since its `file_state` was taken.
    """
    try:
        yield
    finally:
        if file_state(path) != state:
            raise CorpusError(f"the corpus {path} changed while it was read; try again")


def _look_through(
    path: Path, shape: Layout | Rows, seen: Seen, hashes: CorpusHashes, *, known: bool
) -> Iterator[BlockNote]:
    if isinstance(shape, Rows):
        for number, text in row_texts(path, shape.text_field):
            hashes.update(text_line(number, text))
            seen.row(number, text)
        return
    for block in text_blocks(path, checked=known, taken=hashes.update):
        yield seen.block(block, shape)
