"""New models: sizes, seeds, and tokenizers, which lose nothing and survive saving."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    LstmSizes,
    byte_level_tokenizer,
    character_tokenizer,
    new_model,
    weights_sha256,
)

AWKWARD = (
    "plain text",
    "  two  spaces, \t tab, and the end ",
    "line\nline\r\nline\r",
    "literal <unk> and <|endoftext|> here",
    "é ü 漢字 🙂 e\u0301 \u200d \ufeff",
    "",
)


def test_round_trip_through_saving(tmp_path: Path) -> None:
    character_tokenizer(AWKWARD).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text in AWKWARD:
        ids = tokenizer.encode(text)
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids


@settings(max_examples=15)
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


def test_any_text_survives_and_nothing_is_unknown() -> None:
    tokenizer = byte_level_tokenizer(["the cat sat on the mat, and <|endoftext|> is text"] * 50)
    text = "  é 漢\r\n\t<|endoftext|> 🙂\x00"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id not in tokenizer.encode(text)
    assert tokenizer.pad_token_id is None


DOCUMENTS = ["one line", "another line", ""]
SMALL = LstmSizes(units=8, embedding=6, layers=1)
NEW = partial(new_model, documents=DOCUMENTS, seed=0, separator="\n")


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_a_new_model_fits_its_tokenizer_and_its_seed_decides_the_weights(kind: str) -> None:
    """It is in evaluation mode, and torch's random numbers are left alone."""
    before = torch.get_rng_state()
    made, again, other = (
        new_model(kind, DOCUMENTS, seed=seed, separator="\n", lstm=SMALL) for seed in (1, 1, 2)
    )
    hashes = [weights_sha256(one.model) for one in (made, again, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert torch.equal(torch.get_rng_state(), before)
    assert made.model.config.vocab_size == len(made.tokenizer)
    assert made.model.config.eos_token_id == made.tokenizer.eos_token_id
    assert not made.model.training
    assert made.name == kind


def test_the_lstm_knows_separator_and_extra_characters() -> None:
    made = new_model("lstm", DOCUMENTS, seed=0, separator="\n\n", extra_characters="09", lstm=SMALL)
    assert made.tokenizer.unk_token_id not in made.tokenizer.encode("line\n\n90")
    assert made.model.config.hidden_size == 8
    assert made.to_dict()["context_window"] is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LstmSizes(layers=0), SettingsError, "layers=0 must be a whole number at least 1"),
        (lambda: LstmSizes(units=0), SettingsError, "units=0 must be a whole number at least 1"),
        (lambda: LstmSizes(embedding=0), SettingsError, "embedding=0 must be a whole number at"),
        (lambda: LstmSizes(dropout=1.0), SettingsError, r"dropout=1\.0 must be at least 0 and"),
        (lambda: NEW("gru"), SettingsError, "kind='gru' must be one of lstm, gpt2-tiny"),
        (lambda: NEW("lstm", seed=-1), SettingsError, "seed=-1 must be a whole number from 0 to"),
        (
            lambda: NEW("gpt2-tiny", documents=[""] * 2),
            CorpusError,
            "documents holds no text at all; give a corpus",
        ),
    ],
)
def test_what_is_no_new_model_is_refused(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
