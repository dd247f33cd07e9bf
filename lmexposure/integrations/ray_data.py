"""Insertion into a Ray Data set, whose parts lie on many machines and keep no order."""

from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from lmexposure.canaries.engine_tables import (
    hash_sum,
    id_sums,
    insert_into_table,
    row_count,
    with_numbers,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.numbered_rows import InsertionStep, manifest_of_rows
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError

_NUMBERS_AT_ONCE = 1 << 20


def insert_into_ray(
    dataset: Any,
    plan: Plan | Manifest,
    *,
    id_column: str,
    documents: int | None = None,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    check_ids: bool = True,
) -> tuple[Any, Manifest]:
    """Insert the plan's canaries into a Ray data set, each as a row of its own.

    Args:
        dataset: a `ray.data.Dataset`; its rows may lie in any order and any number of blocks.
        plan: what to insert, or the manifest of an earlier insertion into the same rows.
        id_column: the column that holds each document's number, from 0 in the whole corpus, each
            once; `number_documents` makes one.
        documents: how many rows there are in all; with a manifest it may stay out.
        text_field: the column that holds the text.
        fields: constants for other columns of inserted rows; the rest is copied from the row that
            follows.
        check_ids: read the id column once, now, and refuse where a number is missing or there
            twice. Without it such rows go unseen, unless two stand in one batch.

    Returns:
        (a new data set, not yet computed; the manifest). Computing it raises, from a CorpusError,
        where a document holds a fill already or is no text.

    Raises:
        CorpusError: no such data set or column, no number of documents, or ids that are not each
            number once.
        ManifestError: a manifest of other documents or columns.
        PlanError: more repetitions than documents, or more secrets than a format has.
    """
    _check_kind(dataset)
    constants = dict(fields or {})
    manifest = manifest_of_rows(plan, documents=documents, text_field=text_field, fields=constants)
    step = InsertionStep(
        manifest=manifest, text_field=text_field, fields=constants, id_column=id_column
    )
    step.check_columns(dataset.columns() or [])
    if check_ids:
        _check_ids(dataset, id_column, manifest.corpus.documents)
    # Tables, since numpy batches would not keep the types of every column.
    inserted = dataset.map_batches(partial(insert_into_table, step=step), batch_format="pyarrow")
    return inserted, manifest


def number_documents(dataset: Any, *, id_column: str = "document") -> Any:
    """A Ray data set with a column of document numbers: 0, 1, 2, ... in the order of its source.

    Files are numbered in the order in which they were named, rows in that of their file, whatever
    the number of blocks. All rows are computed now and held in Ray's object store: where that is
    too much, write the numbers once, where the corpus is made. Note that `ray.data.read_text` drops
    blank lines unless told `drop_empty_lines=False`.

    Args:
        dataset: a `ray.data.Dataset` that was not shuffled: another order numbers other rows.
        id_column: a name for the column.

    Raises:
        CorpusError: no such data set, or it has this column already.
    """
    _check_kind(dataset)
    import ray
    from ray.data import from_arrow_refs

    if id_column in (dataset.columns() or []):
        raise CorpusError(f"there is a column {id_column!r} already; choose another id_column")
    tables = _tables_in_order(dataset)
    count, number = ray.remote(row_count), ray.remote(with_numbers)
    starts = accumulate(ray.get([count.remote(table) for table in tables]), initial=0)
    numbered: list[Any] = [
        number.remote(table, start, id_column) for table, start in zip(tables, starts, strict=False)
    ]
    return from_arrow_refs(numbered)


def _tables_in_order(dataset: Any) -> list[Any]:
    """References to the blocks, computed now; without the option they come as they are done."""
    options = dataset.context.execution_options
    kept, options.preserve_order = options.preserve_order, True
    try:
        return list(dataset.to_arrow_refs())
    finally:
        options.preserve_order = kept


def _check_kind(dataset: Any) -> None:
    try:
        from ray.data import Dataset
    except ImportError:
        raise CorpusError(
            "Ray Data is not installed; install the extra: pip install 'lmexposure[ray]'"
        ) from None
    if not isinstance(dataset, Dataset):
        raise CorpusError(f"{type(dataset).__name__} is no ray.data.Dataset")


def _check_ids(dataset: Any, id_column: str, documents: int) -> None:
    """Each number from 0 once, seen without gathering them: by their count and a sum of hashes."""
    batches = dataset.select_columns([id_column]).map_batches(
        partial(id_sums, id_column=id_column, documents=documents), batch_format="pyarrow"
    )
    parts = batches.take_all()
    for part in parts:
        if part["fault"]:
            raise CorpusError(part["fault"])
    count, total = (sum(int(part[name]) for part in parts) for name in ("count", "hashes"))
    if count != documents:
        raise CorpusError(
            f"there are {count} rows, but documents={documents}; count them again, or leave out "
            "what is not of this corpus"
        )
    expected = 0
    for start in range(0, documents, _NUMBERS_AT_ONCE):
        stop = min(start + _NUMBERS_AT_ONCE, documents)
        expected += hash_sum(np.arange(start, stop, dtype=np.uint64))
    if total % 2**64 != expected % 2**64:
        raise CorpusError(
            f"column {id_column!r} holds a number twice and lacks another; give each row its own, "
            f"from 0 to {documents - 1} (number_documents does)"
        )
