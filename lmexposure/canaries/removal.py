"""The way back: the corpus without its canaries, byte for byte, checked against the manifest."""

import glob
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from lmexposure._files import PRIVATE, atomic_directory, atomic_write, is_taken, mode_like, new_file
from lmexposure.canaries.copies import listed_files, read_sidecars
from lmexposure.canaries.corpora.files import (
    FileCorpus,
    FileLayout,
    FileSource,
    corpus_files,
    layout_of,
)
from lmexposure.canaries.corpora.in_memory import InMemory, are_paths, corpus_of, is_read_later
from lmexposure.canaries.insertion import Cut, Hashes, Part, Placement
from lmexposure.canaries.layouts import IN_MEMORY
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.pipe import StreamSource, is_stream, stream_layout
from lmexposure.canaries.plan import Canary
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.verification import file_names
from lmexposure.errors import CorpusError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Source = FileSource | StreamSource


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What was taken out.

    Attributes:
        files: that were written.
        documents: how many were taken out of them.
        checked: whether the result has the hash of the corpus before insertion, which for tables is
            that of their texts; False where the manifest has none.
    """

    files: tuple[Path, ...]
    documents: int
    checked: bool


def remove_from_files(
    sources: Sequence[str | Path], manifest: Manifest, out: str | Path
) -> Removal:
    """Write the corpus as it was before insertion.

    Where files have their sidecars, each is restored on its own, and one may be restored alone;
    otherwise all files of the corpus must be given. Of tables, the rows are as before; the bytes
    are those that this library's writer gives. `out` of one file may also be a pipe.

    Raises:
        CorpusError, FileError: as `lmexposure.remove`.
    """
    paths, out = corpus_files(sources), Path(out)
    _check_of_files(manifest)
    layout = layout_of(manifest, paths, name=manifest.layout)
    if len(paths) == 1:
        target = _free(out, paths[0])
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out} holds something already; choose a new or an empty directory")
    mode = mode_like(*paths)
    corpus = FileCorpus(paths, layout)
    tasks = _tasks(corpus, manifest)
    if len(paths) == 1:
        return _restored_alone(corpus.sources[0], layout, tasks[0], target, mode)
    with atomic_directory(out, mode=mode) as unnamed:
        for source, task in zip(corpus.sources, tasks, strict=True):
            with new_file(unnamed / source.path.name, mode) as stream:
                task.write(source, layout, stream)
    different = set(tasks)  # all files may share a task
    return Removal(
        files=tuple(out / path.name for path in paths),
        documents=sum(task.removed for task in different),
        checked=all(task.sha256 for task in different),
    )


def remove_from_stream(source: IO[bytes], manifest: Manifest, out: str | Path) -> Removal:
    """The same for text in a stream, read once; nothing is written before all is checked."""
    corpus = manifest.corpus
    _check_of_files(manifest)
    schema = None if corpus.wrapping is None else RowSchema.of(manifest)
    layout = stream_layout(manifest.layout, corpus.text_field or "text", schema=schema)
    stream = StreamSource(source, layout)
    task = Restoration(stream.name, Placement(manifest.entries).inserted(), corpus.sha256)
    return _restored_alone(stream, layout, task, _free(Path(out), stream.path), PRIVATE)


def _check_of_files(manifest: Manifest) -> None:
    if manifest.layout in IN_MEMORY:
        raise CorpusError(
            "these canaries went into documents in memory: load the file as such, and give that to "
            "lmexposure.remove"
        )


def _restored_alone(
    source: _Source, layout: FileLayout, task: "Restoration", target: Path, mode: int
) -> Removal:
    """One file, which appears when it is checked."""
    with atomic_write(target, mode=mode) as stream:
        task.write(source, layout, stream)
    return Removal(files=(target,), documents=task.removed, checked=bool(task.sha256))


def _free(out: Path, source: Path) -> Path:
    """A name under which nothing is replaced: `out`, or that of the source in this directory."""
    target = out / source.name if out.is_dir() else out
    if is_taken(target):
        raise CorpusError(f"{target} is there already; choose another name")
    return target


class Restoration(Cut):
    """The parts of some files, restored and checked together.

    Args:
        name: what messages call the first file.
        targets: see `Cut`.
        sha256: what the rest must have in the end; "" where that is not known.
        files: how many these are.
        shard: this may be one of several files, which the manifest knows together.
    """

    def __init__(
        self,
        name: str,
        targets: Sequence[tuple[int, Canary]],
        sha256: str,
        *,
        files: int = 1,
        shard: bool = False,
    ) -> None:
        alone = ", or is one file of several without its sidecar" * shard
        super().__init__(targets, partial(_changed, f"the corpus changed since insertion{alone}"))
        self.sha256, self._files, self._name = sha256, files, name
        self._rest = Hashes(several=files > 1)

    def write(self, source: _Source, layout: FileLayout, stream: IO[bytes]) -> None:
        """Write the next file without its canaries."""
        with source.guarded(), layout.writer(stream, source.path) as write:
            for part in source.parts(known=True):
                write(self.rest(part))
        self.end_file()

    def rest(self, part: Part) -> Part:
        """This part without its canaries."""
        rest, _ = self.part(part)
        self._rest.update(rest.content)
        return rest

    def end_file(self) -> None:
        """A file has passed; after the last of them all is checked."""
        self._rest.end_file()
        if len(self._rest.files) < self._files:
            return
        self.finish()
        if self.sha256 not in ("", self._rest.total):
            raise CorpusError(
                f"{self._name}: without its canaries the corpus is not what it was before "
                "insertion: it changed since; give the copy that insertion wrote"
            )


def _changed(reason: str, what: str) -> CorpusError:
    return CorpusError(
        f"{what}, which the manifest says is there: {reason}; give the copy that insertion wrote"
    )


def _tasks(corpus: FileCorpus, manifest: Manifest) -> list[Restoration]:
    """Of each file; with sidecars each is a task of its own, without, all of them are one."""
    placement, sources = Placement(manifest.entries), corpus.sources
    notes = read_sidecars([source.path for source in sources], manifest)
    if notes is None:
        name, whole = sources[0].name, placement.inserted()
        shard = len(sources) == 1 and not manifest.corpus.name
        sha256 = manifest.corpus.sha256
        task = Restoration(name, whole, sha256, files=len(sources), shard=shard)
        return [task] * len(sources)
    tasks = []
    for source, note in zip(sources, notes, strict=True):
        first, sha256 = note.copied.first_document, note.copied.sha256
        targets = placement.inserted(first, first + note.copied.documents)
        tasks.append(Restoration(source.name, targets, sha256))
    return tasks


@overload
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path) -> Removal: ...
@overload
def remove(corpus: _T, manifest: Manifest | str | Path, out: None = None) -> _T: ...
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path | None = None) -> Any:
    """Give a corpus as it was before insertion, and check that it is.

    A manifest of a stream, of Ray or of a step has no hash to check against: then nothing but the
    canaries is checked, and the log warns of it, or `Removal.checked` is False.

    Args:
        corpus: what insertion wrote: a file, several, or patterns; a stream of text, open for
            reading bytes; or documents in memory, as `insert` gave them.
        manifest: of the insertion, or its path.
        out: for one file a new file or a directory that is there; for several a directory, new or
            empty; None: the documents are in memory.

    Returns:
        documents of the same kind; or of files those that were written, how many documents were
        taken out, and whether the result has the hash of the corpus before insertion.

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
    if is_stream(corpus):
        return remove_from_stream(corpus, known, out)
    if not isinstance(corpus, str | Path) and not _are_there(corpus):
        raise CorpusError(  # shows no name: texts hold secrets
            "documents in memory need no out; leave it out, or give names of files that are there"
        )
    return remove_from_files(listed_files(corpus), known, out)


