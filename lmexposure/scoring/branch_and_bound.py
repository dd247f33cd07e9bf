"""Branch and bound over all fills that cost no more than a limit: depth first, in bounded memory.

Bits only add up along a path, so a branch that costs more than the limit holds no fill below it.
Batches of nodes are taken from the top of a stack, cheapest first; what lies on the stack is all
that is still open, so the walk can end at any moment and say what it has not seen.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmexposure._validate import integer, positive
from lmexposure.errors import ModelError, NumericalError, SettingsError
from lmexposure.scoring.runtime import Floats, Ints, halved, out_of_memory
from lmexposure.scoring.steps import Steps
from lmexposure.scoring.token_spaces import Continuations, TokenSpace

_LIVE_STATES = 1 << 15
_LIVE_BYTES = 1 << 29
_LARGEST_BATCH = 4096
_MOST_CHILDREN = 1 << 21  # of one batch


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """N prefixes of one length D in tokens, counted behind the space's beginning."""

    # bits of each prefix behind the beginning, float64 (N,); they only grow on the way
    costs: Floats
    states: Ints  # the state of each in the token space, int64 (N,)
    paths: Ints  # tokens behind the beginning, int64 (N, D)

    def __len__(self) -> int:
        return len(self.costs)

    def select(self, index: Ints | slice) -> "Nodes":
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
class Children(Continuations):
    """All M continuations of N nodes, those of one node side by side, shape (M,) each."""

    rows: Ints  # the parent's number, ascending

    def __len__(self) -> int:
        return len(self.rows)

    def nodes(self, parents: Nodes, costs: Floats, index: Ints) -> Nodes:
        """The children with these numbers as nodes; `costs` (M,) are those of all children."""
        tokens = self.tokens[index][:, None]
        return Nodes(
            costs=costs[index],
            states=self.states[index],
            paths=np.concatenate([parents.paths[self.rows[index]], tokens], axis=1),
        )


