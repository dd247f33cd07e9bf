"""Documents in memory as a corpus: lists of texts, of records and of chats, frames, data sets.

Neither `datasets` nor pandas is imported here: who gives a data set has loaded the library.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from lmexposure.canaries.corpora.tables import Rows, unfit
from lmexposure.canaries.insertion import Merged, Taken
from lmexposure.canaries.manifest import CorpusRecord
from lmexposure.canaries.row_schema import RowSchema, kind_of
from lmexposure.errors import CorpusError

ROWS_AT_ONCE = 1000
STREAM, RAY = "datasets.IterableDataset", "ray.data.Dataset"
_ALL = slice(None)
_FILES = "files go into insert_files, and as Path objects into verify"
_MOST_PATHS = 1000  # strings; of more it is not looked up whether all are files
_LONGEST_PATH = 255


@dataclass(frozen=True, eq=False)
class InMemory(Rows):
    """Rows in memory: a corpus, its only source, and a part of it (see `insertion`)."""

    schema: RowSchema  # what of a row is its text
    name: ClassVar[str] = "the corpus"
    place: ClassVar[str] = "record"

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        """Some of the rows as `schema` reads them."""
        rows: Iterable[Any] = self.rows[some]
        return rows

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        """Some of the rows in another order; those added, as for `merged`, are numbered last."""
        rows = self.rows
        if added:
            rows = [*rows, *(self.schema.row(rows[row], text) for row, text in added)]
        kind = tuple if isinstance(self.rows, tuple) else list
        return replace(self, rows=kind(rows[row] for row in order))

    def check_columns(self) -> None:
        """Refuse columns as `RowSchema.check_columns` does; here each record is checked."""
        if self.schema.fields and not self.schema.chat:
            for number, row in enumerate(self.records(), self.first):
                self.schema.check_constants(number, row)

    @property
    def given(self) -> Any:
        """The documents as the user has them."""
        return self.rows

    @property
    def sources(self) -> list[Self]:
        """All that is in memory."""
        return [self]

    def about(self) -> CorpusRecord:
        """What a manifest says of the documents."""
        return self.schema.about()

    def blank(self, documents: int) -> str:
        """What to say where none of the documents holds text."""
        return f"the corpus has {documents} records and none holds text; give some"

    def guarded(self) -> AbstractContextManager[None]:
        """What is in memory does not change meanwhile."""
        return nullcontext()

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> "Iterator[InMemory]":
        """Some rows at a time, in a list whatever the kind; see `insertion.Source`."""
        self.check_columns()
        for start in range(0, self.documents, ROWS_AT_ONCE):
            rows = list(self.records(slice(start, start + ROWS_AT_ONCE)))
            part = InMemory(rows, self.schema, first=self.first + start)
            if taken is not None:
                taken(part.content)
            yield part

    @cached_property
    def texts(self) -> list[Any]:
        """What is hashed and searched of each row."""
        return [self.schema.text(n, row) for n, row in enumerate(self.records(), self.first)]

    def merged(self, added: Sequence[tuple[int, str]]) -> Merged:
        """With rows more; see `insertion.Part`."""
        places = np.array([row for row, _ in added], dtype=int)
        new = np.arange(len(added)) + self.documents
        order = np.insert(np.arange(self.documents), places, new).tolist()
        return Merged(self.picked(order, added), [(row + n, 1) for n, (row, _) in enumerate(added)])

    def without(self, documents: Sequence[int]) -> tuple[Self, list[str | None]]:
        """The rest without these rows, and their texts; see `insertion.Part`."""
        if not documents:
            return self, []
        rest = self.picked(np.delete(np.arange(self.documents), documents).tolist())
        return rest, [self.schema.canary(row) for row in self.picked(documents).records()]

    def same(self, other: Any) -> bool:
        """Whether the texts are the same; rows are moved whole, and not written."""
        return bool(self.texts == other.texts)


class Frame(InMemory):
    """A pandas DataFrame; its index begins anew."""

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        """The fields of some of the rows that the schema reads."""
        names = self.rows.columns if self.schema.chat else self.schema.wrapped("")
        rows = self.rows.iloc[some]
        return records_of({name: rows[name].tolist() for name in names})

    def check_columns(self) -> None:
        """Refuse columns as `RowSchema.check_columns` does."""
        self.schema.check_columns(self.rows.columns, where="the frame")

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        """Some of the rows in another order, after those added; see `InMemory.picked`."""
        import pandas as pd  # type: ignore[import-untyped]

        frame = self.rows
        if added:
            rows = frame.iloc[[row for row, _ in added]].copy()
            written = [self.schema.written(text, frame.columns) for _, text in added]
            for name in written[0]:
                values = _like(rows[name], [fields[name] for fields in written])
                rows[name] = typed_column(values, frame[name].dtype, name, rows.index)
            frame = pd.concat([frame, rows])
        return replace(self, rows=frame.iloc[list(order)].reset_index(drop=True))


@dataclass(frozen=True, eq=False)
class DataSet(InMemory):
    """A `datasets.Dataset`, or the "train" split of a DatasetDict."""

    splits: Any = None  # the DatasetDict, None where there is none

    @property
    def given(self) -> Any:
        """The data set, or all splits with this one in the place of "train"."""
        splits = self.splits
        return self.rows if splits is None else type(splits)({**splits, "train": self.rows})

    @cached_property
    def _columns(self) -> Any:
        names = self.rows.column_names if self.schema.chat else list(self.schema.wrapped(""))
        return self.rows.with_format(None).select_columns(names)

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        """The fields of some of the rows that the schema reads."""
        return records_of(self._columns[some])

    def check_columns(self) -> None:
        """Refuse columns as `RowSchema.check_columns` does."""
        schema, names = self.schema, self.rows.column_names
        schema.check_columns(names)
        check_constants(
            self.rows.features, schema.written("", names) if schema.chat else schema.fields
        )

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        """Some of the rows in another order, after those added; see `InMemory.picked`."""
        from datasets import Dataset, concatenate_datasets

        rows, shape = self.rows, dict(self.rows.format)
        if added:
            bare = rows.with_format(None)
            following = bare.select([row for row, _ in added])
            pairs = zip(following, added, strict=True)
            made = [self.schema.row(row, text) for row, (_, text) in pairs]
            rows = concatenate_datasets([bare, Dataset.from_list(made, features=rows.features)])
        options = shape.pop("format_kwargs")
        return replace(self, rows=rows.select(order).with_format(**shape, **options))


def _like(column: Any, values: list[Any]) -> list[Any]:
    """Lists as arrays, where the column has them so: as what was read from Parquet."""
    arrays = [
        isinstance(cell, np.ndarray) and isinstance(value, list)
        for cell, value in zip(column, values, strict=True)
    ]
    made = []
    for is_array, value in zip(arrays, values, strict=True):
        made.append(np.empty(len(value), dtype=object) if is_array else value)
        if is_array:
            made[-1][:] = value
    return made


def typed_column(values: Sequence[Any], kind: Any, name: str, index: Any) -> Any:
    """Texts or constants as a pandas Series of a column's type, or a refusal."""
    import pandas as pd

    try:
        with warnings.catch_warnings(action="ignore"):  # what does not fit is refused below
            column = pd.Series(values, index=index, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise unfit(name, kind) from None
    # pandas makes a missing value of what is no category, and True of any text.
    gone = any(n and value is not None for n, value in zip(column.isna(), values, strict=True))
    # It gives up a type for a list.
    if gone or column.dtype != kind or (str(kind) == "bool" and not isinstance(values[0], bool)):
        raise unfit(name, kind)
    return column


def check_constants(features: Any, constants: Mapping[str, Any]) -> None:
    """Refuse constants, by column, that the features of a data set cannot hold."""
    from datasets import Dataset, Features

    for name, value in constants.items():
        kind = features[name]
        try:
            kept = Dataset.from_list([{name: value}], features=Features({name: kind}))[0][name]
            changed = [(float, int), (list, str)]  # which pyarrow does without a word
            fits = kept == value or not any(
                isinstance(value, before) and isinstance(kept, after) for before, after in changed
            )
        except (TypeError, ValueError, KeyError, OverflowError):  # pyarrow's are of these, too
            fits = False
        if not fits:
            raise CorpusError(
                f"the constant for column {name!r} is not of its type, {kind}; give another"
            )


def records_of(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """The rows of columns by name."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def is_instance_of(value: object, kind: str) -> bool:
    """Whether it is of a class such as "pandas.DataFrame"; its library is not imported for it."""
    library, _, name = kind.rpartition(".")
    return isinstance(value, getattr(sys.modules.get(library), name, ()))


def corpus_of(documents: Any, schema: RowSchema) -> InMemory:
    """Documents of one of `KINDS`, or any iterable of texts or records, as a corpus."""
    adapter = next((KINDS[kind] for kind in KINDS if is_instance_of(documents, kind)), None)
    if adapter is not None:
        return adapter(documents, schema)
    first, listed = _listed(documents)
    if not isinstance(first, Mapping):
        if schema.wrapping is not None:
            raise CorpusError(
                "a wrapping is for a list of records (dicts); give records with the fields of "
                "the wrapping"
            )
        if schema.fields:
            raise CorpusError("texts have no fields; give records (dicts), or leave fields out")
        schema = RowSchema()
    return InMemory(listed, schema)


def is_read_later(documents: object) -> bool:
    """Whether it is of a kind that is not in memory; `engines` inserts into these."""
    return any(is_instance_of(documents, kind) for kind in (STREAM, RAY))


def parts_once(documents: Any, schema: RowSchema) -> Iterator[InMemory]:
    """Documents of any kind that `insert` takes, as sources of a corpus that is read once."""
    if not is_read_later(documents):
        yield corpus_of(documents, schema)
        return
    rows = iter(documents.iter_rows() if hasattr(documents, "iter_rows") else documents)
    first = 1
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield InMemory(some, schema, first=first)
        first += len(some)


def _split_streams(splits: Any, schema: RowSchema) -> InMemory:
    raise CorpusError(
        f"each split is a stream; give one of them: {', '.join(map(repr, splits)) or 'none'}"
    )


def _splits(splits: Any, schema: RowSchema) -> InMemory:
    if "train" not in splits:
        raise CorpusError(f"no 'train' split; this data set has {', '.join(splits) or 'none'}")
    return DataSet(splits["train"], schema, splits=splits)


# Class of what holds the documents -> its adapter.
KINDS: Mapping[str, Callable[[Any, RowSchema], InMemory]] = {
    "datasets.Dataset": DataSet,
    "datasets.DatasetDict": _splits,
    "datasets.IterableDatasetDict": _split_streams,
    "pandas.DataFrame": Frame,
}


def _listed(documents: Any) -> tuple[Any, Sequence[Any]]:
    """The first document, which says what they are, and all of them; or a refusal."""
    if isinstance(documents, str | bytes | Path):
        raise CorpusError(
            f"documents is {kind_of(documents)}; give a list of texts, one a document; {_FILES}"
        )
    if isinstance(documents, Mapping | set | frozenset) or not isinstance(documents, Iterable):
        raise CorpusError(
            f"documents is {kind_of(documents)}; give a list of texts or of records, a DataFrame, "
            "or a data set of datasets"
        )
    listed = documents if isinstance(documents, tuple) else list(documents)
    first = listed[0] if listed else ""
    if isinstance(first, Path) or are_paths(listed):
        raise CorpusError(f"documents holds names of files, such as {str(first)!r}; {_FILES}")
    if not isinstance(first, str | Mapping):
        raise CorpusError(
            f"the first document is {kind_of(first)}; give texts (str) or records (dict); of token "
            "ids, give the texts that they were made from"
        )
    return first, listed


def are_paths(listed: Sequence[Any]) -> bool:
    """Whether each is the name of a file that is there."""
    if not 0 < len(listed) <= _MOST_PATHS:
        return False
    short = all(isinstance(text, str) and len(text) <= _LONGEST_PATH for text in listed)
    return short and all(map(os.path.isfile, listed))
