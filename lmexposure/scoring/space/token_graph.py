"""A directed graph of states and tokens without cycles, each fill one path from its root."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Tokens ascending (K,), the states behind them (K,), their shares of the fills (K,), whether a fill
# ends there (K,), and whether it ends there and none goes on (K,).
Edges = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.bool_],
    NDArray[np.bool_],
]


class TokenGraph(Protocol):
    """What a token space asks of its graph; every state leads to at least one fill."""

    @property
    def root(self) -> int: ...
    def count(self, state: int) -> int: ...
    def longest(self, state: int) -> int: ...
    def complete(self, state: int) -> bool: ...
    def edges(self, state: int) -> Edges: ...
    def step(self, state: int, token: int) -> int | None: ...


class ListedGraph:
    """A graph from an explicit list, without its dead ends and with equal states merged.

    Args:
        moves: for each raw state, token -> raw state.
        complete: for each raw state, whether a fill ends there.
        root: the first raw state.
    """

    def __init__(
        self, moves: Sequence[Mapping[int, int]], complete: Sequence[bool], root: int
    ) -> None:
        self._edges: list[dict[int, int]] = []
        self._ends: list[bool] = []
        self._counts: list[int] = []
        self._longest: list[int] = []
        self.root = self._merge(moves, complete, root)

    def count(self, state: int) -> int:
        """The number of fills at or below a state."""
        return self._counts[state]

    def longest(self, state: int) -> int:
        """Most tokens from a state to the end of a fill."""
        return self._longest[state]

    def complete(self, state: int) -> bool:
        """Whether a fill ends here."""
        return self._ends[state]

    def edges(self, state: int) -> Edges:
        """See `Edges`."""
        after = sorted(self._edges[state].items())
        states = [there for _, there in after]
        return (
            np.array([token for token, _ in after], dtype=np.int64),
            np.array(states, dtype=np.int64),
            np.array([self._counts[s] / self._counts[state] for s in states], dtype=np.float64),
            np.array([self._ends[s] for s in states], dtype=np.bool_),
            np.array([not self._edges[s] for s in states], dtype=np.bool_),
        )

    def step(self, state: int, token: int) -> int | None:
        """The state behind one token, or None where no fill goes on so."""
        return self._edges[state].get(token)

    def _merge(
        self, moves: Sequence[Mapping[int, int]], complete: Sequence[bool], root: int
    ) -> int:
        numbers: dict[int, int] = {}  # raw state -> state; -1 for a dead end
        known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        todo = [root]
        while todo:
            raw = todo[-1]
            waiting = [there for there in moves[raw].values() if there not in numbers]
            if waiting:
                todo += waiting
                continue
            todo.pop()
            if raw in numbers:
                continue
            after = {t: numbers[s] for t, s in moves[raw].items() if numbers[s] >= 0}
            key = (complete[raw], tuple(sorted(after.items())))
            if not after and not complete[raw]:
                numbers[raw] = -1
            else:
                numbers[raw] = known.setdefault(key, len(known))
            if numbers[raw] == len(self._edges):
                self._add(after, complete[raw])
        if numbers[root] < 0:
            self._add({}, False)
            return 0
        return numbers[root]

    def _add(self, after: dict[int, int], ends: bool) -> None:
        self._edges.append(after)
        self._ends.append(ends)
        self._counts.append(ends + sum(self._counts[s] for s in after.values()))
        self._longest.append(max((1 + self._longest[s] for s in after.values()), default=0))
