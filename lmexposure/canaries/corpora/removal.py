"""The way back: the corpus without its canaries, byte for byte, checked against the manifest."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lmexposure._files import atomic_directory, atomic_write, mode_like, new_file
from lmexposure.canaries.corpora.background import background_hash
from lmexposure.canaries.corpora.content import packed_writer
from lmexposure.canaries.corpora.restoring import Restorer
from lmexposure.canaries.corpora.rows import Rows, row_groups, row_writer
from lmexposure.canaries.corpora.shapes import Shape, shape_named
from lmexposure.canaries.corpora.shards import Sidecar, corpus_files, read_sidecars
from lmexposure.canaries.corpora.surveying import named_errors
from lmexposure.canaries.corpora.textfile import text_blocks
from lmexposure.canaries.insertion import schedule, text_line
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.placing import Placement
from lmexposure.errors import CorpusError


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What was taken out.

    Attributes:
        files: that were written.
        documents: how many were taken out of them.
        checked: whether the result has the hash of the corpus before insertion; False where the
            manifest has none.
    """

    files: tuple[Path, ...]
    documents: int
    checked: bool


def remove_from_files(
    sources: Sequence[str | Path], manifest: Manifest, out: str | Path
) -> Removal:
    """Write the corpus as it was before insertion.

    Where files have their sidecars, each is restored on its own, and one may be restored alone;
    otherwise all files of the corpus must be given. Of Parquet, the rows are as before; the bytes
    are those that this library's writer gives.

    Args:
        sources: files or patterns; what insertion wrote.
        manifest: of that insertion.
        out: for one file a file, or a directory that is there; for several a directory, new or
            empty.

    Raises:
        CorpusError: the corpus changed since, is not this manifest's, or lacks a file.
        FileError: the disk refused; nothing half-written is left.
    """
    paths, out = corpus_files(sources), Path(out)
    shape = shape_named(manifest.layout, text_field=manifest.corpus.text_field or "text")
    notes = read_sidecars(paths, manifest)
    tasks = list(_tasks(paths, manifest, shape, notes))
    mode = mode_like(*paths)
    if len(paths) > 1:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise CorpusError(f"{out} holds something already; choose a new or an empty directory")
        with atomic_directory(out, mode=mode) as unnamed:
            for task in tasks:
                task.write([unnamed / path.name for path in task.paths], mode)
        return _removal([out / path.name for path in paths], tasks)
    target = out / paths[0].name if out.is_dir() else out
    if target.exists() and target.samefile(paths[0]):
        raise CorpusError(f"{target} is the corpus itself; write to another file")
    with atomic_write(target, mode=mode) as stream:
        tasks[0].write([stream], mode)
    return _removal([target], tasks)


def _removal(files: Sequence[Path], tasks: Sequence["_Task"]) -> Removal:
    return Removal(
        files=tuple(files),
        documents=sum(task.restorer.removed for task in tasks),
        checked=all(task.sha256 for task in tasks),
    )


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Files that are restored and checked together.

    Attributes:
        paths: in their order.
        shape: what a document is.
        restorer: knows which of their documents to leave out.
        sha256: what their contents must have in the end; "" where nobody knows.
    """

    paths: Sequence[Path]
    shape: Shape
    restorer: Restorer
    sha256: str

    def write(self, targets: Sequence[Path | IO[bytes]], mode: int) -> None:
        with background_hash() as digest:
            for path, target in zip(self.paths, targets, strict=True):
                with named_errors(path), _opened(target, mode) as stream:
                    self.restorer.begin_file()
                    for hashed in self._pieces(path, stream):
                        digest.update(hashed)
            self.restorer.finish()
            if self.sha256 not in ("", digest.hexdigest()):
                raise CorpusError(
                    f"{self.paths[0]}: without its canaries the corpus is not what it was before "
                    "insertion: it changed since; give the copy that insertion wrote"
                )

    def _pieces(self, path: Path, stream: IO[bytes]) -> Iterator[bytes]:
        if isinstance(self.shape, Rows):
            with row_writer(stream, path) as write:
                for table in row_groups(path):
                    kept = self.restorer.kept_rows(table, self.shape.text_field)
                    write(kept)
                    texts = kept.column(self.shape.text_field).to_pylist()
                    yield b"".join(text_line(0, text) for text in texts)
            return
        with packed_writer(stream, path) as write:
            for block in text_blocks(path, checked=True):
                data = self.restorer.kept(block, self.shape)
                write(data)
                yield data


@contextmanager
def _opened(target: Path | IO[bytes], mode: int) -> Iterator[IO[bytes]]:
    if not isinstance(target, Path):
        yield target
        return
    with new_file(target, mode) as stream:
        yield stream


def _tasks(
    paths: Sequence[Path], manifest: Manifest, shape: Shape, notes: list[Sidecar] | None
) -> Iterator[_Task]:
    """With sidecars each file is a task of its own; without, all of them are one."""
    if notes is None:
        places = schedule(manifest.canaries)
        targets = [(place + before, canary) for before, (place, canary) in enumerate(places)]
        sha256 = manifest.corpus.sha256
        yield _Task(paths=paths, shape=shape, restorer=Restorer(targets), sha256=sha256)
        return
    placement = Placement(manifest.canaries)
    for path, note in zip(paths, notes, strict=True):
        first = note.copied.first_document
        places = placement.within(first, first + note.copied.documents)
        targets = [(place - first + n, canary) for n, (place, canary) in enumerate(places)]
        sha256 = note.copied.sha256
        yield _Task(paths=[path], shape=shape, restorer=Restorer(targets), sha256=sha256)
