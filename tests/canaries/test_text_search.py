"""Fills in texts: many texts found at once, as one after another would be, and in other text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Fill, Format, find_fills
from lmexposure.canaries.fills import Sought, count_fills
from lmexposure.canaries.text_search import TextSearch

LETTERS = "ab é語\ue000😀"
TEXT = st.text(LETTERS, min_size=1, max_size=24).filter(str.strip)
TEXTS = st.lists(TEXT, min_size=1, max_size=8, unique=True)


def one_by_one(texts: list[str], data: bytes) -> list[tuple[int, int, int]]:
    """Every text compared at every byte."""
    found = (
        (at, at + len(text.encode()), number)
        for number, text in enumerate(texts)
        for at in range(len(data))
        if data.startswith(text.encode(), at)
    )
    return sorted(found, key=lambda place: (place[0], -place[1]))


@given(TEXTS, st.lists(st.text(LETTERS, max_size=9)), st.randoms())
def test_in_little_data(texts: list[str], between: list[str], chance: random.Random) -> None:
    data = "".join(part + chance.choice([*texts, ""]) for part in between).encode()
    assert TextSearch(texts).found(data) == one_by_one(texts, data)


@pytest.mark.parametrize("length", [4096, 4097, 5003])
@pytest.mark.parametrize("seed", range(8))
def test_in_much_data(length: int, seed: int) -> None:
    chance = random.Random(seed)
    texts = list({"".join(chance.choices(LETTERS, k=n % 29 + 1)) for n in range(120)})
    data = ""
    while len(data.encode()) < length:
        data += chance.choice([*texts, *LETTERS])
    assert TextSearch(texts).found(data.encode()) == one_by_one(texts, data.encode())


@pytest.mark.parametrize("size", [14, 15, 16, 23])
@pytest.mark.parametrize("behind", range(17))
def test_wherever_it_is(size: int, behind: int) -> None:
    text = "abcdefghijklmnopqrstuvwxyz"[:size]
    for before in (*range(17), *range(4090, 4100)):
        data = ("." * before + text + "." * behind).encode()
        assert TextSearch([text]).found(data) == [(before, before + size, 0)]


def test_there_is_nothing_in_nothing() -> None:
    assert TextSearch(["a", "b" * 20]).found(b"") == []
    assert TextSearch([]).found(b"a" * 5000) == []
    assert TextSearch(["b" * 20]).found(b"b" * 19) == []


def chosen(*texts: str) -> Format:
    return Format.of_texts("texts", texts, kind="texts")


def test_fills_are_by_characters() -> None:
    form = chosen("été 語", "a long text of its own \ue000")
    text = "語 été 語語 a long text of its own \ue000 été"
    assert list(find_fills(form, text)) == [Fill(2, 7, 0), Fill(9, 33, 1)]


def test_the_longest_of_nested_texts_counts() -> None:
    form = chosen("one two", "one two three", "two three", "three four")
    assert form.may_nest
    found = [fill.index for fill in find_fills(form, "one two three four one two")]
    assert found == [1, 3, 0]


@given(TEXTS, st.lists(st.text(LETTERS + "PIN 12", max_size=30)), st.randoms())
def test_what_is_left_out_holds_no_fill(
    texts: list[str], documents: list[str], chance: random.Random
) -> None:
    documents = [text + chance.choice([*texts, "PIN 12", ""]) for text in documents]
    pin = Format(name="pin", template="PIN {digits:2}")
    forms = [pin, chosen("a text that none has", *texts)]
    among = list(Sought(forms).among(enumerate(documents, 1)))
    assert [number for number, _ in among] == sorted({number for number, _ in among})
    assert count_fills(forms, among, whole_lines=False) == count_fills(
        forms, enumerate(documents, 1), whole_lines=False
    )
    holds = [n for n, text in enumerate(documents, 1) if any(t in text for t in texts)]
    assert {n for n, _ in among} >= set(holds)


def test_a_format_that_begins_with_a_hole_leaves_nothing_out() -> None:
    sought = Sought([Format(name="any", template="{digits:2}"), chosen("one", "two")])
    assert sought.places(b"nothing") is None
    assert list(sought.among([(1, "a"), (2, "b")])) == [(1, "a"), (2, "b")]


def test_more_documents_than_are_searched_at_once() -> None:
    documents = [(n, "été " * (n % 3) + ("one" if n % 500 == 7 else "")) for n in range(1, 2000)]
    among = Sought([chosen("one", "two")]).among(iter(documents))
    assert [number for number, _ in among] == [7, 507, 1007, 1507]


def test_half_of_a_surrogate_pair_is_for_others_to_refuse() -> None:
    form = chosen("one", "two")
    assert list(find_fills(form, "\ud800 two")) == [Fill(2, 5, 1)]
    assert list(Sought([form]).among([(1, "\ud800"), (2, "\ud800one")])) == [(2, "\ud800one")]


PAIRS = Format(name="pairs", template="{digits:2}")
NAMES = Format(name="names", template="{choice:c}!", lists={"c": ["Ann", "Jo Ann", "Jo"]})
ENDS = Format(name="ends", template="I am {choice:c}", lists={"c": ["Ann", "Anna"]})
CARD = Format(name="card", template="{digits:2}{luhn}")


def test_a_fill_within_another_does_not_count() -> None:
    assert [fill.index for fill in find_fills(NAMES, "Jo Ann! Ann! Jo!")] == [1, 0, 2]
    assert [fill.index for fill in find_fills(ENDS, "I am Annabel, I am Ann")] == [1, 0]


@given(st.text("019 x", max_size=30))
def test_agrees_with_trying_every_place(text: str) -> None:
    for one in (PAIRS, CARD):
        width = len(one.text(0))
        naive = [
            start
            for start in range(len(text) - width + 1)
            if one.complete(text[start : start + width])
        ]
        assert [fill.start for fill in find_fills(one, text)] == naive


def test_places_and_counts() -> None:
    texts = [(1, "12\nx\n12 34"), (4, "56\n")]
    found = count_fills([PAIRS], texts, whole_lines=True)["pairs"]
    assert found.counts == {12: 2, 34: 1, 56: 1}
    assert found.first_places == {12: 1, 34: 3, 56: 4}
    assert found.named([34, 56], "line") == "2 times (line 3, 4)"
    assert found.named([12], "line") == "2 times (line 1, ...)"
    assert count_fills([PAIRS], texts, whole_lines=False)["pairs"].first_places[34] == 1
    found = count_fills([PAIRS], ((n, f"{n}") for n in range(10, 30)), whole_lines=False)["pairs"]
    assert found.named(found.counts, "record") == (
        "20 times (record 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...)"
    )
    found = count_fills([PAIRS], [(1, "98")], whole_lines=False)["pairs"]
    assert "98" not in repr(found)
    assert "98" not in repr(Fill(0, 2, 98))
