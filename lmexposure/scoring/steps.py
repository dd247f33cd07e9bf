"""One step for every model: from prefix states and next tokens to next-token bits and new states.

The walk over a randomness space, sampling from it and the beam are written on this alone, so they
work for the LSTM and for any Hugging Face model. States are values: advancing one leaves it as it
was, so that a search can return to it. A fast way is trusted only after a numerical probe on the
model at hand; otherwise each prefix is computed again from its first token, which is always right.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, log
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.models import (
    LstmForCausalLM,
)
from lmexposure.scoring.activations import fused_activations
from lmexposure.scoring.batching import UNABLE, in_words
from lmexposure.scoring.evaluation import EvaluationMode, evaluation_mode
from lmexposure.scoring.lstm_steps import LstmSteps
from lmexposure.scoring.path_cache import Paths, Workspace
from lmexposure.scoring.readout import Readout

_LN2 = log(2)
_PROBE_BITS = 1e-3
_PROBE_BITS_HALF = 0.25  # in bfloat16 and float16 two right ways differ by rounding
# Rows computed at once, and the memory for what a layer attends to then. On a CPU activations stay
# in its cache; but fewer rows than these would read the weights once more for little work.
_BLOCK_ROWS = {"cpu": 1 << 10, "cuda": 1 << 14}
_BLOCK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
_FEWEST_ROWS = 64


class State(Protocol):
    """The states of N prefixes of one length in tokens."""

    @property
    def rows(self) -> int:
        """N."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that these states hold."""
        ...

    def row_bytes(self, further: int, *, every: bool) -> float:
        """Memory of one row that is some tokens further.

        Args:
            further: tokens behind these prefixes, at least 0.
            every: the states behind each of these tokens are held too, a row of each.
        """
        ...


