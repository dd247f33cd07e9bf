"""Next-token steps on a model's own cache of keys, values and recurrent states.

A cache of whole prefixes is copied twice a step: its rows are put in order for the new prefixes,
then each is made longer by a token. `CachedSteps` does that, for any cache. `PathSteps` holds each
token's keys and values once: a state has those of its own last tokens alone, and for each prefix
the places of its earlier ones. What a layer attends to is gathered once a step, into memory that
every layer and step uses again.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from lmexposure.errors import ModelError
from lmexposure.scoring.runtime import EvaluationMode, Floats, Ints, LmHead, fused_activations

# Rows computed at once, and the memory for what a layer attends to then. On a CPU activations stay
# in its cache; but fewer rows than these would read the weights once more for little work.
_BLOCK_ROWS = {"cpu": 1 << 10, "cuda": 1 << 14}
_BLOCK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
_FEWEST_ROWS = 64


class Workspace:
    """Memory for what one layer attends to; it grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def like(self, tensor: Tensor, *shape: int) -> Tensor:
        """Memory of this shape with the tensor's dtype and device; what it holds means nothing."""
        size = torch.Size(shape).numel()
        known = (self._memory.dtype, self._memory.device) == (tensor.dtype, tensor.device)
        if not known or len(self._memory) < size:
            self._memory = tensor.new_empty(size)
        return self._memory[:size].view(shape)


