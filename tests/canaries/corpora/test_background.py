"""What is worked out on another core is what would be worked out on this one."""

import hashlib
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure._files import sha256_bytes
from lmexposure.canaries.corpora.background import ahead, background_hash, behind, corpus_hashes


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
    assert made.acquire(timeout=10)  # the second, although nobody asked for it
    assert list(ready) == [1, 2]


def test_what_goes_wrong_comes_after_what_went_well() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ready = ahead(items())
    assert next(ready) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ready)


def test_nobody_needs_to_take_all() -> None:
    ready = ahead(iter(range(10**9)))
    assert next(ready) == 0
    ready.close()


@given(st.lists(st.integers(0, 300_000), max_size=6))
def test_a_hash_is_that_of_all_pieces(sizes: list[int]) -> None:
    pieces = [bytes([n]) * size for n, size in enumerate(sizes)]
    with background_hash() as digest:
        for piece in pieces:
            digest.update(piece)
        assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()
        digest.update(b"more")
        assert digest.hexdigest() == hashlib.sha256(b"".join([*pieces, b"more"])).hexdigest()


@pytest.mark.parametrize("files", [1, 3])
def test_hashes_of_each_file_and_of_all(files: int) -> None:
    contents = [bytes([n]) * 300_000 for n in range(files)]
    with corpus_hashes(on=True, several=files > 1) as hashes:
        for content in contents:
            with hashes.file():
                hashes.update(content[:7])
                hashes.update(content[7:])
        assert hashes.files == [sha256_bytes(one) for one in contents]
        assert hashes.total == sha256_bytes(b"".join(contents))


def test_no_hashes() -> None:
    with corpus_hashes(on=False, several=True) as hashes:
        for _ in range(2):
            with hashes.file():
                hashes.update(b"content")
        assert (hashes.files, hashes.total) == (["", ""], "")


def test_a_call_that_failed_is_heard_of_after_a_few_more() -> None:
    with behind() as calls:
        calls.call(int, "no number")
        with pytest.raises(ValueError, match="no number"):
            for number in range(10):
                calls.call(str, number)
