"""Data sets that are read later: a stream of `datasets`, and rows of Ray Data on many machines."""

from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries.corpora.in_memory import check_constants
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.row_schema import check_columns
from lmexposure.canaries.rows import InsertionStep, check_numbers
from lmexposure.errors import CorpusError

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
    if options.get("wrapping") is None and not _is_of_chats(plan):  # the step looks at those
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


def _is_of_chats(plan: Plan | Manifest) -> bool:
    """Whether it is the manifest of canaries in chats."""
    return isinstance(plan, Manifest) and plan.corpus.wrapping is not None


def number_documents(dataset: Any, *, id_column: str = "document") -> Any:
    """A Ray data set with a column of document numbers, in the order in which its files were named.

    All rows are computed now and held in Ray's object store: where that is too much, write the
    numbers where the corpus is made. A shuffled data set would number other rows, and
    `ray.data.read_text` drops blank lines without `drop_empty_lines=False`.
    """
    import ray
    from ray.data import from_arrow_refs

    check_new_column(dataset, id_column)
    tables = _tables_in_order(dataset)
    rows = ray.remote(lambda table: table.num_rows)
    starts = accumulate(ray.get([rows.remote(table) for table in tables]), initial=0)
    number = ray.remote(with_numbers)
    return from_arrow_refs(
        [number.remote(*part, id_column) for part in zip(tables, starts, strict=False)]
    )


def check_new_column(dataset: Any, name: str) -> None:
    """Refuse a name that a column of the data set has."""
    if name in (dataset.columns() or []):
        raise CorpusError(f"there is a column {name!r} already; choose another id_column")


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


def _tables_in_order(dataset: Any) -> list[Any]:
    """References to the blocks, computed now; without the option they come as they are done."""
    options = dataset.context.execution_options
    kept, options.preserve_order = options.preserve_order, True
    try:
        return list(dataset.to_arrow_refs())
    finally:
        options.preserve_order = kept


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
