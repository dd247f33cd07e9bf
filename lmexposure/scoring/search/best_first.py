"""The likeliest fills of all of R, in order, with a proof that none is missing.

The order is that of a shortest-path search over the token trie. Instead of a queue that may hold
millions of states, the walk keeps the k cheapest fills seen so far and drops every branch that
costs more than the last of them: the same list, in bounded memory.

Source: Carlini et al. 2019, "The Secret Sharer", section 8.1 (extraction by Dijkstra's algorithm).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import integer
from lmexposure.scoring.search.rescoring import Rescorer
from lmexposure.scoring.search.walk import Budget, Leaves, Walk
from lmexposure.scoring.space.token_space import TokenSpace
from lmexposure.scoring.steps import Steps

_MOST_ALIKE = 4_096  # fills that cannot be told from the k-th, at most
_NARROW = 64  # a dive of so many nodes finds a first bound soon
_ANY_COST = float(np.finfo(np.float64).max)  # but not infinite: such a fill is nobody's guess


@dataclass(frozen=True, kw_only=True)
class Likeliest:
    """The likeliest fills of a format, likeliest first.

    Attributes:
        indices: of the fills, at most as many as were asked for.
        bits: their cost behind the shared tokens, shape (n,), ascending; lower = likelier.
        proven: so many of the first are proven to be the likeliest of all of R, in this order; all
            of them, unless the budget ended the search.
        steps: model steps spent.
        most_live: the largest number of model states held at once.
        interrupted: a person ended the search; what it had proven is here.
    """

    indices: tuple[int, ...]
    bits: NDArray[np.float64]
    proven: int
    steps: int
    most_live: int
    interrupted: bool = False

    def place(self, index: int) -> int | None:
        """The proven place of a fill among all of R, 1 = likeliest; None: it is not among them."""
        proven = self.indices[: self.proven]
        return 1 + proven.index(index) if index in proven else None


def likeliest_fills(
    space: TokenSpace,
    steps: Steps,
    rescorer: Rescorer,
    *,
    guesses: int,
    margin: float,
    budget: Budget,
    live_states: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Likeliest:
    """Find the fills that an attacker would guess first.

    Args:
        space: the fills as token paths.
        steps: the model, walking.
        rescorer: settles the order of fills that cost nearly the same.
        guesses: how many fills to find; or all to which the model gives any probability.
        margin: by how many bits a walked total may be wrong.
        budget: what the search may cost.
        live_states: never more model states than this are held at once.
        watch: told of the model steps spent so far, while the search goes on.

    Raises:
        SettingsError: no guesses.
        NumericalError: the model gave NaN on some branch.
    """
    cheapest = _Cheapest(integer("guesses", guesses, low=1), margin)
    walk = Walk(
        space,
        steps,
        limit=_ANY_COST,
        visit=cheapest.add,
        budget=budget,
        live_states=live_states,
        batch=max(_NARROW, guesses),
    )
    cheapest.walk, walk.watch = walk, watch
    interrupted = False
    try:
        walk.run()
    except KeyboardInterrupt:
        interrupted = True
    certain = min(walk.cheapest_open(), cheapest.left_out) - 2 * margin
    paths, bits = cheapest.in_order(rescorer, certain)
    proven = int(np.searchsorted(bits, certain))
    return Likeliest(
        indices=tuple(space.index(path) for path in paths),
        bits=bits,
        proven=proven,
        steps=walk.spent,
        most_live=walk.most_live,
        interrupted=interrupted or walk.interrupted,
    )


class _Cheapest:
    """The k cheapest fills of a walk so far, and those that cannot be told from the k-th.

    `left_out` is the least cost of a fill that was dropped because too many are alike.
    """

    def __init__(self, k: int, margin: float) -> None:
        self.walk: Walk | None = None
        self.left_out = math.inf
        self._k, self._slack = k, 2 * margin
        self._costs = np.empty(0)
        self._paths: list[tuple[int, ...]] = []

    def add(self, leaves: Leaves) -> None:
        """Take what is cheap enough of a batch, and lower the walk's limit."""
        new = np.flatnonzero(leaves.costs <= self._bound())
        costs = np.concatenate([self._costs, leaves.costs[new]])
        paths = self._paths + list(map(tuple, leaves.paths(new).tolist()))
        order = np.argsort(costs, kind="stable")
        self._costs = costs[order]
        kept = int(np.searchsorted(self._costs, self._bound(), side="right"))
        if kept > self._k + _MOST_ALIKE:
            kept = self._k + _MOST_ALIKE
            self.left_out = min(self.left_out, float(self._costs[kept]))
        self._costs = self._costs[:kept]
        self._paths = [paths[i] for i in order[:kept].tolist()]
        if self.walk is not None:
            self.walk.limit = self._bound()

    def _bound(self) -> float:
        """No fill above this can be among the k cheapest."""
        full = len(self._costs) >= self._k
        return float(self._costs[self._k - 1]) + self._slack if full else _ANY_COST

    def in_order(
        self, rescorer: Rescorer, certain: float
    ) -> tuple[list[tuple[int, ...]], NDArray[np.float64]]:
        """The k cheapest; what stands closer than the margin is scored again and put in order.

        Above `certain` bits no order is proven, so none is settled.
        """
        bits = self._costs.copy()
        close = np.diff(bits) <= self._slack
        alike = np.append(close, False) | np.append(False, close)
        again = np.flatnonzero(alike & (bits <= certain + self._slack))
        bits[again] = rescorer.bits([self._paths[i] for i in again.tolist()])
        order = np.argsort(bits, kind="stable")[: self._k]
        return [self._paths[i] for i in order.tolist()], bits[order]
