"""Canaries into Arrow tables and pandas frames: the batches of engines that spread a corpus.

An engine's worker needs this module and no more of the package, so neither torch nor `datasets`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.numbered_rows import InsertionStep, check_numbers
from lmexposure.errors import CorpusError


def insert_into_table(table: Any, step: InsertionStep) -> Any:
    """An Arrow table with its canary rows; every column keeps its type.

    Args:
        table: a `pyarrow.Table`, one batch of a corpus.
        step: it names the id column.

    Raises:
        CorpusError: see `InsertionStep`; a constant that is not of its column's type; or a type
            that pyarrow cannot rearrange.
    """
    import pyarrow as pa

    if not table.num_rows:
        return table
    step.check_columns(table.column_names)
    numbers = table.column(_id_column(step)).to_pylist()
    merge = step.merge(table.column(step.text_field).to_pylist(), numbers)
    if not merge.texts:
        return table
    rows = _taken(table, merge.neighbours)
    for name in (step.text_field, *step.fields):
        place = table.column_names.index(name)
        kind = table.schema.field(place)
        try:
            values = pa.array(step.added(name, merge, ()), type=kind.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            raise _unfit(name, kind.type) from None
        rows = rows.set_column(place, kind, values)
    return _taken(pa.concat_tables([table, rows]), merge.order)


def insert_into_pandas(
    frames: Iterable[Any],
    manifest: Manifest,
    *,
    id_column: str,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """Frames with their canary rows, one for each given: what Spark's `mapInPandas` calls.

    Args:
        frames: pandas data frames, batches of a corpus, in any order and of any size.
        manifest: of these rows; see `manifest_of_rows`.
        id_column: the column that holds the number of each document, from 0 in the whole corpus.
        text_field: the column that holds the text.
        fields: constants for other columns of inserted rows; the rest is copied from the row that
            follows.

    Raises:
        CorpusError: see `InsertionStep`; or a constant that is not of its column's type.
        ManifestError: the manifest is of other columns.
    """
    step = InsertionStep(
        manifest=manifest, text_field=text_field, fields=dict(fields or {}), id_column=id_column
    )
    for frame in frames:
        yield _into_frame(frame, step) if len(frame) else frame


def id_sums(table: Any, *, id_column: str, documents: int) -> dict[str, list[str]]:
    """One row about a batch of ids: how many, the sum of their hashes, and what is wrong with them.

    A fault is told, not raised: an engine would wrap the error in those of its own.

    Args:
        table: a `pyarrow.Table` with the id column.
        id_column: its name.
        documents: ids lie in [0, documents).
    """
    numbers = table.column(id_column).to_pylist()
    try:
        check_numbers(numbers, documents)
    except CorpusError as fault:
        return {"count": ["0"], "hashes": ["0"], "fault": [str(fault)]}
    hashes = hash_sum(np.array(numbers, dtype=np.uint64))
    # As text: an unsigned number of 64 bits fits no signed column.
    return {"count": [str(len(numbers))], "hashes": [str(hashes)], "fault": [""]}


def row_count(table: Any) -> int:
    """How many rows an Arrow table has."""
    return int(table.num_rows)


def with_numbers(table: Any, start: int, id_column: str) -> Any:
    """An Arrow table with one more column, which numbers its rows from `start`."""
    import pyarrow as pa

    numbers = pa.array(range(start, start + table.num_rows), type=pa.int64())
    return table.append_column(id_column, numbers)


def hash_sum(numbers: NDArray[np.uint64]) -> int:
    """The sum of the numbers' hashes modulo 2^64: alike for the same numbers in any order.

    Source: Steele, Lea and Flood 2014, the mixing function of SplitMix64.
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))


def _taken(table: Any, places: Sequence[int]) -> Any:
    import pyarrow as pa

    try:
        return table.take(places)
    except pa.ArrowNotImplementedError:
        kinds = ", ".join(f"{one.name}: {one.type}" for one in table.schema)
        raise CorpusError(
            f"pyarrow cannot rearrange rows of these types ({kinds}); cast views to large_string "
            "first"
        ) from None


def _into_frame(frame: Any, step: InsertionStep) -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    step.check_columns([str(name) for name in frame.columns])
    numbers: Sequence[int] = frame[_id_column(step)].tolist()
    merge = step.merge(frame[step.text_field].tolist(), numbers)
    if not merge.texts:
        return frame
    rows = frame.iloc[merge.neighbours].copy()
    for name in (step.text_field, *step.fields):
        added, kind = step.added(name, merge, ()), frame[name].dtype
        try:
            with warnings.catch_warnings(action="ignore"):  # what does not fit is refused below
                values = pd.Series(added, index=rows.index, dtype=kind)
        except (TypeError, ValueError, OverflowError):
            raise _unfit(name, kind) from None
        # pandas makes a missing value of what is no category, and True of any text.
        gone = any(n and one is not None for n, one in zip(values.isna(), added, strict=True))
        if gone or (str(kind) == "bool" and not isinstance(added[0], bool)):
            raise _unfit(name, kind)
        rows[name] = values
    return pd.concat([frame, rows]).iloc[merge.order].reset_index(drop=True)


def _id_column(step: InsertionStep) -> str:
    if step.id_column is None:
        raise CorpusError(
            "parts of a table keep no order, so each row must hold its document's number; name "
            "the id_column"
        )
    return step.id_column


def _unfit(name: str, kind: object) -> CorpusError:
    return CorpusError(
        f"the text or constant for column {name!r} is not of its type, {kind}; give another, or "
        "another type"
    )
