"""Arrow IPC: files (Feather is the same) and streams; batches come and go one at a time, and stay.

A copy's batches are not compressed, whatever those of its source are.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from lmexposure.canaries.corpora.tables import TableLayout
from lmexposure.errors import CorpusError

_MAGIC = b"ARROW1"  # a file begins with it, and a stream does not


@dataclass(frozen=True, kw_only=True)
class ArrowFile(TableLayout):
    """The layout "arrow"."""

    name: ClassVar[str] = "arrow"

    def tables(self, path: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The record batches, one at a time."""
        import pyarrow as pa

        with _opened(path) as (reader, _):
            self.check_schema(reader.schema)
            count = getattr(reader, "num_record_batches", None)  # a stream does not know
            for batch in reader if count is None else map(reader.get_batch, range(count)):
                batch.validate(full=True)
                table = pa.Table.from_batches([batch])
                yield table if columns is None else table.select(columns)

    @contextmanager
    def writer(self, stream: IO[bytes], like: Path) -> Iterator[Callable[[Any], object]]:
        """A part becomes a batch, with the schema and kind of that file, and its dictionaries."""
        import pyarrow as pa

        with _opened(like) as (reader, is_file):
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


def layout_of(name: str, text_field: str, fields: Mapping[str, Any]) -> ArrowFile:
    return ArrowFile(text_field=text_field, fields=dict(fields))


def _one_batch(table: Any, schema: Any) -> Any:
    import pyarrow as pa

    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, bool]]:
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
