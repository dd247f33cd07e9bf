"""Arrow tables as parts of a corpus, of every kind of column."""

import hashlib
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.canaries import Format, Plan, insert_files, layout_named
from lmexposure.canaries.corpora.tables import TableLayout, TablePart
from lmexposure.canaries.row_schema import RowSchema
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
