from typing import Any

import pytest
from tiny import byte_level_bpe, characters, sentence_piece_bpe, word_piece

from lmexposure.scoring import (
    Vocabulary,
)
from lmexposure.scoring.space.vocabulary import (
    FALLBACK,
)


@pytest.mark.parametrize("make", [characters, byte_level_bpe])
def test_surfaces_spell_the_text(make: Any) -> None:
    tokenizer = make()
    text = "The random number is 281265017"
    assert Vocabulary(tokenizer).spelled(tokenizer.encode(text)) == text.encode()


def test_word_pieces_spell_the_lowered_text_behind_a_space() -> None:
    tokenizer = word_piece()
    ids = tokenizer.encode("My PIN is 0042", add_special_tokens=False)
    assert Vocabulary(tokenizer).spelled(ids) == b" my pin is 0042"


def test_special_tokens_have_no_surface() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.surfaces[tokenizer.eos_token_id] is None
    assert vocabulary.spelled([tokenizer.eos_token_id]) is None
    assert vocabulary.surface(tokenizer.eos_token_id) == b""


@pytest.mark.parametrize("make", [byte_level_bpe, sentence_piece_bpe])
def test_tokens_that_end_inside_a_character_have_their_bytes(make: Any) -> None:
    tokenizer = make()
    ids = tokenizer.encode("a é€🙂 �", add_special_tokens=False)
    assert (Vocabulary(tokenizer).spelled(ids) or b"").endswith("a é€🙂 �".encode())


def test_every_byte_of_a_byte_level_tokenizer_is_known() -> None:
    vocabulary = Vocabulary(byte_level_bpe())
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.surfaces)


def test_fallback_tokens_are_known_and_stand_apart_in_the_trie() -> None:
    tokenizer = sentence_piece_bpe()
    vocabulary = Vocabulary(tokenizer)
    names = tokenizer.convert_ids_to_tokens(sorted(vocabulary.fallback))
    assert names == [f"<0x{byte:02X}>" for byte in range(256)]
    apart = vocabulary.trie.children
    assert len(apart[ord("2")].tokens) == len(apart[FALLBACK + ord("2")].tokens) == 1
    assert not Vocabulary(byte_level_bpe()).fallback


def test_continuations_are_all_tokens_that_the_matcher_accepts() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)

    def digits(state: int, byte: int) -> int | None:
        return state + 1 if bytes([byte]).isdigit() and state < 3 else None

    expected = {
        (token, 1 + len(surface))
        for token, surface in enumerate(vocabulary.surfaces)
        if surface and surface.isdigit() and len(surface) <= 2
    }
    assert set(vocabulary.continuations(1, digits)) == expected
    assert len({state for _, state in expected}) == 2
