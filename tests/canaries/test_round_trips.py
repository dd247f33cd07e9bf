"""Insert, verify, remove on 500 random corpora, held against a naive inserter, for every container.

A corpus follows from its container and seed, which a failure names in its notes.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from naive_insertion import (
    Group,
    Part,
    Place,
    groups_with_canaries,
    order,
    parts_with_canaries,
    rows_with_canaries,
    sha256_of_texts,
    with_canaries,
)
from pyarrow.parquet import ParquetFile
from random_corpora import (
    PACKINGS,
    PIN,
    Fills,
    Written,
    cut,
    documents_in,
    parquet_bytes,
    plan_for,
    row_groups,
    rows_of,
    text_file,
    unpacked,
    words,
)

import lmexposure as lx
from lmexposure.canaries import read_documents
from lmexposure.canaries.corpora.files import sidecar_path

# How often each container is drawn: 500 corpora in all.
FILES = {"lines": 90, "paragraphs": 75, "jsonl": 75, "parquet": 50}
MEMORY = {"texts": 50, "tuple": 20, "iterable": 15, "records": 50, "frame": 40}
DATA_SETS = {"dataset": 20, "splits": 10, "stream": 5}
HALVES = [0, pytest.param(1, marks=pytest.mark.slow)]  # every second corpus of files
BLOCK = 1 << 20


@contextmanager
def noted(*what: object) -> Iterator[None]:
    """Whatever fails meanwhile says for which corpus."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"corpus: {', '.join(map(str, what))}")
        raise


def note_of(written: Written, number: int) -> dict[str, Any]:
    """What the sidecar of a file says."""
    path = written.paths[number]
    said: dict[str, Any] = json.loads(sidecar_path(path).read_text())
    return said


def check_notes(written: Written, parts: Sequence[tuple[int, int, list[Place], str, str]]) -> None:
    """The sidecars say this: per file its first document, how many, places and two hashes."""
    names = ("first_document", "documents", "occurrences", "sha256", "sha256_inserted")
    for number, expected in enumerate(parts):
        note = note_of(written, number)
        assert [note[name] for name in names] == list(expected)
        assert (note["shard"], note["shards"]) == (number + 1, len(written.paths))
        assert note["name"] == written.paths[number].name
        assert note["manifest_sha256"] == written.manifest.sha256
        others = {"schema", "manifest_sha256", "shard", "shards", "name"}
        assert note.keys() == {*names, *others}  # and no secrets


def check_verified(written: Written, toss: Random) -> None:
    """All is there as inserted, in one of several files too, and not in the source."""
    counted = lx.verify(written.paths, written.manifest)
    assert counted.as_inserted
    total = sum(entry.inserted for entry in written.manifest.entries)
    assert sum(row.found for row in counted.classes) == total
    if len(written.paths) > 1:
        assert lx.verify([toss.choice(written.paths)], written.manifest).as_inserted
    else:
        assert lx.verify(written.sources, written.manifest).as_inserted == (total == 0)


def restored(written: Written, name: str, *numbers: int) -> list[Path]:
    """The files, or some of them, without their canaries."""
    back = written.here / name
    chosen = [written.paths[n] for n in numbers] or written.paths
    if len(chosen) == 1:
        back.mkdir()
    removal = lx.remove(chosen, written.manifest, back)
    assert removal.files == tuple(back / path.name for path in chosen)
    assert removal.checked
    if not numbers:
        inserted = sum(entry.inserted for entry in written.manifest.entries)
        assert removal.documents == inserted
    return list(removal.files)


def told_of(written: Written) -> dict[str, Any]:
    """The manifest but for the corpus's name; its file says the same."""
    read = lx.Manifest.read(written.here / "out" / "manifest.json")
    assert read == written.manifest
    told = json.loads(json.dumps(read.to_dict()))
    name = written.sources[0].name if len(written.sources) == 1 else ""
    assert told["corpus"].pop("name") == name
    field = written.field if written.layout in ("jsonl", "parquet") else None
    assert read.corpus.text_field == field
    return dict(told)