class Steps(Protocol):
    """Prefixes that grow token by token, many at once.

    `evaluated` counts the prefixes computed so far: the cost of a search in model steps.
    """

    evaluated: int

    def start(
        self, ids: Sequence[int], columns: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.float64]]:
        """Begin with one prefix.

        Args:
            ids: at least one token.
            columns: tokens (M,) whose bits are wanted.

        Returns:
            the state of the one row, and the bits (M,), -log2 of each token's probability.
        """
        ...

    def advance(
        self,
        state: Any,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[Any, NDArray[np.float64]]:
        """Row n of the new state is row parents[n] of the old one followed by tokens[n].

        Args:
            state: as `start` or `advance` gave it; it stays as it was.
            parents: rows of `state`, shape (N,), N at least 1; they may repeat and be left out.
            tokens: shape (N,).
            rows, columns: shape (M,) each: the bits of which next token behind which new row are
                wanted. M may be 0.

        Returns:
            the new state, and the bits (M,) in float64, NaN where the model gave NaN.
        """
        ...


def pair_bits(
    logits: torch.Tensor, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Bits of token columns[m] behind row rows[m]; logits (N, V) -> float64 (M,)."""
    logits = logits.float() if logits.dtype.itemsize < 4 else logits
    at = torch.from_numpy(rows).to(logits.device)
    wanted = logits[at, torch.from_numpy(columns).to(logits.device)]
    nats = logits.logsumexp(-1)[at] - wanted
    return (nats.cpu().double() / _LN2).numpy()


@dataclass(frozen=True)
class _Prefixes:
    """All tokens of each prefix, shape (N, T)."""

    ids: torch.Tensor

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return int(self.ids.nbytes)

    def row_bytes(self, further: int, *, every: bool) -> float:
        row = self.ids.itemsize * (self.ids.shape[1] + further)
        return row * further if every else row


class RecomputedSteps:
    """Steps that compute the whole prefix again: slow, right for every causal model.

    Args:
        model: a causal language model, left in the mode that it was in.
        why: what speaks against its cache, where that was tried.
    """

    def __init__(self, model: Any, why: str = "") -> None:
        self.model, self.why = model, why
        self.evaluated = 0
        self._evaluation = EvaluationMode(model)
        named = inspect.signature(model.forward).parameters
        wished = {"use_cache": False, "logits_to_keep": 1}
        self._options = {name: value for name, value in wished.items() if name in named}

    @property
    def slower(self) -> str:
        """What this costs, and why; as `slower` of texts that are scored."""
        return (
            "each step of a search computes its whole prefix again, which is slower and gives the "
            f"same bits ({self.why})"
        )

    def start(
        self, ids: Sequence[int], columns: NDArray[np.int64]
    ) -> tuple[_Prefixes, NDArray[np.float64]]:
        state = _Prefixes(torch.tensor([list(ids)], dtype=torch.long))
        return state, self._bits(state, np.zeros_like(columns), columns)

    def advance(
        self,
        state: _Prefixes,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[_Prefixes, NDArray[np.float64]]:
        before = state.ids[torch.from_numpy(parents)]
        grown = _Prefixes(torch.cat([before, torch.from_numpy(tokens)[:, None]], dim=1))
        return grown, self._bits(grown, rows, columns)

    @torch.inference_mode()
    def _bits(
        self, state: _Prefixes, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        self.evaluated += state.rows
        with self._evaluation():
            out = self.model(input_ids=state.ids.to(self.model.device), **self._options)
        return pair_bits(out.logits[:, -1], rows, columns)


@dataclass(frozen=True)
class _Cached:
    """A model's cache of N prefixes of `length` tokens."""

    cache: Any
    rows: int
    length: int

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for layer in self.cache.layers for t in _tensors(vars(layer)))

    def row_bytes(self, further: int, *, every: bool) -> float:
        row = self.nbytes / self.rows * (1 + further / self.length)
        return row * further if every else row


class CachedSteps:
    """Steps on a transformers cache: keys and values, sliding windows, recurrent states.

    Args:
        model: a causal language model, left in the mode that it was in.
        probe: a few token ids on which its head is tried apart from the rest.
    """

    def __init__(self, model: Any, probe: Sequence[int] = (0,)) -> None:
        self.model = model
        self.evaluated = 0
        self._evaluation = EvaluationMode(model)
        with self._evaluation():
            self._readout = Readout(model, list(probe))
        named = inspect.signature(model.forward).parameters
        # Mamba calls its cache by another name.
        self._name = "past_key_values" if "past_key_values" in named else "cache_params"
        self._takes_positions = "position_ids" in named

    @torch.inference_mode()
    def start(
        self, ids: Sequence[int], columns: NDArray[np.int64]
    ) -> tuple[_Cached, NDArray[np.float64]]:
        return self._read(None, 0, torch.tensor([list(ids)]), np.zeros_like(columns), columns)

    @torch.inference_mode()
    def advance(
        self,
        state: _Cached,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[_Cached, NDArray[np.float64]]:
        chosen = torch.from_numpy(parents).to(self.model.device)
        cache = _fork(state.cache, chosen)
        return self._read(cache, state.length, torch.from_numpy(tokens)[:, None], rows, columns)

    def _read(
        self,
        cache: Any,
        length: int,
        ids: torch.Tensor,  # (N, T)
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[_Cached, NDArray[np.float64]]:
        N, T = ids.shape
        self.evaluated += N
        options: dict[str, Any] = {self._name: cache, "use_cache": True}
        if self._takes_positions:
            positions = torch.arange(length, length + T, device=self.model.device)
            options["position_ids"] = positions.expand(N, T)
        with self._evaluation():
            hidden, out = self._readout.hidden(input_ids=ids.to(self.model.device), **options)
        state = _Cached(cache=out[self._name], rows=N, length=length + T)
        wanted = (torch.from_numpy(rows), torch.from_numpy(columns))
        return state, self._readout.bits(hidden[:, -1], *wanted)


class PathSteps(CachedSteps):
    """Steps that hold each token's keys and values once, and copy them once a step.

    For models whose layers all keep keys and values, token by token.

    Args:
        model, probe: as for `CachedSteps`.
    """

    def __init__(self, model: Any, probe: Sequence[int] = (0,)) -> None:
        super().__init__(model, probe)
        self._workspace = Workspace()

    @torch.inference_mode()
    def start(  # type: ignore[override]
        self, ids: Sequence[int], columns: NDArray[np.int64]
    ) -> tuple[Paths, NDArray[np.float64]]:
        begun, bits = super().start(ids, columns)
        return Paths.begun(begun.cache, begun.length), bits

    @torch.inference_mode()
    def advance(  # type: ignore[override]
        self,
        state: Paths,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[Paths, NDArray[np.float64]]:
        places = state.places[:, torch.from_numpy(parents).to(self.model.device)]  # (T, N)
        ids, new = torch.from_numpy(tokens)[:, None], state.unread(len(parents))
        bits = np.empty(len(rows))
        order = np.argsort(rows, kind="stable")
        with fused_activations(self.model):
            for block in self._blocks(state, len(parents)):
                ends = np.searchsorted(rows, [block.start, block.stop], sorter=order)
                mine = order[slice(*ends)]
                cache = state.forked(
                    places[:, block], tuple(layer[block] for layer in new), self._workspace
                )
                wanted = rows[mine] - block.start, columns[mine]
                _, bits[mine] = self._read(cache, state.length, ids[block], *wanted)
        return state.grown(places, new), bits

    def _blocks(self, state: Paths, rows: int) -> list[slice]:
        """The rows in parts of nearly one size, small enough for memory."""
        kind = self.model.device.type
        affordable = _BLOCK_BYTES.get(kind, _BLOCK_BYTES["cuda"]) // state.attended_bytes
        most = min(_BLOCK_ROWS.get(kind, _BLOCK_ROWS["cuda"]), max(_FEWEST_ROWS, affordable))
        size = ceil(rows / ceil(rows / most))
        return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def _fork(cache: Any, index: torch.Tensor) -> Any:
    """Rows `index` of a cache as a cache of their own; the old one stays as it was.

    `reorder_cache` puts new tensors into the layers, so only the layers need copies, not what
    they hold.
    """
    twin = copy.copy(cache)
    twin.layers = [_shallow(layer) for layer in cache.layers]
    twin.reorder_cache(index)
    return twin


def _shallow(layer: Any) -> Any:
    """A layer whose attributes, and dicts of them, can be set without touching the old one's."""
    twin = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            setattr(twin, name, dict(value))
    return twin


def _tensors(values: dict[Any, Any]) -> list[torch.Tensor]:
    """All tensors among these values and the dicts among them."""
    found = []
    for value in values.values():
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            found += _tensors(value)
    return found


def next_token_steps(model: Any, probe: Sequence[int]) -> Steps:
    """The fastest steps that give the right numbers on this model.

    They are tried on `probe`: forks from one prefix, rows repeated and dropped, a return to an
    earlier state, against recomputation.

    Args:
        model: a causal language model, left in the mode that it was in.
        probe: at least 2 token ids, such as an encoded canary.
    """
    why = ""
    with evaluation_mode(model):
        for make in _fast(model, probe):
            try:
                steps = make()
                if _agree(steps, RecomputedSteps(model), list(probe), model):
                    steps.evaluated = 0
                    return steps
                why = "its cache gives other bits"
            except UNABLE as failure:
                why = f"its cache fails with {in_words(failure)}"
    return RecomputedSteps(model, why)


def _fast(model: Any, probe: Sequence[int]) -> list[Callable[[], Steps]]:
    """Makers of steps to try, the fastest first."""
    if isinstance(model, LstmForCausalLM):
        return [partial(LstmSteps, model)]
    return [partial(PathSteps, model, probe), partial(CachedSteps, model, probe)]


# (state to advance, its rows); what a walk does: fork, repeat, drop, come back.
_FORKS = ((0, (0, 0, 0)), (1, (2, 0)), (2, (1, 1, 0)), (1, (0, 1)), (2, (0,)))


def _agree(fast: Steps, slow: Steps, probe: list[int], model: Any) -> bool:
    """Walk both kinds of steps through the same forks and compare the bits of some tokens."""
    allowed = _PROBE_BITS_HALF if model.dtype.itemsize < 4 else _PROBE_BITS
    size = int(model.config.get_text_config().vocab_size)
    columns = np.unique(np.array([*probe, *range(0, size, max(1, size // 64))], dtype=np.int64))
    begun = probe[: max(1, len(probe) - 3)]  # forks at the end cross any sliding window
    pairs = [(fast.start(begun, columns), slow.start(begun, columns))]
    for depth, (origin, parents) in enumerate(_FORKS):
        N, K = len(parents), len(columns)
        # Not the probe's own, which may be all the same and hide that rows were confused.
        tokens = columns[(depth + np.arange(N)) % K]
        wanted = (np.array(parents), tokens, np.repeat(np.arange(N), K), np.tile(columns, N))
        a, b = pairs[origin]
        pairs.append((fast.advance(a[0], *wanted), slow.advance(b[0], *wanted)))
    return all(np.allclose(a[1], b[1], rtol=0, atol=allowed) for a, b in pairs)
