"""Older names and signatures, kept for one version: the same work by the calls of today.

The faces of this room and of `integrations` warn whoever asks for one of them and say what to call
instead. Options that are not named here are those of the call of today.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from lmexposure._files import disk_errors
from lmexposure.canaries import LAYOUTS, verification
from lmexposure.canaries.copies import Reading, insert_files
from lmexposure.canaries.corpora import streams
from lmexposure.canaries.corpora.files import FileCorpus, FileLayout, layout_named, packing
from lmexposure.canaries.documents import insert
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import check_inserted
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.pipe import insert_through
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.removal import remove_from_files
from lmexposure.canaries.rows import InsertionStep
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError

__all__ = ["insert_files", "remove_from_files"]
Shape = FileLayout
insert_into_dataset = insert_into_texts = insert


def dataset_texts(dataset: Any, text_field: str) -> Iterator[Any]:
    """The column of a data set, row by row."""
    for rows in dataset.with_format(None).select_columns([text_field]).iter(batch_size=1000):
        yield from rows[text_field]


def insert_into_file(
    corpus_path: str | Path, plan: Plan, out_path: str | Path, **options: Any
) -> Manifest:
    """What `insert_files` does, for one file, under the name of another, and without sidecar."""
    source, out = Path(corpus_path), Path(out_path)
    if out.exists() and source.exists() and out.samefile(source):
        raise CorpusError(f"{out} is the corpus itself; write to another file")
    if packing(out) != packing(source):
        raise CorpusError(f"{out.name} would be packed otherwise than {source.name}; rename it")
    with _beside(out) as here:
        manifest = insert_files(source, here, plan, **options)
        (here / "corpus" / source.name).replace(out)
    return manifest


def insert_into_files(
    sources: Sequence[str | Path], plan: Plan, out: str | Path, **options: Any
) -> Manifest:
    """What `insert_files` does, with the copies in `out` itself, and without manifest.json."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out} holds something already; choose a new or an empty directory")
    with _beside(out) as here:
        manifest = insert_files(sources, here, plan, **_of_today(**options))
        (here / "corpus").replace(out)
    return manifest


def insert_into_pipe(source: IO[bytes], out: IO[bytes], plan: Plan, **options: Any) -> Manifest:
    """What `lmexposure insert -` does, without a directory and so without going on after a kill."""
    with TemporaryDirectory() as made:
        reading = Reading(**_of_today(**options))
        return insert_through(source, out, Path(made), lambda before: plan, reading)


def _of_today(*, shape: FileLayout, documents: int | None = None, **options: Any) -> dict[str, Any]:
    named = {"layout": shape.name, "text_field": shape.text_field or "text"}
    return {**named, "fields": shape.fields, "total": documents, **options}


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
            yield Path(made)


def verify_texts(texts: Iterable[str], manifest: Manifest) -> None:
    """Refuse texts in which not all is as it was inserted; `verify` counts instead."""
    found = count_fills(manifest.plan.formats, enumerate(texts, 1), whole_lines=False)
    check_inserted(manifest.entries, found, manifest.set_aside)


def verify_file(path: str | Path, manifest: Manifest) -> None:
    """Refuse a file in which not all is as it was inserted; `verify` counts instead."""
    layout = layout_named(manifest.layout, text_field=manifest.corpus.text_field or "text")
    found = verification.count_fills_in(FileCorpus([Path(path)], layout).sources, manifest)
    check_inserted(manifest.entries, found, manifest.set_aside)


def count_files(
    sources: Sequence[str | Path], manifest: Manifest, *, shape: FileLayout
) -> verification.CorpusCount:
    """What `verify` does, for files whose layout is known."""
    return verification.count_files(sources, manifest, layout=shape)


def corpus_sha256(path: str | Path, shape: FileLayout) -> str:
    """The hash of a corpus as `manifest.corpus.sha256` has it."""
    return FileCorpus([Path(path)], shape).sha256()


def separator_of(layout: str) -> str | None:
    """What `layout_named(layout).separator` is; None also for what is no file."""
    return layout_named(layout).separator if layout in LAYOUTS else None


def manifest_of_rows(
    plan: Plan | Manifest,
    *,
    documents: int | None = None,
    text_field: str = "text",
    fields: Collection[str] = (),
) -> Manifest:
    """What `InsertionStep.of(plan, total=documents).manifest` is."""
    constants = dict.fromkeys(fields)
    return InsertionStep.of(plan, total=documents, text_field=text_field, fields=constants).manifest


def insert_into_pandas(
    frames: Iterable[Any], manifest: Manifest, *, id_column: str, **options: Any
) -> Iterator[Any]:
    """What `map(InsertionStep.of(manifest, id_column=...), frames)` is."""
    return map(InsertionStep.of(manifest, id_column=id_column, **options), frames)


def insert_into_table(table: Any, step: InsertionStep) -> Any:
    """What `step(table)` is."""
    return step(table)


def insert_into_records(
    records: Sequence[Mapping[str, Any]], plan: Plan, wrapping: Wrapping, **options: Any
) -> tuple[list[Any], Manifest]:
    """What `insert(records, plan, wrapping=wrapping)` gives."""
    return insert(list(records), plan, wrapping=wrapping, **options)


def insert_into_stream(
    dataset: Any, plan: Plan | Manifest, *, documents: int | None = None, **options: Any
) -> tuple[Any, Manifest]:
    """What `insert(dataset, plan, total=documents)` gives."""
    return insert(dataset, plan, total=documents, **options)


def insert_into_ray(
    dataset: Any, plan: Plan | Manifest, *, documents: int | None = None, **options: Any
) -> tuple[Any, Manifest]:
    """What `insert(dataset, plan, total=documents)` gives; there, ids are always checked."""
    return streams.insert_into_ray(dataset, plan, total=documents, **options)


def number_documents(dataset: Any, *, id_column: str = "document") -> Any:
    """A Ray data set with a column more, 0, 1, 2, ... in the order of its source."""
    streams.check_new_column(dataset, id_column)
    return streams.number_documents(dataset, id_column=id_column)
