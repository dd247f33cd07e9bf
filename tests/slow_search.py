"""What a search over R must find, the slow way; and steps that go wrong on purpose."""

import copy
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tiny import byte_level_bpe, characters, model_of, sentence_piece_bpe, word_piece

from lmexposure.canaries import CanaryFormat
from lmexposure.models.encoding import encode_documents
from lmexposure.scoring.space.token_space import TokenSpace, token_space

TIE = 1e-6  # what counts as a tie, in bits


def all_bits(
    model: Any, tokenizer: Any, form: CanaryFormat, *, skip: int, context: str | None = None
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


class Around:
    """Steps around other steps, which change nothing yet."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.evaluated = 0  # whoever counts asks the steps within

    def start(self, ids: Any, columns: Any) -> Any:
        return self.steps.start(ids, columns)

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        return self.steps.advance(state, parents, tokens, rows, columns)


class Cramped(Around):
    """Out of memory above so many rows."""

    def __init__(self, steps: Any, most: int, message: str = "CUDA out of memory.") -> None:
        super().__init__(steps)
        self.most, self.message, self.refused = most, message, 0

    def advance(self, state: Any, parents: Any, *rest: Any) -> Any:
        if len(parents) > self.most:
            self.refused += 1
            raise RuntimeError(self.message)
        return super().advance(state, parents, *rest)


class Interrupted(Around):
    """Ctrl-C in the n-th step."""

    def __init__(self, steps: Any, after: int) -> None:
        super().__init__(steps)
        self.left = after

    def advance(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().advance(*arguments)


class NanBehind(Around):
    """NaN behind one token, numbers behind all others; never while `quiet`."""

    def __init__(self, steps: Any, token: int) -> None:
        super().__init__(steps)
        self.token, self.quiet = token, True

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        new, bits = super().advance(state, parents, tokens, rows, columns)
        if not self.quiet:
            bits = np.where(tokens[rows] == self.token, np.nan, bits)
        return new, bits


class Off(Around):
    """Costs that come out so much larger behind one token; right while `quiet`."""

    def __init__(self, steps: Any, by: float, token: int | None = None) -> None:
        super().__init__(steps)
        self.by, self.token, self.quiet = by, token, True

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        new, bits = super().advance(state, parents, tokens, rows, columns)
        if self.quiet:
            return new, bits
        hit = np.ones(len(rows), bool) if self.token is None else tokens[rows] == self.token
        return new, bits + self.by * hit


class Watched(Around):
    """Counts the rows of all states that anyone still holds; `most` is the largest number."""

    def __init__(self, steps: Any) -> None:
        super().__init__(steps)
        self.most, self._alive = 0, list[Any]()

    def start(self, *arguments: Any) -> Any:
        return self._noted(super().start(*arguments))

    def advance(self, *arguments: Any) -> Any:
        return self._noted(super().advance(*arguments))

    def _noted(self, given: Any) -> Any:
        self._alive = [one for one in self._alive if one() is not None]
        self._alive.append(weakref.ref(given[0]))
        self.most = max(self.most, sum(one().rows for one in self._alive))
        return given


@dataclass(frozen=True)
class Small:
    """A space small enough to list, a tokenizer and the kind of model to search it with."""

    kind: str
    tokenizer: Callable[[], Any]
    form: CanaryFormat
    context: str | None = None

    def made(self) -> tuple[Any, Any, TokenSpace]:
        """Model, tokenizer and space."""
        tokenizer = self.tokenizer()
        space = token_space(tokenizer, self.form, context=self.context)
        return model_of(self.kind, len(tokenizer)), tokenizer, space

    def bits(self, model: Any, tokenizer: Any, space: TokenSpace) -> NDArray[np.float64]:
        skip = len(space.beginning)
        return all_bits(model, tokenizer, self.form, skip=skip, context=self.context)


PIN = CanaryFormat(name="pin", template="My PIN is {digits:2}")
LUHN = CanaryFormat(name="luhn", template="My PIN is {digits:3}{luhn}")
SHORT = CanaryFormat(name="short", template="My PIN is {digits:2}{luhn}.")
WORDS = CanaryFormat(
    name="words",
    template="The {choice:a} is {choice:b}{digits:1}",
    lists={
        "a": ["random number", "PIN", "random", "0042"],
        "b": ["28", "17", "2 ", "or", "and "],
    },
)
NESTED = CanaryFormat(  # each entry but the last begins the next one
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
