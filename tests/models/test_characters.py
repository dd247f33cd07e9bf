"""The character tokenizer loses nothing, and survives saving."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lmexposure.models import (
    character_tokenizer,
)

AWKWARD = (
    "plain text",
    "  two  spaces, \t tab, and the end ",
    "line\nline\r\nline\r",
    "literal <unk> and <|endoftext|> here",
    "é ü 漢字 🙂 e\u0301 \u200d \ufeff",
    "",
)


@pytest.mark.parametrize("text", AWKWARD)
def test_round_trip_through_saving(text: str, tmp_path: Path) -> None:
    made = character_tokenizer(AWKWARD)
    made.save_pretrained(tmp_path)
    for tokenizer in (made, AutoTokenizer.from_pretrained(tmp_path)):
        ids = tokenizer.encode(text)
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_text_is_one_token_a_character(text: str) -> None:
    tokenizer = character_tokenizer([text])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == 2 + len(set(text))


def test_ids_follow_code_points_whatever_the_order_of_the_texts() -> None:
    one = character_tokenizer(["ba", "cd"]).get_vocab()
    other = character_tokenizer(["dcba"]).get_vocab()
    assert one == other == {"<unk>": 0, "<|endoftext|>": 1, "a": 2, "b": 3, "c": 4, "d": 5}


def test_extra_characters_are_known_and_others_are_not() -> None:
    tokenizer = character_tokenizer(["ab"], extra_characters="019")
    assert tokenizer.unk_token_id not in tokenizer.encode("a0b19")
    assert tokenizer.encode("azzb") == [5, 0, 0, 6]


def test_end_of_text_is_the_only_separator_and_there_is_no_padding_token() -> None:
    tokenizer = character_tokenizer(["ab"])
    assert tokenizer.eos_token_id == 1
    assert tokenizer.bos_token_id is None
    assert tokenizer.pad_token_id is None
