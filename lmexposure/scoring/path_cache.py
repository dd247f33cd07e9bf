"""Keys and values of many branches of a token tree, each token's held once.

A cache of whole prefixes is copied twice a step: its rows are put in order for the new prefixes,
then each is made longer by a token. Here a state holds the keys and values of its own last tokens
alone, and for each prefix the places of its earlier ones. What a layer attends to is gathered
once a step, into memory that every layer and step uses again.
"""

import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from lmexposure.errors import ModelError


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
    """What one layer has read of the shared beginning.

    Attributes:
        read: keys and values of its last P tokens, all heads side by side, shape (P, W).
        heads: H of the keys and values.
        key: W of the keys alone, the first of the W.
        window: how many tokens the layer sees at most; None: all.
    """

    read: Tensor
    heads: int
    key: int
    window: int | None

    @classmethod
    def of(cls, layer: Any) -> Self:
        """Take over a layer that has read one prefix.

        Raises:
            ModelError: it is no layer that keeps keys and values token by token.
        """
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
    """States of N prefixes of one length, which share what they begin with.

    Attributes:
        cache: the model's own cache of the beginning, one row.
        beginning: the same by layer.
        length: of each prefix, in tokens.
        tokens: for each of the T tokens behind the beginning, by layer, keys and values of all
            that were read in its place, shape (n, W).
        places: which of them are each prefix's own, shape (T, N).
    """

    cache: Any
    beginning: tuple[_Layer, ...]
    length: int
    tokens: tuple[tuple[Tensor, ...], ...]
    places: Tensor

    @classmethod
    def begun(cls, cache: Any, length: int) -> Self:
        """From a model's cache of one prefix.

        Raises:
            ModelError: a layer keeps something else than keys and values of single tokens.
        """
        layers = tuple(_Layer.of(layer) for layer in cache.layers)
        nowhere = torch.empty((0, 1), dtype=torch.long, device=layers[0].read.device)
        return cls(cache=cache, beginning=layers, length=length, tokens=(), places=nowhere)

    @property
    def rows(self) -> int:
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
        return further * self._token_bytes + places * (further if every else 1)

    @property
    def attended_bytes(self) -> int:
        """Memory of the keys and values that one layer attends to behind one of these rows."""
        widest = max(layer.read[0].nbytes for layer in self.beginning)
        return widest * (self.length + 1)

    @property
    def _token_bytes(self) -> int:
        return sum(layer.read[0].nbytes for layer in self.beginning)

    def unread(self, rows: int) -> tuple[Tensor, ...]:
        """Room for one more token behind each of these rows, by layer, shape (rows, W)."""
        return tuple(layer.read.new_empty(rows, layer.read.shape[1]) for layer in self.beginning)

    def forked(self, places: Tensor, new: tuple[Tensor, ...], workspace: Workspace) -> Any:
        """A cache for the model's next pass over n prefixes.

        Args:
            places: where the prefixes' tokens are, shape (T, n).
            new: by layer, shape (n, W): what the pass reads is written here.
            workspace: keys and values that the pass attends to lie here until the next layer's.
        """
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
