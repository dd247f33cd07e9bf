"""Which files a corpus is, and what a document is in them."""

import os
from pathlib import Path

import pytest

from lmexposure.canaries import (
    LAYOUTS,
    FileCorpus,
    Format,
    corpus_files,
    guess_layout,
    layout_for,
    layout_named,
)
from lmexposure.canaries.insertion import scan_corpus
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
LINES = layout_named("lines")


def test_files_are_sorted_and_patterns_are_looked_up(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "[c].txt", "a.txt.canaries.json", "below/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [path.name for path in corpus_files([tmp_path / "*.txt"])]
    assert names == ["[c].txt", "a.txt", "b.txt"]
    assert corpus_files([tmp_path / "[c].txt"]) == [tmp_path / "[c].txt"]
    assert len(corpus_files([str(tmp_path / "**" / "*")])) == 5  # and the directory


def test_layouts_go_by_the_suffix() -> None:
    records = ("a.JSONL", "a.ndjson", "a.jsonl.GZ", "x/a.jsonl.gz", "a.jsonl.ZST")
    texts = ("a.txt", "a", "a.txt.zst", ".gz", "a.jsonl.zip", "jsonl.gz")
    assert {guess_layout(name) for name in records} == {"jsonl"}
    assert {guess_layout(name) for name in texts} == {"lines"}
    assert guess_layout("a/B.PARQUET") == "parquet"
    assert layout_for([Path("a.jsonl"), Path("b.ndjson.gz")], None, "text").name == "jsonl"
    assert layout_for([Path("a.jsonl"), Path("b.txt")], "lines", "text").name == "lines"
    with pytest.raises(CorpusError, match="of different layouts: jsonl, lines; give one kind"):
        layout_for([Path("a.jsonl"), Path("b.txt")], None, "text")
    separators = {name: layout_named(name).separator for name in LAYOUTS}
    assert separators.pop("lines") == "\n"
    assert separators.pop("paragraphs") == "\n\n"
    assert set(separators.values()) == {None}


def test_refused_layouts() -> None:
    with pytest.raises(CorpusError, match="layout='csv' must be one of lines, paragraphs, jsonl"):
        layout_named("csv")
    with pytest.raises(CorpusError, match=r"fields=\['a'\] go with layout 'jsonl', not 'lines'"):
        layout_named("lines", fields={"a": 1})
    with pytest.raises(CorpusError, match="fields must leave out the text field 'text'"):
        layout_named("jsonl", fields={"text": "x"})
    with pytest.raises(CorpusError, match=r"fields=\['a'\] must be JSON values"):
        layout_named("jsonl", fields={"a": {1}})


def test_a_pipe_is_refused_and_told_the_way() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb"):
        name = Path(f"/dev/fd/{reader}")
        if not name.exists():
            pytest.skip("no /dev/fd here")
        with pytest.raises(CorpusError, match=r"is a pipe, and would be read twice; .* input: -"):
            FileCorpus([name], LINES)


def test_the_first_line_end_may_come_late(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two\r\nthree\r\n")
    corpus = FileCorpus([tmp_path / "a", tmp_path / "b"], LINES)
    scan_corpus(corpus, ())
    assert corpus.first_end == b"\r\n"
    (part,) = corpus.sources[0].parts()
    assert part.merged([(0, "canary")]).part.content == b"canary\r\none"
    alone = FileCorpus([tmp_path / "a"], LINES)
    scan_corpus(alone, ())
    (part,) = alone.sources[0].parts()
    assert part.merged([(0, "canary")]).part.content == b"canary\none"


@pytest.mark.parametrize("verify", [True, False])
def test_an_empty_file_among_others_is_named(tmp_path: Path, verify: bool) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").touch()
    with pytest.raises(CorpusError, match=r"the corpus .*/b is empty; give a file with text in it"):
        scan_corpus(FileCorpus([tmp_path / "a", tmp_path / "b"], LINES), (PIN,) if verify else ())


def test_blank_files_among_others_are_taken(tmp_path: Path) -> None:
    for name, text in {"a": "\n", "b": "one\n", "c": " \n\n"}.items():
        (tmp_path / name).write_text(text)
    paths = corpus_files([tmp_path / "*"])
    scan = scan_corpus(FileCorpus(paths, layout_named("paragraphs")), (PIN,))
    assert (scan.documents, len(scan.hashes.files if scan.hashes else [])) == (1, 3)
    with pytest.raises(CorpusError, match="the corpus of 2 files holds only blank lines; give a"):
        scan_corpus(FileCorpus([paths[0], paths[2]], LINES), (PIN,))


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n")
    (source,) = FileCorpus([path], LINES).sources

    with (
        pytest.raises(CorpusError, match=r"the corpus .*/a changed while it was read; try again"),
        source.guarded(),
    ):
        for _ in source.parts():
            path.write_bytes(b"one\ntwo\n")
