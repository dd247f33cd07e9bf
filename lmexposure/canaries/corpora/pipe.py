"""A corpus on standard input, the same with canaries on standard output."""

import errno
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lmexposure._files import PRIVATE, atomic_write, sha256_file
from lmexposure._locks import only_writer
from lmexposure.canaries.corpora.copies import Planned, Reading
from lmexposure.canaries.corpora.files import FileCorpus, layout_named
from lmexposure.canaries.corpora.text import Block, TextLayout, stream_blocks
from lmexposure.canaries.insertion import (
    About,
    Merge,
    Part,
    Placement,
    Scan,
    Verification,
    draw,
    listed_fills,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.plan import draw as draw_plan
from lmexposure.errors import CorpusError, FileError, InputError, ResultError

_NAME = "standard input"
_SPOOL = "standard_input"  # in OUT/source
_PIECE_BYTES = 1 << 20
_THROW_AWAY = "what was written must be thrown away"


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
        ResultError: `out` holds a manifest and no copy of the stream, or those of another one.
        FileError: the disk or the reader of `target` refused.
    """
    record = out / "manifest.json"
    with only_writer(out):
        if record.exists() and not spool_of(out).exists():
            raise ResultError(f"{record} is there already; choose another --out")
        before = Manifest.read(record) if record.exists() else None
        plan, layout = planned(before), _text_layout(reading)
        if before is not None and before.plan != plan:
            raise ResultError(f"{out} holds a manifest of another plan; choose another directory")
        passage = _Passage(target, plan, layout, reading)
        if reading.total is not None:
            manifest = passage.once(source, reading.total)
        else:
            with kept(source, out) as spool:
                manifest = passage.twice(spool)
        manifest.write(record)
        forget(out)
    return manifest


def spool_of(out: Path) -> Path:
    """Where standard input is kept."""
    return out / "source" / _SPOOL


@contextmanager
def kept(source: IO[bytes], out: Path) -> Iterator[Path]:
    """A file with all of standard input; what a killed call kept is gone on from.

    Where the copy is there, a stream that is empty, or the same, is that copy.

    Raises:
        FileError: the disk refused.
        ResultError: the stream is another one than the copy that is there.
    """
    spool = spool_of(out)
    if spool.exists():
        digest, empty = hashlib.sha256(), True
        while data := source.read(_PIECE_BYTES):
            digest.update(data)
            empty = False
        if not empty and digest.hexdigest() != sha256_file(spool):
            raise ResultError(
                f"{spool} is the copy of another standard input; choose another directory"
            )
    else:
        with atomic_write(spool, mode=PRIVATE) as stream:
            shutil.copyfileobj(source, stream, _PIECE_BYTES)
    try:
        yield spool
    except InputError:
        forget(out)
        raise


def forget(out: Path) -> None:
    """Take the copy of standard input away, where there is one."""
    spool = spool_of(out)
    spool.unlink(missing_ok=True)
    with suppress(OSError):  # other files are in it, or it was never made
        spool.parent.rmdir()


def _text_layout(reading: Reading) -> TextLayout:
    layout = layout_named(
        reading.layout or "lines", text_field=reading.text_field, fields=reading.fields
    )
    if not isinstance(layout, TextLayout):
        raise CorpusError("standard input must be open, and text; give Parquet as a file")
    return layout


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
        scan = Scan(self._formats)
        entries = draw_plan(self._plan, documents=documents, set_aside={})
        try:
            blocks = self._scanned(stream_blocks(_NAME, source, self._layout), scan)
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
            if scan.taken is not None:
                scan.taken(block.content)
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
                verification.part(merged, block.same)
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
        about = About(
            layout.name,
            text_field=layout.text_field,
            constant_fields=tuple(layout.fields),
            separator=layout.separator,
        )
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
