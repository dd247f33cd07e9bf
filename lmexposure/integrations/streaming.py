"""Insertion into a stream: a `datasets.IterableDataset`, which is never read as a whole."""

from collections.abc import Iterator
from typing import Any

from lmexposure.canaries.corpora.in_memory import check_constants
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.rows import InsertionStep
from lmexposure.errors import CorpusError

# Few, since each may be a book, and since what takes five rows should not wait for many.
_ROWS_AT_ONCE = 100


def insert_into_stream(dataset: Any, plan: Plan | Manifest, **options: Any) -> tuple[Any, Manifest]:
    """What `insert` does with a `datasets.IterableDataset`.

    Without an id column a document's number is its place in the stream as it is given. The result
    is then read front to back as one shard; `shuffle`, `take`, `skip`, `split_by_node` and loader
    workers may follow, and must not come before. With an id column rows may come in any order and
    from any shard, and the shards stay; rows that the stream drops take their canaries along, which
    `verify` over the result shows.

    Args:
        dataset: the stream.
        plan: what to insert, or the manifest of an earlier insertion.
        options: of `InsertionStep.of`.

    Returns:
        (a new IterableDataset, the manifest). Reading it raises CorpusError where a document holds
        a fill already or is no text, and at the end of the stream where `total` was wrong.

    Raises:
        CorpusError: no such column, a constant that is not of its column's type, or a stream that
            is shuffled or split already, without an id column; or as `InsertionStep.of`.
    """
    from datasets import IterableDataset

    step = InsertionStep.of(plan, **options)
    if dataset.column_names is not None:
        step.check_columns(dataset.column_names)
    if dataset.features is not None:
        check_constants(dataset.features, step.fields)
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
