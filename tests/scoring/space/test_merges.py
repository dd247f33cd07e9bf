from typing import Any

import numpy as np
import pytest
from tiny import (
    byte_level_bpe,
    characters,
    sentence_piece_bpe,
    unigram,
    word_piece,
    word_split_bpe,
)

from lmexposure.scoring import (
    Vocabulary,
)
from lmexposure.scoring.space.merges import Merges


def digit_tokens(tokenizer: Any) -> list[int]:
    surfaces = enumerate(Vocabulary(tokenizer).surfaces)
    return [token for token, surface in surfaces if surface and surface.isdigit()]


@pytest.mark.parametrize(
    "make", [byte_level_bpe, sentence_piece_bpe, lambda: word_split_bpe(r"\D|\d+")]
)
def test_neighbours_are_those_that_the_tokenizer_itself_writes(make: Any) -> None:
    tokenizer = make()
    merges = Merges.of(tokenizer)
    assert merges is not None
    found = {token: merges.spines(token, whole=False) for token in digit_tokens(tokenizer)}
    made = {token: spines for token, spines in found.items() if spines is not None}
    ids = sorted(made)
    rule = merges.neighbours([made[token] for token in ids])
    backend, surfaces = tokenizer.backend_tokenizer, Vocabulary(tokenizer).surfaces

    def alone(*pair: int) -> bool:
        text = b"x" + b"".join(surfaces[token] or b"" for token in pair)
        ids: list[int] = backend.encode(text.decode(), add_special_tokens=False).ids
        return ids[-len(pair) :] == [*pair]

    ids = [token for token in ids if alone(token)]
    assert len(ids) > 15
    places = np.searchsorted(sorted(made), ids)
    expected = [[alone(a, b) for b in ids] for a in ids]
    np.testing.assert_array_equal(rule.follows[rule.classes[places]][:, places], expected)
    assert 0.2 < np.mean(expected) < 0.99  # both kinds occur


def test_a_character_tokenizer_has_one_class() -> None:
    merges = Merges.of(characters())
    assert merges is not None
    spines = [merges.spines(token, whole=False) for token in range(2, 9)]
    rule = merges.neighbours([one for one in spines if one is not None])
    assert rule.follows.shape == (1, 7)
    assert rule.follows.all()


def test_a_token_that_no_merge_makes_has_no_spines() -> None:
    merges = Merges({"a": 0, "b": 1, "ab": 2, "ba": 3, "aba": 4}, [("a", "b"), ("b", "a")])
    assert merges.spines(4, whole=False) is None
    assert merges.spines(2, whole=False) is not None
    assert merges.spines(4, whole=True) is not None
    assert merges.spines(99, whole=False) is None


def test_the_left_of_two_equal_merges_comes_first() -> None:
    """Of "aaa" the first two are joined: "aa" may stand before "a", but not behind it."""
    merges = Merges({"a": 0, "aa": 1}, ["a a"])
    spines = [merges.spines(token, whole=False) for token in (0, 1)]
    rule = merges.neighbours([one for one in spines if one is not None])
    np.testing.assert_array_equal(rule.follows[rule.classes], [[False, False], [True, True]])


@pytest.mark.parametrize("make", [word_piece, unigram])
def test_other_tokenizers_have_no_merges(make: Any) -> None:
    assert Merges.of(make()) is None