def check_text(written: Written, contents: Sequence[bytes], toss: Random) -> list[Part]:
    """A text corpus with its canaries is what the naive inserter makes, and comes back."""
    layout, field = written.layout, written.field
    parts = parts_with_canaries(contents, written.manifest, layout, field)
    for number, (path, part) in enumerate(zip(written.paths, parts, strict=True)):
        assert unpacked(path) == part.content, f"file {number}"
        documents = list(read_documents(path, layout=layout, text_field=field))
        assert documents == part.documents, f"file {number}"
    before = [hashlib.sha256(content).hexdigest() for content in contents]
    after = [hashlib.sha256(part.content).hexdigest() for part in parts]
    check_notes(
        written,
        [
            (part.first, part.before, part.places, one, other)
            for part, one, other in zip(parts, before, after, strict=True)
        ],
    )
    record = written.manifest.corpus
    assert record.sha256 == hashlib.sha256(b"".join(contents)).hexdigest()
    whole = b"".join(bytes(part.content) for part in parts)
    assert record.sha256_inserted == hashlib.sha256(whole).hexdigest()
    check_verified(written, toss)
    check_removed(written, toss, lambda path, number: unpacked(path) == contents[number])
    return parts


def check_removed(written: Written, toss: Random, same: Callable[[Path, int], bool]) -> None:
    """All files, one of them, and all without sidecars come back as they were."""
    for number, path in enumerate(restored(written, "back")):
        assert same(path, number), f"file {number}"
    if len(written.paths) > 1:
        chosen = toss.randrange(len(written.paths))
        (path,) = restored(written, "alone", chosen)
        assert same(path, chosen), f"file {chosen} alone"
    if toss.random() < 0.3:
        written.forget_notes()
        for number, path in enumerate(restored(written, "without notes")):
            assert same(path, number), f"file {number}, without sidecars"


def cuts(seed: int) -> tuple[int, ...]:
    """Into how many files this corpus is cut: one, and sometimes three or eight as well."""
    return ((1, 3), (1, 8), (1,), (1,), (1,))[seed % 5]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layout", ["lines", "paragraphs", "jsonl"])
def test_text_files(layout: str, half: int, tmp_path: Path) -> None:
    for seed in range(half, FILES[layout], 2):
        toss = Random(f"{layout} {seed}")
        fills, field = Fills(toss), toss.choice(("text", "body"))
        content = text_file(toss, layout, fills, field)
        plan = plan_for(toss, documents_in([content], layout))
        told = []
        for parts in cuts(seed):
            with noted(layout, f"seed {seed}", f"{parts} parts"):
                contents = cut(toss, content, layout, parts)
                here, packing = tmp_path / "corpus", toss.choice(PACKINGS)
                written = Written(here, contents, plan, layout, packing, text_field=field)
                check_text(written, contents, toss)
                told.append(told_of(written))
                assert told[-1] == told[0]
                check_set_aside(written.manifest, fills)
                shutil.rmtree(here)


def check_set_aside(manifest: lx.Manifest, fills: Fills) -> None:
    """Fills that were there before are set aside, and no others."""
    mine = {form.name for form in manifest.plan.formats}
    before = {name: tuple(sorted(those)) for name, those in fills.indices.items() if name in mine}
    assert manifest.set_aside == before


@pytest.mark.parametrize("layout", ["lines", "paragraphs", "jsonl"])
def test_files_that_were_never_one(layout: str, tmp_path: Path) -> None:
    """Each has its own byte order mark, line ends and missing last line end."""
    for seed in range(12):
        toss = Random(f"several {layout} {seed}")
        fills = Fills(toss)
        contents = [text_file(toss, layout, fills) for _ in range(toss.choice((2, 5)))]
        plan = plan_for(toss, documents_in(contents, layout))
        with noted("several", layout, f"seed {seed}"):
            written = Written(tmp_path / "corpus", contents, plan, layout, toss.choice(PACKINGS))
            check_text(written, contents, toss)
            shutil.rmtree(tmp_path / "corpus")


