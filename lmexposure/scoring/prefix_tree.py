"""Texts as paths of one prefix tree of tokens, so that a shared beginning is computed once.

Sorted texts are in depth-first order: each one adds the nodes that its predecessor lacks. A node is
one token behind its ancestors; its bits are the cost of that token there. Only nodes with children
are ever fed to a model: a text's last token is predicted and never read.

There are two ways to compute the nodes. `PackedNodes` cuts the nodes to feed, depth first, into
rows of S tokens, each token attending to its ancestors alone; a row begins with the ancestors of
its first node, which it computes again. Not every model can do this (a recurrent one cannot), and
some that cannot do not say so, so a caller probes. `LevelNodes` takes all nodes at one depth as
one batch of next-token steps, each on its parent's state.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from lmexposure.core import Encoded
from lmexposure.models import SOURCE_ENDS
from lmexposure.scoring.runtime import Bools, Floats, Ints, LmHead
from lmexposure.scoring.steps import Steps

_NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class PrefixTree:
    """The tree of some texts behind the prefix that all of them share, K nodes, depth first."""

    prefix: list[int]  # P tokens in front of every node
    tokens: Ints  # token of each node, shape (K,)
    parents: Ints  # its parent; -1 where that is the last token of the prefix, shape (K,)
    depths: Ints  # position of its token in the text, P or more, shape (K,)
    wanted: Bools  # whether some text asks for its bits, shape (K,)
    fed: Ints  # the nodes that have children, ascending, shape (F,)
    paths: Ints  # node of each text at each position from P on, shape (n, T); -1 beyond its end
    starts: Ints  # position in the text from which each is scored, shape (n,)

    @property
    def ends(self) -> Ints:
        """The first node that is no longer below each node, shape (K,)."""
        ends = np.zeros(len(self.tokens), dtype=np.int64)
        beyond = np.broadcast_to(self.paths.max(axis=1)[:, None] + 1, self.paths.shape)
        inside = self.paths >= 0
        np.maximum.at(ends, self.paths[inside], beyond[inside])
        return ends

    def text_bits(self, node_bits: Floats, prefix_bits: Floats) -> list[Floats]:
        """Bits of each scored token of each text."""
        P = len(self.prefix)
        found = []
        for path, start in zip(self.paths, self.starts, strict=True):
            nodes = path[max(0, start - P) :]
            found.append(np.concatenate([prefix_bits[start:], node_bits[nodes[nodes >= 0]]]))
        return found


class SortedTexts:
    """Encoded texts in the order of their tokens."""

    def __init__(self, encoded: Sequence[Encoded]) -> None:
        n = len(encoded)
        lengths = np.fromiter((len(text.ids) for text in encoded), np.int64, n)
        flat = np.fromiter(
            chain.from_iterable(text.ids for text in encoded), np.int32, lengths.sum()
        )
        table = np.full((n, int(lengths.max())), _NO_TOKEN, dtype=np.int32)  # (n, T)
        table[np.arange(table.shape[1]) < lengths[:, None]] = flat
        self.order = _sorted_order(table)  # number of the text at each place, shape (n,)
        self._table, self._lengths = table[self.order], lengths[self.order]
        self._starts = np.fromiter((text.scored_from for text in encoded), np.int64, n)[self.order]
        self._shared = _shared_with_previous(self._table, self._lengths)
        # Whatever the first and the last in order share, all between them share as well.
        both = self._table[[0, -1]]
        same = _shared_with_previous(both, self._lengths[[0, -1]])[1]
        P = int(min(same, lengths.min() - 1))
        # the longest prefix that all share and that leaves each at least one token
        self.prefix: list[int] = self._table[0, :P].tolist()
        # of all texts together: what computing each alone would feed
        self.tokens = int(lengths.sum())
        # A text that goes on where its predecessor ends makes that end a node to feed.
        goes_on = self._shared == np.concatenate([[0], self._lengths[:-1]])
        # nodes to feed for each place: with `fed[:k].sum()` nodes the first k texts are computed,
        # shape (n,)
        self.fed = np.maximum(0, self._lengths - 1 - np.maximum(self._shared - goes_on, P))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def depth(self) -> int:
        """Most nodes of one path that are fed."""
        return int(self._lengths.max()) - 1 - len(self.prefix)

    def longest(self) -> list[int]:
        """The tokens of the longest text."""
        place = int(self._lengths.argmax())
        ids: list[int] = self._table[place, : self._lengths[place]].tolist()
        return ids

    def probe(self, *, least: int, nodes: int) -> range:
        """Consecutive places, the longest text's among them, with some nodes to feed."""
        n = len(self)
        first = min(int(self._lengths.argmax()), max(0, n - least))
        enough = int(np.searchsorted(self.fed[first:].cumsum(), nodes)) + 1
        return range(first, min(n, first + max(least, enough)))

    def tree(self, first: int, last: int) -> PrefixTree:
        """The tree of the texts at places first .. last - 1."""
        P = len(self.prefix)
        lengths, starts = self._lengths[first:last], self._starts[first:last]
        table = self._table[first:last, P : int(lengths.max())]  # (n, T)
        shared = np.maximum(self._shared[first:last] - P, 0)[:, None]
        shared[0] = 0
        places = np.arange(table.shape[1])
        inside = places < (lengths - P)[:, None]
        new = inside & (places >= shared)
        # In row order new nodes are depth first; what a text does not add, it has from above.
        paths = np.full(table.shape, -1, dtype=np.int64)
        paths[new] = np.arange(new.sum())
        paths = np.where(inside, np.maximum.accumulate(paths, axis=0), -1)
        parents = np.concatenate([np.full_like(paths[:, :1], -1), paths[:, :-1]], axis=1)[new]
        wanted = np.zeros(len(parents), dtype=bool)
        wanted[paths[inside & (places >= (starts - P)[:, None])]] = True
        return PrefixTree(
            prefix=self.prefix,
            tokens=table[new].astype(np.int64),
            parents=parents,
            depths=np.broadcast_to(places + P, new.shape)[new],
            wanted=wanted,
            fed=np.unique(parents[parents >= 0]),
            paths=paths,
            starts=starts,
        )


