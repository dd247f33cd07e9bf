"""What of a manifest is really in a corpus, after whatever was done to it since insertion.

And the way back: the corpus without its canaries, byte for byte, checked against the manifest.
"""

import glob
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from lmexposure._files import atomic_directory, atomic_write, is_taken, mode_like, new_file
from lmexposure.canaries.corpora import IN_MEMORY
from lmexposure.canaries.corpora.files import (
    LAYOUTS,
    FileCorpus,
    FileLayout,
    FileSource,
    corpus_files,
    layout_of,
    read_sidecars,
)
from lmexposure.canaries.corpora.in_memory import are_paths, corpus_of, is_read_later, parts_once
from lmexposure.canaries.documents import is_stream, spooled
from lmexposure.canaries.fills import Found, Sought, add_fills
from lmexposure.canaries.insertion import Cut, Hashes, Placement, Source, strange_fills
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Canary
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError, SettingsError


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How much of one class of canaries is there, in copies and in canaries."""

    format: str  # its name
    repetitions: int  # the class
    canaries: int  # how many it has, without held-out candidates
    expected: int  # copies that insertion made; of a shard, those that it put there
    found: int  # copies that are whole in the corpus
    missing: int  # copies that are expected and not there
    surplus: int  # copies that are there beyond those expected
    fewer: int  # canaries of which some copies are there, and not all that are expected
    lost: int  # canaries that are expected and of which no copy is there
    more: int  # canaries of which more copies are there than expected

    @property
    def changed(self) -> int:
        """Canaries of which more or fewer copies are there than expected."""
        return self.fewer + self.lost + self.more

    @property
    def complete(self) -> int:
        """Canaries with as many copies as expected."""
        return self.canaries - self.changed


@dataclass(frozen=True, kw_only=True)
class CorpusCount:
    """What of a manifest is in a corpus."""

    classes: tuple[ClassCount, ...]  # format by format, in the order of the plan
    # ids of canaries of which there are more or fewer than expected, with (expected, found)
    changed: Mapping[str, tuple[int, int]]
    # ids of controls and held-out candidates that are there, with how often
    uninvited: Mapping[str, int]
    # per format, how many fills are there that the manifest does not have
    strange: Mapping[str, int]
    # per format, where; "3 times (line 4, 9)"
    strange_places: Mapping[str, str] = field(default_factory=dict)
    # ids of canaries that are there cut in two pieces, with how often; they are not counted as
    # found
    cut: Mapping[str, int] = field(default_factory=dict)
    # (number, of how many) where one file of several was counted, and compared with what insertion
    # put into it
    shard: tuple[int, int] | None = None

    @property
    def as_inserted(self) -> bool:
        """Whether every canary is there as often as it was inserted, and no other fill."""
        return not (self.changed or self.uninvited or self.strange)

    def to_dict(self) -> dict[str, Any]:
        """All attributes, and whether all is as inserted; no secrets."""
        return {**asdict(self), "as_inserted": self.as_inserted}


def count_files(
    sources: Sequence[str | Path], manifest: Manifest, *, layout: FileLayout
) -> CorpusCount:
    """Count the fills in files, which need not be those that insertion wrote."""
    paths = corpus_files(sources)
    notes = read_sidecars(paths, manifest)
    found = count_fills_in(FileCorpus(paths, layout).sources, manifest)
    where = "line or row" if len(paths) == 1 else "line or row of some file"
    if notes is None or len(notes) == notes[0].shards:
        return count_of(manifest, found, where=where)
    expected = Counter(occurrence.id for occurrence in notes[0].copied.occurrences)
    counted = count_of(manifest, found, expected=expected, where=where)
    return replace(counted, shard=(notes[0].shard, notes[0].shards))


def count_fills_in(sources: Iterable[Source], manifest: Manifest) -> dict[str, Found]:
    """The fills of a manifest's formats in files, or in what is in memory; places are of a file."""
    formats = manifest.plan.hidden_formats
    found, sought = {name: Found() for name in manifest.hidden_formats}, Sought(formats)
    for source in sources:
        with source.guarded():
            for part in source.parts():
                add_fills(found, formats, part.searched(sought), whole_lines=part.scans_lines)
    return found


def count_of(
    manifest: Manifest,
    found: Mapping[str, Found],
    *,
    expected: Mapping[str, int] | None = None,
    cut: Mapping[str, int] | None = None,
    where: str,
) -> CorpusCount:
    """Compare fills that were found with what a manifest says."""
    entries = manifest.entries
    counts = Counter({entry.id: found[entry.format].counts[entry.index] for entry in entries})
    wanted = Counter(
        {entry.id: entry.inserted for entry in entries} if expected is None else expected
    )
    strange = strange_fills(entries, found, manifest.set_aside)
    return CorpusCount(
        classes=tuple(_class_counts(manifest, wanted, counts)),
        changed={
            entry.id: (wanted[entry.id], counts[entry.id])
            for entry in entries
            if entry.inserted and wanted[entry.id] != counts[entry.id]
        },
        uninvited={
            entry.id: counts[entry.id]
            for entry in entries
            if not entry.inserted and counts[entry.id]
        },
        strange={
            name: sum(found[name].counts[i] for i in those) for name, those in strange.items()
        },
        strange_places={name: found[name].named(those, where) for name, those in strange.items()},
        cut=dict(cut or {}),
    )


