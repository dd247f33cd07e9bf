"""Documents in memory as a corpus: lists of texts, of records and of chats, frames, data sets.

Neither `datasets` nor pandas is imported here: who gives a data set has loaded the library.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from lmexposure.canaries.corpora.removal import Restoration
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
    text_line,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError

ROWS_AT_ONCE = 1000
_ALL = slice(None)
_CHANGING = ("tools", "chat_template_kwargs")  # how a chat is rendered


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What of a row is its text, and which row a canary makes. Here: a row is its text.

    Attributes:
        fields: constants for fields of inserted rows; the rest is copied from the row that follows.
        whole: whether all fields of a row are read.
    """

    whole: ClassVar[bool] = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    def about(self) -> About:
        """What a manifest says of such rows."""
        return About("texts")

    def text(self, number: int, row: Any) -> Any:
        """What is hashed and searched of a row; numbers are from 1.

        Raises:
            CorpusError: it has none.
        """
        return row

    def canary(self, row: Any) -> Any:
        """The text of an inserted row; None where none can be read."""
        return row

    def row(self, following: Any, text: str) -> Any:
        """The row of a canary."""
        return text

    def wrapped(self, text: str) -> Mapping[str, Any]:
        """The fields that a text goes into."""
        return {}

    def check_columns(self, there: Iterable[Any], *, where: str = "") -> None:
        """Refuse fields among which one for the text or for a constant is missing.

        Raises:
            CorpusError: it names the field.
        """
        names = list(there)
        listed = ", ".join(map(str, names))
        chat = not self.whole and not {"messages", "prompt"}.isdisjoint(names)
        hint = "; chats take a wrapping" if chat else ""
        for name in self.wrapped(""):
            if name not in names and where:
                raise CorpusError(
                    f"{where} has no {name!r}; it has {listed or 'nothing'}: name the text_field"
                    f"{hint}"
                )
            if name not in names:
                raise CorpusError(f"no column {name!r}; there are {listed}{hint}")
        for name in self.fields:
            if name not in names:
                raise CorpusError(f"no column {name!r}; there are {listed}")


@dataclass(frozen=True, kw_only=True)
class TextField(Reading):
    """One field of a row is its text."""

    name: str

    def about(self) -> About:
        return About("dataset", text_field=self.name, constant_fields=self.fields)

    def text(self, number: int, row: Any) -> Any:
        _check_record(number, row)
        if self.name not in row:
            self.check_columns(row, where=f"record {number}")
        return row[self.name]

    def canary(self, row: Any) -> Any:
        return row.get(self.name) if isinstance(row, Mapping) else None

    def row(self, following: Any, text: str) -> Any:
        return {**following, **self.fields, **self.wrapped(text)}

    def wrapped(self, text: str) -> Mapping[str, Any]:
        return {self.name: text}


