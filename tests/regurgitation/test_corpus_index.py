"""Where in a corpus a text stands, against a search that tries everything."""

import random

import pytest

from lmexposure.regurgitation import CorpusIndex, look_up


def naive(documents: list[str], text: str, least: int) -> list[tuple[int, int, int, int, int]]:
    """Every part that is in no longer one: start, stop, document, place, copies."""
    found = []
    reached = 0
    for start in range(len(text)):
        length = 0
        while start + length < len(text) and any(
            text[start : start + length + 1] in document for document in documents
        ):
            length += 1
        part = text[start : start + length]
        if start + length > reached and length >= least:
            holders = [n for n, document in enumerate(documents) if part in document]
            first = holders[0]
            place = documents[first].index(part)
            found.append((start, start + length, first + 1, place, len(holders)))
            reached = start + length
    return found


def random_texts(seed: int) -> tuple[list[str], str]:
    draws = random.Random(seed)
    letters = ("ab", "abé𝄞", "ab ")[seed % 3]
    some = ["".join(draws.choices(letters, k=draws.randint(0, 40))) for _ in range(6)]
    return some[: draws.randint(1, 5)], some[-1]


@pytest.mark.parametrize("seed", range(60))
def test_matches_are_those_of_a_slow_search(seed: int) -> None:
    documents, text = random_texts(seed)
    for least in (2, 3, 5, 8):
        expected = naive(documents, text, least)
        for most in (10, 1 << 20):  # in many shards, and in one
            (found,), (copies,) = look_up(documents, [text], [text[:3]], least=least, most=most)
            own = [(m.start, m.stop, m.document, m.place, m.copies) for m in found]
            assert own == expected
            assert copies == sum(text[:3] in document for document in documents if document)


def test_half_characters_and_empty_documents_do_no_harm() -> None:
    index = CorpusIndex(["", "\ud800 half", "näher dran"], first=7)
    assert index.copies("näher") == 1
    assert index.copies("") == 3
    assert [m.document for m in index.matches("so näher dran", 5)] == [9]
    assert index.matches("", 5) == []
