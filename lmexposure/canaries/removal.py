"""The way back: the corpus without its canaries, byte for byte, checked against the manifest."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from lmexposure._files import atomic_directory, atomic_write, is_taken, mode_like, new_file
from lmexposure.canaries.corpora import IN_MEMORY
from lmexposure.canaries.corpora.files import FileCorpus, FileSource, corpus_files, layout_of
from lmexposure.canaries.corpora.in_memory import corpus_of, is_read_later
from lmexposure.canaries.insertion import Cut, Hashes, Placement
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.pipe import is_stream, spooled
from lmexposure.canaries.plan import Canary
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.sidecars import read_sidecars
from lmexposure.canaries.verification import file_names
from lmexposure.errors import CorpusError

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
