"""Tables of Arrow in Parquet and Arrow IPC: rows go in and come out, all else is as it was."""

import base64
import hashlib
import tracemalloc
from collections.abc import Callable, Mapping
from itertools import pairwise
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
    read_documents,
)
from lmexposure.canaries.corpora import tables
from lmexposure.canaries.corpora.tables import TableLayout, TablePart
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.verification import count_files, remove_from_files
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=9)
COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(["one", "two", "three"]),
    "kind": pa.array(["a", None, "a"]).dictionary_encode(),
    "view": pa.array(["x", "y", None], pa.string_view()),
    "raw": pa.array([b"\0", b"", None], pa.binary_view()),
    "nested": pa.array([{"of": [1, 2]}, None, {"of": []}]),
    "when": pa.array([0, 1, None], pa.timestamp("us", tz="UTC")),
    "number": pa.array([float("nan"), None, 1.5]),
    "nothing": pa.nulls(3),
}


def part(table: Any, **fields: Any) -> TablePart:
    return TablePart(table, TableLayout(schema=RowSchema("text", fields)))


def test_merged_and_cut_again() -> None:
    table = pa.table(COLUMNS, metadata={"made": "by hand"})
    merged = part(table).merged([(0, "A"), (2, "B"), (2, "C")])
    made: Any = merged.part
    assert merged.spans == [(0, 1), (3, 1), (4, 1)]
    assert made.texts == ["A", "one", "two", "B", "C", "three"]
    assert made.rows.schema.equals(table.schema, check_metadata=True)
    for name in COLUMNS.keys() - {"text", "number"}:
        values = table.column(name).to_pylist()
        expected = [values[row] for row in (0, 0, 1, 2, 2, 2)]
        assert made.rows.column(name).to_pylist() == expected
    rest, texts = made.without([0, 3, 4])
    assert texts == ["A", "B", "C"]
    assert rest.same(part(table))  # whatever is not a number
    assert rest.content == part(table).content
    assert not rest.same(part(table.set_column(3, "raw", pa.array([b"\1", b"", None]))))


@pytest.mark.parametrize(
    "fields", [{"kind": "b"}, {"view": "z"}, {"when": None}, {"nothing": None}]
)
def test_constants_of_every_type(fields: Mapping[str, Any]) -> None:
    merged: Any = part(pa.table(COLUMNS), **fields).merged([(1, "A")]).part
    assert {name: merged.rows.column(name)[1].as_py() for name in fields} == fields
    assert merged.rows.schema.equals(pa.table(COLUMNS).schema)


def test_a_table_of_many_rows_is_not_held_as_texts(tmp_path: Path) -> None:
    """Of 22 KB on the disk Python would make hundreds of megabytes."""
    rows = 100_000
    table = pa.table({"text": ["ab"] * rows, "number": [float("nan")] * rows})
    pq.write_table(table, tmp_path / "a.parquet")
    layout = layout_named("parquet")
    digest, several = hashlib.sha256(), hashlib.sha256(b'"ab"\n' * rows)
    tracemalloc.start()
    for known, lengths in ((True, [rows]), (False, [4096] * 24 + [1696])):
        seen, first = [], 1
        parts = layout.parts(
            tmp_path / "a.parquet", name="", taken=digest.update, known=known, first_end=b""
        )
        for each in parts:
            assert isinstance(each, TablePart)
            assert each.first == first
            seen.append(len(each.rows))
            first += len(each.rows)
        assert seen == lengths
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20  # bytes; the texts in one list are 5.5 MB
    several.update(b'"ab"\n' * rows)
    assert digest.digest() == several.digest()
    assert part(table).same(part(pa.concat_tables([table.slice(0, 5000), table.slice(5000)])))
    assert not part(table).same(part(table.slice(1)))
    other = pa.table({"text": ["ab"] * rows, "number": [float("nan")] * (rows - 1) + [0.0]})
    assert not part(table).same(part(other))


def stored(path: Path, names: tuple[str, ...] | None = None, **columns: Any) -> None:
    rows = pa.table(columns)
    rows = rows if names is None else rows.rename_columns(names)
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=15)
        return
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=15)


def zeroed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8 : len(data) // 2] = bytes(len(data) // 2 - 8)
    path.write_bytes(data)


