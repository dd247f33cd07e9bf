"""Where a word stands: the fast way and the slow one agree."""

from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries.corpora.words import word_places

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
