"""Texts as paths of one tree of tokens, so that what several of them begin with is computed once.

Sorted texts stand depth first: each one adds the nodes that its predecessor lacks. A node is one
token behind its ancestors; its bits are the cost of that token there. Only nodes with children are
ever fed to a model: a text's last token is predicted and never read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lmexposure.models import (
    Encoded,
)

Ints = NDArray[np.int64]
_NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class TokenTree:
    """The tree of some texts behind the prefix that all of them share, K nodes, depth first.

    Attributes:
        prefix: P tokens that stand before every node.
        tokens: token of each node, shape (K,).
        parents: its parent; -1 where that is the last token of the prefix, shape (K,).
        depths: position of its token in the text, P or more, shape (K,).
        wanted: whether some text asks for its bits, shape (K,).
        fed: the nodes that have children, ascending, shape (F,).
        paths: node of each text at each position from P on, shape (n, T); -1 beyond its end.
        starts: position in the text from which each is scored, shape (n,).
    """

    prefix: list[int]
    tokens: Ints
    parents: Ints
    depths: Ints
    wanted: NDArray[np.bool_]
    fed: Ints
    paths: Ints
    starts: Ints

    @property
    def ends(self) -> Ints:
        """The first node that no longer stands below each node, shape (K,)."""
        ends = np.zeros(len(self.tokens), dtype=np.int64)
        beyond = np.broadcast_to(self.paths.max(axis=1)[:, None] + 1, self.paths.shape)
        inside = self.paths >= 0
        np.maximum.at(ends, self.paths[inside], beyond[inside])
        return ends

    def text_bits(
        self, node_bits: NDArray[np.float64], prefix_bits: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        """Bits of each scored token of each text.

        Args:
            node_bits: bits of each wanted node, shape (K,).
            prefix_bits: bits of each token of the prefix, shape (P,); the first means nothing.
        """
        P = len(self.prefix)
        found = []
        for path, start in zip(self.paths, self.starts, strict=True):
            nodes = path[max(0, start - P) :]
            found.append(np.concatenate([prefix_bits[start:], node_bits[nodes[nodes >= 0]]]))
        return found


class SortedTexts:
    """Encoded texts in the order of their tokens.

    Args:
        encoded: n texts, each with at least one token to score.

    Attributes:
        order: number of the text at each place, shape (n,).
        prefix: the longest prefix that all share and that leaves each at least one token.
        fed: nodes to feed for each place: with `fed[:k].sum()` nodes the first k texts are
            computed, shape (n,).
        tokens: of all texts together: what computing each alone would feed.
    """

    def __init__(self, encoded: Sequence[Encoded]) -> None:
        n = len(encoded)
        lengths = np.fromiter((len(one.ids) for one in encoded), np.int64, n)
        flat = np.fromiter(chain.from_iterable(one.ids for one in encoded), np.int32, lengths.sum())
        table = np.full((n, int(lengths.max())), _NO_TOKEN, dtype=np.int32)  # (n, T)
        table[np.arange(table.shape[1]) < lengths[:, None]] = flat
        self.order = _sorted_order(table)
        self._table, self._lengths = table[self.order], lengths[self.order]
        self._starts = np.fromiter((one.scored_from for one in encoded), np.int64, n)[self.order]
        self._shared = _shared_with_previous(self._table, self._lengths)
        # Whatever the first and the last in order share, all between them share as well.
        both = self._table[[0, -1]]
        same = _shared_with_previous(both, self._lengths[[0, -1]])[1]
        P = int(min(same, lengths.min() - 1))
        self.prefix: list[int] = self._table[0, :P].tolist()
        self.tokens = int(lengths.sum())
        # A text that goes on where its predecessor ends makes that end a node to feed.
        goes_on = self._shared == np.concatenate([[0], self._lengths[:-1]])
        self.fed = np.maximum(0, self._lengths - 1 - np.maximum(self._shared - goes_on, P))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def depth(self) -> int:
        """Most nodes that stand on one path and are fed."""
        return int(self._lengths.max()) - 1 - len(self.prefix)

    def longest(self) -> list[int]:
        """The tokens of the longest text."""
        place = int(self._lengths.argmax())
        ids: list[int] = self._table[place, : self._lengths[place]].tolist()
        return ids

    def probe(self, *, least: int, nodes: int) -> range:
        """Consecutive places, the longest text's among them, with some nodes to feed.

        Args:
            least: how many places at least, where there are so many.
            nodes: how many nodes to feed at least, where there are so many.
        """
        n = len(self)
        first = min(int(self._lengths.argmax()), max(0, n - least))
        enough = int(np.searchsorted(self.fed[first:].cumsum(), nodes)) + 1
        return range(first, min(n, first + max(least, enough)))

    def tree(self, first: int, last: int) -> TokenTree:
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
        return TokenTree(
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
