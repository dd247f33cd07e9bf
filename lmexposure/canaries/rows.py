"""Canaries into any batch of numbered rows: what streams and engines call, wherever a batch is.

A step knows the manifest and nothing of other batches, so a corpus may be cut into them in any way.
What a step does needs neither torch nor `datasets`, so that workers of engines start quickly.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from lmexposure._validate import integer, of_type
from lmexposure.canaries.corpora.in_memory import Frame, InMemory, is_instance_of, records_of
from lmexposure.canaries.corpora.tables import TableLayout, TablePart
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import Placement, constants_of, manifest_of
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.row_schema import RowSchema, check_columns
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError, ManifestError, PlanError

_Batch = TypeVar("_Batch")


@dataclass(frozen=True, kw_only=True)
class InsertionStep:
    """Puts canary rows before their documents, batch by batch; it can be pickled.

    A batch is columns by name, a pyarrow Table or RecordBatch, or a DataFrame. For `datasets`:
    `dataset.map(step, batched=True, with_indices=True)`, also with `num_proc`, or without indices
    where an id column is named; for Ray `dataset.map_batches(step, batch_format="pyarrow")`; for
    Spark `df.mapInPandas(lambda frames: map(step, frames), df.schema)`. Of a DatasetDict map the
    train split alone: each split would count from 0 and take canaries in. An IterableDataset counts
    anew in every loader worker and node: there name an id column, or use `lmexposure.insert`.

    What one batch cannot show, the step cannot refuse: rows that are missing, or that come twice in
    different batches. `verify` over the result does.

    Raises:
        CorpusError: constants for the text column.
        ManifestError: the manifest is of other columns.

    >>> plan = Plan(formats=["pin"], canaries=1, repetitions=[3], controls=0, seed=7)
    >>> step = InsertionStep.of(plan, total=3, id_column="id")
    >>> step({"id": [2, 0], "text": ["the last", "the first"]})["id"]
    [2, 2, 0, 0]
    """

    manifest: Manifest
    """Of these rows."""
    text_field: str = "text"
    """The column that holds the text; where the manifest says in which turn of a chat a canary is,
    that place, and all strings of a row are its text.
    """
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Constants for other columns of inserted rows; the rest is copied from the row that follows.
    """
    id_column: str | None = None
    """The column that holds the number of each document, from 0 in the whole corpus; None: the
    numbers come with the batch.
    """

    @classmethod
    def of(
        cls,
        plan: Plan | Manifest,  # or the manifest of an earlier insertion into the same rows
        *,
        total: int | None = None,  # rows in all; of a manifest it is known
        text_field: str = "text",
        fields: Mapping[str, Any] | None = None,
        id_column: str | None = None,
        wrapping: Wrapping | None = None,
    ) -> Self:
        """The step of an insertion into rows that are never read as a whole."""
        of_type("plan", plan, (Plan, Manifest), "a Plan or a Manifest", error=PlanError)
        constants = constants_of(fields)
        schema = RowSchema(text_field, constants)
        if wrapping is not None:
            schema = RowSchema.around(wrapping, constants)
        if isinstance(plan, Manifest):
            documents = plan.corpus.documents
            _check_same("total", documents if total is None else total, documents)
            if wrapping is not None:
                _check_same("wrapping", schema.record, plan.corpus.wrapping)
            manifest = plan
        elif total is None:
            raise CorpusError(
                "the number of documents decides where canaries go, and the corpus is not read "
                "as a whole here: count its rows and give total"
            )
        else:
            schema.check_around(plan.formats)
            documents = integer("total", total, low=1, error=CorpusError)
            manifest = manifest_of(plan, schema.about(), documents=documents)
        return cls(manifest=manifest, text_field=text_field, fields=constants, id_column=id_column)

    def __post_init__(self) -> None:
        constants_of(self.fields)
        corpus = self.manifest.corpus
        if corpus.wrapping is not None and self.text_field == "text":
            object.__setattr__(self, "text_field", corpus.text_field)
        if self.text_field in self.fields:
            raise CorpusError(
                f"fields must leave out the text column {self.text_field!r}: the canary goes there"
            )
        _check_same("text_field", self.text_field, corpus.text_field)
        _check_same("fields", sorted(self.fields), sorted(corpus.constant_fields))

    def __call__(self, batch: _Batch, numbers: Sequence[int] | None = None) -> _Batch:
        """The batch with its canary rows; where an id column is named, `numbers` are not read."""
        if self.id_column is None:
            if numbers is None:
                raise CorpusError(
                    "the step was given no document numbers; map with with_indices=True, or name "
                    "an id_column, for parts of a table keep no order"
                )
            # Looked up, not imported: where torch is not loaded there are no loader workers.
            data = sys.modules.get("torch.utils.data")
            worker = data.get_worker_info() if data else None
            if worker is not None and worker.num_workers > 1:
                raise CorpusError(
                    "several loader workers each count their rows from 0, so no document has its "
                    "number; use insert, an id_column, or at most one worker"
                )
        return self.numbered(batch, () if numbers is None else numbers)

    def numbered(self, batch: _Batch, numbers: Sequence[int]) -> _Batch:
        """What a call does, also in a loader worker that was given all rows."""
        if is_instance_of(batch, "pyarrow.RecordBatch"):
            import pyarrow as pa

            table = self.numbered(pa.Table.from_batches([batch]), numbers)
            arrays = [column.combine_chunks() for column in table.columns]
            return pa.RecordBatch.from_arrays(arrays, schema=table.schema)  # type: ignore[no-any-return]
        columns = _columns_of(batch)
        if not isinstance(batch, Mapping) and not len(batch):  # type: ignore[arg-type]
            return batch  # it may have no columns
        # Also those that are there twice.
        names: Any = getattr(batch, "column_names", getattr(batch, "columns", batch))
        self.check_columns(columns if isinstance(batch, Mapping) else names)
        if self.id_column is not None:
            numbers = columns[self.id_column]
        of_type("numbers", numbers, Iterable, "a number for each row", error=CorpusError)
        numbers = list(_listed(numbers))
        check_numbers(numbers, self.manifest.corpus.documents)
        rows = len(next(iter(columns.values())))
        if len(numbers) != rows:
            raise CorpusError(
                f"the batch has {rows} rows and {len(numbers)} numbers; give a number for each row"
            )
        self._check(self._texts(columns, numbers), numbers)
        before = map(self._placement.before, numbers)
        added = [(row, canary.text) for row, canaries in enumerate(before) for canary in canaries]
        merged: _Batch = self._merged(batch, added)
        return merged

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse rows without the text, the ids, or a column that constants are given for."""
        listed = list(names)
        if self._schema.chat:
            self._schema.check_columns(listed)
        else:
            check_columns(listed, [self.text_field, *self.fields])
        check_columns(listed, [] if self.id_column is None else [self.id_column])

    def constants(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Values that a data set with these columns must hold, before any of it is read."""
        schema = self._schema
        return schema.written("", names) if schema.chat else self.fields

    @cached_property
    def _schema(self) -> RowSchema:
        """What of a row is its text."""
        wrapping = self.manifest.corpus.wrapping
        if wrapping is None:
            return RowSchema(self.text_field, self.fields)
        return replace(RowSchema.around(wrapping, self.fields), place="document")

    @cached_property
    def _placement(self) -> Placement:
        return Placement(self.manifest.entries)

    def _merged(self, batch: Any, added: Sequence[tuple[int, str]]) -> Any:
        """The batch with rows more: (row that a copy goes before, from 0; text of the copy)."""
        part: Any
        if is_instance_of(batch, "pyarrow.Table"):
            part = TablePart(batch, TableLayout(schema=self._schema)).merged(added).part
            # In one piece, since each slice is pickled with all of the table that it is of.
            return part.rows.combine_chunks() if added else batch
        schema = self._schema
        if is_instance_of(batch, "pandas.DataFrame"):
            part = Frame(batch, schema).merged(added).part
            return part.rows if added else batch
        columns = _columns_of(batch)
        part = InMemory(list(records_of(columns)), schema).merged(added).part
        return {name: [row[name] for row in part.rows] for name in columns}

    def _texts(self, columns: Mapping[str, Any], numbers: Sequence[int]) -> Sequence[Any]:
        """The text of each row; of chats that are none, a refusal."""
        if not self._schema.chat:
            texts: Sequence[Any] = _listed(columns[self.text_field])
            return texts
        rows = records_of({name: _listed(column) for name, column in columns.items()})
        return [self._schema.text(n, row) for n, row in zip(numbers, rows, strict=True)]

    def _check(self, texts: Sequence[Any], numbers: Sequence[int]) -> None:
        for text, number in zip(texts, numbers, strict=True):
            if not isinstance(text, str):
                raise CorpusError(
                    f"document {number} is of type {type(text).__name__}, not a string; name the "
                    "column that holds the text, or leave such rows out"
                )
        pairs = zip(map(int, numbers), texts, strict=True)
        found = count_fills(self.manifest.plan.hidden_formats, pairs, whole_lines=False)
        for name, fills in found.items():
            strange = fills.counts.keys() - set(self.manifest.set_aside.get(name, ()))
            if strange:
                raise CorpusError(
                    f"the corpus already holds secrets of this format: {name} "
                    f"{fills.named(strange, 'document')}, counted from 0; choose another format, "
                    "or leave these documents out"
                )


