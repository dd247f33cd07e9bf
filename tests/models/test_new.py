"""New models: sizes, seeds, what their tokenizers know."""

import pytest
import torch

from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    LstmSizes,
    new_model,
    weights_sha256,
)

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
