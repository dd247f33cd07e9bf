"""Parquet in, Parquet out: rows, schema, row groups and compression as they were."""

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    insert_files,
    layout_named,
    preview_insertion,
)
from lmexposure.canaries.corpora import tables
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4, witness=False)


def written(path: Path, texts: list[str | None] | None = None, first: int = 0) -> Path:
    texts = texts or [f"row {first + n} zürich" for n in range(40)]
    table = pa.table(
        {
            "id": pa.array(range(first, first + len(texts)), pa.int32()),
            "body": pa.array(texts, pa.large_string()),
            "tags": pa.array([[str(n)] for n in range(len(texts))], pa.list_(pa.string())),
        },
        metadata={"made": "by hand"},
    )
    pq.write_table(table, path, row_group_size=15, compression={"id": "none", "body": "zstd"})
    return path


BODY = layout_named("parquet", text_field="body")


def insert(source: Path, **options: Any) -> Manifest:
    return insert_files(source, source.with_name("out"), PLAN, text_field="body", **options)


def test_constants_and_a_preview(tmp_path: Path) -> None:
    source = written(tmp_path / "a.parquet")
    insert(source, fields={"id": 7})
    rows = pq.read_table(tmp_path / "out" / "corpus" / "a.parquet").to_pylist()
    assert {row["id"] for row in rows if "PIN" in row["body"]} == {7}
    preview = preview_insertion([source], PLAN, layout=BODY)
    assert (preview.documents, preview.insertions, preview.bytes_added > 0) == (40, 9, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": {"id": "seven"}}, "for column 'id' is not of its type, int32; give"),
        ({"fields": {"new": 1}}, "no column 'new'; there are id, body, tags"),
        ({"fields": {"body": "x"}}, "fields must leave out the text field 'body'"),
    ],
)
def test_refused_columns(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = written(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=message):
        insert_files(source, tmp_path / "out", PLAN, **{"text_field": "body", **options})


def test_a_row_group_of_one_value_takes_no_more_memory_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value is in the file once, whatever the number of rows that have it."""
    path = tmp_path / "bomb.parquet"
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        writer.write_table(pa.table({"text": ["x" * 100_000] * 500}), row_group_size=500)
    assert path.stat().st_size < 2_000
    monkeypatch.setattr(tables, "_LARGEST_GROUP", 1 << 22)
    monkeypatch.setattr(tables, "_BATCH_BYTES", 1 << 20)
    before, peak = pa.total_allocated_bytes(), 0
    layout = tables.Parquet(schema=RowSchema("text"))
    for read in (lambda: layout.documents(path), lambda: layout.tables(path)):
        with pytest.raises(CorpusError, match=r"row group 0 takes more than [12] MiB of memory"):
            for _ in read():
                peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < 3 << 20
    monkeypatch.setattr(tables, "_LARGEST_GROUP", 1 << 10)
    with pytest.raises(CorpusError, match="write the file again in smaller row groups"):
        next(layout.documents(path))


@pytest.mark.parametrize("column", ["text", "other"])
@pytest.mark.parametrize("plain_footer", [True, False])
def test_encrypted_files_are_refused(tmp_path: Path, column: str, plain_footer: bool) -> None:
    """Under a plain footer pyarrow aborts the process when it is asked about the column."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def wrap_key(self, key: bytes, name: str) -> bytes:
            return base64.b64encode(key)

    factory = encryption.CryptoFactory(lambda _: Keys())
    settings = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"key": [column]}, plaintext_footer=plain_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    table = pa.table({"text": ["a", "b"], "other": ["x", "y"]})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    expected = "has encrypted columns; give a file" if plain_footer else "cannot read the corpus"
    with pytest.raises(CorpusError, match=expected):
        insert_files(path, tmp_path / "out", PLAN)


def test_a_group_that_is_read_a_row_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "a.parquet")
    whole = list(BODY.tables(source))  # type: ignore[attr-defined]
    monkeypatch.setattr(tables, "_MOST_ROWS", 2)
    monkeypatch.setattr(tables, "_BATCH_BYTES", 1)
    assert [table.num_rows for table in whole] == [15, 15, 10]
    assert list(BODY.tables(source)) == whole  # type: ignore[attr-defined]
    assert [len(table) for table in BODY.tables(source, ["body"])] == [1] * 40  # type: ignore[attr-defined]
