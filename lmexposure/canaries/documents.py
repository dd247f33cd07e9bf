"""Insertion into documents in memory, and into data sets that are read later, by one call.

A corpus on standard input is kept in a private file, and then is a file like any other.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BufferedIOBase, RawIOBase
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, made_directory, only_writer, sha256_file
from lmexposure._style import html
from lmexposure._written import remove
from lmexposure.canaries.copies import Files, Planned, Reading, insert_copies, listed_files
from lmexposure.canaries.corpora.in_memory import (
    STREAM,
    InMemory,
    check_constants,
    corpus_of,
    is_instance_of,
    is_read_later,
)
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import (
    Existing,
    Merge,
    Placement,
    Verification,
    check_inserted,
    constants_of,
    draw,
    same_hash,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.row_schema import RowSchema, check_columns
from lmexposure.canaries.rows import InsertionStep, check_numbers
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError, FileError, InputError, ResultError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_T = TypeVar("_T")


class Inserted(NamedTuple, Generic[_T]):
    """What an insertion gives: the documents with canaries among them, and what must be kept."""

    documents: _T  # of the kind that was given
    manifest: Manifest  # which canaries there are and where; it holds the secrets

    def __repr__(self) -> str:
        """Without the documents: the secrets are among them, and a notebook keeps what it shows."""
        return f"<Inserted: {self._what}, {self.manifest!r}>"

    def _repr_html_(self) -> str:
        return f"<p>Inserted: {html(self._what)}</p>{self.manifest._repr_html_()}"

    def __dir__(self) -> list[str]:
        """For the Tab key, without what every tuple has."""
        return list(self._fields)

    @property
    def _what(self) -> str:
        several = isinstance(self.documents, Sized) and not isinstance(self.documents, Mapping)
        many = f"{len(self.documents):,} documents in " if several else ""  # type: ignore[arg-type]
        return f"{many}a {type(self.documents).__name__}"


def insert(  # noqa: PLR0913 (a public door: each is an option of an insertion)
    documents: _T,
    plan: Plan | Manifest | None = None,
    *,
    wrapping: Wrapping | None = None,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
    total: int | None = None,
    id_column: str | None = None,
    **plan_fields: Any,
) -> Inserted[_T]:
    """Insert canaries among documents in memory, each as a document of its own.

    Args:
        documents: a list, a tuple or another iterable of texts; a list of records (dicts) with a
            text in each, or with chats, where `wrapping` says so; a pandas DataFrame; a
            `datasets.Dataset`, also of chats, or a DatasetDict, whose "train" split alone is
            changed; or what is read later: a `datasets.IterableDataset`, a `ray.data.Dataset`.
        plan: what to insert; or give its fields: `formats=["pin"], repetitions=(1, 16)`. For what
            is read later also the manifest of an earlier insertion into the same rows.
        wrapping: where in a record a canary goes: as a turn of a chat, or behind a prompt; also as
            a manifest says it, with the training's chat template. The manifest keeps it.
        text_field: of records and columns, the one that holds the text.
        fields: constants for other fields of inserted records; the rest is copied from the record
            that follows.
        existing: secrets of a format that a document holds already: "refuse", or "set_aside": never
            draw them, and say so in the manifest.
        total: how many documents there are in what is read later, where they cannot be counted.
        id_column: of what is read later, the column with each document's number, from 0.
        plan_fields: of `Plan`, in place of `plan`.

    Returns:
        (documents, manifest). A list for any iterable that is no tuple; the index of a frame begins
        anew. Hashes and secrets of chats are those of all the strings of a record together.

    Raises:
        CorpusError: no documents of these kinds, documents without text, secrets already there, a
            record that is no chat of texts (images, an unknown role, an empty turn), or constants
            that change what a template makes of the canaries' chats (tools, chat_template_kwargs).
        FormatError: a format that cannot be found or read.
        PlanError: a plan that cannot be, or that the documents or a format cannot hold.

    >>> texts, manifest = insert(["one", "two"], formats=["pin"], canaries=1, repetitions=(2,))
    >>> len(texts), len(manifest.canaries)
    (4, 1)
    """
    given: Any = plan
    if not is_read_later(documents):
        for name, value in (("total", total), ("id_column", id_column)):
            if value is not None:
                raise CorpusError(
                    f"{name}={value} is for a stream; leave it out: these are counted"
                )
        chosen = Plan.of(given, plan_fields)
        schema = RowSchema(text_field, constants_of(fields))
        if wrapping is not None:
            schema = RowSchema.around(wrapping, fields)
        return Inserted(*_insert(corpus_of(documents, schema), chosen, existing))
    again = isinstance(plan, Manifest) and not plan_fields
    known: Plan | Manifest = given if again else Plan.of(given, plan_fields)
    if existing != "refuse":
        raise CorpusError(
            "what a stream holds already is found while it is read, too late to set it aside; "
            "leave existing out, or give a Dataset"
        )
    if total is None and isinstance(known, Plan) and is_instance_of(documents, STREAM):
        raise CorpusError(
            "how many documents a stream has cannot be looked up, and that decides where canaries "
            "go; count them once, and give total"
        )
    inserter = insert_into_stream if is_instance_of(documents, STREAM) else insert_into_ray
    where: dict[str, Any] = {"text_field": text_field, "fields": fields, "id_column": id_column}
    where["wrapping"] = wrapping
    return Inserted(*inserter(documents, known, total=total, **where))


def _insert(corpus: InMemory, plan: Plan, existing: Existing) -> tuple[Any, Manifest]:
    """(Documents of the kind that was given, each canary a row of its own; the manifest)."""
    for name in sorted(corpus.schema.fields.keys() & corpus.schema.wrapped("")):
        raise CorpusError(f"fields must leave out the text column {name!r}: the canary goes there")
    corpus.schema.check_around(plan.hidden_formats)
    scan = scan_corpus(corpus, plan.hidden_formats)
    entries, set_aside = draw(plan, scan, existing, place=corpus.place)
    placement = Placement(entries)
    inserted: Any = Merge(placement).part(corpus)
    verification = Verification(scan, entries, placement)
    assert scan.hashes is not None, "there is a format"
    verification.source(inserted, same_hash(scan.hashes.total))
    # A wrapping may hold fills of its own.
    numbers = [number for number, _ in placement.inserted()]
    texts = zip((number + 1 for number in numbers), inserted.picked(numbers).texts, strict=True)
    check_inserted(entries, count_fills(plan.hidden_formats, texts, whole_lines=False), set_aside)
    return inserted.given, verification.manifest(plan, corpus.about(), set_aside)


# Few, since each may be a book, and since what takes five rows should not wait for many.
_ROWS_AT_ONCE = 100


def insert_into_stream(dataset: Any, plan: Plan | Manifest, **options: Any) -> tuple[Any, Manifest]:
    """What `insert` does with a `datasets.IterableDataset`.

    Without an id column a document's number is its place: `shuffle`, `take`, `split_by_node` and
    loader workers must follow, not come before. With one, rows and shards may come in any order,
    and rows that are dropped take their canaries along, which `verify` shows.
    """
    from datasets import IterableDataset

    step = InsertionStep.of(plan, **options)
    if dataset.column_names is not None:
        step.check_columns(dataset.column_names)
    if dataset.features is not None:
        check_constants(dataset.features, step.constants(dataset.features))
    bare = dataset.with_format(None)
    if step.id_column is None:
        _refuse_other_orders(dataset)
        rows = {"dataset": bare, "step": step}
        inserted = IterableDataset.from_generator(_rows, features=bare.features, gen_kwargs=rows)
    else:
        inserted = bare.map(step, batched=True, batch_size=_ROWS_AT_ONCE, features=bare.features)
    # with_format has no counterpart that tells.
    kept = getattr(dataset, "_formatting", None)
    return (inserted.with_format(kept.format_type) if kept else inserted), step.manifest


def _refuse_other_orders(dataset: Any) -> None:
    """What was shuffled or split has lost the order that numbers its documents."""
    if getattr(dataset, "_distributed", None) is not None:
        raise CorpusError(
            "the stream is split by node already, so places in it number no documents of the whole "
            "corpus; insert first and split then, or name an id_column"
        )
    waiting = [getattr(dataset, "_ex_iterable", None)]
    while waiting:
        examples = waiting.pop()
        if "Shuffle" in type(examples).__name__:
            raise CorpusError(
                "the stream is shuffled already, so places in it number no documents; insert first "
                "and shuffle then, or name an id_column"
            )
        inner = (getattr(examples, "ex_iterable", None), *getattr(examples, "ex_iterables", ()))
        waiting += [each for each in inner if each is not None]


def _rows(dataset: Any, step: InsertionStep) -> Iterator[dict[str, Any]]:
    start, total = 0, step.manifest.corpus.documents
    # In a loader worker, iter(dataset) gives a share of the shards, but batches come from all.
    for batch in dataset.iter(batch_size=_ROWS_AT_ONCE):
        length = len(next(iter(batch.values())))
        merged = step.numbered(batch, range(start, start + length))
        start += length
        for values in zip(*merged.values(), strict=True):
            yield dict(zip(merged, values, strict=True))
    if start != total:
        raise CorpusError(
            f"the stream ended after {start} documents, but total={total}; canaries are missing: "
            "count the documents again and insert anew"
        )


_NUMBERS_AT_ONCE = 1 << 20


def insert_into_ray(
    dataset: Any,
    plan: Plan | Manifest,
    *,
    total: int | None = None,
    id_column: str | None = None,
    check_ids: bool = True,
    **options: Any,
) -> tuple[Any, Manifest]:
    """What `insert` does with a `ray.data.Dataset`."""
    columns = dataset.columns() or []
    is_of_chats = isinstance(plan, Manifest) and plan.corpus.wrapping is not None
    if options.get("wrapping") is None and not is_of_chats:  # the step looks at those
        check_columns(columns, [options.get("text_field", "text"), *(options.get("fields") or ())])
    check_columns(columns, [id_column] if id_column else [])
    number = id_column or "document"
    if id_column is None:
        while number in columns:
            number += "_"
        dataset = number_documents(dataset, id_column=number)
    if total is None and not (id_column and isinstance(plan, Manifest)):
        total = dataset.count()
    step = InsertionStep.of(plan, total=total, id_column=number, **options)
    step.check_columns(dict.fromkeys([*columns, number]))
    if check_ids or id_column is None:
        _check_ids(dataset, number, step.manifest.corpus.documents)
    # Tables, since numpy batches would not keep the types of every column.
    inserted = dataset.map_batches(step, batch_format="pyarrow")
    return (inserted if id_column else inserted.drop_columns([number])), step.manifest


def number_documents(dataset: Any, *, id_column: str = "document") -> Any:
    """A Ray data set with a column of document numbers, in the order in which its files were named.

    All rows are computed now and held in Ray's object store: where that is too much, write the
    numbers where the corpus is made. A shuffled data set would number other rows, and
    `ray.data.read_text` drops blank lines without `drop_empty_lines=False`.
    """
    import ray
    from ray.data import from_arrow_refs

    if id_column in (dataset.columns() or []):
        raise CorpusError(f"there is a column {id_column!r} already; choose another id_column")
    options = dataset.context.execution_options
    kept, options.preserve_order = options.preserve_order, True  # else they come as they are done
    try:
        tables = list(dataset.to_arrow_refs())
    finally:
        options.preserve_order = kept
    rows = ray.remote(lambda table: table.num_rows)
    starts = accumulate(ray.get([rows.remote(table) for table in tables]), initial=0)
    number = ray.remote(with_numbers)
    return from_arrow_refs(
        [number.remote(*part, id_column) for part in zip(tables, starts, strict=False)]
    )


def with_numbers(table: Any, start: int, id_column: str) -> Any:
    """An Arrow table with one more column, which numbers its rows from `start`."""
    import pyarrow as pa

    numbers = pa.array(range(start, start + table.num_rows), type=pa.int64())
    return table.append_column(id_column, numbers)


def id_sums(table: Any, *, id_column: str, total: int) -> dict[str, list[str]]:
    """One row about a batch of ids: their number, the sum of their hashes, and what is wrong."""
    numbers = table.column(id_column).to_pylist()
    try:
        check_numbers(numbers, total)
    except CorpusError as fault:
        return {"count": ["0"], "hashes": ["0"], "fault": [str(fault)]}
    hashes = hash_sum(np.array(numbers, dtype=np.uint64))
    # As text: an unsigned number of 64 bits fits no signed column.
    return {"count": [str(len(numbers))], "hashes": [str(hashes)], "fault": [""]}


def hash_sum(numbers: NDArray[np.uint64]) -> int:
    """The sum of the numbers' hashes modulo 2^64: alike for the same numbers in any order.

    Source: Steele, Lea and Flood 2014, the mixing function of SplitMix64.
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))


