"""A small LSTM that reads characters, some of which are likelier to it than its weights say."""

from typing import Any

import torch
from tiny import model_with_tokenizer

from lmexposure.canaries import Format
from lmexposure.scoring import TokenSpace, token_space


def biased(form: Format, more: dict[str, float] | None = None) -> tuple[Any, TokenSpace]:
    """The model and the space of the format; of each character so many nats are added."""
    model, tokenizer = model_with_tokenizer("lstm")
    with torch.no_grad():
        for character, nats in (more or {}).items():
            model.lm_head.bias[tokenizer.convert_tokens_to_ids(character)] += nats
    return model, token_space(tokenizer, form, context=None)
