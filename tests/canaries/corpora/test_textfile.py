"""Files that are text, and files that are not."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries.corpora.textfile import Block, BlockNote, noted_blocks, text_blocks
from lmexposure.errors import CorpusError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.txt"


def test_blocks_are_whole_lines(corpus: Path) -> None:
    corpus.write_bytes("eins\r\nzwei\n\nvière\rx".encode())
    for block_bytes in (1, 7, 1000):
        blocks = list(text_blocks(corpus, block_bytes=block_bytes))
        lines = [line for block in blocks for line in block.lines]
        assert lines == [b"eins\r\n", b"zwei\n", b"\n", "vière\rx".encode()]
        assert "".join(block.text for block in blocks).encode() == corpus.read_bytes()
        starts = [block.first_line for block in blocks]
        assert starts[0] == 1
        assert all(
            after - before == len(block.lines)
            for before, after, block in zip(starts, starts[1:], blocks, strict=False)
        )


def test_a_byte_order_mark_is_set_apart(corpus: Path) -> None:
    corpus.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    first, second = text_blocks(corpus, block_bytes=1)
    assert (first.has_bom, first.lines, first.text) == (True, [b"one\n"], "one\n")
    assert (second.has_bom, second.first_line) == (False, 2)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty(corpus: Path, content: bytes) -> None:
    corpus.write_bytes(content)
    with pytest.raises(CorpusError, match="is empty; give a file with text"):
        list(text_blocks(corpus))


def test_missing_and_directory(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*No such file"):
        list(text_blocks(tmp_path / "none"))
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*directory"):
        list(text_blocks(tmp_path))


def test_binary(corpus: Path) -> None:
    corpus.write_bytes(b"good\nbad \0 here\n")
    for block_bytes in (1, 1000):
        with pytest.raises(CorpusError, match="NUL byte at offset 9; convert"):
            list(text_blocks(corpus, block_bytes=block_bytes))


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
        list(text_blocks(path, block_bytes=block_bytes))


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80"]
)
def test_large_blocks_are_checked_no_less(corpus: Path, bad: bytes) -> None:
    good = "zürich\n".encode() * 200_000
    corpus.write_bytes(good)
    assert sum(len(block.data) for block in text_blocks(corpus)) == len(good)
    at = 1_000_000
    corpus.write_bytes(good[:at] + bad + b"\n" + good[at:])
    with pytest.raises(CorpusError, match=f"bad byte 0x{bad[0]:02x} at offset {at}; convert"):
        list(text_blocks(corpus))


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=8), st.booleans())
def test_where_lines_begin(lengths: list[int], ended: bool) -> None:
    lines = [b"x" * length + b"\n" for length in lengths]
    data = b"".join(lines) + b"end" * (not ended)
    block = Block(first_line=1, data=data, has_bom=False)
    starts = [sum(map(len, lines[:n])) for n in range(block.line_count)]
    assert [block.line_start(n) for n in range(block.line_count)] == starts
    assert block.line_count == len(block.lines)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("block_bytes", [1, 5, 1000])
def test_noted_blocks_are_the_same(tmp_path: Path, suffix: str, block_bytes: int) -> None:
    data = b"\xef\xbb\xbfone\n\ntwo\r\nthree"
    path = tmp_path / f"corpus{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    blocks = list(text_blocks(path, block_bytes=block_bytes))
    notes = [BlockNote(block.size, block.first_line, 0, False) for block in blocks]
    assert list(noted_blocks(path, notes)) == list(zip(blocks, notes, strict=True))
    assert b"".join(block.raw for block in blocks) == data