def _check_ids(dataset: Any, id_column: str, total: int) -> None:
    """Each number from 0 once, seen without gathering them: by their count and a sum of hashes."""
    batches = dataset.select_columns([id_column]).map_batches(
        partial(id_sums, id_column=id_column, total=total), batch_format="pyarrow"
    )
    parts = batches.take_all()
    for part in parts:
        if part["fault"]:
            raise CorpusError(part["fault"])
    count, found = (sum(int(part[name]) for part in parts) for name in ("count", "hashes"))
    if count != total:
        raise CorpusError(
            f"there are {count} rows, but total={total}; count them again, or leave out what is "
            "not of this corpus"
        )
    spans = (range(start, total)[:_NUMBERS_AT_ONCE] for start in range(0, total, _NUMBERS_AT_ONCE))
    expected = sum(hash_sum(np.array(span, dtype=np.uint64)) for span in spans)
    if found % 2**64 != expected % 2**64:
        raise CorpusError(
            f"column {id_column!r} holds a number twice and lacks another; give each row its own, "
            f"from 0 to {total - 1}, or leave id_column out"
        )


SPOOL = "standard_input"  # the name of the file
_EMPTY = hashlib.sha256().hexdigest()


def is_stream(corpus: object) -> "TypeIs[IO[bytes]]":
    """Whether a corpus is a stream that is open for reading bytes, and no names of files."""
    return isinstance(corpus, RawIOBase | BufferedIOBase)


