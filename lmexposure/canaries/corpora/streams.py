"""A corpus on standard input, the same with canaries on standard output."""

import errno
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

from lmexposure.canaries.checking import check_inserted
from lmexposure.canaries.corpora.background import background_hash
from lmexposure.canaries.corpora.layouts import Layout, Records, separator_of
from lmexposure.canaries.corpora.merging import Merger
from lmexposure.canaries.corpora.surveying import Seen
from lmexposure.canaries.corpora.textfile import Block, BlockNote, noted_stream, stream_blocks
from lmexposure.canaries.insertion import Existing, Survey, draw
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.errors import CorpusError, FileError

_NAME = "standard input"
_THROW_AWAY = "what was written must be thrown away"


def insert_into_pipe(
    source: IO[bytes],
    out: IO[bytes],
    plan: Plan,
    *,
    shape: Layout,
    existing: Existing = "refuse",
    documents: int | None = None,
    verify: bool = True,
) -> Manifest:
    """Copy a stream of text with the plan's canaries in it.

    Args:
        source: UTF-8 text; kept in a temporary file until it has ended, unless `documents` says
            how many there are.
        out: where to; after an error, what stands there is no corpus.
        plan: what to insert.
        shape: what a document is.
        existing: about fills already in the corpus: "refuse", or "set_aside", which needs the
            temporary file.
        documents: how many will come; then one pass is enough.
        verify: look for fills, hash, and check what is written; without, the manifest says so.

    Raises:
        CorpusError: the corpus cannot be used, holds fills already, or has another number of
            documents than was said.
        PlanError: the corpus or a format is too small for the plan.
        FileError: the disk or the reader of `out` refused.
    """
    passing = _Passing(out, plan, shape, verify=verify)
    if documents is not None:
        if existing == "set_aside":
            raise CorpusError(
                "existing='set_aside' needs a look at the whole corpus first: leave out documents"
            )
        return passing.once(source, documents)
    with tempfile.TemporaryFile() as spool:
        with _refused("keep standard input in a temporary file", "free space or set TMPDIR"):
            shutil.copyfileobj(source, spool, 1 << 20)
            spool.flush()
        return passing.twice(spool, existing)


class _Passing:
    """The blocks on their way from a stream to another."""

    def __init__(self, out: IO[bytes], plan: Plan, shape: Layout, *, verify: bool) -> None:
        self._out, self._plan, self._shape, self._verify = out, plan, shape, verify
        formats = plan.formats if verify else ()
        self._before, self._after = Seen(formats), Seen(formats)

    def twice(self, spool: IO[bytes], existing: Existing) -> Manifest:
        """First look, then draw, then write."""
        spool.seek(0)
        notes = [self._before.block(one, self._shape) for one in stream_blocks(_NAME, spool)]
        if not self._before.visible:
            raise CorpusError(f"{_NAME} holds only blank lines; give text")
        survey = Survey(
            documents=self._before.documents, sha256="", fills=self._before.fills, place="line"
        )
        canaries, set_aside = draw(self._plan, survey, existing)
        spool.seek(0)
        digests = self._write(noted_stream(spool, notes), canaries, self._before.first_end)
        self._check(canaries, set_aside)
        return self._manifest(canaries, set_aside, survey.documents, digests)

    def once(self, source: IO[bytes], documents: int) -> Manifest:
        """Draw, then write and look at the same time."""
        survey = Survey(documents=documents, sha256="", fills={}, place="line")
        canaries, set_aside = draw(self._plan, survey, "refuse")
        try:
            blocks = stream_blocks(_NAME, source)
            noted = ((one, self._before.block(one, self._shape)) for one in blocks)
            digests = self._write(noted, canaries, b"")
        except CorpusError as failure:
            raise CorpusError(f"{failure}: {_THROW_AWAY}") from failure
        if self._before.documents != documents:
            raise CorpusError(
                f"documents={documents}, but {_NAME} had {self._before.documents}: {_THROW_AWAY}; "
                "give the right number, or leave it out"
            )
        found = {name: one for name, one in self._before.fills.items() if one.counts}
        if found:
            listed = "; ".join(f"{n} {one.named(one.counts, 'line')}" for n, one in found.items())
            raise CorpusError(
                f"{_NAME} already held fills: {listed}: {_THROW_AWAY}; choose another format, or "
                "leave out documents and set these fills aside"
            )
        self._check(canaries, set_aside)
        return self._manifest(canaries, set_aside, documents, digests)

    def _write(
        self,
        noted: Iterable[tuple[Block, BlockNote]],
        canaries: tuple[Canary, ...],
        first_end: bytes,
    ) -> tuple[str, str]:
        merger = Merger(self._shape, canaries, first_end=first_end)
        with background_hash() as before, background_hash() as after:
            for block, note in noted:
                data = b"".join(merger.merged(block, note))
                with _refused("write the corpus", _THROW_AWAY):
                    self._out.write(data)
                if self._verify:
                    before.update(block.raw)
                    after.update(data)
                    written = data[len(block.raw) - len(block.data) :]
                    seen = Block(first_line=1, data=written, has_bom=block.has_bom)
                    self._after.block(seen, self._shape)
            with _refused("write the corpus", _THROW_AWAY):
                self._out.flush()
            return (before.hexdigest(), after.hexdigest()) if self._verify else ("", "")

    def _check(self, canaries: tuple[Canary, ...], set_aside: dict[str, tuple[int, ...]]) -> None:
        if self._verify:
            check_inserted(canaries, self._after.fills, set_aside)

    def _manifest(
        self,
        canaries: tuple[Canary, ...],
        set_aside: dict[str, tuple[int, ...]],
        documents: int,
        digests: tuple[str, str],
    ) -> Manifest:
        shape = self._shape
        record = CorpusRecord(
            name="",
            layout=shape.name,
            text_field=shape.text_field if isinstance(shape, Records) else None,
            constant_fields=tuple(sorted(shape.fields)) if isinstance(shape, Records) else (),
            separator=separator_of(shape.name),
            documents=documents,
            sha256=digests[0],
            sha256_inserted=digests[1],
            verified=self._verify,
        )
        return Manifest(plan=self._plan, corpus=record, entries=canaries, set_aside=set_aside)


@contextmanager
def _refused(what: str, advice: str) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or str(failure)
        # Click ends without a word where it sees that number.
        number = None if failure.errno == errno.EPIPE else failure.errno
        raise FileError(number, f"cannot {what}: {reason}; {advice}") from failure