@pytest.mark.parametrize("layout", ["lines", "paragraphs", "jsonl"])
def test_without_checks_the_same_bytes_are_written(layout: str, tmp_path: Path) -> None:
    for seed in range(4):
        toss = Random(f"unchecked {layout} {seed}")
        content = text_file(toss, layout, Fills(Random(0)))
        plan = plan_for(toss, documents_in([content], layout))
        with noted("unchecked", layout, f"seed {seed}"):
            contents, here = cut(toss, content, layout, 3), tmp_path / str(seed)
            written = Written(here, contents, plan, layout, verify=False)
            parts = parts_with_canaries(contents, written.manifest, layout)
            assert [path.read_bytes() for path in written.paths] == [one.content for one in parts]
            assert not told_of(written)["corpus"]["verified"]
            assert lx.verify(written.paths, written.manifest).as_inserted


def compressions(path: Path) -> set[str]:
    """With what the columns are packed."""
    with ParquetFile(path) as file:
        groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
    return {group.column(n).compression for group in groups for n in range(group.num_columns)}


def random_groups(toss: Random, rows: Sequence[Any], parts: int) -> list[list[list[Any]]]:
    """The rows cut into so many files, each of some row groups; any of them may be empty."""
    stops = sorted(toss.choices(range(len(rows) + 1), k=parts - 1))
    files = [list(rows[a:b]) for a, b in zip([0, *stops], [*stops, len(rows)], strict=True)]
    made = []
    for mine in files:
        stops = sorted(toss.choices(range(len(mine) + 1), k=toss.choice((0, 1, 3))))
        made.append([mine[a:b] for a, b in zip([0, *stops], [*stops, len(mine)], strict=True)])
    return made


@pytest.mark.parametrize("half", HALVES)
def test_parquet_files(half: int, tmp_path: Path) -> None:
    for seed in range(half, FILES["parquet"], 2):
        toss = Random(f"parquet {seed}")
        fills, field = Fills(toss), toss.choice(("text", "body"))
        schema, rows = rows_of(toss, fills, field)
        plan, told = plan_for(toss, len(rows)), []
        for parts in cuts(seed):
            with noted("parquet", f"seed {seed}", f"{parts} parts"):
                files = random_groups(toss, rows, parts)
                packing = toss.choice(("none", "snappy", "zstd"))
                contents = [parquet_bytes(schema, groups, packing) for groups in files]
                written = Written(tmp_path / "c", contents, plan, "parquet", text_field=field)
                check_rows(written, files)
                check_verified(written, toss)
                check_removed(written, toss, tables_as(written.sources, files))
                told.append(told_of(written))
                assert told[-1] == told[0]
                check_set_aside(written.manifest, fills)
                shutil.rmtree(tmp_path / "c")


def check_rows(written: Written, files: Sequence[Any]) -> None:
    """Parquet files with their canaries are what the naive inserter makes."""
    manifest, field = written.manifest, written.field
    made = groups_with_canaries(files, manifest, field)
    for path, groups, before in zip(written.paths, made, written.sources, strict=True):
        assert is_table(path, before, [group.rows for group in groups]), path.name
        assert compressions(path) == compressions(before)
        texts = [row[field] for group in groups for row in group.rows]
        assert list(read_documents(path, layout="parquet", text_field=field)) == texts
    check_notes(written, list(notes_of(files, made, field)))
    texts = [row[field] for groups in files for rows in groups for row in rows]
    inserted = [row[field] for groups in made for group in groups for row in group.rows]
    assert manifest.corpus.sha256 == sha256_of_texts(texts)
    assert manifest.corpus.sha256_inserted == sha256_of_texts(inserted)


def tables_as(
    sources: Sequence[Path], files: Sequence[Sequence[Sequence[dict[str, Any]]]]
) -> Callable[[Path, int], bool]:
    """Whether a file is the Parquet file of this number again."""
    return lambda path, number: is_table(path, sources[number], files[number])