@dataclass(frozen=True)
class _Layer:
    """What one layer has read of the shared beginning."""

    read: Tensor  # keys and values of its last P tokens, all heads side by side, shape (P, W)
    heads: int  # H of the keys and values
    key: int  # W of the keys alone, the first of the W
    window: int | None  # how many tokens the layer sees at most; None: all

    @classmethod
    def of(cls, layer: Any) -> Self:
        """Take over a layer that has read one prefix."""
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise ModelError(f"a layer keeps its states in its own way ({type(layer).__name__})")
        keys, values = (t[0].transpose(0, 1).flatten(1) for t in (layer.keys, layer.values))
        return cls(
            read=torch.cat([keys, values], dim=1),
            heads=layer.keys.shape[1],
            key=keys.shape[1],
            window=getattr(layer, "sliding_window", None),
        )

    def halves(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (..., W) as keys and values, shape (..., H, D) each."""
        parts = rows[..., : self.key], rows[..., self.key :]
        keys, values = (part.view(*part.shape[:-1], self.heads, -1) for part in parts)
        return keys, values


@dataclass(frozen=True)
class Paths:
    """States of N prefixes of one length, which share what they begin with."""

    cache: Any  # the model's own cache of the beginning, one row
    beginning: tuple[_Layer, ...]  # the same by layer
    length: int  # of each prefix, in tokens
    # for each of the T tokens behind the beginning, by layer, keys and values of all that were read
    # in its place, shape (n, W)
    tokens: tuple[tuple[Tensor, ...], ...]
    places: Tensor  # which of them are each prefix's own, shape (T, N)

    @classmethod
    def begun(cls, cache: Any, length: int) -> Self:
        """From a model's cache of one prefix."""
        layers = tuple(_Layer.of(layer) for layer in cache.layers)
        # Of an encoder-decoder, fewer than it was given: its source is not among them.
        length = min(length, cache.get_seq_length())
        nowhere = torch.empty((0, 1), dtype=torch.long, device=layers[0].read.device)
        return cls(cache=cache, beginning=layers, length=length, tokens=(), places=nowhere)

    @property
    def rows(self) -> int:
        """N."""
        return self.places.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of these states and of those before them that they need."""
        begun = sum(layer.read.nbytes for layer in self.beginning)
        read = sum(tensor.nbytes for token in self.tokens for tensor in token)
        return begun + read + self.places.nbytes

    def row_bytes(self, further: int, *, every: bool) -> float:
        """Memory of a row; the tokens on the way to it are held in any case, and once."""
        places = self.places.itemsize * (len(self.tokens) + further)
        token = sum(layer.read[0].nbytes for layer in self.beginning)
        return further * token + places * (further if every else 1)

    @property
    def attended_bytes(self) -> int:
        """Memory of the keys and values that one layer attends to behind one of these rows."""
        widest = max(layer.read[0].nbytes for layer in self.beginning)
        return widest * (self.length + 1)

    def unread(self, rows: int) -> tuple[Tensor, ...]:
        """Room for one more token behind each of these rows, by layer, shape (rows, W)."""
        return tuple(layer.read.new_empty(rows, layer.read.shape[1]) for layer in self.beginning)

    def forked(self, places: Tensor, new: tuple[Tensor, ...], workspace: Workspace) -> Any:
        """A cache for the model's next pass over n prefixes."""
        read = zip(*self.tokens, strict=True) if self.tokens else [()] * len(new)
        cache = copy.copy(self.cache)
        cache.layers = [
            _PathLayer(layer, self.length, tokens, places, own, workspace)
            for layer, tokens, own in zip(self.beginning, read, new, strict=True)
        ]
        return cache

    def grown(self, places: Tensor, new: tuple[Tensor, ...]) -> Self:
        """The states behind one more token."""
        own = torch.arange(places.shape[1], device=places.device)
        return type(self)(
            cache=self.cache,
            beginning=self.beginning,
            length=self.length + 1,
            tokens=(*self.tokens, new),
            places=torch.cat([places, own[None]]),
        )


class _PathLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not typed
    """One layer's part of a pass that reads one token a row."""

    def __init__(
        self,
        begun: _Layer,
        length: int,
        tokens: tuple[Tensor, ...],
        places: Tensor,
        new: Tensor,
        workspace: Workspace,
    ) -> None:
        super().__init__()
        self.is_initialized = True
        self.is_sliding = begun.window is not None
        self._begun, self._length, self._workspace = begun, length, workspace
        self._tokens, self._places, self._new = tokens, places, new

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep the new token of each row, (N, H, 1, D); what it attends to, (N, H, L, D)."""
        for kept, new in zip(
            self._begun.halves(self._new), (key_states, value_states), strict=True
        ):
            kept.copy_(new.squeeze(2))
        self._length += 1
        keys, values = self._begun.halves(self._gathered())  # (L, N, H, D)
        return keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)

    def _gathered(self) -> Tensor:
        """Beginning, earlier tokens and the new one, in the window, shape (L, N, W)."""
        read = self._begun.read
        P, T = len(read), len(self._tokens)
        both = self._workspace.like(read, P + T + 1, *self._new.shape)
        both[:P] = read[:, None]
        for at, (token, places) in enumerate(zip(self._tokens, self._places, strict=True), P):
            torch.index_select(token, 0, places, out=both[at])
        both[-1] = self._new
        return both[-self._begun.window :] if self._begun.window else both

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many tokens are attended to, and the place of the first of them."""
        window = self._begun.window
        kept = self._length if window is None else min(self._length, window - 1)
        return kept + query_length, self._length - kept


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
    """Steps on a transformers cache: keys and values, sliding windows, recurrent states."""

    def __init__(self, model: Any, probe: Sequence[int] = (0,)) -> None:
        self.model = model
        self.evaluated = 0
        self._evaluation = EvaluationMode(model)
        with self._evaluation():
            self._head = LmHead(model, list(probe))
        named = inspect.signature(model.forward).parameters
        # Mamba calls its cache by another name.
        self._name = "past_key_values" if "past_key_values" in named else "cache_params"
        self._takes_positions = "position_ids" in named

    @torch.inference_mode()
    def start(self, ids: Sequence[int], columns: Ints) -> tuple[Any, Floats]:
        """See `Steps.start`."""
        state, hidden = self._begun(ids)
        return state, self._bits(hidden, np.zeros_like(columns), columns)

    @torch.inference_mode()
    def start_all(self, ids: Sequence[int]) -> tuple[Any, Tensor]:
        """See `WholeSteps.start_all`."""
        state, hidden = self._begun(ids)
        return state, self._head.logits(hidden)

    @torch.inference_mode()
    def advance(
        self, state: _Cached, parents: Ints, tokens: Ints, rows: Ints, columns: Ints
    ) -> tuple[_Cached, Floats]:
        """See `Steps.advance`."""
        new, hidden = self._advanced(state, parents, tokens)
        return new, self._bits(hidden, rows, columns)

    @torch.inference_mode()
    def advance_all(self, state: _Cached, parents: Ints, tokens: Ints) -> tuple[_Cached, Tensor]:
        """See `WholeSteps.advance_all`."""
        new, hidden = self._advanced(state, parents, tokens)
        return new, self._head.logits(hidden)

    def _begun(self, ids: Sequence[int]) -> tuple[Any, Tensor]:
        """The states of one prefix, and what the head reads behind it."""
        return self._read(None, 0, torch.tensor([list(ids)]))

    def _advanced(self, state: _Cached, parents: Ints, tokens: Ints) -> tuple[_Cached, Tensor]:
        """Rows of a cache as a cache of their own, read on; the old one stays as it was."""
        cache = copy.copy(state.cache)
        cache.layers = [_shallow(layer) for layer in state.cache.layers]
        cache.reorder_cache(torch.from_numpy(parents).to(self.model.device))
        return self._read(cache, state.length, torch.from_numpy(tokens)[:, None])

    def _bits(self, hidden: Tensor, rows: Ints, columns: Ints) -> Floats:
        return self._head.bits(hidden, torch.from_numpy(rows), torch.from_numpy(columns))

    def _read(
        self,
        cache: Any,
        length: int,
        ids: torch.Tensor,  # (N, T)
    ) -> tuple[_Cached, Tensor]:
        """States behind these tokens, and what the head reads at the last of them, (N, H)."""
        N, T = ids.shape
        self.evaluated += N
        options: dict[str, Any] = {self._name: cache, "use_cache": True}
        if self._takes_positions:
            positions = torch.arange(length, length + T, device=self.model.device)
            options["position_ids"] = positions.expand(N, T)
        with self._evaluation():
            hidden, out = self._head.hidden(input_ids=ids.to(self.model.device), **options)
        state = _Cached(cache=out[self._name], rows=N, length=length + T)
        return state, hidden[:, -1]


class PathSteps(CachedSteps):
    """Steps that hold each token's keys and values once, and copy them once a step."""

    def __init__(self, model: Any, probe: Sequence[int] = (0,)) -> None:
        super().__init__(model, probe)
        self._workspace = Workspace()

    def _begun(self, ids: Sequence[int]) -> tuple[Paths, Tensor]:
        begun, hidden = super()._begun(ids)
        return Paths.begun(begun.cache, begun.length), hidden

    @torch.inference_mode()
    def advance(  # type: ignore[override]
        self, state: Paths, parents: Ints, tokens: Ints, rows: Ints, columns: Ints
    ) -> tuple[Paths, Floats]:
        """See `Steps.advance`."""
        bits = np.empty(len(rows))
        order = np.argsort(rows, kind="stable")

        def read(block: slice, hidden: Tensor) -> None:
            ends = np.searchsorted(rows, [block.start, block.stop], sorter=order)
            mine = order[slice(*ends)]
            bits[mine] = self._bits(hidden, rows[mine] - block.start, columns[mine])

        return self._grown(state, parents, tokens, read), bits

    @torch.inference_mode()
    def advance_all(  # type: ignore[override]
        self, state: Paths, parents: Ints, tokens: Ints
    ) -> tuple[Paths, Tensor]:
        """See `WholeSteps.advance_all`."""
        parts: list[Tensor] = []
        grown = self._grown(
            state, parents, tokens, lambda _, hidden: parts.append(self._head.logits(hidden))
        )
        return grown, torch.cat(parts)

    def _grown(
        self, state: Paths, parents: Ints, tokens: Ints, read: Callable[[slice, Tensor], None]
    ) -> Paths:
        """One more token a row; `read` is called with each block of rows and its hidden states."""
        places = state.places[:, torch.from_numpy(parents).to(self.model.device)]  # (T, N)
        ids, new = torch.from_numpy(tokens)[:, None], state.unread(len(parents))
        with fused_activations(self.model):
            for block in self._blocks(state, len(parents)):
                cache = state.forked(
                    places[:, block], tuple(layer[block] for layer in new), self._workspace
                )
                read(block, self._read(cache, state.length, ids[block])[1])
        return state.grown(places, new)

    def _blocks(self, state: Paths, rows: int) -> list[slice]:
        """The rows in parts of nearly one size, small enough for memory."""
        kind = self.model.device.type
        affordable = _BLOCK_BYTES.get(kind, _BLOCK_BYTES["cuda"]) // state.attended_bytes
        most = min(_BLOCK_ROWS.get(kind, _BLOCK_ROWS["cuda"]), max(_FEWEST_ROWS, affordable))
        size = ceil(rows / ceil(rows / most))
        return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


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
