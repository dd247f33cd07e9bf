"""Nodes of the token trie, many at once: prefixes of fills and what may follow them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.scoring.space.token_space import TokenSpace


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """N prefixes of one length D in tokens, counted behind the space's beginning.

    Attributes:
        costs: bits of each prefix behind the beginning, float64 (N,); they only grow on the way.
        states: where each stands in the token space, int64 (N,).
        paths: tokens behind the beginning, int64 (N, D).
    """

    costs: NDArray[np.float64]
    states: NDArray[np.int64]
    paths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.costs)

    def select(self, index: NDArray[np.int64] | slice) -> "Nodes":
        """The nodes with these numbers."""
        return Nodes(costs=self.costs[index], states=self.states[index], paths=self.paths[index])

    @classmethod
    def root(cls, space: TokenSpace) -> "Nodes":
        """The one node that all fills lie behind."""
        return cls(
            costs=np.zeros(1),
            states=np.array([space.root], dtype=np.int64),
            paths=np.empty((1, 0), dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Children:
    """All M continuations of N nodes, those of one node side by side, shape (M,) each.

    Attributes:
        rows: the parent's number, ascending.
        tokens: the token read.
        states: where it leads in the token space.
        shares: the part of the parent's fills that lies behind it.
        ends: a fill ends there.
        leaf: a fill ends there and none goes on, so that no forward pass is needed.
    """

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    states: NDArray[np.int64]
    shares: NDArray[np.float64]
    ends: NDArray[np.bool_]
    leaf: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    def nodes(self, parents: Nodes, costs: NDArray[np.float64], index: NDArray[np.int64]) -> Nodes:
        """The children with these numbers as nodes; `costs` (M,) are those of all children."""
        tokens = self.tokens[index][:, None]
        return Nodes(
            costs=costs[index],
            states=self.states[index],
            paths=np.concatenate([parents.paths[self.rows[index]], tokens], axis=1),
        )


def children_of(space: TokenSpace, states: NDArray[np.int64]) -> Children:
    """What may follow each of these states.

    Args:
        space: the fills as token paths.
        states: states of the space, shape (N,).
    """
    different, which = np.unique(states, return_inverse=True)
    found = [space.continuations(int(state)) for state in different]
    lengths = np.array([len(one.tokens) for one in found], dtype=np.int64)
    first = np.cumsum(lengths) - lengths  # where each state's continuations begin
    counts = lengths[which]  # (N,)
    rows = np.repeat(np.arange(len(states)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = first[which][rows] + within
    return Children(
        rows=rows,
        tokens=np.concatenate([one.tokens for one in found])[at],
        states=np.concatenate([one.states for one in found])[at],
        shares=np.concatenate([one.shares for one in found])[at],
        ends=np.concatenate([one.ends for one in found])[at],
        leaf=np.concatenate([one.leaf for one in found])[at],
    )