def notes_of(
    files: Sequence[Any], made: Sequence[Sequence[Group]], field: str
) -> Iterator[tuple[int, int, list[Place], str, str]]:
    """What the sidecars of Parquet files must say."""
    first = 0
    for before, after in zip(files, made, strict=True):
        texts = [row[field] for rows in before for row in rows]
        inserted = [row[field] for group in after for row in group.rows]
        places = [place for group in after for place in group.places]
        yield first, len(texts), places, sha256_of_texts(texts), sha256_of_texts(inserted)
        first += len(texts)


def is_table(path: Path, like: Path, groups: Sequence[Sequence[dict[str, Any]]]) -> bool:
    """Whether a Parquet file has these rows in these row groups, and the schema of another."""
    (schema, found), (wanted, _) = row_groups(path), row_groups(like)
    # As Python spells them, not-a-number is itself, and -0.0 is not 0.0.
    spelled = [[repr(row) for row in rows] for rows in found]
    same = spelled == [[repr(row) for row in rows] for rows in groups]
    return same and bool(schema.equals(wanted, check_metadata=True))


def held_in_memory(kind: str, toss: Random, fills: Fills, field: str) -> tuple[Any, list[Any]]:
    """(documents of this kind, as plain Python: texts, or records as dicts)."""
    without = ("kind", "nothing") if kind in DATA_SETS else ("kind",)
    schema, rows = rows_of(toss, fills, field, without=without)
    texts = [row[field] for row in rows]
    if kind in ("texts", "tuple", "iterable"):
        return texts if kind == "texts" else tuple(texts) if kind == "tuple" else iter(texts), texts
    if kind == "records":  # each may have fields of its own
        records = [{**row, toss.choice("abc"): words(toss)} for row in rows]
        return records, [dict(record) for record in records]
    if kind == "frame":
        return frame_of(toss, rows, schema), rows
    dataset = Dataset(pa.Table.from_pylist(rows, schema=schema.remove_metadata()))
    if toss.random() < 0.3:  # rows behind an indices mapping
        places = toss.sample(range(len(rows)), len(rows))
        dataset, rows = dataset.select(places), [rows[n] for n in places]
    if kind == "splits":
        return DatasetDict(test=Dataset.from_dict({"text": ["as it was"]}), train=dataset), rows
    return dataset.to_iterable_dataset() if kind == "stream" else dataset, rows


def frame_of(toss: Random, rows: Sequence[dict[str, Any]], schema: Any) -> Any:
    """A frame with an index and column types of its own."""
    frame = pd.DataFrame(list(rows), columns=schema.names)
    kinds = {"n": "Int64", "small": "Int8", "half": "float32", "flag": "boolean"}
    frame = frame.astype({name: kind for name, kind in kinds.items() if name in frame})
    frame["kind"] = pd.Categorical([toss.choice("abc") for _ in rows])
    frame.index = pd.Index(toss.sample(range(1000), len(rows)))
    return frame


@pytest.mark.parametrize("kind", [*MEMORY, *DATA_SETS])
def test_documents_in_memory(kind: str) -> None:
    for seed in range((MEMORY | DATA_SETS)[kind]):
        toss = Random(f"{kind} {seed}")
        fills, field = Fills(toss if kind != "stream" else Random(0)), toss.choice(("text", "body"))
        documents, plain = held_in_memory(kind, toss, fills, field)
        more = {"total": len(plain)} if kind == "stream" else {"existing": "set_aside"}
        with noted(kind, f"seed {seed}"):
            made, manifest = lx.insert(
                documents, plan_for(toss, len(plain)), text_field=field, **more
            )
            if kind in ("texts", "tuple", "iterable"):
                assert type(made) is (tuple if kind == "tuple" else list)
                assert list(made) == with_canaries(plain, manifest)
                before, after = plain, list(made)
            else:
                check_container(documents, made, manifest, field)
                expected = rows_with_canaries(plain, manifest, field)
                if kind != "frame":
                    assert spelled(rows_in(made)) == spelled(expected)
                before, after = ([row[field] for row in rows] for rows in (plain, expected))
            check_hashes(manifest, kind, before, after)
            check_set_aside(manifest, fills)
            assert lx.verify(made, manifest, text_field=field).as_inserted
            assert lx.verify(after, manifest).as_inserted
            assert lx.verify(before, manifest).as_inserted == (len(before) == len(after))