def children_of(space: TokenSpace, states: Ints) -> Children:
    """What may follow each of these states of the space, shape (N,)."""
    different, which = np.unique(states, return_inverse=True)
    found = [space.continuations(int(state)) for state in different]
    lengths = np.array([len(after.tokens) for after in found], dtype=np.int64)
    first = np.cumsum(lengths) - lengths  # where each state's continuations begin
    counts = lengths[which]  # (N,)
    rows = np.repeat(np.arange(len(states)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = first[which][rows] + within
    return Children(
        rows=rows,
        tokens=np.concatenate([after.tokens for after in found])[at],
        states=np.concatenate([after.states for after in found])[at],
        shares=np.concatenate([after.shares for after in found])[at],
        ends=np.concatenate([after.ends for after in found])[at],
        leaf=np.concatenate([after.leaf for after in found])[at],
    )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a search may cost; None: no limit.

    Raises:
        SettingsError: a limit that allows nothing.
    """

    steps: int | None = None
    """Model steps, at least 1."""
    seconds: float | None = None
    """Of wall-clock time, above 0."""
    ended: Callable[[], bool] | None = None
    """Asked between steps; true ends the search as a limit does, whatever is left."""

    def __post_init__(self) -> None:
        try:
            if self.steps is not None:
                integer("steps", self.steps, low=1)
            if self.seconds is not None:
                positive("seconds", self.seconds)
        except SettingsError as failure:
            raise SettingsError(
                f"budget: {failure}; to leave the exact search out, choose another method"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """Fills that a step of the walk has reached: M of them, none above the limit."""

    costs: Floats  # bits behind the beginning, shape (M,); lower = more memorised
    # call with the numbers of some of them for their tokens, shape (m, D)
    paths: Callable[[Ints], Ints]


@dataclass(frozen=True, kw_only=True)
class _Open:
    """Nodes whose forward pass is to come, and the states of their parents."""

    state: Any
    parents: Ints  # (N,) rows of `state`
    nodes: Nodes

    def select(self, index: Ints | slice) -> "_Open":
        return _Open(state=self.state, parents=self.parents[index], nodes=self.nodes.select(index))


class BranchAndBound:
    """One walk over the fills within a limit; it can be stopped and goes on where it was.

    What visits its fills may give the limit from then on, where it became lower.
    """

    def __init__(
        self,
        space: TokenSpace,
        steps: Steps,
        *,
        limit: float,
        visit: Callable[[Leaves], float | None],
        budget: Budget,
        live_states: int | None = None,
        batch: int = _LARGEST_BATCH,
    ) -> None:
        self.limit = limit
        self.most_live = 0  # the largest number of states held at once so far
        self.interrupted = False  # a person ended it before its time
        self.spent = 0  # model steps of this walk so far
        # Called with the steps spent, while running.
        self.watch: Callable[[int], None] | None = None
        self._space, self._steps, self._visit = space, steps, visit
        self._budget = budget
        # Each level of the stack holds one batch, and one more is being made.
        depth = space.longest + 1
        live = _LIVE_STATES if live_states is None else live_states
        self._live = integer("live_states", live, low=depth)
        self._batch = min(integer("batch", batch, low=1), self._live // depth)
        self._depth = depth
        self._stack: list[_Open] = []
        self._begun = False
        self._deadline = math.inf

    @property
    def finished(self) -> bool:
        """All fills within the limit have been visited."""
        return self._begun and not self._stack

    def run(self) -> bool:
        """Walk on until everything within the limit is visited or the budget is spent."""
        if self._budget.seconds is not None:
            self._deadline = time.monotonic() + self._budget.seconds
        try:
            if not self._begun:
                self._start()
            while self._stack and not self._exhausted():
                self._advance()
                if self.watch is not None:
                    self.watch(self.spent)
        except KeyboardInterrupt:
            self.interrupted = True  # what was proven so far is worth keeping
        return self.finished

    def open_fills(self, limits: Floats) -> list[int]:
        """How many fills that cost no more than each limit are not visited yet, at most.

        Behind a node that costs c bits at most 2^(T - c) fills of one length cost T bits or less
        (their paths are disjoint events), and never more than there are.
        """
        if not self._begun:
            return [self._space.size for _ in limits]
        totals = [0] * len(limits)
        for entry in self._stack:
            states, which = np.unique(entry.nodes.states, return_inverse=True)
            counts = [self._space.count(int(state)) for state in states]
            bits = np.array([math.log2(count) for count in counts])[which]
            # Of how many lengths fills are behind these nodes, where one may begin another.
            lengths = self._space.longest - entry.nodes.paths.shape[1]
            more = math.log2(lengths) if self._space.format.may_nest else 0.0
            for i, limit in enumerate(limits.tolist()):
                spare = limit - entry.nodes.costs + more  # T - c
                near = entry.nodes.costs <= limit
                whole = np.bincount(which[near & (spare >= bits)], minlength=len(counts))
                totals[i] += sum(c * int(n) for c, n in zip(counts, whole, strict=True))
                totals[i] += _sum_of_powers(spare[near & (spare < bits)])
        return [min(total, self._space.size) for total in totals]

    def cheapest_open(self) -> float:
        """No fill that has not been visited costs less than this many bits."""
        if not self._begun:
            return 0.0
        least = [float(entry.nodes.costs.min()) for entry in self._stack]
        return min(least, default=math.inf)

    def _exhausted(self) -> bool:
        steps, ended = self._budget.steps, self._budget.ended
        if ended is not None and ended():
            self.interrupted = True
            return True
        return (steps is not None and self.spent >= steps) or time.monotonic() >= self._deadline

    def _start(self) -> None:
        root = Nodes.root(self._space)
        children = children_of(self._space, root.states)
        state, bits = self._steps.start(self._space.beginning, children.tokens)
        self.spent += 1
        self._note_live(state.rows)
        affordable = int(_LIVE_BYTES / state.row_bytes(self._depth, every=True))
        self._batch = min(self._batch, max(1, affordable))
        grown = self._grown(root, children, bits, state)
        self._begun = True
        self._stack = [] if grown is None else [grown]

    def _advance(self) -> None:
        """Compute the cheapest batch on top of the stack and put what it leads to in its place."""
        top, below = self._stack[-1], self._stack[:-1]
        # Cheapest first: what a lowered limit leaves out is at the end.
        top = top.select(slice(0, int(np.searchsorted(top.nodes.costs, self.limit, "right"))))
        if not len(top.nodes):
            self._stack = below
            return
        now, later = self._split(top)
        children = children_of(self._space, now.nodes.states)
        try:
            state, bits = self._steps.advance(
                now.state, now.parents, now.nodes.paths[:, -1], children.rows, children.tokens
            )
        except (RuntimeError, MemoryError) as failure:
            if not out_of_memory(failure):
                raise
            if self._batch == 1:
                raise ModelError(
                    "out of memory with one state at a time; use a smaller model, or a device with "
                    "more memory"
                ) from failure
            self._batch = halved(self._batch)
            return
        self.spent += len(now.nodes)
        self._note_live(state.rows)
        grown = self._grown(now.nodes, children, bits, state)
        # Visited first and removed afterwards: an interruption counts no fill as seen too early.
        self._stack = [*below, *later, *([] if grown is None else [grown])]

    def _split(self, top: _Open) -> tuple[_Open, list[_Open]]:
        """The next batch, and the rest, if any; a rest is cut into batches of one size."""
        total = len(top.nodes)
        batch = self._batch
        if self._budget.steps is not None:
            batch = min(batch, self._budget.steps - self.spent)
        batch = math.ceil(total / math.ceil(total / batch))
        batch = min(batch, self._few_enough(top.nodes.states[:batch]))
        if batch == total:
            return top, []
        return top.select(slice(0, batch)), [top.select(slice(batch, None))]

    def _few_enough(self, states: Ints) -> int:
        """How many of these nodes have no more children together than fit into memory."""
        different, which = np.unique(states, return_inverse=True)
        counts = np.array([len(self._space.continuations(int(s)).tokens) for s in different])
        return max(1, int(np.searchsorted(np.cumsum(counts[which]), _MOST_CHILDREN, "right")))

    def _grown(self, nodes: Nodes, children: Children, bits: Floats, state: Any) -> _Open | None:
        """Visit the fills among the children; the rest, cheapest first, is open."""
        refuse_nan(bits, nodes.paths.shape[1])
        costs = nodes.costs[children.rows] + bits
        within = costs <= self.limit
        fills = np.flatnonzero(within & children.ends)
        if len(fills):
            lowered = self._visit(
                Leaves(
                    costs=costs[fills],
                    paths=lambda chosen: children.nodes(nodes, costs, fills[chosen]).paths,
                )
            )
            self.limit = self.limit if lowered is None else lowered
        inner = np.flatnonzero(within & ~children.leaf)
        if not len(inner):
            return None
        inner = inner[np.argsort(costs[inner], kind="stable")]
        return _Open(
            state=state, parents=children.rows[inner], nodes=children.nodes(nodes, costs, inner)
        )

    def _note_live(self, made: int) -> None:
        held = {id(entry.state): entry.state.rows for entry in self._stack}
        self.most_live = max(self.most_live, sum(held.values()) + made)


def refuse_nan(bits: Floats, depth: int) -> None:
    """Nothing is known of a branch that costs NaN, nor of what lies behind it."""
    if np.isnan(bits).any():
        raise NumericalError(
            f"the model gave NaN {depth} tokens into the secrets; its weights or dtype are broken: "
            "check the checkpoint, or search in float32"
        )


def _sum_of_powers(exponents: Floats) -> int:
    """The sum of 2^x, rounded up, for exponents of any size."""
    if not len(exponents):
        return 0
    most = math.ceil(float(exponents.max()))
    scaled = float(np.exp2(exponents - most).sum()) * (1 + 1e-9)  # in units of 2^most
    unit = 1 << max(0, most - 52)
    return math.ceil(scaled * 2.0 ** min(most, 52)) * unit
