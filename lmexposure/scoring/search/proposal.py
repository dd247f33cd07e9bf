"""Where draws go: down the trie, towards the fills that cost no more than a limit.

Behind a node that costs c bits at most h = min(fills below, 2^(t - c)) fills cost t bits or less,
since their paths are disjoint events. A component with limit t picks each child in proportion to
its h. With limit 0 that is the model's own distribution over the fills, with limit infinity the
uniform one; limits in between spread the draws over all fills that are cheap enough to matter.

The children's h never add up to more than their parent's: the factors behind a node multiply to at
least h(fill) / h(node). So every fill x has probability at least min(1, 2^(t - bits(x))) / H, with
H the sum of h over any frontier that was expanded beforehand; the further it was, the smaller H.

Sources: Knuth 1975, "Estimating the efficiency of backtrack programs" (sampling a search tree);
Kraft's inequality (the bound).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError, NumericalError
from lmexposure.scoring.search.frontier import Children, Nodes, children_of
from lmexposure.scoring.space.token_space import TokenSpace
from lmexposure.scoring.steps import Steps

_IMPOSSIBLE = 1e6  # bits of a token that the model gives no probability at all
_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class Level:
    """N prefixes of one depth, and all M that may follow them.

    Attributes:
        nodes: the prefixes.
        log2_fills: log2 of the number of fills behind each, shape (N,).
        children: what may follow.
        costs: bits of each child's whole path, shape (M,).
        log2_child_fills: log2 of the number of fills behind each child, shape (M,).
        bounds: log2 of h for each child and component, shape (M, J).
    """

    nodes: Nodes
    log2_fills: NDArray[np.float64]
    children: Children
    costs: NDArray[np.float64]
    log2_child_fills: NDArray[np.float64]
    bounds: NDArray[np.float64]

    @property
    def inner(self) -> NDArray[np.int64]:
        """Numbers of the children that go on."""
        return np.flatnonzero(~self.children.leaf)

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """log2 of the sum of h over the children of each node, shape (N, J)."""
        return _log2_sums(self.bounds, self._starts)

    @cached_property
    def conditional(self) -> NDArray[np.float64]:
        """log2 probability of each child behind its parent, by component, shape (M, J)."""
        return self.bounds - self.totals[self.children.rows]

    @property
    def _starts(self) -> NDArray[np.int64]:
        """Where the children of each node begin."""
        return np.flatnonzero(np.diff(self.children.rows, prepend=-1))

    def pick(
        self, at: NDArray[np.int64], components: NDArray[np.int64], u: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """A child for each draw: `at` its node, `components` its component, `u` uniform."""
        picked = np.empty(len(at), dtype=np.int64)
        for j in np.unique(components).tolist():
            mine = np.flatnonzero(components == j)
            heaped = np.cumsum(np.exp2(self.conditional[:, j]))  # each node's children sum to 1
            picked[mine] = np.searchsorted(heaped, at[mine] + u[mine], side="right")
        first = np.searchsorted(self.children.rows, at, side="left")
        last = np.searchsorted(self.children.rows, at, side="right") - 1
        return np.clip(picked, first, last)


@dataclass(frozen=True, kw_only=True)
class Top:
    """The first levels of the trie, all nodes of them, which every draw goes through.

    Attributes:
        levels: from the root on.
        state: the model's states of the last level's nodes.
        limits: t of each component, shape (J,).
    """

    levels: list[Level]
    state: Any
    limits: NDArray[np.float64]

    @property
    def log2_totals(self) -> NDArray[np.float64]:
        """log2 of H for each component, shape (J,)."""
        totals: NDArray[np.float64] = self.levels[0].totals[0]
        return totals


def expand_top(space: TokenSpace, steps: Steps, reach: Sequence[float], *, most_nodes: int) -> Top:
    """Expand whole levels while they fit, and let each node's h be what its children's add up to.

    Args:
        space: the fills as token paths.
        steps: the model.
        reach: for each component between the model and the uniform one, log2 H over log2|R|, in
            (0, 1): how far it reaches; its limit is chosen so.
        most_nodes: nodes to compute at most; the root is always computed.
    """
    root = Nodes.root(space)
    children = children_of(space, root.states)
    state, bits = steps.start(space.beginning, children.tokens)
    whole = math.log2(space.size)
    unlimited = np.array([math.inf])
    levels = [_level(root, np.array([whole]), children, bits, unlimited)]
    spent = 1
    while 0 < len(levels[-1].inner) <= most_nodes - spent:
        spent += len(levels[-1].inner)
        state, level = deeper(space, steps, state, levels[-1], levels[-1].inner, unlimited)
        levels.append(level)
    limits = np.array([0.0, *(_limit_of(levels, part * whole) for part in reach), math.inf])
    return Top(levels=_backed_up(levels, limits), state=state, limits=limits)


def _limit_of(levels: list[Level], log2_total: float) -> float:
    """The limit t, at least 0, whose log2 H over these levels is about this."""
    ends = [(level, level.children.leaf) for level in levels[:-1]]
    ends.append((levels[-1], np.ones(len(levels[-1].children), dtype=bool)))
    fills = np.concatenate([level.log2_child_fills[at] for level, at in ends])
    costs = np.concatenate([level.costs[at] for level, at in ends])
    low, high = 0.0, float(costs.max()) + float(fills.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        reached = np.logaddexp2.reduce(np.minimum(fills, middle - costs))
        low, high = (middle, high) if reached < log2_total else (low, middle)
    return low


def deeper(
    space: TokenSpace,
    steps: Steps,
    state: Any,
    level: Level,
    chosen: NDArray[np.int64],
    limits: NDArray[np.float64],
) -> tuple[Any, Level]:
    """The level behind the chosen children, and its states."""
    nodes = level.children.nodes(level.nodes, level.costs, chosen)
    children = children_of(space, nodes.states)
    state, bits = steps.advance(
        state,
        level.children.rows[chosen],
        level.children.tokens[chosen],
        children.rows,
        children.tokens,
    )
    return state, _level(nodes, level.log2_child_fills[chosen], children, bits, limits)


def _level(
    nodes: Nodes,
    log2_fills: NDArray[np.float64],
    children: Children,
    bits: NDArray[np.float64],
    limits: NDArray[np.float64],
) -> Level:
    _refuse(nodes, children, bits)
    costs = nodes.costs[children.rows] + np.minimum(bits, _IMPOSSIBLE)
    below = log2_fills[children.rows] + np.log2(children.shares)
    return Level(
        nodes=nodes,
        log2_fills=log2_fills,
        children=children,
        costs=costs,
        log2_child_fills=below,
        bounds=_bounds(below, costs, limits),
    )


def _backed_up(levels: list[Level], limits: NDArray[np.float64]) -> list[Level]:
    """The levels under these limits, each inner child's h lowered to the sum of h behind it."""
    done: list[Level] = []
    for level in reversed(levels):
        bounds = _bounds(level.log2_child_fills, level.costs, limits)
        if done:
            bounds[level.inner] = done[0].totals
        done.insert(0, replace(level, bounds=bounds))
    return done


def _bounds(
    log2_fills: NDArray[np.float64], costs: NDArray[np.float64], limits: NDArray[np.float64]
) -> NDArray[np.float64]:
    """log2 of h for M children and J limits, shape (M, J)."""
    return np.minimum(log2_fills[:, None], limits - costs[:, None])


def _log2_sums(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """log2 of the sum of 2^values over each segment of rows, (M, J) -> (N, J)."""
    lengths = np.diff(starts, append=len(values))
    most = np.maximum.reduceat(values, starts, axis=0)
    scaled = np.exp2(values - np.repeat(most, lengths, axis=0))
    return most + np.log2(np.add.reduceat(scaled, starts, axis=0))


def _refuse(nodes: Nodes, children: Children, bits: NDArray[np.float64]) -> None:
    if (children.ends & ~children.leaf).any():
        raise InputError(
            "one fill of the format begins another, so fills cannot be drawn token by token; use a "
            "format whose entries do not begin with one another, or method='sampled'"
        )
    if np.isnan(bits).any():
        raise NumericalError(
            f"the model gave NaN {nodes.paths.shape[1]} tokens into the secrets; its weights or "
            "dtype are broken: check the checkpoint, or search in float32"
        )
