"""Tables of Arrow as parts of a corpus, and the files that hold them: Parquet and Arrow IPC."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar

from lmexposure.canaries.fills import Sought
from lmexposure.canaries.insertion import Merged, Same, Taken, in_turn, text_line
from lmexposure.canaries.row_schema import RowSchema, check_columns, check_once
from lmexposure.errors import CorpusError

_PIECE_ROWS = 4096
_PIECE_BYTES = 1 << 24


@dataclass(frozen=True)
class Rows(ABC):
    """What parts of a corpus have in common whose documents are rows (see `insertion.Part`)."""

    rows: Any  # what holds them
    # number of the first row in the file or in all that there is, from 1
    first: int = field(default=1, kw_only=True)
    scans_lines: ClassVar[bool] = False
    default_end: ClassVar[bytes] = b""

    @property
    def documents(self) -> int:
        """How many rows."""
        return len(self.rows)

    lines = size = documents

    @cached_property
    @abstractmethod
    def texts(self) -> list[Any]:
        """The text of each row."""

    @cached_property
    def content(self) -> bytes:
        """The texts as JSON, one a line."""
        return b"".join(text_line(n, text) for n, text in enumerate(self.texts, self.first))

    @property
    def visible(self) -> bool:
        """Whether any text is more than white space."""
        return any(text.strip() for text in self.texts)

    def searched(self, sought: Sought) -> Iterator[tuple[int, str]]:
        """Of these rows; see `insertion.Part`."""
        return sought.among(self.numbered())

    def numbered(self) -> Iterator[tuple[int, str]]:
        """(number of the row, text) of each; what is no text is refused."""
        for number, text in enumerate(self.texts, self.first):
            if not isinstance(text, str):
                text_line(number, text)  # refuses it
            yield number, text


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """A document is a row; files of each kind say how their tables are read and written."""

    separator: ClassVar[str | None] = None
    place: ClassVar[str] = "row"
    schema: RowSchema  # what of a row is its text, and what a canary makes of it

    def tables(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The tables of a file, one at a time."""
        raise NotImplementedError  # of rows that are in no file

    def parts(
        self, path: Path, *, name: str, taken: Taken | None, known: bool, first_end: bytes
    ) -> Iterator["TablePart"]:
        """The tables of a file as parts; of what is not known, the text alone."""
        first = 1
        searched = [] if self.schema.chat else [str(self.schema.name)]
        for table in self.tables(path, None if known else searched):
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

    def records(self, path: Path) -> Iterator[dict[str, Any]]:
        """Each row with all its columns."""
        for table in self.tables(path, []):
            for start in range(0, len(table), _PIECE_ROWS):
                yield from table.slice(start, _PIECE_ROWS).to_pylist()

    def check_schema(self, schema: Any) -> None:
        """Refuse a table without the text."""
        import pyarrow as pa

        if self.schema.chat:
            self.schema.check_columns(schema.names)
            return
        name = str(self.schema.name)
        for column in (name, *self.schema.fields):
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
    """A `pyarrow.Table` as a part of a corpus (see `insertion.Part`)."""

    layout: TableLayout  # which column holds the text

    @cached_property
    def texts(self) -> list[str]:
        """The text of each row, or a refusal where a row has none."""
        schema = self.layout.schema
        if schema.chat:
            return [schema.text(n, row) for n, row in enumerate(self.rows.to_pylist(), self.first)]
        texts: list[str] = self.rows.column(schema.name).to_pylist()
        if None in texts:
            row = self.first + texts.index(None)  # type: ignore[arg-type]
            raise CorpusError(f"row {row}: {schema.name!r} is null; leave such rows out")
        return texts

    @property
    def content(self) -> bytes:
        """As of `Rows`, but not kept: of a whole table it is as large as this."""
        lines = (text_line(n, text) for part in self.pieces() for n, text in part.numbered())
        return b"".join(lines)

    def pieces(self) -> "Iterator[TablePart]":
        """A few rows at a time, since texts take more memory in Python than in Arrow."""
        schema = self.layout.schema
        size = self.rows.nbytes if schema.chat else self.rows.column(schema.name).nbytes
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
        rest = TablePart(pa.concat_tables(pieces), self.layout)
        schema = self.layout.schema
        rows = self.rows if schema.chat else self.rows.select([schema.name])
        inserted = (rows.slice(number, 1).to_pylist()[0] for number in documents)
        return rest, [schema.canary(row) for row in inserted]

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
        given = self.layout.schema.written(text, row.column_names)
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


def unfit(name: object, kind: object) -> CorpusError:
    """The error about what does not go into a column of this type."""
    return CorpusError(
        f"the text or constant for column {name!r} is not of its type, {kind}; give another, or "
        "another type"
    )


_LARGEST_GROUP = 1 << 31  # bytes in memory
_LARGEST_RATIO = 1000  # of memory and file: no text is packed so well
_BATCH_BYTES = 1 << 28
_MOST_ROWS = 4096
_SIGNATURE_BYTES = 28  # behind a plain footer, where columns are encrypted


