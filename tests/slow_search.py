"""What a search over R must find, the slow way."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tiny import byte_level_bpe, characters, model_of, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.models import encode_documents
from lmexposure.scoring import Steps, TokenSpace, next_token_steps, token_space

TIE = 1e-6  # what counts as a tie, in bits


def all_bits(
    model: Any, tokenizer: Any, form: Format, *, skip: int, context: str | None = None
) -> NDArray[np.float64]:
    """Bits of every fill behind its first `skip` tokens, in float64, each fill from its start."""
    twin = copy.deepcopy(model).double()
    rows = encode_documents(
        tokenizer, [form.text(index) for index in range(form.size)], context=context
    )
    bits = np.empty(form.size)
    for length in {len(row) for row in rows}:
        mine = [i for i, row in enumerate(rows) if len(row) == length]
        ids = torch.tensor([rows[i] for i in mine])
        with torch.inference_mode():
            logits = twin(input_ids=ids, use_cache=False).logits
        nats = -logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        bits[mine] = nats[:, skip - 1 :].sum(dim=1).double().numpy() / math.log(2)
    return bits


def naive_places(bits: NDArray[np.float64], *, slack: float = 0) -> NDArray[np.int64]:
    """1 + the other fills that cost no more than each, ties against it."""
    others = bits[None, :] <= bits[:, None] + TIE + slack
    np.fill_diagonal(others, False)
    return np.asarray(1 + others.sum(axis=1))


def naive_ranks(
    bits: NDArray[np.float64], planted: Sequence[int], *, slack: float = 0
) -> NDArray[np.int64]:
    """The same over never-inserted fills only."""
    others = bits[None, :] <= bits[:, None] + TIE + slack
    np.fill_diagonal(others, False)
    others[:, list(planted)] = False
    return np.asarray(1 + others.sum(axis=1))


def paths_of(space: TokenSpace) -> dict[tuple[int, ...], int]:
    """Every fill's tokens behind the beginning, and its index."""
    return {tuple(space.path(index)): index for index in range(space.size)}


def steps_of(model: Any, space: TokenSpace) -> Steps:
    """Steps for a walk over the space, probed on its first fill."""
    return next_token_steps(model, [*space.beginning, *space.path(0)])


def make_twins(model: Any, one: int, other: int) -> None:
    """Make two tokens the same to the model, so that fills with one or the other tie."""
    with torch.no_grad():
        for weights in (model.get_input_embeddings(), model.get_output_embeddings()):
            weights.weight[other] = weights.weight[one]
        if model.get_output_embeddings().bias is not None:
            model.get_output_embeddings().bias[other] = model.get_output_embeddings().bias[one]


@dataclass(frozen=True)
class Small:
    """A space small enough to list, a tokenizer and the kind of model to search it with."""

    kind: str
    tokenizer: Callable[[], Any]
    form: Format
    context: str | None = None

    def made(self) -> tuple[Any, Any, TokenSpace]:
        """Model, tokenizer and space."""
        tokenizer = self.tokenizer()
        space = token_space(tokenizer, self.form, context=self.context)
        return model_of(self.kind, len(tokenizer)), tokenizer, space

    def bits(self, model: Any, tokenizer: Any, space: TokenSpace) -> NDArray[np.float64]:
        skip = len(space.beginning)
        return all_bits(model, tokenizer, self.form, skip=skip, context=self.context)


PIN = Format(name="pin", template="My PIN is {digits:2}")
LUHN = Format(name="luhn", template="My PIN is {digits:3}{luhn}")
SHORT = Format(name="short", template="My PIN is {digits:2}{luhn}.")
WORDS = Format(
    name="words",
    template="The {choice:a} is {choice:b}{digits:1}",
    lists={"a": ["random number", "PIN", "random", "0042"], "b": ["28", "17", "2 ", "or", "and "]},
)
NESTED = Format(  # each entry but the last begins the next one
    name="nested",
    template="PIN is {choice:w}",
    lists={"w": ["1", "12", "123", "1234", "12345", "2", "28", "281", "My"]},
)
THOUSAND = Small("lstm", characters, LUHN)
SMALL = {
    "digits": Small("lstm", characters, PIN),
    "check digit": Small("lstm", characters, SHORT, "\n"),
    "merged words": Small("gpt2", byte_level_bpe, WORDS),
    "merged digits": Small("llama", byte_level_bpe, SHORT),
    "sliding": Small("mistral", byte_level_bpe, PIN, "\n"),
    "pieces": Small("gpt2", word_piece, PIN),
    "sentence piece": Small("llama", sentence_piece_bpe, WORDS),
    "nested": Small("lstm", characters, NESTED),
    "nested and merged": Small("gpt2", byte_level_bpe, NESTED),
}


@cache
def listed(name: str) -> tuple[Any, Any, TokenSpace, NDArray[np.float64]]:
    """Model, tokenizer, space and the bits of all its fills; made once, not to be changed."""
    small = THOUSAND if name == "thousand" else SMALL[name]
    model, tokenizer, space = small.made()
    return model, tokenizer, space, small.bits(model, tokenizer, space)
