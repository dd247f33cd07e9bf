"""Files that are text, and files that are not."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries.textfile import text_blocks
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
@settings(deadline=None)
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