@dataclass(frozen=True, kw_only=True)
class Parquet(TableLayout):
    """The layout "parquet"."""

    name: ClassVar[str] = "parquet"

    def tables(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The row groups, one at a time, or some rows of one with some of its columns."""
        import pyarrow as pa

        with _open_parquet(path) as file:
            self.check_schema(file.schema_arrow)
            for group in range(file.metadata.num_row_groups):
                if columns is None:
                    yield _whole(file, group)
                    continue
                for batch in _batches(file, group, columns or None):
                    yield pa.Table.from_batches([batch])

    @contextmanager
    def writer(self, stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
        """A part becomes a row group, with the schema and compression of that file."""
        from pyarrow.parquet import ParquetWriter

        with _open_parquet(like) as file:
            schema, compression = file.schema_arrow, _compression(file)
        with ParquetWriter(stream, schema, compression=compression) as writer:
            yield lambda part: writer.write_table(part.rows, row_group_size=max(1, len(part.rows)))


def _whole(file: Any, group: int) -> Any:
    """A row group as a table."""
    import pyarrow as pa

    batches, tables = _batches(file, group, None), []
    # Batches may be of a single row, and each takes a kilobyte or two of its own.
    while some := list(islice(batches, _MOST_ROWS)):
        tables.append(pa.Table.from_batches(some).combine_chunks())
    return pa.concat_tables(tables).combine_chunks() if tables else file.read_row_group(group)


def _batches(file: Any, group: int, columns: list[str] | None) -> Iterator[Any]:
    """Some rows of a row group at a time, so few that no repeated value makes them large."""
    about = file.metadata.row_group(group)
    chunks = [about.column(number) for number in range(about.num_columns)]
    longest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
    packed = sum(chunk.total_compressed_size for chunk in chunks)
    most = min(_LARGEST_GROUP, max(_BATCH_BYTES, _LARGEST_RATIO * packed))
    _check_group(group, longest, most)
    rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // max(1, longest)))
    size = 0
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=columns):
        size += batch.nbytes
        _check_group(group, size, most)
        yield batch


def _check_group(group: int, size: int, most: int) -> None:
    if size > most:
        raise CorpusError(
            f"row group {group} takes more than {most / 2**20:.0f} MiB of memory when it is read; "
            "write the file again in smaller row groups"
        )


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as raw, ParquetFile(raw) as file:
            # Encryption under a plain footer: pyarrow would end the process at such a column.
            raw.seek(-8, os.SEEK_END)
            footer = int.from_bytes(raw.read(4), "little")
            if footer == file.metadata.serialized_size + _SIGNATURE_BYTES:
                raise CorpusError("it has encrypted columns; give a file that is not encrypted")
            yield file
    except (pa.ArrowException, OSError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure).split("\n")[0]
        raise CorpusError(
            f"cannot read the corpus {path}: {reason}; give a whole Parquet file"
        ) from failure


def _compression(file: Any) -> Any:
    """Each column's own; the first row group speaks for all."""
    if not file.metadata.num_row_groups:
        return "snappy"
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    spelled = {column.path_in_schema: column.compression.lower() for column in columns}
    return {name: "none" if kind == "uncompressed" else kind for name, kind in spelled.items()}


_MAGIC = b"ARROW1"  # a file begins with it, and a stream does not


@dataclass(frozen=True, kw_only=True)
class ArrowFile(TableLayout):
    """The layout "arrow"."""

    name: ClassVar[str] = "arrow"

    def tables(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The record batches, one at a time."""
        import pyarrow as pa

        with _open_arrow(path) as (reader, _):
            self.check_schema(reader.schema)
            count = getattr(reader, "num_record_batches", None)  # a stream does not know
            for batch in reader if count is None else map(reader.get_batch, range(count)):
                batch.validate(full=True)
                table = pa.Table.from_batches([batch])
                yield table.select(columns) if columns else table

    @contextmanager
    def writer(self, stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
        """A part becomes a batch, with the schema and kind of that file, and its dictionaries."""
        import pyarrow as pa

        with _open_arrow(like) as (reader, is_file):
            schema = reader.schema
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        new = pa.ipc.new_file if is_file else pa.ipc.new_stream
        try:
            with new(stream, schema, options=options) as writer:
                yield lambda part: writer.write_batch(_one_batch(part.rows, schema))
        except pa.ArrowInvalid as failure:
            raise CorpusError(
                f"cannot write {like.name} with canaries: {failure}; give constants that its "
                "dictionaries hold"
            ) from failure


def _one_batch(table: Any, schema: Any) -> Any:
    import pyarrow as pa

    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _open_arrow(path: Path) -> Iterator[tuple[Any, bool]]:
    """(reader, whether it is a file and no stream)."""
    import pyarrow as pa

    try:
        with open(path, "rb") as raw:
            is_file = raw.read(len(_MAGIC)) == _MAGIC
            raw.seek(0)
            with pa.ipc.open_file(raw) if is_file else pa.ipc.open_stream(raw) as reader:
                yield reader, is_file
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure).split("\n")[0]
        raise CorpusError(
            f"cannot read the corpus {path}: {reason}; give a whole Arrow file or stream"
        ) from failure


def layout_of(name: str, schema: RowSchema) -> Parquet | ArrowFile:
    """The layout "parquet" or "arrow"."""
    return Parquet(schema=schema) if name == Parquet.name else ArrowFile(schema=schema)
