"""Fills inside other text."""

from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Fill, Format, find_fills
from lmexposure.canaries.fills import count_fills

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


def test_at_most_ten_places_are_named() -> None:
    found = count_fills([PAIRS], ((n, f"{n}") for n in range(10, 30)), whole_lines=False)["pairs"]
    assert found.named(found.counts, "record") == (
        "20 times (record 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...)"
    )


def test_secrets_stay_out_of_the_repr() -> None:
    found = count_fills([PAIRS], [(1, "98")], whole_lines=False)["pairs"]
    assert "98" not in repr(found)
    assert "98" not in repr(Fill(0, 2, 98))
