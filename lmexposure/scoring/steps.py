"""One step for every model: given prefix states and next tokens, the next-token log-probabilities.

Extraction is written on this alone, so it works for the LSTM and for any Hugging Face model. A
model's cache is trusted only after a numerical probe on that model; otherwise the whole prefix is
computed again at each step, which is always right.
"""

import inspect
from collections.abc import Sequence
from math import log
from typing import Any, Protocol

import torch

from lmexposure.scoring.forward import refuse_training_mode

__all__ = ["CachedSteps", "RecomputedSteps", "Steps", "next_token_steps"]

_LN2 = log(2)
_PROBE_BITS = 1e-2
_PROBE_BITS_HALF = 0.25  # in bfloat16 and float16 two right ways differ by rounding


class Steps(Protocol):
    """A batch of N prefixes that grow token by token.

    `evaluated` counts the prefixes computed so far: the cost of a search in model steps.
    """

    evaluated: int

    def start(self, ids: Sequence[int]) -> torch.Tensor:
        """Begin with one prefix; returns next-token bits, shape (1, V)."""
        ...

    def advance(self, parents: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Row n of the new batch is row `parents[n]` followed by `tokens[n]`.

        Args:
            parents: int64 of shape (N,); rows may be repeated or dropped.
            tokens: int64 of shape (N,).

        Returns:
            Next-token bits (-log2 of the probability), float64, shape (N, V).
        """
        ...


def _bits(logits: torch.Tensor) -> torch.Tensor:
    """Next-token bits after the last position: (N, T, V) -> float64 (N, V) on the CPU."""
    return (-torch.log_softmax(logits[:, -1].float(), dim=-1).double() / _LN2).cpu()


class RecomputedSteps:
    """Steps that compute the whole prefix again: slow, right for every causal model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.evaluated = 0
        self._ids = torch.empty((0, 0), dtype=torch.long)

    def start(self, ids: Sequence[int]) -> torch.Tensor:
        self._ids = torch.tensor([list(ids)], dtype=torch.long)
        return self._evaluate()

    def advance(self, parents: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        self._ids = torch.cat([self._ids[parents], tokens[:, None]], dim=1)
        return self._evaluate()

    @torch.inference_mode()
    def _evaluate(self) -> torch.Tensor:
        self.evaluated += len(self._ids)
        options = {"use_cache": False} if _takes(self.model, "use_cache") else {}
        return _bits(self.model(input_ids=self._ids.to(self.model.device), **options).logits)


class CachedSteps:
    """Steps on the model's own state: an LSTM's hidden state or a key/value cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.evaluated = 0
        self._cache: Any = None

    @torch.inference_mode()
    def start(self, ids: Sequence[int]) -> torch.Tensor:
        self._cache = None
        return self._evaluate(torch.tensor([list(ids)], dtype=torch.long))

    @torch.inference_mode()
    def advance(self, parents: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        self._cache.reorder_cache(parents.to(self.model.device))
        return self._evaluate(tokens[:, None])

    def _evaluate(self, ids: torch.Tensor) -> torch.Tensor:
        self.evaluated += len(ids)
        out = self.model(
            input_ids=ids.to(self.model.device), past_key_values=self._cache, use_cache=True
        )
        self._cache = out.past_key_values
        return _bits(out.logits)


def _takes(model: Any, argument: str) -> bool:
    return argument in inspect.signature(model.forward).parameters


def next_token_steps(model: Any, probe: Sequence[int]) -> Steps:
    """The fastest steps that give the right numbers on this model.

    The cache is tried on `probe`: two forks from one prefix, one dropped, against recomputation.

    Args:
        model: a causal language model in evaluation mode.
        probe: at least 2 token ids, such as an encoded canary.

    Raises:
        ModelError: the model is in training mode.
    """
    refuse_training_mode(model)
    slow = RecomputedSteps(model)
    try:
        trusted = _takes(model, "past_key_values") and _cache_is_right(model, list(probe))
    except (RuntimeError, AttributeError, TypeError, NotImplementedError, ValueError, IndexError):
        trusted = False  # a cache that cannot be forked says so in many ways
    return CachedSteps(model) if trusted else slow


def _cache_is_right(model: Any, probe: list[int]) -> bool:
    """Walk both kinds of steps through the same forks and compare every row."""
    fast, slow = CachedSteps(model), RecomputedSteps(model)
    begun = probe[: max(1, len(probe) - 3)]  # forks at the end cross any sliding window
    pairs = [(fast.start(begun), slow.start(begun))]
    forks = [[0, 0, 0], [2, 0], [1, 1, 0]]
    for depth, parents in enumerate(forks):
        rows = torch.tensor(parents)
        tokens = torch.tensor([probe[(depth + r) % len(probe)] for r in range(len(parents))])
        pairs.append((fast.advance(rows, tokens), slow.advance(rows, tokens)))
    allowed = _PROBE_BITS if model.dtype == torch.float32 else _PROBE_BITS_HALF
    return all(torch.allclose(a, b, rtol=0, atol=allowed) for a, b in pairs)
