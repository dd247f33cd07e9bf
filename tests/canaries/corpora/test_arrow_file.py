"""Arrow IPC in, Arrow IPC out: batches, schema, other columns and kind as they were."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    insert_files,
    layout_named,
    preview_insertion,
    read_documents,
)
from lmexposure.canaries.removal import remove_from_files
from lmexposure.canaries.verification import count_files
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4, witness=False)
ARROW = layout_named("arrow")
KINDS = [pa.ipc.new_file, pa.ipc.new_stream]


def table(first: int = 0, count: int = 40) -> pa.Table:
    numbers = range(first, first + count)
    columns = {
        "id": pa.array(numbers, pa.int16()),
        "text": pa.array([f"row {n} zürich" for n in numbers], pa.large_string()),
        "kind": pa.array(["a", "b", None, "a"] * (count // 4)).dictionary_encode(),
        "view": pa.array(["x"] * count, pa.string_view()),
        "tags": pa.array([[str(n)] if n % 3 else None for n in numbers]),
    }
    return pa.table(columns, metadata={"made": "by hand"})


def written(path: Path, rows: pa.Table, kind: Callable[..., Any] = pa.ipc.new_file) -> Path:
    with kind(str(path), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=15)
        writer.write_batch(rows.slice(0, 1).to_batches()[0].slice(0, 0))
    return path


def read(path: Path) -> tuple[Any, list[Any], bool]:
    """(schema, batches, whether it is a file and no stream)."""
    is_file = path.read_bytes().startswith(b"ARROW1")
    with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(str(path)) as reader:
        if is_file:
            count = reader.num_record_batches
            return reader.schema, [reader.get_batch(n) for n in range(count)], True
        return reader.schema, list(reader), False


def insert(source: Path, **options: Any) -> tuple[Path, Manifest]:
    manifest = insert_files(source, source.with_name("out"), PLAN, **options)
    return source.with_name("out") / "corpus" / source.name, manifest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a.arrow", "A.FEATHER"])
def test_rows_go_in_and_come_out(tmp_path: Path, name: str, kind: Any) -> None:
    source = written(tmp_path / name, table(), kind)
    copy, manifest = insert(source)
    (schema, before, is_file), (after_schema, after, after_is_file) = read(source), read(copy)
    assert after_schema.equals(schema, check_metadata=True)
    assert (is_file, len(before)) == (after_is_file, len(after)) == (kind is pa.ipc.new_file, 4)
    rows = pa.Table.from_batches(after).to_pylist()
    assert [row for row in rows if "PIN" not in row["text"]] == table().to_pylist()
    for row, following in pairwise(rows):
        if "PIN" in row["text"]:
            assert {**row, "text": ""} == {**following, "text": ""}
    assert (manifest.layout, manifest.separator, manifest.corpus.documents) == ("arrow", None, 40)
    assert Manifest.read(tmp_path / "out" / "manifest.json") == manifest
    assert list(read_documents(copy, layout="arrow")) == [row["text"] for row in rows]
    assert count_files([copy], manifest, layout=ARROW).as_inserted
    assert preview_insertion([source], PLAN, layout=ARROW).insertions == 9
    assert insert(source) == (copy, manifest)
    assert remove_from_files([copy], manifest, tmp_path / "back").checked
    back_schema, back, _ = read(tmp_path / "back")
    assert (back_schema, [len(batch) for batch in back]) == (schema, [15, 15, 10, 0])
    assert pa.Table.from_batches(back).equals(table())


def test_constants(tmp_path: Path) -> None:
    source = written(tmp_path / "a.arrow", table())
    copy, _ = insert(source, fields={"id": 7, "kind": "b", "view": None})
    rows = pa.Table.from_batches(read(copy)[1]).to_pylist()
    made = [(r["id"], r["kind"], r["view"]) for r in rows if "PIN" in r["text"]]
    assert made == [(7, "b", None)] * 9
    with pytest.raises(CorpusError, match=r"with canaries: Dictionary repl.*; give constants that"):
        insert_files(source, tmp_path / "other", PLAN, fields={"kind": "new"})