def _are_there(corpus: Any) -> bool:
    """Whether it lists paths, which a message may show, and what names files that are there."""
    return isinstance(corpus, list | tuple) and all(
        isinstance(name, Path)
        or are_paths([name])
        or (isinstance(name, str) and bool(glob.glob(name, recursive=True)))
        for name in corpus
    )


def _restored_documents(documents: _T, manifest: Manifest) -> _T:
    """Documents in memory as they were before insertion, and checked where there is a hash.

    Raises:
        CorpusError: they changed since, or are not in memory.
    """
    if is_read_later(documents):
        raise CorpusError(
            "documents that are read later are not in memory; give a Dataset, a frame or a list"
        )
    known = RowSchema.of(manifest)
    # A plain wrapping hashes all strings of a record, too, and its layout does not tell.
    alone = known.chat or manifest.layout != "dataset"
    both = [known] if alone else [known, replace(known, chat=True)]
    failures = []
    for schema in both:
        try:
            restored: _T = _without_canaries(corpus_of(documents, schema), manifest)
        except CorpusError as failure:
            failures.append(failure)
        else:
            if not manifest.corpus.sha256:
                _LOG.warning(
                    "the manifest has no hash of the documents before insertion, so it was not "
                    "checked that the rest is what they were"
                )
            return restored
    raise failures[0]


def _without_canaries(corpus: InMemory, manifest: Manifest) -> Any:
    """The documents as they were before insertion.

    Raises:
        CorpusError: they changed since, or are not this manifest's.
    """
    targets = Placement(manifest.entries).inserted()
    restoration = Restoration("the documents", targets, manifest.corpus.sha256)
    for part in corpus.parts():
        restoration.rest(part)
    restoration.end_file()
    rest, _ = corpus.without([number for number, _ in targets])
    return rest.given
