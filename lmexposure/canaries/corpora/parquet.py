"""Parquet files: row groups come and go one at a time, and stay; so does each one's compression."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar

from lmexposure.canaries.corpora.tables import TableLayout
from lmexposure.errors import CorpusError

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

        with _opened(path) as file:
            self.check_schema(file.schema_arrow)
            for group in range(file.metadata.num_row_groups):
                if columns is None:
                    yield _whole(file, group)
                    continue
                for batch in _batches(file, group, columns):
                    yield pa.Table.from_batches([batch])

    @contextmanager
    def writer(self, stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
        """A part becomes a row group, with the schema and compression of that file."""
        from pyarrow.parquet import ParquetWriter

        with _opened(like) as file:
            schema, compression = file.schema_arrow, _compression(file)
        with ParquetWriter(stream, schema, compression=compression) as writer:
            yield lambda part: writer.write_table(part.rows, row_group_size=max(1, len(part.rows)))


def layout_of(name: str, text_field: str, fields: Mapping[str, Any]) -> Parquet:
    return Parquet(text_field=text_field, fields=dict(fields))


def _whole(file: Any, group: int) -> Any:
    """A row group as a table."""
    import pyarrow as pa

    batches, tables = _batches(file, group, None), []
    # Batches may be of a single row, and each takes a kilobyte or two of its own.
    while some := list(islice(batches, _MOST_ROWS)):
        tables.append(pa.Table.from_batches(some).combine_chunks())
    return pa.concat_tables(tables).combine_chunks() if tables else file.read_row_group(group)


def _batches(file: Any, group: int, columns: list[str] | None) -> Iterator[Any]:
    """Some rows of a row group at a time, so few that no repeated value makes them large.

    A value is in the file once, however many rows have it: a few kilobytes say terabytes. A row
    group of more than `_LARGEST_GROUP`, or than its file has reason to take, is refused.
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
            _check_plain(raw, file)
            yield file
    except (pa.ArrowException, OSError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure).split("\n")[0]
        raise CorpusError(
            f"cannot read the corpus {path}: {reason}; give a whole Parquet file"
        ) from failure


def _check_plain(raw: IO[bytes], file: Any) -> None:
    """Refuse encryption under a plain footer: pyarrow would end the process at such a column."""
    raw.seek(-8, os.SEEK_END)
    footer = int.from_bytes(raw.read(4), "little")
    if footer == file.metadata.serialized_size + _SIGNATURE_BYTES:
        raise CorpusError("it has encrypted columns; give a file that is not encrypted")


def _compression(file: Any) -> Any:
    """Each column's own; the first row group speaks for all."""
    if not file.metadata.num_row_groups:
        return "snappy"
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    spelled = {one.path_in_schema: one.compression.lower() for one in columns}
    return {name: "none" if kind == "uncompressed" else kind for name, kind in spelled.items()}