def refuse_inserted(out: Path) -> None:
    """Refuse, before standard input is read, a directory that holds a manifest."""
    if (out / "manifest.json").exists():
        raise ResultError(f"{out / 'manifest.json'} is there already; choose another directory")


def _keep(stream: IO[bytes], spool: Path) -> None:
    with made_directory(spool.parent), atomic_write(spool, mode=PRIVATE) as file:
        shutil.copyfileobj(stream, file)


@contextmanager
def spooled(corpus: Files | IO[bytes]) -> Iterator[list[str | Path]]:
    """The names of a corpus' files; a stream is one until the block ends, which errors call so."""
    if not is_stream(corpus):
        yield listed_files(corpus)
        return
    with TemporaryDirectory() as home:
        spool = Path(home) / SPOOL
        _keep(corpus, spool)
        try:
            yield [spool]
        except InputError as failure:
            _say_of_stream(failure, spool)
            raise


def _say_of_stream(failure: InputError, spool: Path) -> None:
    """Name standard input in place of a file that goes."""
    failure.args = (str(failure).replace(str(spool), "standard input"),)


@contextmanager
def kept_input(corpus: Files | IO[bytes], out: Path) -> Iterator[list[str | Path]]:
    """The same of a run, which keeps the file, and goes on with the same stream or an empty one."""
    if not is_stream(corpus):
        yield listed_files(corpus)
        return
    spool = out / "source" / SPOOL
    is_new = not spool.exists()
    if is_new:
        refuse_inserted(out)
        _keep(corpus, spool)
    elif hashlib.file_digest(corpus, "sha256").hexdigest() not in (_EMPTY, sha256_file(spool)):  # type: ignore[arg-type]
        raise ResultError(
            f"{spool} is the copy of another standard input; choose another directory"
        )
    try:
        yield [spool]
    except InputError as failure:
        if is_new and not (out / "manifest.json").exists():  # a corpus of no use
            remove(spool.parent)
            _say_of_stream(failure, spool)
        raise


def insert_through(
    corpus: Files | IO[bytes], target: IO[bytes], out: Path, planned: Planned, reading: Reading
) -> Manifest:
    """Write one file with canaries in it to a stream, and the manifest once that took it all."""
    with only_writer(out), spooled(corpus) as (spool,), TemporaryDirectory() as home:
        refuse_inserted(out)
        manifest = insert_copies([spool], Path(home), planned, reading)
        try:
            with Path(home, "corpus", Path(spool).name).open("rb") as written:
                shutil.copyfileobj(written, target)
            target.flush()
        except OSError as failure:
            raise FileError(  # without its number: Click says nothing of a pipe that was closed
                f"cannot write the corpus: {failure.strerror or failure}; what was written must be "
                "thrown away"
            ) from failure
        manifest = replace(manifest, corpus=replace(manifest.corpus, name=""))
        manifest.write(out / "manifest.json")
    return manifest
