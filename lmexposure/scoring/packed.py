"""Many branches of a token tree in one sequence, each token attending to its ancestors alone.

The nodes to feed are cut, depth first, into rows of S; a row begins with the ancestors of its first
node, which it computes again. What stands before all nodes is in the model's cache once. Not every
model can do this (a recurrent one cannot), and some that cannot do not say so, so a caller probes.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from lmexposure.scoring.readout import Readout
from lmexposure.scoring.tree import TokenTree

Ints = NDArray[np.int64]


class PackedForward:
    """Bits of a tree's nodes by packing them into few sequences.

    Args:
        model: a causal language model in evaluation mode whose attention takes a mask of its own.
        readout: from its hidden states to bits.
        prefix: the tokens that stand before every node; may be empty.
        width: S, tokens in a sequence.
        by_layer: give the model one mask for each of its layer types (`config.layer_types`), as
            models that mix sliding windows with full attention want it.
    """

    def __init__(
        self, model: Any, readout: Readout, prefix: list[int], *, width: int, by_layer: bool
    ) -> None:
        self._model, self._readout, self._width = model, readout, width
        self._prefix = prefix
        config = model.config.get_text_config()
        self._kinds = set(config.layer_types) if by_layer else None
        self._window = getattr(config, "sliding_window", None)
        self._cache: Any = None
        if prefix:
            # A bare cache keeps all positions of all layers; the mask alone says what is seen.
            self._cache = DynamicCache()
            ids = torch.tensor([prefix], device=model.device)
            hidden, _ = readout.hidden(input_ids=ids, past_key_values=self._cache, use_cache=True)
            self._hidden = hidden[0]  # (P, H)

    def prefix_bits(self) -> NDArray[np.float64]:
        """Bits of the prefix's own tokens, shape (P,); NaN for the first."""
        if not self._prefix:
            return np.empty(0)
        return self._readout.sequence_bits(self._hidden, self._prefix)

    def node_bits(self, tree: TokenTree) -> NDArray[np.float64]:
        """Bits of every wanted node, shape (K,); of the others NaN."""
        bits = np.full(len(tree.tokens), np.nan)
        first = np.flatnonzero(tree.wanted & (tree.parents < 0))
        if first.size:
            tokens = torch.from_numpy(tree.tokens[first])
            last = torch.full_like(tokens, len(self._prefix) - 1)
            bits[first] = self._readout.bits(self._hidden, last, tokens)
        if tree.fed.size:
            later = np.flatnonzero(tree.wanted & (tree.parents >= 0))
            hidden, places = self._fed_hidden(tree)
            bits[later] = self._readout.bits(
                hidden,
                torch.from_numpy(places[tree.parents[later]]),
                torch.from_numpy(tree.tokens[later]),
            )
        return bits

    def _fed_hidden(self, tree: TokenTree) -> tuple[Tensor, Ints]:
        """Hidden states of all rows one after the other, and the place of each fed node there."""
        rows = _rows(tree, self._width)  # (B, S)
        there = rows >= 0
        tokens = np.where(there, tree.tokens[rows], 0)
        depths = np.where(there, tree.depths[rows], 0)
        device = self._model.device
        hidden, _ = self._readout.hidden(
            input_ids=torch.from_numpy(tokens).to(device),
            attention_mask=self._mask(_sees(tree, rows), depths),
            position_ids=torch.from_numpy(depths).to(device),
            **self._prefix_cache(len(rows)),
        )
        places = np.full(len(tree.tokens), -1)
        places[rows[there]] = np.flatnonzero(there)
        return hidden.flatten(0, 1), places

    def _prefix_cache(self, rows: int) -> dict[str, Any]:
        if self._cache is None:
            return {"use_cache": False}
        cache = copy.deepcopy(self._cache)
        cache.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self._model.device))
        return {"past_key_values": cache, "use_cache": True}

    def _mask(self, sees: NDArray[np.bool_], depths: Ints) -> Tensor | dict[str, Tensor]:
        """Additive masks of shape (B, 1, S, P + S): full, and cut to the model's window."""
        P = len(self._prefix)
        before = np.ones((*sees.shape[:2], P), dtype=bool)
        whole = np.concatenate([before, sees], axis=2)  # (B, S, P + S)
        earlier = np.broadcast_to(np.arange(P), (len(depths), P))
        positions = np.concatenate([earlier, depths], axis=1)  # (B, P + S)
        near = whole
        if self._window:
            near = whole & (depths[:, :, None] - positions[:, None, :] < self._window)
        if self._kinds is None:
            return self._additive(near)
        return {
            kind: self._additive(whole if kind == "full_attention" else near)
            for kind in self._kinds
        }

    def _additive(self, allowed: NDArray[np.bool_]) -> Tensor:
        """Zero where a token is seen; not minus infinity elsewhere, which can end in NaN."""
        mask = torch.from_numpy(allowed).to(self._model.device)[:, None]
        low = torch.finfo(self._model.dtype).min
        return torch.zeros(mask.shape, dtype=self._model.dtype, device=mask.device).masked_fill_(
            ~mask, low
        )


def _rows(tree: TokenTree, width: int) -> Ints:
    """The fed nodes in rows of `width`, each begun with ancestors; -1 fills up, shape (B, S)."""
    depth = int(tree.depths[tree.fed].max()) - len(tree.prefix)
    # Rows of one length leave little to fill up.
    number = -(-len(tree.fed) // max(1, width - depth))
    width = -(-len(tree.fed) // number) + depth
    rows, done = [], 0
    while done < len(tree.fed):
        ancestors = list(_ancestors(tree, int(tree.fed[done])))[::-1]
        new = tree.fed[done : done + max(1, width - len(ancestors))]
        rows.append(np.concatenate([np.array(ancestors, dtype=np.int64), new]))
        done += len(new)
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row)), constant_values=-1) for row in rows])


def _ancestors(tree: TokenTree, node: int) -> Iterator[int]:
    while (node := int(tree.parents[node])) >= 0:
        yield node


def _sees(tree: TokenTree, rows: Ints) -> NDArray[np.bool_]:
    """Whether the row's i-th token attends to its j-th: its ancestors and itself, (B, S, S)."""
    ends = tree.ends
    own, other = rows[:, :, None], rows[:, None, :]
    # Depth first, the nodes below one follow it without a gap.
    sees: NDArray[np.bool_] = (other <= own) & (own < ends[rows][:, None, :]) & (other >= 0)
    return sees | np.eye(rows.shape[1], dtype=bool)
