"""A result that is not the source with its canaries is found out, whatever is wrong with it."""

import gzip
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from lmexposure._files import sha256_bytes
from lmexposure.canaries import Format, Plan, insert_into_file
from lmexposure.canaries.corpora import layouts
from lmexposure.canaries.corpora.copying import Copied, corpus_copy
from lmexposure.canaries.corpora.merging import Merger, Occurrence
from lmexposure.canaries.corpora.reading_back import Additions, Passed, ReadBack, read_back_rows
from lmexposure.canaries.corpora.shapes import shape_named
from lmexposure.canaries.corpora.surveying import survey_files
from lmexposure.canaries.insertion import draw
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=1, seed=8)
TEXT = b"\xef\xbb\xbfone\r\ntwo\n\nMy PIN is 0000\nthree\nfour\n"


def inserted(source: Path, out: Path) -> tuple[Copied, Additions]:
    """The file `out`, and what is known of it."""
    shape = shape_named("lines")
    survey = survey_files([source], shape, PLAN.formats)
    canaries, aside = draw(PLAN, survey, "set_aside")
    with corpus_copy(survey, shape, canaries, PLAN.formats) as copy, open(out, "wb") as stream:
        copied = copy.file(source, stream)
        copy.finish(aside)
    return copied, Additions(PLAN.formats, survey.fills)


def looked_at(source: Path, out: Path, copied: Copied, additions: Additions) -> bytes:
    """What was read."""
    seen: list[bytes] = []
    with open(source, "rb") as before, open(out, "rb") as after:
        ReadBack(
            before,
            (out, after),
            occurrences=copied.occurrences,
            layout=layouts.layout_named("lines"),
            additions=additions,
            hashed=seen.append,
        ).finish()
    return b"".join(seen)


@given(st.lists(st.binary(max_size=9), max_size=9), st.lists(st.integers(1, 12), max_size=30))
def test_what_passed_is_read_in_any_sizes(pieces: list[bytes], sizes: list[int]) -> None:
    whole, passed = io.BytesIO(b"".join(pieces)), Passed()
    for piece in pieces:
        passed.add(piece)
    for size in sizes:
        assert passed.read(size) == whole.read(size)


def test_what_was_inserted_is_found_once_each(tmp_path: Path) -> None:
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(TEXT)
    copied, additions = inserted(source, out)
    assert looked_at(source, out, copied, additions) == out.read_bytes()
    assert copied.sha256_inserted == sha256_bytes(out.read_bytes())
    assert copied.sha256 == sha256_bytes(TEXT)
    counts = additions.found["pin"].counts
    assert counts[0] == 1  # It stood there before.
    assert counts.total() == 1 + len(copied.occurrences) == 10


@pytest.mark.parametrize("kind", ["changed", "cut", "longer", "missing"])
def test_every_byte_counts(tmp_path: Path, kind: str) -> None:
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(TEXT)
    copied, additions = inserted(source, out)
    good = out.read_bytes()
    canaries = {n for one in copied.occurrences for n in range(one.offset, one.offset + one.length)}
    wrong = {
        "changed": [good[:n] + b"#" + good[n + 1 :] for n in range(len(good)) if n not in canaries],
        "cut": [good[:n] for n in range(len(good))],
        "longer": [good + b"\n", good + b"x"],
        "missing": [good[:n] + good[n + 1 :] for n in range(len(good) - 1)],
    }
    for data in wrong[kind]:
        out.write_bytes(data)
        with pytest.raises(CorpusError, match=r"b is not what was inserted: .*: insert again"):
            looked_at(source, out, copied, additions)


def test_a_canary_that_is_another_one_is_counted_as_such(tmp_path: Path) -> None:
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(TEXT)
    copied, additions = inserted(source, out)
    one = copied.occurrences[0]
    data = out.read_bytes()
    out.write_bytes(data[: one.offset] + b"My PIN is 9999\n" + data[one.offset + one.length :])
    before = additions.found["pin"].counts[9999]
    if one.length == len(b"My PIN is 9999\n"):
        looked_at(source, out, copied, additions)
        assert additions.found["pin"].counts[9999] == before + 1


@pytest.mark.parametrize("at", [1, 4])
def test_a_canary_in_the_middle_of_a_line(tmp_path: Path, at: int) -> None:
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"one\ntwo\n")
    out.write_bytes(b"one\ntwo\n"[:at] + b"My PIN is 1234" + b"\n" * (at == 1) + b"one\ntwo\n"[at:])
    one = Occurrence(id="pin/x1/0000", document=1, offset=at, length=14 + (at == 1))
    copied = Copied(
        name="a",
        first_document=0,
        documents=2,
        occurrences=(one,),
        sha256="",
        sha256_inserted="",
    )
    found = survey_files([source], shape_named("lines"), (PIN,)).fills
    with pytest.raises(CorpusError, match=f"pin/x1/0000 at byte {at} is not a line of its own"):
        looked_at(source, out, copied, Additions((PIN,), found))


