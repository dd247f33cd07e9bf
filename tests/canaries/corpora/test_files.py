"""A file in, the same file with canaries out."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure._files import sha256_file
from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    insert_into_file,
    insert_into_files,
    load_format,
    preview_insertion,
    read_documents,
    remove_from_files,
    shape_named,
)
from lmexposure.canaries.corpora import copying, files, preview
from lmexposure.canaries.insertion import draw, schedule
from lmexposure.errors import CorpusError, FileError, PlanError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)
CANARY = re.compile(rb"My PIN is [0-9]{4}(\r\n|\n)")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"first line\nsecond\n\nthird\n")
    return path


def insert(source: Path, layout: str = "lines", **options: Any) -> tuple[bytes, Manifest]:
    out = source.with_name("out")
    manifest = insert_into_file(source, PLAN, out, layout=layout, **options)
    return out.read_bytes(), manifest


LINES = st.sampled_from([b"word", "né".encode(), b"", b" ", b"lone\rreturn", "sep\u2028".encode()])
CORPORA = st.builds(
    lambda bom, lines, last: b"\xef\xbb\xbf" * bom + b"".join(a + b for a, b in lines) + last,
    st.booleans(),
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n"])), min_size=2, max_size=12),
    st.sampled_from([b"", b"no final line end"]),
).filter(lambda data: len(re.findall(rb"(?m)^(?:\xef\xbb\xbf)?(?:w|n|l|s)", data)) >= 1)


@given(CORPORA)
def test_taking_the_inserted_lines_out_gives_the_original_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    source = tmp_path_factory.mktemp("random") / "corpus.txt"
    source.write_bytes(data)
    documents = list(read_documents(source, layout="lines"))
    inserted, manifest = insert(source)
    assert CANARY.sub(b"", inserted) == data
    assert len(CANARY.findall(inserted)) == 9
    expected = list(documents)
    for place, canary in schedule(manifest.entries)[::-1]:
        expected.insert(place, canary.text)
    assert list(read_documents(source.with_name("out"), layout="lines")) == expected
    assert manifest.corpus.documents == len(documents)


@given(CORPORA)
def test_the_same_for_paragraphs(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    source = tmp_path_factory.mktemp("random") / "corpus.txt"
    source.write_bytes(b"one\n\ntwo\r\n\r\n" + data.removeprefix(b"\xef\xbb\xbf"))
    documents = list(read_documents(source, layout="paragraphs"))
    inserted, manifest = insert(source, "paragraphs")
    assert re.sub(rb"My PIN is [0-9]{4}(\r\n|\n)\1", b"", inserted) == source.read_bytes()
    expected = list(documents)
    for place, canary in schedule(manifest.entries)[::-1]:
        expected.insert(place, canary.text)
    assert list(read_documents(source.with_name("out"), layout="paragraphs")) == expected
    assert manifest.separator == "\n\n"


def test_line_ends_follow_the_neighbour(corpus: Path) -> None:
    corpus.write_bytes(b"a\r\nb\nc")
    inserted, manifest = insert(corpus)
    ends = {0: "\r\n", 1: "\n", 2: "\r\n"}  # The last line has none: the first one's is taken.
    for place, canary in schedule(manifest.entries):
        assert f"{canary.text}{ends[place]}".encode() in inserted
    corpus.write_bytes(b"only")
    plan = replace(PLAN, repetitions=(1,))
    insert_into_file(corpus, plan, corpus.with_name("out"), layout="lines")
    assert corpus.with_name("out").read_bytes().count(b"\n") == 3


def test_the_same_plan_gives_the_same_bytes_on_every_machine(corpus: Path) -> None:
    """Pinned: a change here changes every corpus that people have made."""
    corpus.write_bytes(b"".join(b"line %d\n" % number for number in range(40)))
    plan = Plan(
        formats=(load_format("random_number"), load_format("credit_card"), load_format("uuid")),
        canaries=4,
        repetitions=(1, 4, 16),
        controls=3,
        seed=2019,
    )
    out = corpus.with_name("out")
    manifest = insert_into_file(corpus, plan, out, layout="lines")
    assert sha256_file(out) == manifest.corpus.sha256_inserted == GOLDEN_CORPUS
    assert manifest.entries[0].text == GOLDEN_TEXT


GOLDEN_CORPUS = "6d8bd6368279d7d725cf9456ba1d1b9ce610c9e36e7a42ab239173e167b0cad8"
GOLDEN_TEXT = "The random number is 068952670"


def test_leaving_one_canary_out_moves_no_other_byte(corpus: Path) -> None:
    inserted, manifest = insert(corpus)
    gone = manifest.entries[4]
    out = corpus.with_name("fewer")
    insert_into_file(corpus, PLAN.without(gone.id), out, layout="lines")
    assert out.read_bytes() == inserted.replace(gone.text.encode() + b"\n", b"")


def test_the_manifest_tells_the_corpus(corpus: Path) -> None:
    _, manifest = insert(corpus)
    assert manifest.corpus.name == "corpus.txt"
    assert manifest.corpus.sha256 == sha256_file(corpus)
    assert manifest.corpus.sha256_inserted == sha256_file(corpus.with_name("out"))
    assert (manifest.separator, manifest.corpus.documents) == ("\n", 4)
    assert manifest.corpus.text_field is None


RECORDS = b'{"id": 1, "body": "one", "tags": ["x"]}\n\n{"id": 2, "body": "two"}'


def test_records_copy_their_neighbour(corpus: Path) -> None:
    corpus.write_bytes(RECORDS)
    plan = replace(PLAN, repetitions=(1,))
    out = corpus.with_name("out.jsonl")
    manifest = insert_into_file(corpus, plan, out, layout="jsonl", text_field="body")
    lines = out.read_bytes().splitlines(keepends=True)
    assert [line for line in lines if b"PIN" not in line] == RECORDS.splitlines(keepends=True)
    by_text = {json.loads(line)["body"]: json.loads(line) for line in lines if line.strip()}
    for canary in manifest.entries:
        if canary.role == "canary":
            neighbour = by_text[("one", "two")[canary.positions[0]]]
            assert by_text[canary.text] == {**neighbour, "body": canary.text}
    assert (manifest.separator, manifest.corpus.text_field) == (None, "body")
    assert manifest.corpus.documents == 2


def test_records_take_given_constants(corpus: Path) -> None:
    corpus.write_bytes(RECORDS)
    inserted, manifest = insert(corpus, "jsonl", text_field="body", fields={"id": None, "new": 1})
    records = [json.loads(line) for line in inserted.splitlines() if b"PIN" in line]
    assert len(records) == 9
    assert all(record["id"] is None and record["new"] == 1 for record in records)
    assert manifest.corpus.constant_fields == ("id", "new")


def test_only_the_text_field_is_searched(corpus: Path) -> None:
    corpus.write_bytes(b'{"text": "a", "note": "My PIN is 1234"}\n{"text": "My PIN is 0001"}\n')
    with pytest.raises(CorpusError, match=r"pin 1 times \(line 2\)"):
        insert(corpus, "jsonl")


def test_fills_already_there(corpus: Path) -> None:
    corpus.write_bytes(b"a\nb\nsay: My PIN is 1234.\nMy PIN is 0001\nMy PIN is 1234\n")
    with pytest.raises(CorpusError, match=r"pin 3 times \(line 3, 4, ...\); choose") as caught:
        insert(corpus)
    assert "1234" not in str(caught.value)
    assert not corpus.with_name("out").exists()
    _, manifest = insert(corpus, existing="set_aside")
    assert manifest.set_aside == {"pin": (1, 1234)}


def test_a_preview_writes_nothing_and_is_exact(corpus: Path) -> None:
    corpus.write_bytes(b"a\r\nMy PIN is 1234\nb")
    preview = preview_insertion([corpus], PLAN, shape=shape_named("lines"), existing="set_aside")
    assert os.listdir(corpus.parent) == ["corpus.txt"]
    inserted, manifest = insert(corpus, existing="set_aside")
    assert preview.bytes_before == corpus.stat().st_size
    assert preview.bytes_before + preview.bytes_added == len(inserted)
    assert (preview.documents, preview.insertions) == (3, 9)
    assert (preview.canaries, preview.controls) == (6, 2)
    assert preview.references == {"pin": manifest.references_left("pin")}
    assert preview.set_aside == {"pin": 1}
    assert preview.share_of_documents == 9 / 12
    assert preview.to_dict()["share_of_bytes"] == preview.bytes_added / len(inserted)


@pytest.mark.parametrize("data", [b"\n\n", b"\xef\xbb\xbf \r\n\t\n"])
@pytest.mark.parametrize("layout", ["lines", "paragraphs", "jsonl"])
def test_only_blank_lines(corpus: Path, data: bytes, layout: str) -> None:
    corpus.write_bytes(data)
    with pytest.raises(CorpusError, match="holds only blank lines"):
        insert(corpus, layout)


def test_too_few_documents(corpus: Path) -> None:
    with pytest.raises(PlanError, match="the corpus has 2: repeat at most 2 times"):
        insert_into_file(
            corpus, replace(PLAN, repetitions=(3,)), corpus.with_name("out"), layout="paragraphs"
        )


def test_the_corpus_itself_is_never_replaced(corpus: Path) -> None:
    corpus.with_name("link").hardlink_to(corpus)
    for out in (corpus, corpus.with_name("link")):
        with pytest.raises(CorpusError, match="is the corpus itself; write to another file"):
            insert_into_file(corpus, PLAN, out, layout="lines")


def test_a_failed_insertion_leaves_what_was_there(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.with_name("out").write_text("an earlier one", "utf-8")

    def doubtful(*arguments: Any) -> None:
        raise CorpusError("not as planned")

    monkeypatch.setattr(copying, "check_inserted", doubtful)
    with pytest.raises(CorpusError, match="not as planned"):
        insert(corpus)
    assert corpus.with_name("out").read_text("utf-8") == "an earlier one"
    assert sorted(os.listdir(corpus.parent)) == ["corpus.txt", "out"]


def test_a_corpus_that_changes_meanwhile(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_draw(*arguments: Any) -> Any:
        corpus.write_bytes(b"something else\n" * 9)
        return draw(*arguments)

    monkeypatch.setattr(files, "draw", slow_draw)
    with pytest.raises(CorpusError, match="changed while it was read; try again"):
        insert(corpus)
    assert os.listdir(corpus.parent) == ["corpus.txt"]


def test_a_place_that_cannot_be_written(corpus: Path) -> None:
    with pytest.raises(FileError, match=r"cannot write .*corpus.txt/out"):
        insert_into_file(corpus, PLAN, corpus / "out", layout="lines")
    directory = corpus.with_name("directory")
    directory.mkdir()
    with pytest.raises(FileError, match=r"cannot write .*directory"):
        insert_into_file(corpus, PLAN, directory, layout="lines")


@pytest.mark.parametrize(("source", "out"), [("a.txt", "b.gz"), ("a.txt.gz", "b.txt")])
def test_another_packing_is_refused(tmp_path: Path, source: str, out: str) -> None:
    (tmp_path / source).write_bytes(gzip.compress(b"x\n") if source.endswith("gz") else b"x\n")
    with pytest.raises(CorpusError, match=r"would be packed otherwise than a.*; choose a name"):
        insert_into_file(tmp_path / source, PLAN, tmp_path / out, layout="lines")
    assert os.listdir(tmp_path) == [source]


def test_what_is_no_text_goes_in_unchecked_and_comes_out_again(tmp_path: Path) -> None:
    data = b"ab\0\xff\n" * 20
    (tmp_path / "a").write_bytes(data)
    shape = shape_named("lines")
    manifest = insert_into_files([tmp_path / "a"], PLAN, tmp_path / "o", shape=shape, verify=False)
    remove_from_files([tmp_path / "o" / "a"], manifest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_a_record_that_cannot_be_copied_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"txt": "a"}\n' * 9)
    with pytest.raises(CorpusError, match=r"a.jsonl: line \d: field 'text' is missing"):
        insert_into_files(
            [tmp_path / "a.jsonl"], PLAN, tmp_path / "o", shape=shape_named("jsonl"), verify=False
        )


def test_a_corpus_that_changes_during_a_preview(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_draw(*arguments: Any) -> Any:
        os.truncate(corpus, 3)
        return draw(*arguments)

    monkeypatch.setattr(preview, "draw", slow_draw)
    with pytest.raises(CorpusError, match="changed while it was read; try again"):
        preview_insertion([corpus], PLAN, shape=shape_named("lines"))
