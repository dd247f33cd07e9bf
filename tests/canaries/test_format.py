"""Secrets, indices and texts of a format."""

import math
import pickle
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import Format
from lmexposure.canaries.template import ALPHABETS, check_digit
from lmexposure.errors import FormatError

HOLES = st.sampled_from([*(f"{{{kind}:{n}}}" for kind in ALPHABETS for n in (1, 3)), "{choice:c}"])
TEMPLATES = st.lists(st.one_of(HOLES, st.sampled_from(["-", " x ", "{{", "7", "é"])), min_size=1)


def some_format(pieces: list[str], luhn: bool) -> Format:
    template = "".join([*pieces, "{digits:2}", "{luhn}." if luhn else ""])
    lists = {"c": ["ab", "zz", "é7"]} if "{choice:c}" in template else {}
    return Format(name="random", template=template, lists=lists)


@given(TEMPLATES, st.booleans(), st.data())
def test_round_trip(pieces: list[str], luhn: bool, data: st.DataObject) -> None:
    one = some_format(pieces, luhn)
    index = data.draw(st.integers(0, one.size - 1))
    text = one.text(index)
    assert one.index(text) == index
    assert one.pattern.fullmatch(text)
    assert one.complete(text)
    assert text.startswith(one.prefix)
    assert len(one.fills(index)) == sum(len(piece) > 3 for piece in pieces) + 1 + luhn


@pytest.mark.parametrize(
    ("template", "alphabet"),
    [
        ("{digits:1}", "0123456789"),
        ("{lower:1}", "abcdefghijklmnopqrstuvwxyz"),
        ("{upper:1}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("{alnum:1}", "abcdefghijklmnopqrstuvwxyz0123456789"),
        ("{hex:1}", "0123456789abcdef"),
        ("{printable:1}", "".join(chr(code) for code in range(33, 127))),
    ],
)
def test_alphabets_are_ordered_as_written(template: str, alphabet: str) -> None:
    one = Format(name="one", template=template)
    assert "".join(one.text(index) for index in range(one.size)) == alphabet


def test_first_hole_is_the_most_significant() -> None:
    one = Format(name="mixed", template="{choice:c}{digits:2}-{lower:1}", lists={"c": ["x", "a"]})
    assert one.size == 2 * 100 * 26
    assert one.fills(0) == ("x", "00", "a")
    assert one.fills(100 * 26 + 26 + 1) == ("a", "01", "b")
    assert [one.index(one.text(index)) for index in range(one.size)] == list(range(one.size))
    assert len({one.text(index) for index in range(one.size)}) == one.size


def test_check_digit_adds_no_randomness() -> None:
    one = Format(name="card", template="Card 12: {digits:4} {digits:3}{luhn}")
    assert one.size == 10**7
    assert one.fills(1234567) == ("1234", "567", check_digit("12 1234567"))
    wrong = one.text(5)[:-1] + str((int(one.text(5)[-1]) + 1) % 10)
    with pytest.raises(FormatError, match="is no fill of format 'card'"):
        one.index(wrong)


def test_sizes_are_exact() -> None:
    assert Format(name="big", template="{alnum:26}").size == 36**26
    assert Format(name="big", template="{alnum:26}").bits == pytest.approx(26 * math.log2(36))
    assert Format(name="two", template="{choice:c}", lists={"c": ["a", "b"]}).bits == 1
    with pytest.raises(FormatError, match="fewer than 2 ways"):
        Format(name="one", template="{choice:c}", lists={"c": ["a"]})
    with pytest.raises(FormatError, match=r"more than 10\^4000 ways"):
        Format(name="huge", template="{printable:1000}{printable:1000}{printable:1000}")


def test_longest_allowed_index_survives_decimal_text() -> None:
    one = Format(name="wide", template="{digits:1000}{digits:1000}")
    assert one.index(one.text(one.size - 1)) == int(str(one.size - 1))


@pytest.mark.parametrize("name", ["", "Card", "a b", "a/b", "é"])
def test_refused_names(name: str) -> None:
    with pytest.raises(FormatError, match=r"must match \[a-z0-9_\]\+"):
        Format(name=name, template="{digits:2}")


def test_refused_indices_and_texts() -> None:
    pin = Format(name="pin", template="PIN {digits:2}")
    for index in (-1, 100, 1.5, True):
        with pytest.raises(FormatError, match="must be a whole number from 0 to 99"):
            pin.text(index)  # type: ignore[arg-type]
    for text in ("", "PIN 1", "PIN 123", "pin 12", "PIN 1x", "PIN 12 ", "PIN 1²"):
        with pytest.raises(FormatError, match=r"is no fill of format 'pin'") as caught:
            pin.index(text)
        assert not text or text not in str(caught.value)


def test_description_must_be_text() -> None:
    with pytest.raises(FormatError, match="description must be a string"):
        Format(name="a", template="{digits:2}", description=3)  # type: ignore[arg-type]


def test_revealed_stops_before_the_next_free_character() -> None:
    one = Format(name="card", template="No {digits:2}-{digits:1}{luhn}!")
    text = one.text(123)
    assert [one.revealed(123, k) for k in range(4)] == ["No ", "No 1", "No 12-", text]
    assert one.free_characters(123) == 3
    with pytest.raises(FormatError, match="k=4 must be a whole number from 0 to 3"):
        one.revealed(123, 4)


def test_revealed_does_not_tell_where_an_open_entry_ends() -> None:
    one = Format(name="way", template="{choice:c} St", lists={"c": ["Elm", "Elmwood", "Oak"]})
    assert one.revealed(0, 3) == "Elm"
    assert one.revealed(2, 3) == "Oak St"
    assert one.revealed(1, 7) == "Elmwood St"


def test_dict_and_pickle_round_trip() -> None:
    one = Format(name="a", template="{choice:c}", lists={"c": ["Al", "Bert"]}, source="here")
    one.viable("A")
    assert Format(**asdict(one)) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(Format(**asdict(one))) == hash(one)
    assert one != Format(name="a", template="{choice:c}", lists={"c": ["Al", "Bob"]})


@given(st.sampled_from(["{digits:1}", "{hex:40}", "{choice:c}"]), st.integers(0, 9), st.data())
@settings(max_examples=50)
def test_a_sample_is_the_beginning_of_a_longer_one(
    template: str, seed: int, data: st.DataObject
) -> None:
    lists = {"c": ["a", "b"]} if "choice" in template else {}
    one = Format(name="a", template=template, lists=lists)
    n = data.draw(st.integers(0, min(one.size, 50)))
    longer = one.sample(min(one.size, 50), seed=seed)
    assert one.sample(n, seed=seed) == longer[:n]
    assert len(set(longer)) == len(longer)
    assert all(0 <= index < one.size for index in longer)


def test_sample_names_the_largest() -> None:
    pin = Format(name="pin", template="{digits:1}")
    assert sorted(pin.sample(10, seed=0)) == list(range(10))
    with pytest.raises(FormatError, match="n=11 must be a whole number from 0 to 10"):
        pin.sample(11, seed=0)


def test_fills_left_counts_those_that_agree() -> None:
    one = Format(name="f", template="a {choice:c}-{digits:1}{luhn}", lists={"c": ["x", "xy", "z"]})
    for index in range(one.size):
        characters = one.free_characters(index)
        for k in range(characters + 1):
            known = one.revealed(index, k)
            # "x" and "xy" are still open after one x; the text behind it is what tells them apart.
            agree = sum(one.text(i).startswith(known) for i in range(one.size))
            assert one.fills_left(index, k) == agree
    with pytest.raises(FormatError, match="k=9"):
        one.fills_left(0, 9)
