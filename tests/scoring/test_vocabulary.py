from typing import Any

import pytest
from tiny import byte_level_bpe, characters, word_piece

from lmexposure.scoring.vocabulary import Vocabulary


@pytest.mark.parametrize("make", [characters, byte_level_bpe])
def test_surfaces_spell_the_text(make: Any) -> None:
    tokenizer = make()
    text = "The random number is 281265017"
    assert Vocabulary(tokenizer).text(tokenizer.encode(text)) == text


def test_word_pieces_spell_the_lowered_text_behind_a_space() -> None:
    tokenizer = word_piece()
    ids = tokenizer.encode("My PIN is 0042", add_special_tokens=False)
    assert Vocabulary(tokenizer).text(ids) == " my pin is 0042"


def test_special_tokens_and_torn_characters_have_no_surface() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.text([tokenizer.eos_token_id]) is None
    assert vocabulary.text(tokenizer.encode("é")) is None  # two bytes, never merged


def test_continuations_are_all_tokens_that_the_matcher_accepts() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)

    def digits(state: int, character: str) -> int | None:
        return state + 1 if character.isdecimal() and state < 3 else None

    expected = {
        (token, 1 + len(surface))
        for token, surface in enumerate(vocabulary.surfaces)
        if surface and surface.isdecimal() and len(surface) <= 2
    }
    assert set(vocabulary.continuations(1, digits)) == expected
    assert len({state for _, state in expected}) == 2
