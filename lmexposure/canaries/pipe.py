"""A corpus on standard input, the same with canaries on standard output."""

import errno
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from io import BufferedIOBase, RawIOBase
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from lmexposure._files import PRIVATE, atomic_write, made_directory, only_writer, sha256_file
from lmexposure._written import remove
from lmexposure.canaries.copies import Planned, Reading, check_same
from lmexposure.canaries.corpora.files import FileCorpus, layout_named, read_records
from lmexposure.canaries.corpora.text import LONGEST_LINE, Block, TextLayout, json_object
from lmexposure.canaries.insertion import (
    About,
    Merge,
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
from lmexposure.canaries.recognition import FIRST_RECORDS
from lmexposure.canaries.row_schema import RowSchema
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
    """Text from a stream, which can be read once; a file of it may have the name `path`."""

    def __init__(self, stream: IO[bytes], layout: TextLayout) -> None:
        self.name, self.path = _NAME, Path(SPOOL)
        self._stream, self._layout = stream, layout

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> Iterator[Block]:
        """What is left of the stream; see `insertion.Source`."""
        return self._layout.streamed(_NAME, self._stream, taken)

    def guarded(self) -> AbstractContextManager[None]:
        """Errors meanwhile name standard input."""
        return named_errors(_NAME)


class Replayed:
    """A stream of bytes, some lines of which were read already."""

    def __init__(self, stream: IO[bytes], lines: int) -> None:
        self.head = b"".join(islice(iter(partial(stream.readline, LONGEST_LINE), b""), lines))
        self._left, self._stream = self.head, stream

    def read(self, size: int = -1) -> bytes:
        """Some bytes, at most that many; none at its end."""
        if not self._left:
            return self._stream.read(size)
        stop = len(self._left) if size < 0 else size
        data, self._left = self._left[:stop], self._left[stop:]
        return data

    def readline(self, size: int = -1) -> bytes:
        """The rest of a line, at most that many bytes of it."""
        if not self._left:
            return self._stream.readline(size)
        return self.read(min(self._left.find(b"\n") + 1 or len(self._left), size % (1 << 63)))


def first_records(source: IO[bytes], out: Path) -> tuple[Iterator[dict[str, Any]], IO[bytes]]:
    """The first records of a stream of JSON lines, and the stream from its beginning.

    Of one that is empty, those of its copy in `out`, where a killed call left one.

    Args:
        source: the stream.
        out: as of `insert_through`.
    """
    replayed = Replayed(source, FIRST_RECORDS)
    spool = spool_of(out)
    if not replayed.head and spool.exists():
        return read_records(spool, layout="jsonl"), cast(IO[bytes], replayed)
    lines = enumerate(replayed.head.splitlines(), 1)
    return _objects(lines), cast(IO[bytes], replayed)


def _objects(lines: Iterable[tuple[int, bytes]]) -> Iterator[dict[str, Any]]:
    with named_errors(_NAME):
        for number, line in lines:
            if line.strip():
                yield json_object(line, number)


def stream_layout(
    name: str | None,
    text_field: str,
    *,
    fields: Mapping[str, Any] | None = None,
    schema: RowSchema | None = None,
) -> TextLayout:
    """What a document is in a stream: as said, else a line; a layout of no text is refused."""
    layout = layout_named(name or "lines", text_field=text_field, fields=fields, schema=schema)
    if not isinstance(layout, TextLayout):
        raise CorpusError(NOT_TEXT)
    return layout


def insert_through(
    source: IO[bytes], target: IO[bytes], out: Path, planned: Planned, reading: Reading
) -> Manifest:
    """Copy a stream of text with canaries in it, and write the manifest.

    The stream is kept in `out` until all is written, and a killed call goes on from there, unless
    `reading.total` says how many documents there are. After an error, `target` got no corpus.

    Raises:
        LmexposureError: as `insert_files`; FileError also where the reader of `target` refused.
    """
    record = out / "manifest.json"
    with only_writer(out):
        options: dict[str, Any] = {"fields": reading.fields, "schema": reading.schema}
        layout = stream_layout(reading.layout, reading.text_field, **options)
        check_continues(out)
        before = Manifest.read(record) if record.exists() else None
        plan = planned(before)
        if before is not None:
            if before.corpus.name:  # its copies are files, and need the stream's copy
                raise ResultError(f"{record} is there already; choose another directory")
            check_same(out, before, plan, layout, [spool_of(out)], reading)
        if layout.schema is not None:
            layout.schema.check_around(plan.hidden_formats)
        if reading.total is not None:
            manifest = _read_once(source, target, plan, layout, reading)
        else:
            with spooled_input(source, out) as spool:
                corpus = FileCorpus([spool], layout, name=_NAME)
                manifest = _read_twice(corpus, target, plan, reading)
        if manifest != before:  # one that a person put there stays as it is
            manifest.write(record)
        _forget(out)
    return manifest


def spool_of(out: Path) -> Path:
    """Where standard input is kept."""
    return out / "source" / SPOOL


def check_continues(out: Path) -> None:
    """Refuse, before anything is read, what could not be continued: a manifest without a copy."""
    record = out / "manifest.json"
    if record.exists() and not spool_of(out).exists():
        raise ResultError(f"{record} is there already; choose another directory")


@contextmanager
def spooled_input(source: IO[bytes], out: Path) -> Iterator[Path]:
    """A file with all of standard input; one that a killed call left is used again.

    Then a stream that is empty, or the same, is that copy, and another is refused. It stays, unless
    its text turns out to be of no use.
    """
    check_continues(out)
    spool = spool_of(out)
    new = not spool.exists()
    if new:
        with made_directory(spool.parent), atomic_write(spool, mode=PRIVATE) as stream:
            shutil.copyfileobj(source, stream, _PIECE_BYTES)
    else:
        digest = hashlib.sha256()
        while data := source.read(_PIECE_BYTES):
            digest.update(data)
        if digest.hexdigest() not in (hashlib.sha256().hexdigest(), sha256_file(spool)):
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
    """Delete the copy of standard input, if there is one."""
    spool = spool_of(out)
    if spool.exists():
        remove(spool)
        with suppress(OSError):  # other files are in it
            spool.parent.rmdir()


def _read_twice(corpus: FileCorpus, target: IO[bytes], plan: Plan, reading: Reading) -> Manifest:
    """Scan, then draw, then write."""
    scan = scan_corpus(corpus, plan.hidden_formats if reading.verify else ())
    entries, set_aside = draw(plan, scan, reading.existing, place="line")
    verification = _write(corpus.sources[0].parts(known=True), target, scan, entries)
    return verification.manifest(plan, corpus.about()._replace(name=""), set_aside)


def _read_once(
    source: IO[bytes], target: IO[bytes], plan: Plan, layout: TextLayout, reading: Reading
) -> Manifest:
    """Draw, then write and scan at the same time."""
    if reading.existing == "set_aside":
        raise CorpusError(
            "existing='set_aside' needs a look at the whole corpus first: leave out documents"
        )
    scan = Scan(plan.hidden_formats if reading.verify else ())
    entries = draw_plan(plan, documents=reading.total or 0, set_aside={})
    try:
        blocks = StreamSource(source, layout).parts(taken=scan.taken)
        verification = _write(_scanned(blocks, scan), target, scan, entries)
    except CorpusError as failure:
        raise CorpusError(f"{failure}: {_THROW_AWAY}") from failure
    if scan.documents != reading.total:
        raise CorpusError(
            f"documents={reading.total}, but {_NAME} had {scan.documents}: {_THROW_AWAY}; "
            "give the right number, or leave it out"
        )
    found = {name: fills for name, fills in scan.fills.items() if fills.counts}
    if found:
        raise CorpusError(
            f"{_NAME} already held fills: {listed_fills(found, 'line')}: {_THROW_AWAY}; choose "
            "another format, or leave out documents and set these fills aside"
        )
    about = About(layout.name, "", layout.text_field, tuple(layout.fields), layout.separator)
    about = about._replace(wrapping=layout.schema.record if layout.schema else None)
    return verification.manifest(plan, about, {})


def _scanned(blocks: Iterable[Block], scan: Scan) -> Iterator[Block]:
    for block in blocks:
        scan.add(block)
        yield block
    scan.end_file()


def _write(
    blocks: Iterable[Block], target: IO[bytes], scan: Scan, entries: tuple[Canary, ...]
) -> Verification:
    """Write the blocks with their canaries, and verify what is written."""
    placement = Placement(entries)
    merge, verification = Merge(placement), Verification(scan, entries, placement)
    for block in blocks:
        merged = merge.part(block)
        with _refused():
            target.write(merged.content)
        if scan.hashes is not None:
            verification.hashes.update(merged.content)
            with in_turn([block]) as same:
                verification.part(merged, same)
    with _refused():
        target.flush()
    verification.hashes.end_file()
    return verification


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or str(failure)
        # Click ends without a word where it sees that number.
        number = None if failure.errno == errno.EPIPE else failure.errno
        raise FileError(number, f"cannot write the corpus: {reason}; {_THROW_AWAY}") from failure
