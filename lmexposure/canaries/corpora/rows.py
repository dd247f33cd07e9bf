"""Parquet files: a document is a row, and one of its columns holds the text.

Row groups come and go one at a time; schema, compression and the other columns stay as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from lmexposure.canaries.corpora.merging import Merger, Occurrence
from lmexposure.canaries.plan import Canary
from lmexposure.errors import CorpusError

_LARGEST_GROUP = 1 << 31  # bytes in memory
_LARGEST_RATIO = 1000  # of memory and file: no text is packed so well
_BATCH_BYTES = 1 << 28
_MOST_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The layout "parquet".

    An inserted row copies its other columns from the row that it stands before, except those for
    which `fields` gives a constant.
    """

    name: ClassVar[Literal["parquet"]] = "parquet"
    text_field: str
    fields: Mapping[str, Any] = field(default_factory=dict)


def row_groups(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """The row groups, each a `pyarrow.Table`, one at a time.

    Raises:
        CorpusError: missing, cut short, damaged, not Parquet, or a row group too large.
    """
    import pyarrow as pa

    with _opened(path) as file:
        for group in range(file.metadata.num_row_groups):
            batches = list(_batches(file, group, columns))
            if batches:
                yield pa.Table.from_batches(batches).combine_chunks()
            else:
                yield file.read_row_group(group, columns=columns)


def _batches(file: Any, group: int, columns: list[str] | None) -> Iterator[Any]:
    """Some rows of a row group at a time, so few that no repeated value makes them large.

    A value is in the file once, however many rows have it: a few kilobytes say terabytes.

    Raises:
        CorpusError: the row group takes more memory than `_LARGEST_GROUP`, or than a file of its
            size has reason to.
    """
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
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as raw, ParquetFile(raw) as file:
            yield file
    except (pa.ArrowException, OSError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure).split("\n")[0]
        raise CorpusError(
            f"cannot read the corpus {path}: {reason}; give a whole Parquet file"
        ) from failure


def row_texts(path: Path, text_field: str) -> Iterator[tuple[int, str]]:
    """(number of the row, from 1; its text).

    Raises:
        CorpusError: the file cannot be read, has no such column of strings, or a row has no text.
    """
    with _opened(path) as file:
        _check_column(file.schema_arrow, text_field)
        number = 0
        for group in range(file.metadata.num_row_groups):
            for batch in _batches(file, group, [text_field]):
                for text in _texts(batch, text_field):
                    number += 1
                    if text is None:
                        raise CorpusError(
                            f"row {number}: {text_field!r} is null; leave such rows out"
                        )
                    yield number, text


def copy_rows(path: Path, stream: IO[bytes], rows: Rows, merger: Merger) -> None:
    """Write the file with its canaries.

    Raises:
        CorpusError: the file cannot be read, or a constant does not fit its column.
    """
    written = 0
    with row_writer(stream, path) as write:
        for table in row_groups(path):
            first = merger.document
            places = merger.take(len(table))
            merged, at = _merged(table, first, places, rows)
            merger.occurrences += [
                Occurrence(id=canary.id, document=place, offset=written + row, length=1)
                for row, (place, canary) in zip(at, places, strict=True)
            ]
            written += len(merged)
            write(merged)


@contextmanager
def row_writer(stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
    """A function that writes a table as a row group, with the schema and compression of a file."""
    from pyarrow.parquet import ParquetWriter

    with _opened(like) as file:
        schema, compression = file.schema_arrow, _compression(file)
    with ParquetWriter(stream, schema, compression=compression) as writer:
        yield lambda table: writer.write_table(table, row_group_size=max(1, len(table)))


def _texts(rows: Any, text_field: str) -> list[str]:
    texts: list[str] = rows.column(text_field).to_pylist()
    return texts


def _compression(file: Any) -> Any:
    """Each column's own; the first row group speaks for all."""
    if not file.metadata.num_row_groups:
        return "snappy"
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema: _spelled(one.compression) for one in columns}


def _spelled(compression: str) -> str:
    return "none" if compression == "UNCOMPRESSED" else compression.lower()


def _check_column(schema: Any, name: str) -> None:
    import pyarrow as pa

    if name not in schema.names:
        raise CorpusError(
            f"no column {name!r}; name the one that holds the text: {', '.join(schema.names)}"
        )
    kind = schema.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise CorpusError(f"column {name!r} holds {kind}, not strings; name the one with the text")


def _merged(
    table: Any, first: int, places: list[tuple[int, Canary]], rows: Rows
) -> tuple[Any, list[int]]:
    """The row group with its canaries, and the number of each canary's row in it."""
    import pyarrow as pa

    if not places:
        return table, []
    pieces: list[Any] = []
    at: list[int] = []
    done = 0
    for place, canary in places:
        row = place - first
        pieces += [table.slice(done, row - done), _row(table.slice(row, 1), canary.text, rows)]
        at.append(row + len(at))
        done = row
    return pa.concat_tables([*pieces, table.slice(done)]), at


def _row(neighbour: Any, text: str, rows: Rows) -> Any:
    import pyarrow as pa

    row = neighbour
    for name, value in {**rows.fields, rows.text_field: text}.items():
        if name not in row.column_names:
            raise CorpusError(f"no column {name!r}; there are {', '.join(row.column_names)}")
        place = row.schema.get_field_index(name)
        column = row.schema.field(place)
        try:
            cell = pa.array([value], type=column.type)
        except (pa.ArrowException, TypeError) as failure:
            raise CorpusError(
                f"fields[{name!r}] does not fit its column of {column.type}: "
                f"{type(failure).__name__}"
            ) from None
        row = row.set_column(place, column, cell)
    return row