@pytest.mark.parametrize("layout", ["lines", "paragraphs"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_insertion_finds_a_fault_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, suffix: str
) -> None:
    source, out = tmp_path / f"a.txt{suffix}", tmp_path / f"b.txt{suffix}"
    data = b"one\n\ntwo\n\nthree\n"
    source.write_bytes(gzip.compress(data) if suffix else data)
    whole: Callable[..., list[bytes]] = Merger.merged

    def faulty(self: Merger, *arguments: Any) -> Sequence[bytes]:
        return [piece.replace(b"two", b"tvo") for piece in whole(self, *arguments)]

    monkeypatch.setattr(Merger, "merged", faulty)
    with pytest.raises(CorpusError, match="is not what was inserted"):
        insert_into_file(source, PLAN, out, layout=layout)
    assert list(tmp_path.iterdir()) == [source]


def table(numbers: Sequence[float]) -> pa.Table:
    texts = [f"text {n}" for n in range(len(numbers))]
    return pa.table({"text": texts, "score": pa.array(numbers, pa.float64())})


def written(path: Path, *groups: pa.Table) -> Path:
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(1, len(group)))
    return path


CANARY = pa.table({"text": ["My PIN is 1234"], "score": pa.array([0.5])})
ROW = Occurrence(id="pin/x1/0000", document=1, offset=1, length=1)


def rows_looked_at(before: Path, after: Path) -> Additions:
    additions = Additions((PIN,), survey_files([before], shape_named("parquet"), (PIN,)).fills)
    read_back_rows(
        before, after, "text", occurrences=[ROW], additions=additions, hashed=lambda data: None
    )
    return additions


@pytest.mark.parametrize("numbers", [(1.0, 2.0, 3.0), (float("nan"), 2.0, 3.0)])
def test_rows_are_found(tmp_path: Path, numbers: Sequence[float]) -> None:
    whole = table(numbers)
    before = written(tmp_path / "a.parquet", whole, whole)
    with_it = pa.concat_tables([whole.slice(0, 1), CANARY, whole.slice(1)])
    after = written(tmp_path / "b.parquet", with_it, whole)
    assert rows_looked_at(before, after).found["pin"].counts == {1234: 1}


def test_every_row_and_column_counts(tmp_path: Path) -> None:
    whole = table((1.0, 2.0, 3.0))
    before = written(tmp_path / "a.parquet", whole)
    other = table((1.0, 2.0, 4.0))
    for groups in (
        [pa.concat_tables([whole.slice(0, 1), CANARY, other.slice(1)])],
        [pa.concat_tables([whole.slice(0, 1), CANARY, whole.slice(2)])],
        [pa.concat_tables([whole.slice(0, 1), CANARY, whole.slice(1), whole.slice(2)])],
    ):
        after = written(tmp_path / "b.parquet", *groups)
        with pytest.raises(CorpusError, match=r"is not what was inserted: in rows 1 to [345]"):
            rows_looked_at(before, after)
    good = pa.concat_tables([whole.slice(0, 1), CANARY, whole.slice(1)])
    after = written(tmp_path / "b.parquet", good, whole)
    with pytest.raises(CorpusError, match="it has other row groups from row 5 on"):
        rows_looked_at(before, after)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.parquet"])
def test_a_full_disk_is_not_taken_for_a_bad_corpus(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    texts = [f"line {n}" for n in range(100_000)]
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": texts}), source)
    else:
        data = "\n".join(texts).encode()
        source.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    shape = shape_named("parquet" if name.endswith("parquet") else "lines")
    survey = survey_files([source], shape, PLAN.formats)
    canaries, _ = draw(PLAN, survey, "refuse")
    with (
        corpus_copy(survey, shape, canaries, PLAN.formats) as copy,
        pytest.raises(OSError, match="No space left"),
        open("/dev/full", "wb") as stream,
    ):
        copy.file(source, stream)


def test_what_is_not_yet_on_the_disk_is_not_asked_for(tmp_path: Path) -> None:
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(TEXT)
    copied, additions = inserted(source, out)
    whole, stop = out.read_bytes(), copied.occurrences[-1].offset
    out.write_bytes(whole[:stop])
    with open(source, "rb") as before, open(out, "rb") as after:
        back = ReadBack(
            before,
            (out, after),
            occurrences=copied.occurrences,
            layout=layouts.layout_named("lines"),
            additions=additions,
            hashed=lambda data: None,
        )
        back.advance(stop)
        with open(out, "ab") as more:
            more.write(whole[stop:])
        back.finish()
    assert additions.found["pin"].counts.total() == 1 + len(copied.occurrences)