def _class_counts(
    manifest: Manifest, wanted: Counter[str], counted: Counter[str]
) -> Iterator[ClassCount]:
    planned = product(manifest.formats, manifest.plan.repetitions)
    witnesses = {(entry.format, entry.repetitions) for entry in manifest.witnesses}
    for name, repetitions in [*planned, *witnesses]:
        of_class = (name, repetitions)
        ids = [
            entry.id
            for entry in (*manifest.canaries, *manifest.witnesses)
            if (entry.format, entry.repetitions) == of_class
        ]
        expected, found = (Counter({i: of[i] for i in ids}) for of in (wanted, counted))
        missing, surplus = expected - found, found - expected
        lost = sum(not found[i] for i in missing)
        yield ClassCount(
            format=name,
            repetitions=repetitions,
            canaries=len(ids),
            expected=expected.total(),
            found=found.total(),
            missing=missing.total(),
            surplus=surplus.total(),
            fewer=len(missing) - lost,
            lost=lost,
            more=len(surplus),
        )


def corpus_count(
    corpus: Any, manifest: Manifest, *, layout: str | None = None, text_field: str | None = None
) -> CorpusCount:
    """What `lmexposure.verify` gives, but for tokenised data sets."""
    if names := file_names(corpus):
        return _count_files([Path(name) for name in names], manifest, layout, text_field)
    if is_stream(corpus):
        # No suffix tells of it: its layout is the manifest's.
        own = manifest.layout if manifest.layout in LAYOUTS else "lines"
        with spooled(corpus) as names:
            return _count_files([Path(names[0])], manifest, layout or own, text_field)
    sources = parts_once(corpus, RowSchema.of(manifest, text_field))
    return count_of(manifest, count_fills_in(sources, manifest), where="record")


def file_names(corpus: Any) -> Sequence[str | Path]:
    """A path or pattern, or several, all of them of files that are there; of texts none."""
    if isinstance(corpus, str | Path):
        return [corpus]
    is_list = isinstance(corpus, list | tuple)
    of_files = is_list and all(
        isinstance(name, Path)
        or are_paths([name])
        or (isinstance(name, str) and glob.glob(name, recursive=True))
        for name in corpus
    )
    return corpus if of_files else []


def _count_files(
    files: Sequence[Path], manifest: Manifest, layout: str | None, text_field: str | None
) -> CorpusCount:
    if len(files) == 1 and files[0].is_dir():
        raise SettingsError(
            f"{files[0]}: a tokenizer goes with the directory of a saved tokenised data set; give "
            "it; else load the data set and give that, or its *.arrow files"
        )
    paths = corpus_files(files)
    known = layout_of(manifest, paths, name=layout, text_field=text_field)
    if layout is None and (known.name, manifest.layout) == ("lines", "paragraphs"):
        known = layout_of(manifest, paths, name="paragraphs")
    return count_files(paths, manifest, layout=known)


