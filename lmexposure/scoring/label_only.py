"""Scores from greedy next tokens alone, for a model that shows no probabilities.

A service may hide its probabilities, or flatten them without changing its answers. What it has
memorised still comes out of its answers, so that masked confidence is not privacy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from lmexposure._validate import integer
from lmexposure.errors import InputError, ModelError
from lmexposure.models import (
    Encoded,
)
from lmexposure.scoring.token_details import details_of_encoded

Greedy = Callable[[list[list[int]]], Sequence[int]]  # token prefixes -> the next token of each


@dataclass(frozen=True, kw_only=True)
class LabelOnly:
    """Which of a secret's tokens come out greedily, given the true tokens before each.

    Attributes:
        hits: for each text one flag for each of the secret's tokens.
    """

    hits: tuple[NDArray[np.bool_], ...]

    @property
    def share(self) -> NDArray[np.float64]:
        """Share of the secret's tokens that are top-1, in [0, 1], shape (n,).

        Higher = more memorised, and more likely in.
        """
        return np.array([one.mean() for one in self.hits], dtype=np.float64)

    @property
    def longest_run(self) -> NDArray[np.int64]:
        """Most tokens in a row that are top-1, shape (n,); higher = more memorised."""
        return np.array([_longest(one) for one in self.hits], dtype=np.int64)


def label_only(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    first: int | None = None,
    batch_size: int | None = None,
) -> LabelOnly:
    """Compare each token of a secret with the model's greedy next token after the true prefix.

    Args:
        model: a causal language model, left in its mode, which is asked once a text; or a function
            from token prefixes to the next token of each, for a model that shows nothing else,
            which is asked once a token.
        encoded: n texts as `encode_in_context` gives them.
        first: the place in each text's tokens from which the secret stands; what stands before the
            secret is the same in all texts and would blur the score. Where a secret begins,
            `find_beginning` tells: the length of its `ids`. None: every scored token counts.
        batch_size: texts or prefixes at a time; None chooses one.

    Raises:
        InputError: no texts; a text without tokens from `first` on.
        ModelError: a function gives another number of tokens than there are prefixes.
        NumericalError: the model gave NaN or infinite logits.
        SettingsError: `first` or `batch_size` out of range.
    """
    starts = _starts(encoded, first)
    if isinstance(model, nn.Module):
        details = details_of_encoded(model, encoded, batch_size=batch_size)
        found = zip(details.top1, encoded, starts, strict=True)
        return LabelOnly(hits=tuple(hit[start - one.scored_from :] for hit, one, start in found))
    size = 256 if batch_size is None else integer("batch_size", batch_size, low=1)
    prefixes = [one.ids[:end] for one, end in _places(encoded, starts)]
    wanted = np.array([one.ids[end] for one, end in _places(encoded, starts)])
    hits = np.array(_ask(model, prefixes, size)) == wanted
    ends = np.cumsum([len(one.ids) - start for one, start in zip(encoded, starts, strict=True)])
    return LabelOnly(hits=tuple(np.split(hits, ends[:-1])))


def _starts(encoded: Sequence[Encoded], first: int | None) -> list[int]:
    """Where each text's secret begins, by its tokens."""
    if not encoded:
        raise InputError("no texts to score; give at least one")
    least = 0 if first is None else integer("first", first, low=0)
    starts = [max(least, one.scored_from) for one in encoded]
    for number, (one, start) in enumerate(zip(encoded, starts, strict=True)):
        if start >= len(one.ids):
            raise InputError(
                f"text {number} of {len(encoded)} has {len(one.ids)} tokens, none of them from "
                f"first={first} on; give the place where the secrets begin"
            )
    return starts


def _places(encoded: Sequence[Encoded], starts: Sequence[int]) -> Iterator[tuple[Encoded, int]]:
    for one, start in zip(encoded, starts, strict=True):
        for end in range(start, len(one.ids)):
            yield one, end


def _ask(greedy: Greedy, prefixes: list[list[int]], size: int) -> list[int]:
    answers: list[int] = []
    for place in range(0, len(prefixes), size):
        some = prefixes[place : place + size]
        told = [int(token) for token in greedy(some)]
        if len(told) != len(some):
            raise ModelError(
                f"the greedy function gave {len(told)} tokens for {len(some)} prefixes; it must "
                "give the next token of each"
            )
        answers.extend(told)
    return answers


def _longest(hits: NDArray[np.bool_]) -> int:
    """Longest run of hits: the widest gap between two misses."""
    misses = np.flatnonzero(np.concatenate([[True], ~hits, [True]]))
    return int(np.diff(misses).max()) - 1
