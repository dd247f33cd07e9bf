"""Text files: blocks of whole lines, what a document is in them, and what holds no fill."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import FileCorpus, Format, Plan, insert_files, layout_named, read_documents
from lmexposure.canaries.corpora.text import Block, ahead, layout_of
from lmexposure.canaries.fills import Sought, count_fills
from lmexposure.canaries.insertion import scan_corpus
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.text_search import word_places
from lmexposure.errors import CorpusError

LINES = layout_of("lines", RowSchema())
JSONL = layout_of("jsonl", RowSchema("text"))
PARAGRAPHS = layout_of("paragraphs", RowSchema())
PIN = Format(name="pin", template="Mé PIN is {digits:2}")
CODE = Format(name="code", template="code {lower:2}")
BARE = Format(name="bare", template="{digits:2} is bare")


def blocks_of(path: Path, **options: Any) -> list[Block]:
    return list(LINES.parts(path, **options))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.txt"


@pytest.mark.parametrize("block_bytes", [*range(1, 10), 1000])
def test_blocks_are_whole_lines(corpus: Path, block_bytes: int) -> None:
    corpus.write_bytes("eins\r\nzwei\n\nvière\rx".encode())
    blocks = blocks_of(corpus, block_bytes=block_bytes)
    lines = [line for block in blocks for line in block.split]
    assert lines == [b"eins\r\n", b"zwei\n", b"\n", "vière\rx".encode()]
    assert b"".join(block.content for block in blocks) == corpus.read_bytes()
    numbers = [block.first_line + n for block in blocks for n in range(block.lines)]
    assert numbers == [1, 2, 3, 4]
    assert [block.after_blank for block in blocks] == [
        number in (1, 4) for number in (block.first_line for block in blocks)
    ]


def test_a_byte_order_mark_is_set_apart(corpus: Path) -> None:
    corpus.write_bytes(b"\xef\xbb\xbfone\n\ntwo\n\n")
    first, second = blocks_of(corpus, block_bytes=1)
    assert (first.has_bom, first.data, first.size) == (True, b"one\n\n", 8)
    assert (second.has_bom, second.first_line) == (False, 3)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty(corpus: Path, content: bytes) -> None:
    corpus.write_bytes(content)
    with pytest.raises(CorpusError, match="is empty; give a file with text"):
        blocks_of(corpus)


def test_missing_and_directory(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*No such file"):
        blocks_of(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*directory"):
        blocks_of(tmp_path)


def test_binary(corpus: Path) -> None:
    corpus.write_bytes(b"good\nbad \0 here\n")
    for block_bytes in (1, 1000):
        with pytest.raises(CorpusError, match="NUL byte at offset 9; convert"):
            blocks_of(corpus, block_bytes=block_bytes)
    assert b"\0" in blocks_of(corpus, known=True)[0].data


@given(
    st.lists(st.sampled_from(["a", "é", "\n", "𝄞", "xyz\n"]), max_size=20),
    st.sampled_from([b"\xff", b"\xc3", b"\xe2\x82", b"\x80", b"\xf0\x9d\x84"]),
    st.sampled_from([b"", b"\n", b"z\nmore\n"]),
    st.integers(1, 8),
)
def test_the_offset_of_the_first_bad_byte_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    bad: bytes,
    after: bytes,
    block_bytes: int,
) -> None:
    path = tmp_path_factory.mktemp("offset") / "corpus.txt"
    good = "".join(before).encode()
    path.write_bytes(good + bad + after)
    with pytest.raises(CorpusError, match=f"0x{bad[0]:02x} at offset {len(good)}; convert"):
        blocks_of(path, block_bytes=block_bytes)


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80"]
)
def test_large_blocks_are_checked_no_less(corpus: Path, bad: bytes) -> None:
    good = "zürich\n".encode() * 200_000
    corpus.write_bytes(good)
    assert sum(len(block.data) for block in blocks_of(corpus)) == len(good)
    at = 1_000_000
    corpus.write_bytes(good[:at] + bad + b"\n" + good[at:])
    with pytest.raises(CorpusError, match=f"bad byte 0x{bad[0]:02x} at offset {at}; convert"):
        blocks_of(corpus)


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=8), st.booleans())
def test_where_lines_begin(lengths: list[int], ended: bool) -> None:
    lines = [b"x" * length + b"\n" for length in lengths]
    data = b"".join(lines) + b"end" * (not ended)
    block = Block(layout=LINES, data=data)
    starts = [sum(map(len, lines[:n])) for n in range(block.lines)]
    assert block.line_starts.tolist() == starts
    assert block.lines == len(block.split) == block.documents
    assert block.filled.tolist() == [bool(line.strip()) for line in block.split]


@pytest.mark.slow
def test_a_line_of_64_mebibytes(corpus: Path) -> None:
    """The longest line that is taken ends with its last byte; longer ones are told where."""
    line = b"x" * ((1 << 26) - 1)
    corpus.write_bytes(b"one\n" + line + b"\n" + line)
    assert [len(block.data) for block in blocks_of(corpus)] == [(1 << 27) + 3]
    corpus.write_bytes(b"one\n" + line + b"\ntwo\n" + line + b"y")
    with pytest.raises(CorpusError, match=f"more than 64 MiB, from byte offset {(1 << 26) + 8} on"):
        blocks_of(corpus)


CANARY = "My PIN is 1234"
PIECES = st.lists(
    st.sampled_from([b"word\n", b"\r\n", b"\n", b" \t\n", b"two\r\nlines\r\n", b"\x0c\n"]),
    max_size=9,
)


@given(
    PIECES,
    st.sampled_from([b"", b"end", b" ", b"\r"]),
    st.booleans(),
    st.integers(1, 20),
    st.data(),
)
def test_what_was_merged_is_cut_again_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[bytes],
    last: bytes,
    bom: bool,
    size: int,
    drawn: Any,
) -> None:
    """A paragraph and the blank line after it are in one block."""
    path = tmp_path_factory.mktemp("blocks") / "corpus"
    data = b"\xef\xbb\xbf" * bom + b"one\n\n" + b"".join(pieces) + last
    path.write_bytes(data)
    for layout in (LINES, PARAGRAPHS):
        documents = sum(block.documents for block in layout.parts(path))
        places = sorted(drawn.draw(st.lists(st.integers(0, documents - 1), max_size=4)))
        first, written = 0, []
        for block in layout.parts(path, block_bytes=size, first_end=b"\n"):
            here = [n - first for n in places if first <= n < first + block.documents]
            written.append(block.merged([(n, CANARY) for n in here]).part.content)
            first += block.documents
        path.write_bytes(b"".join(written))
        assert first == documents
        first, rest, found = 0, [], []
        targets = [place + n for n, place in enumerate(places)]
        for block in layout.parts(path, block_bytes=size):
            here = [n - first for n in targets if first <= n < first + block.documents]
            without, texts = block.without(here)
            rest.append(without.content)
            found += texts
            first += block.documents
        assert b"".join(rest) == data
        assert found == [CANARY] * len(places)
        path.write_bytes(data)


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_items_keep_their_order(items: list[bytes]) -> None:
    assert list(ahead(iter(items))) == items


def test_one_item_is_made_while_another_is_used() -> None:
    made = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for number in range(3):
            made.release()
            yield number

    ready = ahead(items())
    assert next(ready) == 0
    assert made.acquire(timeout=10)  # the first
    assert made.acquire(timeout=10)  # the second, although it was not asked for
    assert list(ready) == [1, 2]


def test_what_goes_wrong_comes_after_what_went_well() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ready = ahead(items())
    assert next(ready) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ready)


def test_not_all_need_to_be_taken() -> None:
    ready = ahead(iter(range(10**9)))
    assert next(ready) == 0
    ready.close()


LETTERS = st.lists(st.sampled_from([b"a", b"b", b"\n", "é".encode(), b"ab"]), max_size=60)


def slow(data: bytes, word: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(word, at)]


@given(LETTERS, LETTERS.filter(len))
def test_every_place_is_found_once(data: list[bytes], word: list[bytes]) -> None:
    whole, some = b"".join(data), b"".join(word)[:9]
    assert sorted(word_places(whole, some)) == slow(whole, some)


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([b"My PIN is ", b"number", b"    "]))
def test_anywhere_between_other_bytes(before: int, after: int, word: bytes) -> None:
    data = b"x" * before + word + b" " * after
    assert sorted(word_places(data, word)) == slow(data, word)


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
        ('{"text": "ab\\ud800"}', "line 3: the text holds a lone surrogate at character 2"),
    ],
)
def test_bad_records_are_named_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        list(read_documents(path, layout="jsonl"))
    with pytest.raises(CorpusError, match=message):
        scan_corpus(FileCorpus([path], layout_named("jsonl")), (PIN,))


TEXTS = st.lists(
    st.lists(
        st.sampled_from(["Mé PIN is 42", "code ab", "code ", "12 is bare", " ", "x\\", "\u2028"]),
        max_size=4,
    ).map("".join),
    min_size=1,
    max_size=6,
)


@given(TEXTS, st.booleans(), st.sampled_from([(PIN,), (PIN, CODE), (PIN, BARE)]))
def test_what_is_passed_over_holds_no_fill(
    texts: list[str], escaped: bool, formats: tuple[Format, ...]
) -> None:
    spelled = [json.dumps({"note": "code zz", "text": one}, ensure_ascii=escaped) for one in texts]
    for layout, lines in ((JSONL, spelled), (LINES, texts)):
        data = "".join(f"{line}\n" for line in lines).encode()
        block = Block(layout=layout, first_line=5, data=data)
        one_by_one = enumerate(texts if layout is JSONL else data.decode().split("\n"), 5)
        slow = count_fills(formats, one_by_one, whole_lines=False)
        quick = block.searched(Sought(formats))
        assert count_fills(formats, quick, whole_lines=block.scans_lines) == slow


def test_the_same_without_orjson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(
        b'{"n": 12345678901234567890123, "text": "a"}\n\n{"text": "\\u00e9", "x": NaN}\r\n' * 9
    )
    plan = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=1, seed=5)
    with_it = insert_files(source, tmp_path / "b", plan)
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert insert_files(source, tmp_path / "c", plan) == with_it
    b, c = (tmp_path / out / "corpus" / "a.jsonl" for out in "bc")
    assert b.read_bytes() == c.read_bytes()
