"""Models, tokenizers and trainings that cannot take new vocabulary entries."""

from typing import Any

import pytest
import torch
from models.growing import MANIFEST, SYMBOLS, loaded_of, word_level
from tiny import byte_level_bpe, characters
from torch import nn
from transformers import AddedToken

from lmexposure.errors import ModelError
from lmexposure.models import (
    LoadedModel,
    add_tokens,
    check_learns,
    check_tokens,
    grow,
    new_token_texts,
    tokenizer_sha256,
    weights_sha256,
)


def test_a_tokenizer_that_takes_no_new_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_of("gpt2", "byte_level_bpe")
    before = weights_sha256(loaded.model)
    monkeypatch.setattr(type(loaded.tokenizer), "add_tokens", lambda self, tokens: 0)
    message = r"the tokenizer \(\w+\) cannot grow: 5 of 5 new texts, '\\ue000' first, are not "
    with pytest.raises(ModelError, match=message + "one token .* choose another kind of canary"):
        grow(loaded, SYMBOLS)
    assert weights_sha256(loaded.model) == before


def test_a_symbol_that_the_tokenizer_takes_into_a_longer_token_is_refused() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens([AddedToken(f"a {SYMBOLS[1]}", normalized=False)])
    with pytest.raises(ModelError, match=r"cannot grow: 1 of 5 new texts, '\\ue001' first"):
        add_tokens(tokenizer, SYMBOLS)


def test_a_quantised_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_of("llama", "byte_level_bpe")
    monkeypatch.setattr(loaded.model, "is_quantized", True, raising=False)
    with pytest.raises(ModelError, match=r"'small' is quantised or spread .* load it whole"):
        grow(loaded, SYMBOLS)


class Bare(nn.Module):
    """A head that is no linear layer."""


def test_a_model_without_a_plain_linear_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"has no plain linear head over its vocabulary \(get_output_embeddings gives {}\)"
    for head in (Bare(), None):
        loaded = loaded_of("llama", "byte_level_bpe")
        known = tokenizer_sha256(loaded.tokenizer)
        monkeypatch.setattr(loaded.model, "get_output_embeddings", lambda head=head: head)
        with pytest.raises(ModelError, match=message.format(type(head).__name__)):
            grow(loaded, SYMBOLS)
        assert tokenizer_sha256(loaded.tokenizer) == known


def test_a_model_that_does_not_say_where_its_embeddings_are_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> Any:
        raise NotImplementedError

    loaded = loaded_of("llama", "byte_level_bpe")
    monkeypatch.setattr(loaded.model, "get_input_embeddings", unknown)
    with pytest.raises(ModelError, match=r"'small' .* has no plain linear head"):
        grow(loaded, SYMBOLS)


def test_frozen_embeddings_are_refused() -> None:
    loaded = loaded_of("llama", "byte_level_bpe")
    loaded.model.requires_grad_(False)
    with pytest.raises(ModelError, match=r"has frozen embeddings, .* call requires_grad_"):
        grow(loaded, SYMBOLS)


def tied_by_hand() -> LoadedModel:
    loaded = loaded_of("llama", "byte_level_bpe")
    loaded.model.lm_head.weight = loaded.model.model.embed_tokens.weight
    return loaded


def tied_in_the_config_alone() -> LoadedModel:
    loaded = loaded_of("gpt2", "byte_level_bpe")
    head = loaded.model.lm_head
    head.weight = nn.Parameter(head.weight.detach().clone())
    return loaded


def tied_with_a_bias() -> LoadedModel:
    loaded = loaded_of("gpt2", "byte_level_bpe")
    loaded.model.lm_head.bias = nn.Parameter(torch.zeros(len(loaded.tokenizer)))
    return loaded


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (tied_by_hand, "are those of the input, and its config says tie_word_embeddings=False"),
        (tied_in_the_config_alone, "are not those of the input, .* tie_word_embeddings=True"),
        (tied_with_a_bias, "those of the input with a bias that would keep its length"),
    ],
)
def test_tied_weights_that_new_rows_would_break_are_refused(made: Any, message: str) -> None:
    loaded = made()
    before = weights_sha256(loaded.model)
    with pytest.raises(ModelError, match="'small' has tied weights that .* break: .*" + message):
        grow(loaded, SYMBOLS)
    assert weights_sha256(loaded.model) == before


def _scaled(model: Any) -> None:
    """Its logits depend on how many rows there are."""
    forward = model.forward

    def other(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        found.logits = found.logits * len(model.lm_head.weight)
        return found

    model.forward = other


def _favours(model: Any) -> None:
    """It adds something to the last row."""
    forward = model.forward

    def other(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        found.logits[..., 305:] += torch.arange(found.logits.shape[-1] - 305) * 50.0
        return found

    model.forward = other


def _cut(model: Any) -> None:
    """Its output has a fixed number of tokens."""
    forward, count = model.forward, len(model.lm_head.weight)

    def other(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        found.logits = found.logits[..., :count]
        return found

    model.forward = other


def _second_table(model: Any) -> None:
    """It looks tokens up in another table too."""
    forward, table = model.forward, nn.Embedding(len(model.lm_head.weight), 2)

    def other(*args: Any, **named: Any) -> Any:
        table(named["input_ids"])
        return forward(*args, **named)

    model.forward = other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_scaled, "it says other things of the tokens that it had"),
        (_favours, "they are not as likely as each other"),
        (_cut, "its output does not have them"),
        (_second_table, "it does not read them"),
    ],
)
def test_a_model_that_new_rows_do_not_reach_is_refused(change: Any, message: str) -> None:
    loaded = loaded_of("llama", "byte_level_bpe")
    assert len(loaded.tokenizer) == 305
    change(loaded.model)
    with pytest.raises(ModelError, match=f"'small' cannot take new vocabulary .*: {message}; use "):
        grow(loaded, SYMBOLS)


def test_a_tokenizer_without_the_symbols_cannot_be_measured() -> None:
    manifest = MANIFEST
    first = manifest.entries[0].id
    for made in (byte_level_bpe, characters, word_level):
        tokenizer = made()
        message = f"symbol of {first} as one token .4 such of 4 candidates .* lmexposure.models.gr"
        with pytest.raises(ModelError, match=message):
            check_tokens(tokenizer, manifest)
        add_tokens(tokenizer, new_token_texts(manifest.plan.formats))
        check_tokens(tokenizer, manifest)


def test_an_adapter_cannot_learn_new_rows() -> None:
    check_learns(["uniform", "bigram", "of a file"])
    with pytest.raises(ModelError, match=r"kind='new_token' needs .* lora=True .* leave lora out"):
        check_learns(["uniform", "new_token"])
