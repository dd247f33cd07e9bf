"""A corpus on standard input, the same with canaries on standard output."""

import errno
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lmexposure._files import PRIVATE, atomic_write, sha256_file
from lmexposure._locks import only_writer
from lmexposure.canaries.corpora.copies import Planned, Reading, check_same
from lmexposure.canaries.corpora.files import FileCorpus, layout_named
from lmexposure.canaries.corpora.text import Block, TextLayout
from lmexposure.canaries.insertion import (
    About,
    Merge,
    Part,
    Placement,
    Scan,
    Taken,
    Verification,
    draw,
    in_turn,
    listed_fills,
    named_errors,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.plan import draw as draw_plan
from lmexposure.errors import CorpusError, FileError, InputError, ResultError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_NAME = "standard input"
SPOOL = "standard_input"  # in OUT/source
NOT_TEXT = "standard input must be open, and text; give Parquet as a file"
_PIECE_BYTES = 1 << 20
_THROW_AWAY = "what was written must be thrown away"


def is_stream(corpus: object) -> "TypeIs[IO[bytes]]":
    """Whether a corpus is a stream that is open for reading bytes, and no names of files."""
    return isinstance(corpus, RawIOBase | BufferedIOBase)


class StreamSource:
    """Text from a stream, which can be read once (see `insertion.Source`).

    Args:
        stream: UTF-8 text.
        layout: what a document is.

    Attributes:
        path: a name for a file of it; it says that the text is not packed.
    """

    def __init__(self, stream: IO[bytes], layout: TextLayout) -> None:
        self.name, self.path = _NAME, Path(SPOOL)
        self._stream, self._layout = stream, layout

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> Iterator[Block]:
        return self._layout.streamed(_NAME, self._stream, taken)

    def guarded(self) -> AbstractContextManager[None]:
        """Errors meanwhile name the stream."""
        return named_errors(_NAME)


def stream_layout(
    name: str | None, text_field: str, *, fields: Mapping[str, Any] | None = None
) -> TextLayout:
    """What a document is in a stream: as said, else a line.

    Raises:
        CorpusError: no such layout, or one that a stream cannot have.
    """
    layout = layout_named(name or "lines", text_field=text_field, fields=fields)
    if not isinstance(layout, TextLayout):
        raise CorpusError(NOT_TEXT)
    return layout


def insert_through(
    source: IO[bytes], target: IO[bytes], out: Path, planned: Planned, reading: Reading
) -> Manifest:
    """Copy a stream of text with canaries in it, and write the manifest.

    Args:
        source: UTF-8 text; kept in `out` until all is written, unless `reading.total` says how many
            documents there are. A call that was killed goes on from there.
        target: where to; after an error, what it got is no corpus.
        out: gets manifest.json.
        planned: what to insert, given the manifest that is there already, if any.
        reading: of the stream.

    Raises:
        CorpusError: the corpus cannot be used, holds fills already, or has another number of
            documents than was said.
        PlanError: the corpus or a format is too small for the plan.
        ResultError: `out` holds the manifest of something else, or the copy of another stream.
        FileError: the disk or the reader of `target` refused.
    """
    record = out / "manifest.json"
    with only_writer(out):
        layout = stream_layout(reading.layout, reading.text_field, fields=reading.fields)
        check_continues(out)
        before = Manifest.read(record) if record.exists() else None
        plan = planned(before)
        if before is not None:
            if before.corpus.name:  # its copies are files, and need the stream's copy
                raise ResultError(f"{record} is there already; choose another directory")
            check_same(out, before, plan, layout, [spool_of(out)], reading)
        passage = _Passage(target, plan, layout, reading)
        if reading.total is not None:
            manifest = passage.once(source, reading.total)
        else:
            with kept(source, out) as spool:
                manifest = passage.twice(spool)
        manifest.write(record)
        _forget(out)
    return manifest


def spool_of(out: Path) -> Path:
    """Where standard input is kept."""
    return out / "source" / SPOOL


def check_continues(out: Path) -> None:
    """Refuse before anything is read what could not be gone on with.

    Raises:
        ResultError: `out` holds a manifest and no copy of a stream.
    """
    record = out / "manifest.json"
    if record.exists() and not spool_of(out).exists():
        raise ResultError(f"{record} is there already; choose another directory")


@contextmanager
def kept(source: IO[bytes], out: Path) -> Iterator[Path]:
    """A file with all of standard input; where a killed call left it, that is gone on with.

    Then a stream that is empty, or the same, is that copy. It stays, unless its text turns out to
    be of no use.

    Raises:
        FileError: the disk refused.
        ResultError: the stream is another one than the copy that is there, or see
            `check_continues`.
    """
    check_continues(out)
    spool = spool_of(out)
    new = not spool.exists()
    if new:
        with atomic_write(spool, mode=PRIVATE) as stream:
            shutil.copyfileobj(source, stream, _PIECE_BYTES)
    else:
        digest, empty = hashlib.sha256(), True
        while data := source.read(_PIECE_BYTES):
            digest.update(data)
            empty = False
        if not empty and digest.hexdigest() != sha256_file(spool):
            raise ResultError(
                f"{spool} is the copy of another standard input; choose another directory"
            )
    try:
        yield spool
    except InputError:
        if new and not (out / "manifest.json").exists():
            _forget(out)
        raise


def _forget(out: Path) -> None:
    """Take the copy of standard input away, where there is one."""
    spool = spool_of(out)
    spool.unlink(missing_ok=True)
    with suppress(OSError):  # other files are in it, or it was never made
        spool.parent.rmdir()


class _Passage:
    """The blocks on their way from a stream to another."""

    def __init__(self, target: IO[bytes], plan: Plan, layout: TextLayout, reading: Reading) -> None:
        self._target, self._plan, self._layout, self._reading = target, plan, layout, reading
        self._formats = plan.formats if reading.verify else ()

    def twice(self, spool: Path) -> Manifest:
        """Scan, then draw, then write."""
        corpus = FileCorpus([spool], self._layout, name=_NAME)
        scan = scan_corpus(corpus, self._formats)
        entries, set_aside = draw(self._plan, scan, self._reading.existing, place="line")
        blocks = corpus.sources[0].parts(known=True)
        return self._manifest(scan, entries, set_aside, self._write(blocks, scan, entries))

    def once(self, source: IO[bytes], documents: int) -> Manifest:
        """Draw, then write and scan at the same time."""
        if self._reading.existing == "set_aside":
            raise CorpusError(
                "existing='set_aside' needs a look at the whole corpus first: leave out documents"
            )
        scan, stream = Scan(self._formats), StreamSource(source, self._layout)
        entries = draw_plan(self._plan, documents=documents, set_aside={})
        try:
            blocks = self._scanned(stream.parts(taken=scan.taken), scan)
            verification = self._write(blocks, scan, entries)
        except CorpusError as failure:
            raise CorpusError(f"{failure}: {_THROW_AWAY}") from failure
        if scan.documents != documents:
            raise CorpusError(
                f"documents={documents}, but {_NAME} had {scan.documents}: {_THROW_AWAY}; "
                "give the right number, or leave it out"
            )
        found = {name: fills for name, fills in scan.fills.items() if fills.counts}
        if found:
            raise CorpusError(
                f"{_NAME} already held fills: {listed_fills(found, 'line')}: {_THROW_AWAY}; choose "
                "another format, or leave out documents and set these fills aside"
            )
        return self._manifest(scan, entries, {}, verification)

    def _scanned(self, blocks: Iterable[Block], scan: Scan) -> Iterator[Block]:
        for block in blocks:
            scan.add(block)
            yield block
        scan.end_file()

    def _write(self, blocks: Iterable[Part], scan: Scan, entries: Sequence[Canary]) -> Verification:
        """Write the blocks with their canaries, and look at what is written."""
        placement = Placement(entries)
        merge, verification = Merge(placement), Verification(scan, entries, placement)
        for block in blocks:
            merged = merge.part(block)
            with _refused():
                self._target.write(merged.content)
            if scan.hashes is not None:
                verification.hashes.update(merged.content)
                with in_turn([block]) as same:
                    verification.part(merged, same)
        with _refused():
            self._target.flush()
        verification.hashes.end_file()
        return verification

    def _manifest(
        self,
        scan: Scan,
        entries: tuple[Canary, ...],
        set_aside: dict[str, tuple[int, ...]],
        verification: Verification,
    ) -> Manifest:
        hashes = ("", "")
        if scan.hashes is not None:
            verification.finish(set_aside)
            hashes = (scan.sha256, verification.hashes.total)
        layout = self._layout
        about = About(layout.name, "", layout.text_field, tuple(layout.fields), layout.separator)
        record = about.record(scan.documents, hashes, verified=self._reading.verify)
        return Manifest(plan=self._plan, corpus=record, entries=entries, set_aside=set_aside)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or str(failure)
        # Click ends without a word where it sees that number.
        number = None if failure.errno == errno.EPIPE else failure.errno
        raise FileError(number, f"cannot write the corpus: {reason}; {_THROW_AWAY}") from failure