def _sorted_order(table: NDArray[np.int32]) -> Ints:
    """Row numbers in lexicographic order; columns in which all agree are left out."""
    different = (table != table[0]).any(axis=0)
    columns = table[:, different] + 1
    if not columns.size:
        return np.arange(len(table))
    if columns.max() < 1 << 16:
        columns = columns.astype(np.uint16)  # numpy sorts 16 bits in linear time
    return np.lexsort(columns.T[::-1])


def _shared_with_previous(table: NDArray[np.int32], lengths: Ints) -> Ints:
    """How many leading tokens each row shares with the row above, shape (n,); 0 for the first."""
    differs = table[1:] != table[:-1]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), table.shape[1])
    return np.concatenate([[0], np.minimum(first, np.minimum(lengths[1:], lengths[:-1]))])


class PackedNodes:
    """Bits of a tree's nodes by packing them into few sequences."""

    def __init__(
        self, model: Any, head: LmHead, prefix: list[int], *, width: int, by_layer: bool
    ) -> None:
        self._model, self._head, self._width = model, head, width
        self._prefix = prefix
        config = model.config.get_text_config()
        self._kinds = set(config.layer_types) if by_layer else None
        self._window = getattr(config, "sliding_window", None)
        self._cache: Any = None
        if prefix:
            # A bare cache keeps all positions of all layers; the mask alone says what is seen.
            self._cache = DynamicCache()
            ids = torch.tensor([prefix], device=model.device)
            hidden, _ = head.hidden(input_ids=ids, past_key_values=self._cache, use_cache=True)
            self._hidden = hidden[0]  # (P, H)

    def prefix_bits(self) -> Floats:
        """Bits of the prefix's own tokens, shape (P,); NaN for the first."""
        if not self._prefix:
            return np.empty(0)
        return self._head.sequence_bits(self._hidden, self._prefix)

    def node_bits(self, tree: PrefixTree) -> Floats:
        """Bits of every wanted node, shape (K,); of the others NaN."""
        bits = np.full(len(tree.tokens), np.nan)
        first = np.flatnonzero(tree.wanted & (tree.parents < 0))
        if first.size:
            tokens = torch.from_numpy(tree.tokens[first])
            last = torch.full_like(tokens, len(self._prefix) - 1)
            bits[first] = self._head.bits(self._hidden, last, tokens)
        if tree.fed.size:
            later = np.flatnonzero(tree.wanted & (tree.parents >= 0))
            hidden, places = self._fed_hidden(tree)
            bits[later] = self._head.bits(
                hidden,
                torch.from_numpy(places[tree.parents[later]]),
                torch.from_numpy(tree.tokens[later]),
            )
        return bits

    def _fed_hidden(self, tree: PrefixTree) -> tuple[Tensor, Ints]:
        """Hidden states of all rows one after the other, and the place of each fed node there."""
        rows = _rows(tree, self._width)  # (B, S)
        there = rows >= 0
        tokens = np.where(there, tree.tokens[rows], 0)
        depths = np.where(there, tree.depths[rows], 0)
        device, cache = self._model.device, copy.deepcopy(self._cache)
        if cache is not None:
            cache.reorder_cache(torch.zeros(len(rows), dtype=torch.long, device=device))
        hidden, _ = self._head.hidden(
            input_ids=torch.from_numpy(tokens).to(device),
            attention_mask=self._mask(_sees(tree, rows), depths),
            position_ids=torch.from_numpy(depths).to(device),
            use_cache=cache is not None,
            **({} if cache is None else {"past_key_values": cache}),
        )
        places = np.full(len(tree.tokens), -1)
        places[rows[there]] = np.flatnonzero(there)
        return hidden.flatten(0, 1), places

    def _mask(self, sees: Bools, depths: Ints) -> Tensor | dict[str, Tensor]:
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

    def _additive(self, allowed: Bools) -> Tensor:
        """Zero where a token is seen; not minus infinity elsewhere, which can end in NaN."""
        mask = torch.from_numpy(allowed).to(self._model.device)[:, None]
        low = torch.finfo(self._model.dtype).min
        return torch.zeros(mask.shape, dtype=self._model.dtype, device=mask.device).masked_fill_(
            ~mask, low
        )


