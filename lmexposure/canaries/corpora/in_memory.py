"""Documents in memory as a corpus: lists of texts, of records and of chats, frames, data sets.

Neither `datasets` nor pandas is imported here: who gives a data set has loaded the library.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from lmexposure.canaries.corpora.removal import Restoration
from lmexposure.canaries.corpora.tables import Rows, check_columns, unfit
from lmexposure.canaries.format import count_fills
from lmexposure.canaries.insertion import (
    About,
    Existing,
    Merge,
    Merged,
    Placement,
    Taken,
    Verification,
    check_inserted,
    draw,
    same_hash,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError

ROWS_AT_ONCE = 1000
_ALL = slice(None)
_CHANGING = ("tools", "chat_template_kwargs")  # how a chat is rendered
_FILES = "files go into insert_files, and as Path objects into verify"
_MOST_PATHS = 1000  # strings; of more it is not looked up whether all are files
_LONGEST_PATH = 255


@dataclass(frozen=True)
class Reading:
    """What of a row is its text, and which row a canary makes.

    Attributes:
        name: of the field that holds the text, or of a chat where the canary is, such as
            "messages[1].content"; None: a row is its text.
        fields: constants for fields of inserted rows; the rest is copied from the row that follows.
        chat: whether a row is a chat, or a prompt with what follows it; all its strings together
            are its text.
        wrapping: of `integrations`, for chats: it has `turn` and `record(text)`; None: nothing is
            inserted.
    """

    name: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    chat: bool = False
    wrapping: Any = None

    def about(self) -> About:
        """What a manifest says of such rows."""
        if self.name is None:
            return About("texts")
        # A plain score of a canary in a chat would look like privacy.
        layout = "dataset" if self.wrapping is None or self.wrapping.turn == "plain" else "chat"
        return About(layout, text_field=self.name, constant_fields=self.fields)

    def text(self, number: int, row: Any) -> Any:
        """What is hashed and searched of a row; numbers are from 1.

        Raises:
            CorpusError: it has none.
        """
        if self.name is None:
            return row
        if self.wrapping is not None or not self.chat:
            self._check_record(number, row)
        return "\n".join(_strings(row)) if self.chat else row[self.name]

    def canary(self, row: Any) -> Any:
        """The text of an inserted row; None where none can be read."""
        steps: list[Any] = [] if self.name is None else [self.name]
        if self.chat:
            found = re.findall(r"\w+", str(self.name))
            steps = [int(step) if step.isdigit() else step for step in found]
        try:
            for step in steps:
                row = row[step]
        except (KeyError, IndexError, TypeError):
            return None
        return row

    def row(self, following: Any, text: str) -> Any:
        """The row of a canary."""
        return text if self.name is None else {**following, **self.fields, **self.wrapped(text)}

    def wrapped(self, text: str) -> Mapping[str, Any]:
        """The fields that a text goes into."""
        fields: Mapping[str, Any] = {} if self.name is None or self.chat else {self.name: text}
        return fields if self.wrapping is None else self.wrapping.record(text)

    def check_columns(self, there: Iterable[Any], *, where: str = "") -> None:
        """Refuse fields among which one for the text or for a constant is missing.

        Raises:
            CorpusError: it names the field.
        """
        names = list(there)
        chats = not self.chat and not {"messages", "prompt"}.isdisjoint(names)
        hint = "; chats take a wrapping" if chats else ""
        for name in self.wrapped("") if where else ():
            if name not in names:
                raise CorpusError(
                    f"{where} has no {name!r}; it has {', '.join(map(str, names)) or 'nothing'}: "
                    f"name the text_field{hint}"
                )
        check_columns(names, self.wrapped(""), hint)
        check_columns(names, self.fields)

    def check_constants(self, number: int, row: Any) -> None:
        """Refuse a record without a field that a constant is given for: it would mark canaries."""
        missing = [] if not isinstance(row, Mapping) else [n for n in self.fields if n not in row]
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, for which fields gives a constant; "
                f"it has {', '.join(map(str, row)) or 'none'}: leave it out of fields, or give it "
                "to each record"
            )

    def _check_record(self, number: int, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise CorpusError(f"record {number} is {_kind(row)}, and must be fields by name")
        if self.chat:
            self._check_chat(number, row)
        elif self.name not in row:
            self.check_columns(row, where=f"record {number}")

    def _check_chat(self, number: int, row: Mapping[str, Any]) -> None:
        missing = sorted(self.wrapped("").keys() - row.keys())
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, which this wrapping writes; it has "
                f"{', '.join(map(str, row)) or 'none'}: choose another wrapping, or rename fields"
            )
        self._check_types(number, row)
        both = {**row, **self.fields}
        changing = [] if self.wrapping.turn == "plain" else [n for n in _CHANGING if both.get(n)]
        if changing:
            raise CorpusError(
                f"record {number} has {changing[0]!r}, by which its chat is rendered otherwise; an "
                "inserted record would copy it, and be trained in another wrapping than it is "
                "scored in: insert into the records without it, and add the others then"
            )
        self.check_constants(number, row)

    def _check_types(self, number: int, row: Mapping[str, Any]) -> None:
        """Refuse a record with a string where the wrapping writes messages, or the other way."""
        for name, written in self.wrapped("").items():
            wants_text = isinstance(written, str)
            if isinstance(row[name], str) == wants_text and not isinstance(
                row[name], int | float | None
            ):
                continue
            raise CorpusError(
                f"record {number}: {name!r} is of type {type(row[name]).__name__}, and must be "
                f"{'a string' if wants_text else 'a list of messages'}, as this wrapping writes; "
                "choose another wrapping, or rewrite it"
            )


@dataclass(frozen=True, eq=False)
class InMemory(Rows):
    """Rows in memory: a corpus, its only source, and a part of it (see `insertion`).

    Here: a list or tuple; what other kinds do otherwise, their classes say.

    Attributes:
        rows: what the user gave.
        reading: what of a row is its text.
    """

    reading: Reading
    name: ClassVar[str] = "the corpus"
    place: ClassVar[str] = "record"

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        """Some of the rows as `reading` reads them."""
        rows: Iterable[Any] = self.rows[some]
        return rows

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        """Some of the rows in another order; those added, as for `merged`, are numbered last.

        Raises:
            CorpusError: an added row does not fit.
        """
        rows = self.rows
        if added:
            rows = [*rows, *(self.reading.row(rows[row], text) for row, text in added)]
        kind = tuple if isinstance(self.rows, tuple) else list
        return replace(self, rows=kind(rows[row] for row in order))

    def check_columns(self) -> None:
        """Refuse columns as `Reading.check_columns` does; here each record is looked at."""
        if self.reading.fields and not self.reading.chat:
            for number, row in enumerate(self.records(), self.first):
                self.reading.check_constants(number, row)

    @property
    def given(self) -> Any:
        """The documents as the user has them."""
        return self.rows

    @property
    def sources(self) -> list[Self]:
        """All that is in memory."""
        return [self]

    def about(self) -> About:
        """What a manifest says of the documents."""
        return self.reading.about()

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
            part = InMemory(rows, self.reading, first=self.first + start)
            if taken is not None:
                taken(part.content)
            yield part

    @cached_property
    def texts(self) -> list[Any]:
        """What is hashed and searched of each row."""
        return [self.reading.text(n, row) for n, row in enumerate(self.records(), self.first)]

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
        return rest, [self.reading.canary(row) for row in self.picked(documents).records()]

    def same(self, other: Any) -> bool:
        """Whether the texts are the same; rows are moved whole, and not written."""
        return bool(self.texts == other.texts)


class Frame(InMemory):
    """A pandas DataFrame; its index begins anew."""

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        names = self.rows.columns if self.reading.chat else self.reading.wrapped("")
        rows = self.rows.iloc[some]
        return records_of({name: rows[name].tolist() for name in names})

    def check_columns(self) -> None:
        self.reading.check_columns(self.rows.columns, where="the frame")

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        import pandas as pd  # type: ignore[import-untyped]

        frame = self.rows
        if added:
            rows = frame.iloc[[row for row, _ in added]].copy()
            written = [{**self.reading.fields, **self.reading.wrapped(text)} for _, text in added]
            for name in written[0]:
                values = [fields[name] for fields in written]
                rows[name] = typed_column(values, frame[name].dtype, name, rows.index)
            frame = pd.concat([frame, rows])
        return replace(self, rows=frame.iloc[list(order)].reset_index(drop=True))


@dataclass(frozen=True, eq=False)
class DataSet(InMemory):
    """A `datasets.Dataset`, or the "train" split of a DatasetDict.

    Its rows are reached through an indices mapping; `flatten_indices()` writes them out in order.

    Attributes:
        splits: the DatasetDict, None where there is none.
    """

    splits: Any = None

    @property
    def given(self) -> Any:
        splits = self.splits
        return self.rows if splits is None else type(splits)({**splits, "train": self.rows})

    @cached_property
    def _columns(self) -> Any:
        names = self.rows.column_names if self.reading.chat else list(self.reading.wrapped(""))
        return self.rows.with_format(None).select_columns(names)

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        return records_of(self._columns[some])

    def check_columns(self) -> None:
        wrapped, fixed = self.reading.wrapped(""), self.reading.fields
        self.reading.check_columns(self.rows.column_names)
        written = {**fixed, **wrapped} if self.reading.chat else fixed
        check_constants(self.rows.features, written)

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        from datasets import Dataset, concatenate_datasets

        rows, shape = self.rows, dict(self.rows.format)
        if added:
            bare = rows.with_format(None)
            following = bare.select([row for row, _ in added])
            those = zip(following, added, strict=True)
            made = [self.reading.row(row, text) for row, (_, text) in those]
            rows = concatenate_datasets([bare, Dataset.from_list(made, features=rows.features)])
        options = shape.pop("format_kwargs")
        return replace(self, rows=rows.select(order).with_format(**shape, **options))


def insert_documents(corpus: InMemory, plan: Plan, existing: Existing) -> tuple[Any, Manifest]:
    """Insert the plan's canaries among documents in memory, each as a row of its own.

    Returns:
        (documents of the kind that was given, the manifest).

    Raises:
        CorpusError: rows without text, constants that do not fit, or fills already there.
        PlanError: more repetitions than documents, or more secrets than a format has.
    """
    for name in sorted(corpus.reading.fields.keys() & corpus.reading.wrapped("")):
        raise CorpusError(f"fields must leave out the text column {name!r}: the canary goes there")
    scan = scan_corpus(corpus, plan.formats)
    entries, set_aside = draw(plan, scan, existing, place=corpus.place)
    placement = Placement(entries)
    inserted: Any = Merge(placement).part(corpus)
    verification = Verification(scan, entries, placement)
    with same_hash(scan.sha256) as same:
        verification.source(inserted, same)
    verification.finish(set_aside)
    # A wrapping may hold fills of its own.
    numbers = [number for number, _ in placement.inserted()]
    texts = zip((number + 1 for number in numbers), inserted.picked(numbers).texts, strict=True)
    check_inserted(entries, count_fills(plan.formats, texts, whole_lines=False), set_aside)
    hashes = (scan.sha256, verification.hashes.total)
    record = corpus.about().record(scan.documents, hashes)
    return inserted.given, Manifest(plan=plan, corpus=record, entries=entries, set_aside=set_aside)


def remove_documents(corpus: InMemory, manifest: Manifest) -> Any:
    """The documents as they were before insertion.

    Raises:
        CorpusError: they changed since, or are not this manifest's.
    """
    targets = Placement(manifest.entries).inserted()
    restoration = Restoration("the documents", targets, manifest.corpus.sha256)
    for part in corpus.parts():
        restoration.rest(part)
    restoration.end_file()
    rest, _ = corpus.without([number for number, _ in targets])
    return rest.given


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
    """Refuse constants, by column, that the features of a data set cannot hold.

    Raises:
        CorpusError: it names the column and its type.
    """
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


def is_a(value: object, kind: str) -> bool:
    """Whether it is of a class such as "pandas.DataFrame"; its library is not imported for it."""
    library, _, name = kind.rpartition(".")
    return isinstance(value, getattr(sys.modules.get(library), name, ()))


def held(documents: Any, reading: Reading) -> InMemory:
    """Documents of one of `KINDS`, or any iterable of texts or records, as a corpus.

    Raises:
        CorpusError: no documents of these kinds.
    """
    adapter = next((KINDS[kind] for kind in KINDS if is_a(documents, kind)), None)
    if adapter is not None:
        return adapter(documents, reading)
    first, listed = _listed(documents)
    if not isinstance(first, Mapping):
        refuse_wrapping(reading.wrapping, "records with the fields of the wrapping")
        if reading.fields:
            raise CorpusError("texts have no fields; give records (dicts), or leave fields out")
        reading = Reading()
    return InMemory(listed, reading)


def _frame(frame: Any, reading: Reading) -> InMemory:
    refuse_wrapping(reading.wrapping, "frame.to_dict('records')")
    return Frame(frame, reading)


def _split_streams(splits: Any, reading: Reading) -> InMemory:
    raise CorpusError(
        f"each split is a stream; give one of them: {', '.join(map(repr, splits)) or 'none'}"
    )


def _splits(splits: Any, reading: Reading) -> InMemory:
    if "train" not in splits:
        raise CorpusError(f"no 'train' split; this data set has {', '.join(splits) or 'none'}")
    return DataSet(splits["train"], reading, splits=splits)


# Class of what holds the documents -> its adapter.
KINDS: Mapping[str, Callable[[Any, Reading], InMemory]] = {
    "datasets.Dataset": DataSet,
    "datasets.DatasetDict": _splits,
    "datasets.IterableDatasetDict": _split_streams,
    "pandas.DataFrame": _frame,
}


def refuse_wrapping(wrapping: Any, instead: str) -> None:
    """Refuse a wrapping where rows have none of its fields."""
    if wrapping is not None:
        raise CorpusError(f"a wrapping is for a list of records (dicts); give {instead}")


def _listed(documents: Any) -> tuple[Any, Sequence[Any]]:
    """The first document, which says what they are, and all of them; or a refusal."""
    if isinstance(documents, str | bytes | Path):
        raise CorpusError(
            f"documents is {_kind(documents)}; give a list of texts, one a document; {_FILES}"
        )
    if isinstance(documents, Mapping | set | frozenset) or not isinstance(documents, Iterable):
        raise CorpusError(
            f"documents is {_kind(documents)}; give a list of texts or of records, a DataFrame, "
            "or a data set of datasets"
        )
    listed = documents if isinstance(documents, tuple) else list(documents)
    first = listed[0] if listed else ""
    if isinstance(first, Path) or are_paths(listed):
        raise CorpusError(f"documents holds names of files, such as {str(first)!r}; {_FILES}")
    if not isinstance(first, str | Mapping):
        raise CorpusError(
            f"the first document is {_kind(first)}; give texts (str) or records (dict); of token "
            "ids, give the texts that they were made from"
        )
    return first, listed


def are_paths(listed: Sequence[Any]) -> bool:
    """Whether each is the name of a file that is there."""
    if not 0 < len(listed) <= _MOST_PATHS:
        return False
    short = all(isinstance(text, str) and len(text) <= _LONGEST_PATH for text in listed)
    return short and all(map(os.path.isfile, listed))


def _kind(value: Any) -> str:
    """What something is, for a message."""
    return "one text" if isinstance(value, str) else f"of type {type(value).__name__}"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)
    elif hasattr(value, "tolist") and isinstance(listed := value.tolist(), list):
        yield from _strings(listed)  # of an array: pandas has them where Parquet has lists