TEXT, NO_TEXT = COLUMNS["text"], "column 'text' holds .*, not strings; name the one with"
WHOLE = "cannot read the corpus .*; give a whole (Parquet file|Arrow file or stream)"
HARMS: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_bytes(path.read_bytes()[:-100]), WHOLE),
    (zeroed, WHOLE),
    (lambda path: path.write_bytes(b"text\n" * 9), WHOLE),
    (lambda path: path.write_bytes(b""), WHOLE),
    (lambda path: path.unlink(), "cannot read the corpus .*No such file"),
    (lambda path: stored(path, text=["a", None, "b"]), "row 2: 'text' is null; leave such rows"),
    (lambda path: stored(path, text=["", "  "]), "holds only blank lines"),
    (lambda path: stored(path, text=["a", "b My PIN is 0001"]), r"pin 1 times \(row 2\)"),
    (lambda path: stored(path, id=[1]), "no column 'text'; name the one"),
    (lambda path: stored(path, text=[1]), "column 'text' holds int64, not str"),
    (lambda path: stored(path, text=TEXT.dictionary_encode()), NO_TEXT),
    (lambda path: stored(path, text=TEXT.cast(pa.string_view())), NO_TEXT),
    (lambda path: stored(path, text=COLUMNS["raw"]), NO_TEXT),
    (lambda path: stored(path, ("text", "text"), a=["a"], b=["b"]), "there are two columns 'text'"),
    (
        lambda path: stored(path, ("text", "id", "id"), a=["a"], b=[1], c=[2]),
        "there are two columns 'id'; rename one",
    ),
    (lambda path: stored(path, text=TEXT.slice(0, 0)), "holds only blank lines; give a file with"),
]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize(("harm", "message"), HARMS)
def test_bad_files(tmp_path: Path, name: str, harm: Callable[[Path], object], message: str) -> None:
    source = tmp_path / name
    stored(source, text=[f"row {n} zürich" for n in range(40)], id=list(range(40)))
    harm(source)
    with pytest.raises(CorpusError, match=message):
        insert_files(source, tmp_path / "out", PLAN, fields={"id": 7})
    assert set(tmp_path.iterdir()) <= {source}


OTHER = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4, witness=False)


def parquet(path: Path, texts: list[str | None] | None = None, first: int = 0) -> Path:
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


BODY: Any = layout_named("parquet", text_field="body")


def insert_body(source: Path, **options: Any) -> Manifest:
    return insert_files(source, source.with_name("out"), OTHER, text_field="body", **options)


def test_constants_and_a_preview(tmp_path: Path) -> None:
    source = parquet(tmp_path / "a.parquet")
    insert_body(source, fields={"id": 7})
    rows = pq.read_table(tmp_path / "out" / "corpus" / "a.parquet").to_pylist()
    assert {row["id"] for row in rows if "PIN" in row["body"]} == {7}
    preview = preview_insertion([source], OTHER, layout=BODY)
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
    source = parquet(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=message):
        insert_files(source, tmp_path / "out", OTHER, **{"text_field": "body", **options})


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
        insert_files(path, tmp_path / "out", OTHER)


def test_a_group_that_is_read_a_row_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parquet(tmp_path / "a.parquet")
    whole = list(BODY.tables(source))
    monkeypatch.setattr(tables, "_MOST_ROWS", 2)
    monkeypatch.setattr(tables, "_BATCH_BYTES", 1)
    assert [table.num_rows for table in whole] == [15, 15, 10]
    assert list(BODY.tables(source)) == whole
    assert [len(table) for table in BODY.tables(source, ["body"])] == [1] * 40


ARROW = layout_named("arrow")
OPENERS = [pa.ipc.new_file, pa.ipc.new_stream]


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


def arrow(path: Path, rows: pa.Table, kind: Callable[..., Any] = pa.ipc.new_file) -> Path:
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
    manifest = insert_files(source, source.with_name("out"), OTHER, **options)
    return source.with_name("out") / "corpus" / source.name, manifest


@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("name", ["a.arrow", "A.FEATHER"])
def test_rows_go_in_and_come_out(tmp_path: Path, name: str, kind: Any) -> None:
    source = arrow(tmp_path / name, table(), kind)
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
    assert preview_insertion([source], OTHER, layout=ARROW).insertions == 9
    assert insert(source) == (copy, manifest)
    assert remove_from_files([copy], manifest, tmp_path / "back").checked
    back_schema, back, _ = read(tmp_path / "back")
    assert (back_schema, [len(batch) for batch in back]) == (schema, [15, 15, 10, 0])
    assert pa.Table.from_batches(back).equals(table())


def test_constants(tmp_path: Path) -> None:
    source = arrow(tmp_path / "a.arrow", table())
    copy, _ = insert(source, fields={"id": 7, "kind": "b", "view": None})
    rows = pa.Table.from_batches(read(copy)[1]).to_pylist()
    made = [(r["id"], r["kind"], r["view"]) for r in rows if "PIN" in r["text"]]
    assert made == [(7, "b", None)] * 9
    with pytest.raises(CorpusError, match=r"with canaries: Dictionary repl.*; give constants that"):
        insert_files(source, tmp_path / "other", OTHER, fields={"kind": "new"})