def spelled(rows: Sequence[Any]) -> list[str]:
    """Rows as Python spells them: not-a-number is itself, and the order of fields tells."""
    return [repr(row) for row in rows]


def rows_in(documents: Any) -> list[Any]:
    """The rows of records or of a data set; of splits, those of train."""
    return list(documents["train"] if isinstance(documents, DatasetDict) else documents)


def check_hashes(manifest: lx.Manifest, kind: str, before: list[str], after: list[str]) -> None:
    """The manifest says what the texts were and are; of a stream, which was not read, nothing."""
    record = manifest.corpus
    assert record.documents == len(before)
    hashes = ["", ""] if kind == "stream" else [sha256_of_texts(before), sha256_of_texts(after)]
    assert [record.sha256, record.sha256_inserted] == hashes


def check_container(documents: Any, made: Any, manifest: lx.Manifest, field: str) -> None:
    """What comes back is of the same class with the same columns of the same types."""
    assert type(made) is type(documents)
    if isinstance(made, pd.DataFrame):
        pd.testing.assert_frame_equal(made, frame_with_canaries(documents, manifest, field))
    elif isinstance(made, DatasetDict):
        assert list(made) == list(documents)
        assert made["test"] is documents["test"]
        assert made["train"].features == documents["train"].features
    elif not isinstance(made, list):
        assert made.features == documents.features
        assert made.column_names == documents.column_names


def frame_with_canaries(frame: Any, manifest: lx.Manifest, field: str) -> Any:
    """What the naive inserter makes of a frame, whose index begins anew."""
    ordered = list(order(manifest, len(frame)))
    texts = frame[field].tolist()
    made = frame.iloc[[number for number, _, _ in ordered]].reset_index(drop=True)
    inserted = [texts[n] if canary is None else canary for n, _, canary in ordered]
    made[field] = pd.Series(inserted, dtype=frame[field].dtype)
    return made


@pytest.mark.parametrize("kind", ["records", "frame", "dataset", "stream"])
def test_more_rows_than_are_taken_at_once(kind: str) -> None:
    rows = [{"n": n, "text": f"text {n}"} for n in range(2345)]
    dataset = Dataset.from_list(rows)
    documents: Any = {
        "records": rows,
        "frame": pd.DataFrame(rows),
        "dataset": dataset,
        "stream": dataset.to_iterable_dataset(num_shards=7),
    }[kind]
    more: dict[str, Any] = {"total": len(rows)} if kind == "stream" else {}
    made, manifest = lx.insert(
        documents, formats=PIN, canaries=2, repetitions=(1, 900), seed=5, **more
    )
    found = made.to_dict("records") if kind == "frame" else list(made)
    assert found == rows_with_canaries(rows, manifest)
    assert lx.verify(made, manifest).as_inserted
    if kind == "records":
        assert lx.remove(made, manifest) == rows


def test_a_line_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfa\r\n" + b"long \r" * 400_000 + b"\r\nb\n" + b"longer" * 300_000
    plan = lx.Plan(formats=(PIN,), canaries=3, repetitions=(1, 4), seed=3)
    written = Written(tmp_path, [content], plan, "lines")
    check_text(written, [content], Random(1))


def test_a_paragraph_goes_on_behind_the_border(tmp_path: Path) -> None:
    """Three reads, each of which ends within a paragraph; a canary goes before each of them."""
    paragraph = b"".join(b"line %d of many\r\n" % number for number in range(9000))
    content = (paragraph + b" \r\n") * 14
    assert len(content) > 2 * BLOCK
    plan = lx.Plan(formats=(PIN,), canaries=1, repetitions=(14,), seed=3)
    written = Written(tmp_path, [content], plan, "paragraphs")
    check_text(written, [content], Random(1))