_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_NOT_BEFORE = "without its canaries the corpus is not what it was before insertion"


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What was taken out."""

    files: tuple[Path, ...]  # that were written
    documents: int  # taken out of them
    checked: bool  # against the hash, of tables of their texts; False: the manifest has none


@overload
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path) -> Removal: ...
@overload
def remove(corpus: _T, manifest: Manifest | str | Path, out: None = None) -> _T: ...
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path | None = None) -> Any:
    """Give a corpus as it was before insertion, and check that it is.

    Args:
        corpus: what insertion wrote: a file, several, or patterns; a stream, open for reading
            bytes; or documents in memory, as `insert` gave them.
        manifest: of the insertion, or its path; one of a stream, of Ray or of a step has no hash:
            then nothing but the canaries is checked, and the log or `Removal.checked` says so.
        out: for one file a new file or a directory that is there; for several a directory, new or
            empty; None: the documents are in memory.

    Returns:
        documents of the same kind; or of files a `Removal`: which were written, how many documents
        were taken out, and whether the rest has the hash of the corpus before insertion.

    Raises:
        CorpusError: the corpus changed since, is not this manifest's, or lacks a file; or a file is
            there already.
        ManifestError: the manifest cannot be read.
        FileError: the disk refused; nothing half-written is left.
    """
    known = Manifest.of(manifest)
    if out is None:
        if file_names(corpus) or is_stream(corpus):
            raise CorpusError("the corpus is in files; give out, the name of the file to write")
        return _restored_documents(corpus, known)
    if isinstance(corpus, list | tuple) and not corpus:
        raise CorpusError("sources is empty; give paths of files, or patterns")
    if not (file_names(corpus) or is_stream(corpus)):
        raise CorpusError(  # shows no name: texts hold secrets
            "documents in memory need no out; leave it out, or give names of files that are there"
        )
    with spooled(corpus) as names:
        return remove_from_files(names, known, out)


def remove_from_files(
    sources: Sequence[str | Path], manifest: Manifest, out: str | Path
) -> Removal:
    """What `remove` does with files; those with sidecars are restored each on its own."""
    if manifest.layout in IN_MEMORY:
        raise CorpusError(
            "these canaries went into documents in memory: load the file as such, and give that to "
            "lmexposure.remove"
        )
    paths, out = corpus_files(sources), Path(out)
    corpus = FileCorpus(paths, layout_of(manifest, paths, name=manifest.layout))
    mode, restored = mode_like(*paths), _restored(paths, manifest)
    written = [out / path.name for path in paths]
    if len(paths) == 1:
        written = written if out.is_dir() else [out]
        if out.is_dir() and written[0].is_symlink():  # a link that is named itself is followed
            raise CorpusError(
                f"{written[0]} is a link, which is not followed; choose another directory, or move "
                "it away"
            )
        if is_taken(written[0]):
            raise CorpusError(f"{written[0]} is there already; choose another name")
        with atomic_write(written[0], mode=mode) as stream:
            restored[0].write(corpus.sources[0], corpus, stream)
    else:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise CorpusError(f"{out} holds something already; choose a new or an empty directory")
        with atomic_directory(out, mode=mode) as unnamed:
            for source, file in zip(corpus.sources, restored, strict=True):
                with new_file(unnamed / source.path.name, mode) as stream:
                    file.write(source, corpus, stream)
    different = set(restored)
    return Removal(
        files=tuple(written),
        documents=sum(file.removed for file in different),
        checked=all(file.sha256 for file in different),
    )


class _Restored(Cut):
    """A file, or several as one, whose rest has a hash in the end; "" where that is not known."""

    def __init__(
        self, targets: Sequence[tuple[int, Canary]], sha256: str, files: int = 1, hint: str = ""
    ) -> None:
        super().__init__(targets, partial(_changed, hint=hint))
        self.sha256, self._files, self._hashes = sha256, files, Hashes(several=files > 1)

    def write(self, source: FileSource, corpus: FileCorpus, stream: IO[bytes]) -> None:
        """Write the next file without its canaries; after the last of them all is checked."""
        with source.guarded():
            with corpus.layout.writer(stream, source.path) as write:
                for part in source.parts(known=True):
                    rest, _ = self.part(part)
                    self._hashes.update(rest.content)
                    write(rest)
            self._hashes.end_file()
            if len(self._hashes.files) == self._files:
                self.finish()
                if self.sha256 not in ("", self._hashes.total):
                    raise _changed(_NOT_BEFORE)


def _restored(paths: Sequence[Path], manifest: Manifest) -> list[_Restored]:
    """Of each file; with sidecars each is by itself, without, all of them are one."""
    placement, notes = Placement(manifest.entries), read_sidecars(paths, manifest)
    if notes is None:
        alone = len(paths) == 1 and not manifest.corpus.name
        hint = ", or is one file of several without its sidecar" * alone
        whole = _Restored(placement.inserted(), manifest.corpus.sha256, len(paths), hint)
        return [whole] * len(paths)
    files = [(note.copied, note.copied.first_document) for note in notes]
    return [
        _Restored(placement.inserted(first, first + file.documents), file.sha256)
        for file, first in files
    ]


def _changed(what: str, hint: str = "") -> CorpusError:
    return CorpusError(
        f"{what}: the corpus changed since insertion{hint}; give the copy that insertion wrote"
    )


def _restored_documents(documents: _T, manifest: Manifest) -> _T:
    """Documents in memory without their canaries, checked where there is a hash."""
    if is_read_later(documents):
        raise CorpusError(
            "documents that are read later are not in memory; give a Dataset, a frame or a list"
        )
    corpus, sha256 = corpus_of(documents, RowSchema.of(manifest)), manifest.corpus.sha256
    corpus.check_columns()
    cut = Cut(Placement(manifest.entries).inserted(), _changed)
    rest: Any = cut.part(corpus)[0]
    cut.finish()
    # A plain wrapping hashes all strings of a record, and its layout does not tell.
    in_chats = replace(rest, schema=replace(rest.schema, chat=True))
    if not sha256:
        _LOG.warning("not checked: the manifest has no hash of the documents before insertion")
    elif sha256 not in (Hashes.of(whole).total for whole in (rest, in_chats)):
        raise _changed(_NOT_BEFORE)
    restored: _T = rest.given
    return restored