@dataclass(frozen=True, kw_only=True)
class Turn(TextField):
    """A row is a chat, or a prompt with what follows it; all its strings together are its text.

    Attributes:
        name: where the canary is, such as "messages[1].content".
        wrapping: of `integrations`: it has `turn` and `record(text)`; None: nothing is inserted.
    """

    whole: ClassVar[bool] = True
    wrapping: Any = None

    def about(self) -> About:
        # A plain score of a canary in a chat would look like privacy.
        plain = self.wrapping.turn == "plain"
        return super().about() if plain else super().about()._replace(layout="chat")

    def text(self, number: int, row: Any) -> Any:
        if self.wrapping is not None:
            self._check(number, row)
        return "\n".join(_strings(row))

    def canary(self, row: Any) -> Any:
        try:
            for step in re.findall(r"\w+", self.name):
                row = row[int(step) if step.isdigit() else step]
        except (KeyError, IndexError, TypeError):
            return None
        return row

    def wrapped(self, text: str) -> Mapping[str, Any]:
        fields: Mapping[str, Any] = self.wrapping.record(text) if self.wrapping else {}
        return fields

    def _check(self, number: int, row: Any) -> None:
        _check_record(number, row)
        missing = sorted(self.wrapped("").keys() - row.keys())
        if missing:
            raise CorpusError(
                f"record {number} has no field {missing[0]!r}, which this wrapping writes; it has "
                f"{', '.join(map(str, row)) or 'none'}: choose another wrapping, or rename fields"
            )
        row = {**row, **self.fields}
        changing = [] if self.wrapping.turn == "plain" else [n for n in _CHANGING if row.get(n)]
        if changing:
            raise CorpusError(
                f"record {number} has {changing[0]!r}, by which its chat is rendered otherwise; an "
                "inserted record would copy it, and be trained in another wrapping than it is "
                "scored in: insert into the records without it, and add the others then"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class InMemory:
    """Rows in memory: a corpus, its only source, and a part of it (see `insertion`).

    Here: a list or tuple; what other kinds do otherwise, their classes say.

    Attributes:
        rows: what the user gave.
        reading: what of a row is its text.
        first: number of the first row in all that there are, from 1.
    """

    rows: Any
    reading: Reading
    first: int = 1
    name: ClassVar[str] = "the corpus"
    place: ClassVar[str] = "record"
    scans_lines: ClassVar[bool] = False

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        """Some of the rows as `reading` reads them."""
        rows: Iterable[Any] = self.rows[some]
        return rows

    def picked(self, order: Sequence[int], added: Sequence[tuple[int, str]] = ()) -> Self:
        """Some of the rows in another order.

        Args:
            order: numbers of rows, from 0; those added come after the others.
            added: rows more: (number of the row that it is put before, text).

        Raises:
            CorpusError: such a row does not fit.
        """
        rows = self.rows
        if added:
            rows = [*rows, *(self.reading.row(rows[row], text) for row, text in added)]
        kind = tuple if isinstance(self.rows, tuple) else list
        return replace(self, rows=kind(rows[row] for row in order))

    def check_columns(self) -> None:
        """Refuse columns among which one for the text or for a constant is missing.

        Raises:
            CorpusError: it names the column.
        """

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
        """Nobody else changes what is in memory."""
        return nullcontext()

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> "Iterator[InMemory]":
        """Some rows at a time, in a list whatever the kind; see `insertion.Source`."""
        self.check_columns()
        for start in range(0, self.documents, ROWS_AT_ONCE):
            rows = list(self.records(slice(start, start + ROWS_AT_ONCE)))
            part = InMemory(rows=rows, reading=self.reading, first=self.first + start)
            if taken is not None:
                taken(part.content)
            yield part

    @property
    def documents(self) -> int:
        """How many rows."""
        return len(self.rows)

    lines = size = documents

    @cached_property
    def texts(self) -> list[Any]:
        """What is hashed and searched of each row."""
        return [self.reading.text(n, row) for n, row in enumerate(self.records(), self.first)]

    @cached_property
    def content(self) -> bytes:
        """The texts as JSON, one a line."""
        return b"".join(text_line(n, text) for n, text in enumerate(self.texts, self.first))

    @property
    def visible(self) -> bool:
        """Whether any text is more than white space."""
        return any(text.strip() for text in self.texts)

    def searched(self, words: Sequence[str]) -> Iterator[tuple[int, str]]:
        """(number of the row, text); see `insertion.Part`."""
        for number, text in enumerate(self.texts, self.first):
            if not isinstance(text, str):
                text_line(number, text)  # refuses it
            yield number, text

    def merged(self, added: Sequence[tuple[int, str]]) -> Merged:
        """With rows more; see `insertion.Part`."""
        order: list[int] = []
        spans, done = [], 0
        for number, (row, _) in enumerate(added):
            order += range(done, row)
            spans.append((len(order), 1))
            order.append(self.documents + number)
            done = row
        order += range(done, self.documents)
        return Merged(self.picked(order, added), spans)

    def without(self, documents: Sequence[int]) -> tuple[Self, list[str | None]]:
        """The rest without these rows, and their texts; see `insertion.Part`."""
        if not documents:
            return self, []
        gone = set(documents)
        rest = self.picked([row for row in range(self.documents) if row not in gone])
        return rest, [self.reading.canary(row) for row in self.picked(documents).records()]

    def same(self, other: Any) -> bool:
        """Whether the texts are the same; rows are moved whole, and not written."""
        return bool(self.texts == other.texts)


class Frame(InMemory):
    """A pandas DataFrame; its index begins anew."""

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        names = self.rows.columns if self.reading.whole else self.reading.wrapped("")
        rows = self.rows.iloc[some]
        return _records({name: rows[name].tolist() for name in names})

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


@dataclass(frozen=True, kw_only=True, eq=False)
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
        names = self.rows.column_names if self.reading.whole else list(self.reading.wrapped(""))
        return self.rows.with_format(None).select_columns(names)

    def records(self, some: slice = _ALL) -> Iterable[Any]:
        return _records(self._columns[some])

    def check_columns(self) -> None:
        wrapped, fixed = self.reading.wrapped(""), self.reading.fields
        self.reading.check_columns(self.rows.column_names)
        written = {**fixed, **wrapped} if self.reading.whole else fixed
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
    """Texts or constants as a pandas Series of a column's type.

    Raises:
        CorpusError: they are not of this type; it names the column.
    """
    import pandas as pd

    unfit = CorpusError(
        f"the text or constant for column {name!r} is not of its type, {kind}; give another, or "
        "another type"
    )
    try:
        with warnings.catch_warnings(action="ignore"):  # what does not fit is refused below
            column = pd.Series(values, index=index, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise unfit from None
    # pandas makes a missing value of what is no category, and True of any text.
    gone = any(n and value is not None for n, value in zip(column.isna(), values, strict=True))
    if gone or (str(kind) == "bool" and not isinstance(values[0], bool)):
        raise unfit
    return column


def check_constants(features: Any, constants: Mapping[str, Any]) -> None:
    """Refuse constants that their columns cannot hold.

    Args:
        features: of a data set, `datasets.Features`.
        constants: by column.

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


def _records(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def _check_record(number: int, row: Any) -> None:
    if not isinstance(row, Mapping):
        raise CorpusError(f"record {number} is {kind_of(row)}, and must be fields by name")


def kind_of(value: Any) -> str:
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
