"""The character tokenizer loses nothing, and survives saving.

The small GPT-2 and its byte-level BPE.

New models: sizes, seeds, what their tokenizers know.
"""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, GPT2LMHeadModel

from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    LstmSizes,
    byte_level_tokenizer,
    character_tokenizer,
    new_model,
    tiny_gpt2_config,
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


LINES = [f"line {i}: the cat sat on the mat, and <|endoftext|> is text" for i in range(50)]


def test_training_twice_gives_the_same_tokenizer() -> None:
    first, second = (byte_level_tokenizer(LINES, vocab_size=300) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_any_text_survives_and_nothing_is_unknown() -> None:
    tokenizer = byte_level_tokenizer(LINES)
    text = "  é 漢\r\n\t<|endoftext|> 🙂\x00"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id not in tokenizer.encode(text)
    assert tokenizer.pad_token_id is None


def test_the_vocabulary_is_as_small_as_the_corpus() -> None:
    assert len(byte_level_tokenizer(["ab"])) == 257 + 1  # all bytes, end of text, the merge "ab"
    assert len(byte_level_tokenizer(LINES, vocab_size=270)) == 270


def test_the_config_is_small_and_ends_with_its_tokenizers_token() -> None:
    tokenizer = byte_level_tokenizer(LINES)
    model = GPT2LMHeadModel(tiny_gpt2_config(tokenizer))
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.n_positions == 256
    assert 0.8e6 < model.num_parameters() < 1.2e6


DOCUMENTS = ["one line", "another line", ""]
SMALL = LstmSizes(units=8, embedding=6, layers=1)


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_the_seed_decides_the_weights_and_leaves_torch_alone(kind: str) -> None:
    before = torch.get_rng_state()
    hashes = [
        weights_sha256(new_model(kind, DOCUMENTS, seed=seed, separator="\n", lstm=SMALL).model)
        for seed in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_a_new_model_fits_its_tokenizer_and_is_in_evaluation_mode(kind: str) -> None:
    made = new_model(kind, DOCUMENTS, seed=0, separator="\n", lstm=SMALL)
    assert made.model.config.vocab_size == len(made.tokenizer)
    assert made.model.config.eos_token_id == made.tokenizer.eos_token_id
    assert not made.model.training
    assert made.name == kind


def test_the_lstm_knows_separator_and_extra_characters() -> None:
    made = new_model("lstm", DOCUMENTS, seed=0, separator="\n\n", extra_characters="09", lstm=SMALL)
    assert made.tokenizer.unk_token_id not in made.tokenizer.encode("line\n\n90")
    assert made.model.config.hidden_size == 8
    assert made.to_dict()["context_window"] is None


def test_records_need_no_separator() -> None:
    made = new_model("lstm", DOCUMENTS, seed=0, separator=None, lstm=SMALL)
    assert "\n" not in made.tokenizer.get_vocab()


@pytest.mark.parametrize("kind", NEW_MODELS)
@pytest.mark.parametrize("documents", [[], ["", ""]])
def test_a_corpus_without_text_is_refused(kind: str, documents: list[str]) -> None:
    with pytest.raises(CorpusError, match="documents holds no text at all; give a corpus"):
        new_model(kind, documents, seed=0, separator="\n")


def test_another_kind_is_refused() -> None:
    with pytest.raises(SettingsError, match="kind='gru' must be one of lstm, gpt2-tiny"):
        new_model("gru", DOCUMENTS, seed=0, separator="\n")


def test_a_seed_must_be_whole() -> None:
    with pytest.raises(SettingsError, match="seed=-1 must be a whole number from 0 to"):
        new_model("lstm", DOCUMENTS, seed=-1, separator="\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers=0 must be a whole number at least 1"),
        ({"units": 0}, "units=0 must be a whole number at least 1"),
        ({"embedding": 0}, "embedding=0 must be a whole number at least 1"),
        ({"dropout": 1.0}, r"dropout=1\.0 must be at least 0 and below 1"),
    ],
)
def test_sizes_are_checked(change: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        LstmSizes(**change)  # type: ignore[arg-type]