def _rows(tree: PrefixTree, width: int) -> Ints:
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


def _ancestors(tree: PrefixTree, node: int) -> Iterator[int]:
    while (node := int(tree.parents[node])) >= 0:
        yield node


def _sees(tree: PrefixTree, rows: Ints) -> Bools:
    """Whether the row's i-th token attends to its j-th: its ancestors and itself, (B, S, S)."""
    ends = tree.ends
    own, other = rows[:, :, None], rows[:, None, :]
    # Depth first, the nodes below one follow it without a gap.
    sees: Bools = (other <= own) & (own < ends[rows][:, None, :]) & (other >= 0)
    return sees | np.eye(rows.shape[1], dtype=bool)


class LevelNodes:
    """Bits of a tree's nodes by next-token steps."""

    def __init__(self, model: Any, head: LmHead, steps: Steps, prefix: list[int]) -> None:
        self._model, self._head, self._steps, self._prefix = model, head, steps, prefix

    def prefix_bits(self) -> Floats:
        """Bits of the prefix's own tokens, shape (P,); NaN for the first, and those of a source."""
        ids = torch.tensor([self._prefix], device=self._model.device)
        hidden, _ = self._head.hidden(input_ids=ids)
        begin = 1 + self._prefix.index(SOURCE_ENDS) if SOURCE_ENDS in self._prefix else 0
        own = self._prefix[begin:]
        bits = self._head.sequence_bits(hidden[0, -len(own) :], own)
        return np.concatenate([np.full(begin, np.nan), bits])

    def node_bits(self, tree: PrefixTree) -> Floats:
        """Bits of every wanted node, shape (K,); of the others NaN."""
        bits = np.full(len(tree.tokens), np.nan)
        places = np.full(len(tree.tokens), -1)  # of each node among those of its depth
        rows, children = self._wanted(tree, np.array([-1]), places)
        state, bits[children] = self._steps.start(self._prefix, tree.tokens[children])
        depths = tree.depths[tree.fed]
        for depth in np.unique(depths):
            level = tree.fed[depths == depth]
            above = np.where(tree.parents[level] < 0, 0, places[tree.parents[level]])
            places[level] = np.arange(len(level))
            rows, children = self._wanted(tree, level, places)
            state, bits[children] = self._steps.advance(
                state, above, tree.tokens[level], rows, tree.tokens[children]
            )
        return bits

    def _wanted(self, tree: PrefixTree, level: Ints, places: Ints) -> tuple[Ints, Ints]:
        """The wanted nodes right below a level, and the place of each one's parent in it."""
        depth = len(self._prefix) if level[0] < 0 else int(tree.depths[level[0]]) + 1
        children = np.flatnonzero(tree.wanted & (tree.depths == depth))
        return places[tree.parents[children]], children
