"""Models, tokenizers and trainings that cannot take new vocabulary entries."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.growing import MANIFEST, SYMBOLS, loaded_of, word_level
from tiny import byte_level_bpe, characters
from torch import nn
from transformers import AddedToken

from lmexposure.errors import ModelError
from lmexposure.models import add_tokens, check_learns, check_tokens, grow, new_token_texts


def test_a_symbol_that_the_tokenizer_takes_into_a_longer_token_is_refused() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens([AddedToken(f"a {SYMBOLS[1]}", normalized=False)])
    with pytest.raises(ModelError, match=r"cannot grow: 1 of 5 new texts, '\\ue001' first"):
        add_tokens(tokenizer, SYMBOLS)


def raises() -> Any:
    raise NotImplementedError


def head_of_its_own(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def tied_by_hand(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def tied_with_a_bias(model: Any) -> None:
    model.lm_head.bias = nn.Parameter(torch.zeros(len(model.lm_head.weight)))


def says(model: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Its logits are changed behind its forward pass."""
    forward = model.forward

    def other(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        found.logits = change(found.logits)
        return found

    model.forward = other


def with_a_second_table(model: Any) -> None:
    forward, table = model.forward, nn.Embedding(len(model.lm_head.weight), 2)

    def other(*args: Any, **named: Any) -> Any:
        table(named["input_ids"])
        return forward(*args, **named)

    model.forward = other


def favoured(logits: torch.Tensor) -> torch.Tensor:
    """The last rows get more and more."""
    logits[..., 305:] += torch.arange(logits.shape[-1] - 305) * 50.0
    return logits


TIED, CANNOT = (
    "'small' has tied weights that .* break: .*",
    "'small' cannot take new vocabulary .*: ",
)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (
            "llama",
            lambda m: setattr(m, "is_quantized", True),
            r"'small' is quantised or spread .* load it whole",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_output_embeddings", lambda: nn.Module()),
            r"no plain linear head over its vocabulary \(get_output_embeddings gives Module\)",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_output_embeddings", lambda: None),
            r"no plain linear head over its vocabulary \(get_output_embeddings gives NoneType\)",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_input_embeddings", raises),
            r"'small' .* has no plain linear head",
        ),
        (
            "llama",
            lambda m: m.requires_grad_(False),
            r"has frozen embeddings, .* call requires_grad_",
        ),
        ("llama", tied_by_hand, TIED + "those of the input, and .* says tie_word_embeddings=False"),
        ("gpt2", head_of_its_own, TIED + "are not those of the input, .* tie_word_embeddings=True"),
        ("gpt2", tied_with_a_bias, TIED + "those of the input with a bias that would keep its"),
        (
            "llama",
            lambda m: says(m, lambda logits: logits * len(m.lm_head.weight)),
            CANNOT + "it says other things of the tokens that it had; use ",
        ),
        (
            "llama",
            lambda m: says(m, favoured),
            CANNOT + "they are not as likely as each other; use ",
        ),
        (
            "llama",
            lambda m: says(m, lambda logits: logits[..., :305]),
            CANNOT + "its output does not have them; use ",
        ),
        ("llama", with_a_second_table, CANNOT + "it does not read them; use "),
    ],
)
def test_a_model_that_takes_no_new_rows_is_refused(
    kind: str, change: Callable[[Any], Any], message: str
) -> None:
    loaded = loaded_of(kind, "byte_level_bpe")
    assert len(loaded.tokenizer) == 305
    change(loaded.model)
    before = [weight.detach().clone() for weight in loaded.model.parameters()]
    with pytest.raises(ModelError, match=message):
        grow(loaded, SYMBOLS)
    if not message.startswith(CANNOT):
        assert len(loaded.tokenizer) == 305
        assert all(map(torch.equal, before, loaded.model.parameters()))


def test_a_tokenizer_that_takes_no_new_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_of("gpt2", "byte_level_bpe")
    monkeypatch.setattr(type(loaded.tokenizer), "add_tokens", lambda self, tokens: 0)
    message = r"the tokenizer \(\w+\) cannot grow: 5 of 5 new texts, '\\ue000' first, are not "
    with pytest.raises(ModelError, match=message + "one token .* choose another kind of canary"):
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
    check_learns(["uniform", "texts", "of a file"])
    with pytest.raises(ModelError, match=r"kind='new_token' needs .* lora=True .* leave lora out"):
        check_learns(["uniform", "new_token"])
