"""What a document is in each layout."""

from pathlib import Path

import pytest

from lmexposure.canaries import guess_layout, read_documents, separator_of
from lmexposure.canaries.corpora.layouts import layout_named, line_end
from lmexposure.errors import CorpusError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffone\r\n\r\n \ntwo\nthrée\n\nfour".encode())
    return path


def test_lines(corpus: Path) -> None:
    expected = ["one", "", " ", "two", "thrée", "", "four"]
    assert list(read_documents(corpus, layout="lines")) == expected


def test_paragraphs(corpus: Path) -> None:
    assert list(read_documents(corpus, layout="paragraphs")) == ["one", "two\nthrée", "four"]


def test_records(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"body": "a\\nb", "id": 1}\n\n{"body": "c"}')
    assert list(read_documents(path, layout="jsonl", text_field="body")) == ["a\nb", "c"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3 is not JSON: Expecting property name"),
        ("9" * 5000, "line 3 is not JSON: not readable"),
        ("[" * 100_000, "line 3 is not JSON"),
        ("[1]", "line 3 is a JSON list, not an object"),
        ('{"a": "x"}', r"line 3: field 'text' is missing; .* \(this record has 'a'\)"),
        ("{}", r"this record has none"),
        ('{"text": 3}', "line 3: field 'text' is not a string"),
    ],
)
def test_bad_records_are_named_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        list(read_documents(path, layout="jsonl"))


def test_refused_layouts() -> None:
    with pytest.raises(CorpusError, match="layout='csv' must be one of lines, paragraphs, jsonl"):
        layout_named("csv")
    with pytest.raises(CorpusError, match=r"fields=\['a'\] go with layout 'jsonl', not 'lines'"):
        layout_named("lines", fields={"a": 1})
    with pytest.raises(CorpusError, match="fields must leave out the text field 'text'"):
        layout_named("jsonl", fields={"text": "x"})
    with pytest.raises(CorpusError, match=r"fields=\['a'\] must be JSON values"):
        layout_named("jsonl", fields={"a": {1}})


def test_small_helpers() -> None:
    assert [line_end(line) for line in (b"a\r\n", b"a\n", b"a\r", b"")] == [
        b"\r\n",
        b"\n",
        b"",
        b"",
    ]
    assert [guess_layout(name) for name in ("a.JSONL", "a.ndjson", "a.txt", "a")] == [
        *("jsonl", "jsonl", "lines", "lines")
    ]
    assert [separator_of(name) for name in ("lines", "paragraphs", "jsonl", "texts")] == [
        *("\n", "\n\n", None, None)
    ]


def test_half_of_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine\\n"}\n{"text": "ab\\ud800"}\n')
    with pytest.raises(CorpusError, match="line 2: the text holds a lone surrogate at character 2"):
        list(read_documents(path, layout="jsonl"))