def check_numbers(numbers: Sequence[int], documents: int) -> None:
    """Refuse what numbers no document, and two rows of one number."""
    seen = set()
    for number in numbers:
        if not isinstance(number, int | np.integer) or isinstance(number, bool):
            raise CorpusError(
                f"a document has the number {number!r} of type {type(number).__name__}; "
                f"documents are numbered by whole numbers from 0 to {documents - 1}"
            )
        if not 0 <= number < documents:
            raise CorpusError(
                f"there is a document {number}, but with total={documents} the last one is "
                f"{documents - 1}; number them from 0, and count them again"
            )
        if number in seen:
            raise CorpusError(f"two rows are document {number}; give each a number of its own")
        seen.add(number)


def _check_same(name: str, given: object, recorded: object) -> None:
    if given != recorded:
        raise ManifestError(
            f"{name}={given!r}, but the manifest was made for {recorded!r}; give what it was "
            "made for, or the plan in its place"
        )


def _columns_of(batch: Any) -> Mapping[str, Any]:
    """Its columns by name, as they are held."""
    if is_instance_of(batch, "pyarrow.Table"):
        return dict(zip(batch.column_names, batch.columns, strict=True))
    if is_instance_of(batch, "pandas.DataFrame"):
        return {str(name): batch[name] for name in batch}
    if not hasattr(batch, "keys"):
        raise CorpusError(
            f"a batch is of type {type(batch).__name__}, and must be columns by name; map the data "
            "set with_format(None)"
        )
    columns = {name: batch[name] for name in batch}
    if any(
        isinstance(column, str) or not hasattr(column, "__len__") for column in columns.values()
    ):
        raise CorpusError("this is one row, and the step takes batches; map with batched=True")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise CorpusError(
            f"the columns of a batch are of unlike lengths: {listed}; make them alike"
        )
    return columns


def _listed(column: Any) -> Any:
    for method in ("to_pylist", "tolist"):  # of Arrow; of pandas and numpy
        if hasattr(column, method):
            return getattr(column, method)()
    return column
