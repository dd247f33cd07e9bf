"""Arrow tables as parts of a corpus: a document is a row, and one of its columns holds the text.

Schema and the other columns stay as they are. What a file of tables is, its own module says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from lmexposure.canaries.insertion import Merged, Same, Taken, in_turn, text_line
from lmexposure.errors import CorpusError

_PIECE_ROWS = 4096
_PIECE_BYTES = 1 << 24


@dataclass(frozen=True)
class Rows:
    """What parts of a corpus have in common whose documents are rows (see `insertion.Part`).

    Attributes:
        rows: what holds them.
        first: number of the first row in the file or in all that there is, from 1.
    """

    rows: Any
    first: int = field(default=1, kw_only=True)
    scans_lines: ClassVar[bool] = False
    default_end: ClassVar[bytes] = b""

    @property
    def documents(self) -> int:
        """How many rows."""
        return len(self.rows)

    lines = size = documents

    @cached_property
    def texts(self) -> list[Any]:
        """The text of each row."""
        raise NotImplementedError

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


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """A document is a row; files of each kind say how their tables are read and written.

    An inserted row copies its other columns from the row that it is put before, except those for
    which `fields` gives a constant.

    Attributes:
        text_field: the column that holds the text.
        fields: constants for other columns of inserted rows.
    """

    separator: ClassVar[str | None] = None
    place: ClassVar[str] = "row"
    text_field: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def tables(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The tables of a file, one at a time.

        Args:
            path: of the file.
            columns: these only, in pieces of any size; None: all, as they are in the file.

        Raises:
            CorpusError: it cannot be read.
        """
        raise NotImplementedError

    def parts(
        self, path: Path, *, name: str, taken: Taken | None, known: bool, first_end: bytes
    ) -> Iterator["TablePart"]:
        """The tables of a file as parts; of what is not known, the text alone."""
        first = 1
        for table in self.tables(path, None if known else [self.text_field]):
            part = TablePart(table, self, first=first)
            first += len(table)
            for piece in part.pieces():
                if taken is not None:
                    taken(piece.content)
                if not known:
                    yield piece
            if known:
                yield part
            del table, part  # before the next is read

    def compared(self, path: Path) -> AbstractContextManager[Same]:
        """Compares what was written with the tables of a file, one after another."""
        return in_turn(self.parts(path, name=str(path), taken=None, known=True, first_end=b""))

    def documents(self, path: Path) -> Iterator[str]:
        """The text of each document."""
        for part in self.parts(path, name="", taken=None, known=False, first_end=b""):
            yield from part.texts

    def check_schema(self, schema: Any) -> None:
        """Refuse a table without the text.

        Raises:
            CorpusError: no such column, or not of strings.
        """
        import pyarrow as pa

        name = self.text_field
        for column in (name, *self.fields):
            check_once(schema.names, column)
        if name not in schema.names:
            raise CorpusError(
                f"no column {name!r}; name the one that holds the text: {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise CorpusError(
                f"column {name!r} holds {kind}, not strings; name the one with the text"
            )


@dataclass(frozen=True)
class TablePart(Rows):
    """A `pyarrow.Table` as a part of a corpus (see `insertion.Part`).

    Attributes:
        layout: which column holds the text.
    """

    layout: TableLayout

    @cached_property
    def texts(self) -> list[str]:
        """The text of each row, or a refusal where a row has none."""
        texts: list[str] = self.rows.column(self.layout.text_field).to_pylist()
        if None in texts:
            row = self.first + texts.index(None)  # type: ignore[arg-type]
            raise CorpusError(f"row {row}: {self.layout.text_field!r} is null; leave such rows out")
        return texts

    @property
    def content(self) -> bytes:
        """As of `Rows`, but not kept: of a whole table it is as large as this."""
        lines = (text_line(n, text) for part in self.pieces() for n, text in part.searched(()))
        return b"".join(lines)

    def pieces(self) -> "Iterator[TablePart]":
        """A few rows at a time, since texts take more memory in Python than in Arrow."""
        size = self.rows.column(self.layout.text_field).nbytes
        rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES * len(self.rows) // max(1, size)))
        for start in range(0, len(self.rows), rows):
            piece = self.rows.slice(start, rows)
            yield TablePart(piece, self.layout, first=self.first + start)

    def merged(self, added: Sequence[tuple[int, str]]) -> Merged:
        """With rows more; see `insertion.Part`."""
        import pyarrow as pa

        if not added:
            return Merged(self, [])
        pieces, done = [], 0
        for row, text in added:
            pieces += [self.rows.slice(done, row - done), self._row(row, text)]
            done = row
        table = pa.concat_tables([*pieces, self.rows.slice(done)])
        part = TablePart(table, self.layout, first=self.first)
        return Merged(part, [(row + number, 1) for number, (row, _) in enumerate(added)])

    def without(self, documents: Sequence[int]) -> tuple["TablePart", list[str | None]]:
        """The rest without these rows, and their texts; see `insertion.Part`."""
        import pyarrow as pa

        if not documents:
            return self, []
        # Arrow filters no column of views.
        starts = [0, *(row + 1 for row in documents)]
        stops = [*documents, len(self.rows)]
        pieces = [self.rows.slice(a, b - a) for a, b in zip(starts, stops, strict=True)]
        rest, texts = pa.concat_tables(pieces), self.rows.column(self.layout.text_field)
        return TablePart(rest, self.layout), [texts[row].as_py() for row in documents]

    def same(self, other: Any) -> bool:
        """Whether every column of every row is the same."""
        if self.rows.equals(other.rows) or len(self.rows) != len(other.rows):
            return len(self.rows) == len(other.rows)
        # Arrow says that not-a-number differs from itself; as Python spells them, it does not.
        return all(
            repr(self.rows.slice(start, _PIECE_ROWS).to_pylist())
            == repr(other.rows.slice(start, _PIECE_ROWS).to_pylist())
            for start in range(0, len(self.rows), _PIECE_ROWS)
        )

    def _row(self, number: int, text: str) -> Any:
        import pyarrow as pa

        row = self.rows.slice(number, 1)
        given = {**self.layout.fields, self.layout.text_field: text}
        check_columns(row.column_names, given)
        for name, value in given.items():
            place = row.schema.get_field_index(name)
            column = row.schema.field(place)
            try:
                cell = pa.array([value], type=column.type)
            except (pa.ArrowException, TypeError, OverflowError):
                raise unfit(name, column.type) from None
            row = row.set_column(place, column, cell)
        return row


def check_once(names: Sequence[Any], name: str) -> None:
    """Refuse two columns of one name."""
    if list(names).count(name) > 1:
        raise CorpusError(f"there are two columns {name!r}; rename one")


def check_columns(names: Sequence[Any], wanted: Iterable[str], hint: str = "") -> None:
    """Refuse rows without one of these columns, and name those that are there; or with two."""
    for name in wanted:
        check_once(names, name)
        if name not in names:
            listed = ", ".join(map(str, names)) or "none"
            raise CorpusError(f"no column {name!r}; there are {listed}{hint}")


def unfit(name: object, kind: object) -> CorpusError:
    """The error about what does not go into a column of this type."""
    return CorpusError(
        f"the text or constant for column {name!r} is not of its type, {kind}; give another, or "
        "another type"
    )
