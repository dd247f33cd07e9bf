"""Fills drawn where they matter for a rank, with the weights that undo the preference.

The draws come from a mixture: the model's own distribution over the fills, the uniform one, and a
few in between. Each fill's weight is one over its probability under the whole mixture (the balance
heuristic), so that a sum over R becomes a mean over draws: unbiased, and the largest weight that a
fill can have is known beforehand. The step that ends a draw tells the costs of all fills that end
there; they are a group that was drawn, with the probability of any of them.

A component of the mixture has a limit of t bits. Behind a node that costs c bits at most
h = min(fills below, 2^(t - c)) fills cost t bits or less, since their paths are disjoint events.
The component picks each child in proportion to its h. With limit 0 that is the model's own
distribution over the fills, with limit infinity the uniform one; limits in between spread the draws
over all fills that are cheap enough to matter.

The children's h never add up to more than their parent's: the factors behind a node multiply to at
least h(fill) / h(node). So every fill x has probability at least min(1, 2^(t - bits(x))) / H, with
H the sum of h over any frontier that was expanded beforehand; the further it was, the smaller H.

Sources: Veach and Guibas 1995, "Optimally combining sampling techniques for Monte Carlo rendering"
(the balance heuristic); Owen 2013, "Monte Carlo theory, methods and examples", chapter 9; Knuth
1975, "Estimating the efficiency of backtrack programs" (sampling a search tree); Kraft's inequality
(the bound).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from lmexposure._validate import integer
from lmexposure.errors import InputError, NumericalError
from lmexposure.scoring.branch_and_bound import Children, Nodes, children_of, refuse_nan
from lmexposure.scoring.runtime import Bools, Floats, Ints, in_batches
from lmexposure.scoring.steps import Steps
from lmexposure.scoring.token_spaces import TokenSpace
from lmexposure.statistics import WeightedDraws

_IMPOSSIBLE = 1e6  # bits of a token that the model gives no probability at all
_HALVINGS = 40
# How far each component between the model and the uniform one reaches: log2 H / log2|R|.
_REACH = (0.22, 0.45, 0.68, 0.9)
_ROUNDING = 1e-3  # bits by which a float32 total may lie off
# Which component each of twenty draws comes from: 0 is the model, 5 the uniform one. References
# count what the last two would; most draws go where no reference is cheap enough.
_TURNS = (5, 3, 2, 1, 4, 0, 3, 2, 1, 3, 2, 1, 4, 3, 2, 1, 0, 3, 2, 1)
_FEWEST = 10  # draws; of as many each component has one
_TOP_SHARE = 10  # one step in ten goes into the levels that all draws share
_BLOCK_BYTES = 1 << 27  # of model states held at once
_MOST_CHILDREN = 1 << 19
_TOGETHER = 64  # fills that end behind one node are a group; of more, each is one of its own


@dataclass(frozen=True, kw_only=True)
class Level:
    """N prefixes of one depth, and all M that may follow them."""

    nodes: Nodes  # the prefixes
    children: Children  # what may follow
    costs: Floats  # bits of each child's whole path, shape (M,)
    log2_child_fills: Floats  # log2 of the number of fills behind each child, shape (M,)
    bounds: Floats  # log2 of h for each child and component, shape (M, J)

    @property
    def inner(self) -> Ints:
        """Numbers of the children that go on."""
        return np.flatnonzero(~self.children.leaf)

    @cached_property
    def totals(self) -> Floats:
        """log2 of the sum of h over the children of each node, shape (N, J)."""
        starts = np.flatnonzero(np.diff(self.children.rows, prepend=-1))
        lengths = np.diff(starts, append=len(self.bounds))
        most = np.maximum.reduceat(self.bounds, starts, axis=0)
        scaled = np.exp2(self.bounds - np.repeat(most, lengths, axis=0))
        return most + np.log2(np.add.reduceat(scaled, starts, axis=0))

    @cached_property
    def conditional(self) -> Floats:
        """log2 probability of each child behind its parent, by component, shape (M, J)."""
        return self.bounds - self.totals[self.children.rows]

    def pick(self, at: Ints, components: Ints, u: Floats) -> Ints:
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
class SharedLevels:
    """The first levels of the trie, all nodes of them, which every draw goes through."""

    levels: list[Level]  # from the root on
    state: Any  # the model's states of the last level's nodes
    limits: Floats  # t of each component, shape (J,)

    @property
    def log2_totals(self) -> Floats:
        """log2 of H for each component, shape (J,)."""
        totals: Floats = self.levels[0].totals[0]
        return totals


def expand_shared_levels(
    space: TokenSpace, steps: Steps, reach: Sequence[float], *, most_nodes: int
) -> SharedLevels:
    """Expand whole levels while they fit; a node's h is what its children's add up to."""
    root = Nodes.root(space)
    children = children_of(space, root.states)
    state, bits = steps.start(space.beginning, children.tokens)
    whole = math.log2(space.size)
    unlimited = np.array([math.inf])
    levels = [_level(root, np.array([whole]), children, bits, unlimited)]
    spent = 1
    while 0 < len(levels[-1].inner) <= most_nodes - spent:
        spent += len(levels[-1].inner)
        state, level = next_level(space, steps, state, levels[-1], levels[-1].inner, unlimited)
        levels.append(level)
    limits = np.array([0.0, *(_limit_of(levels, part * whole) for part in reach), math.inf])
    return SharedLevels(levels=_backed_up(levels, limits), state=state, limits=limits)


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


def next_level(
    space: TokenSpace, steps: Steps, state: Any, level: Level, chosen: Ints, limits: Floats
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
    nodes: Nodes, log2_fills: Floats, children: Children, bits: Floats, limits: Floats
) -> Level:
    if (children.ends & ~children.leaf).any():
        raise InputError(
            "one secret of the format begins another, so secrets cannot be drawn token by token; "
            "use a format whose entries do not begin with one another, or estimate='sampled'"
        )
    refuse_nan(bits, nodes.paths.shape[1])
    costs = nodes.costs[children.rows] + np.minimum(bits, _IMPOSSIBLE)
    below = log2_fills[children.rows] + np.log2(children.shares)
    return Level(
        nodes=nodes,
        children=children,
        costs=costs,
        log2_child_fills=below,
        bounds=_bounds(below, costs, limits),
    )


def _backed_up(levels: list[Level], limits: Floats) -> list[Level]:
    """The levels under these limits, each inner child's h lowered to the sum of h behind it."""
    done: list[Level] = []
    for level in reversed(levels):
        bounds = _bounds(level.log2_child_fills, level.costs, limits)
        if done:
            bounds[level.inner] = done[0].totals
        done.insert(0, replace(level, bounds=bounds))
    return done


def _bounds(log2_fills: Floats, costs: Floats, limits: Floats) -> Floats:
    """log2 of h for M children and J limits, shape (M, J)."""
    return np.minimum(log2_fills[:, None], limits - costs[:, None])


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """G groups of K fills that end behind one node each, and which of them each draw is."""

    bits: Floats  # cost of each fill behind the shared tokens, shape (K,); lower = likelier
    tokens: Ints  # its last token, shape (K,)
    groups: Ints  # its group, ascending, shape (K,)
    prefixes: Ints  # tokens of each group's node behind the beginning, -1 behind them, (G, D)
    log2_weights: Floats  # log2 of one over the group's probability under the mixture, (G,)
    drawn: Ints  # the group of each draw, shape (M,)

    @classmethod
    def joined(cls, parts: "Sequence[Groups]") -> "Groups":
        """Those of all draws, each group once."""
        before = np.cumsum([0, *(len(part.prefixes) for part in parts)])[:-1]
        shifts = list(zip(parts, before, strict=True))
        groups = np.concatenate([part.groups + n for part, n in shifts])
        prefixes = np.concatenate([part.prefixes for part in parts])
        tokens = np.concatenate([part.tokens for part in parts])
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        names = np.column_stack([prefixes, tokens[starts]])
        _, first, named = np.unique(names, axis=0, return_index=True, return_inverse=True)
        named = named.reshape(-1)
        # The same group again, from another part, has the same fills.
        kept = np.isin(groups, first)
        order = np.argsort(named[groups[kept]], kind="stable")
        return cls(
            bits=np.concatenate([part.bits for part in parts])[kept][order],
            tokens=tokens[kept][order],
            groups=named[groups[kept]][order],
            prefixes=prefixes[first],
            log2_weights=np.concatenate([part.log2_weights for part in parts])[first],
            drawn=named[np.concatenate([part.drawn + n for part, n in shifts])],
        )

    def of(self, path: Sequence[int]) -> Bools:
        """Which of the fills is this one, shape (K,)."""
        found = np.zeros(len(self.bits), dtype=bool)
        prefix = np.full(self.prefixes.shape[1], -1, dtype=np.int64)
        if 0 < len(path) <= len(prefix):
            prefix[: len(path) - 1] = path[:-1]
            alike = np.flatnonzero(self.tokens == path[-1])
            found[alike] = (self.prefixes[self.groups[alike]] == prefix).all(axis=1)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """M draws from a mixture over the fills of one format."""

    seen: Groups
    components: Ints  # which component each draw came from, shape (M,)
    # shares, limits, log2_totals: of each component, shape (J,): its share of the draws, its limit
    # in bits, and log2 of H (see `proposal`)
    shares: Floats
    limits: Floats
    log2_totals: Floats
    steps: int  # model steps spent
    # prefix_bits, prefix_log2_weights: cost and weight of each draw's inner prefixes, shape (P,):
    # of what a walk would have to compute
    prefix_bits: Floats
    prefix_log2_weights: Floats

    def __len__(self) -> int:
        return len(self.components)

    def weighted(self, counted_apart: Iterable[Sequence[int]]) -> WeightedDraws:
        """The draws as statistics take them, without the fills of these paths."""
        seen, excluded = self.seen, np.zeros(len(self.seen.bits), dtype=bool)
        for path in counted_apart:
            excluded |= seen.of(path)
        return WeightedDraws(
            bits=np.maximum(seen.bits, 0.0),  # rounding may go below
            groups=seen.groups,
            excluded=excluded,
            log2_weights=seen.log2_weights,
            drawn=seen.drawn,
            strata=self.components,
            shares=self.shares,
            limits=self.limits,
            log2_totals=self.log2_totals,
        )

    def likeliest_within(self, steps: float, margin: float) -> int:
        """About how many of the likeliest fills a walk with this many model steps can list."""
        by_cost = np.argsort(self.seen.bits, kind="stable")
        bits = self.seen.bits[by_cost]
        # Horvitz-Thompson: one over the chance that a fill's group is among the draws.
        q = np.exp2(-self.seen.log2_weights[self.seen.groups[by_cost]])  # (K,)
        with np.errstate(divide="ignore", over="ignore"):
            listed = np.cumsum(1 / -np.expm1(len(self) * np.log1p(-np.minimum(q, 1.0))))
        order = np.argsort(self.prefix_bits, kind="stable")
        with np.errstate(over="ignore"):
            walked = np.cumsum(np.exp2(self.prefix_log2_weights[order])) / len(self)  # (P,)
        behind = np.searchsorted(self.prefix_bits[order], bits + margin, "right")
        costs = 1 + np.append(0.0, walked)[behind]  # model steps up to each fill, ascending
        within = int(np.searchsorted(costs, steps, "right"))
        return 0 if not within else int(min(listed[within - 1], 2.0**62))

    def expected_steps(self, limit: float) -> float:
        """About how many model steps a walk to this limit takes: an unbiased estimate."""
        within = self.prefix_bits <= limit
        with np.errstate(over="ignore"):  # beyond float64 it is infinite, and rightly so
            return 1 + float(np.exp2(self.prefix_log2_weights[within]).sum()) / len(self)


def draw_fills(
    space: TokenSpace,
    steps: Steps,
    *,
    draws: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Draws:
    """Draw fills with replacement from the mixture, stratified over its components."""
    integer("draws", draws, low=_FEWEST)
    rng = np.random.default_rng(seed)
    components = np.array(_TURNS)[np.arange(draws) % len(_TURNS)]
    before = steps.evaluated
    shared = expand_shared_levels(space, steps, _REACH, most_nodes=max(1, draws // _TOP_SHARE))
    # Of fills that each cost at most L bits there are at most 2^L: totals keep their limits.
    if not (shared.log2_totals <= shared.limits + _ROUNDING).all():
        raise NumericalError(
            "the model's logits are out of range: its probabilities of next tokens add up to more "
            "than 1; its weights or dtype are broken: check the checkpoint, or score in float32"
        )
    shares = np.bincount(components) / draws
    block = _block_size(space, shared)
    finished = 0

    def drawn(part: Sequence[int]) -> _Drawn:
        def watch(share: float) -> None:
            if progress is not None:
                progress(finished + int(share * len(part)), draws)

        return _DrawBlock(space, steps, shared, np.array(part), shares, rng).drawn(watch)

    parts = []
    for part in in_batches(components.tolist(), block, drawn):
        parts.append(part)
        finished += len(part[0].drawn)
    seen, prefix_bits, prefix_log2_weights = zip(*parts, strict=True)
    return Draws(
        seen=Groups.joined(seen),
        prefix_bits=np.concatenate(prefix_bits),
        prefix_log2_weights=np.concatenate(prefix_log2_weights),
        components=components,
        shares=shares,
        limits=shared.limits,
        log2_totals=shared.log2_totals,
        steps=steps.evaluated - before,
    )


def _block_size(space: TokenSpace, shared: SharedLevels) -> int:
    """How many draws go side by side within memory."""
    row_bytes = shared.state.row_bytes(space.longest + 1 - len(shared.levels), every=False)
    most_children = max(
        int(np.bincount(level.children.rows).max(initial=1)) for level in shared.levels
    )
    affordable = min(_BLOCK_BYTES / row_bytes, _MOST_CHILDREN / most_children)
    return max(_FEWEST, int(affordable))


_Drawn: TypeAlias = tuple[Groups, Floats, Floats]


class _DrawBlock:
    """Draws that go down the trie side by side."""

    def __init__(
        self,
        space: TokenSpace,
        steps: Steps,
        shared: SharedLevels,
        components: Ints,
        shares: Floats,
        rng: np.random.Generator,
    ) -> None:
        self._space, self._steps, self._shared, self._rng = space, steps, shared, rng
        self._components, self._log2_shares = components, np.log2(shares)
        self._ended: list[Groups] = []
        self._order: list[Ints] = []  # the draws that ended with each of them
        self._prefix_bits: list[Floats] = [np.empty(0)]
        self._prefix_weights: list[Floats] = [np.empty(0)]

    def drawn(self, watch: Callable[[float], None]) -> _Drawn:
        """What was drawn; bits and log2 weights of the prefixes on the way."""
        draws = np.arange(len(self._components))
        at = np.zeros(len(draws), dtype=np.int64)  # the node of each draw
        log2_q = np.zeros((1, len(self._log2_shares)))  # of each node, by component
        depth, level, state = 0, self._shared.levels[0], self._shared.state
        while True:
            child = level.pick(at, self._components[draws], self._rng.random(len(draws)))
            reached = self._reached(level, log2_q, child)  # (m, J)
            mixture = np.logaddexp2.reduce(reached + self._log2_shares, axis=1)  # (m,)
            goes_on = ~level.children.leaf[child]
            self._end(level, log2_q, draws[~goes_on], child[~goes_on])
            draws, child, mixture = draws[goes_on], child[goes_on], mixture[goes_on]
            watch((depth + 1) / self._space.longest if len(draws) else 1.0)
            if not len(draws):
                of_prefixes = (self._prefix_bits, self._prefix_weights)
                bits, log2_weights = map(np.concatenate, of_prefixes)
                joined = Groups.joined(self._ended)
                drawn = np.empty_like(joined.drawn)  # of each draw, in the order of the draws
                drawn[np.concatenate(self._order)] = joined.drawn
                return replace(joined, drawn=drawn), bits, log2_weights
            self._prefix_bits.append(level.costs[child])
            self._prefix_weights.append(-mixture)
            before, depth = level, depth + 1
            if depth < len(self._shared.levels):
                on = level.inner
                at, level = np.searchsorted(on, child), self._shared.levels[depth]
            else:
                on, at = np.unique(child, return_inverse=True)
                state, level = next_level(
                    self._space, self._steps, state, level, on, self._shared.limits
                )
            log2_q = self._reached(before, log2_q, on)

    @staticmethod
    def _reached(level: Level, log2_q: Floats, chosen: Ints) -> Floats:
        """log2 probability of being at these children, by component, shape (n, J)."""
        children: Floats = log2_q[level.children.rows[chosen]]
        return children + level.conditional[chosen]

    def _end(self, level: Level, log2_q: Floats, draws: Ints, child: Ints) -> None:
        """These draws have reached the end of a fill."""
        if not len(draws):
            return
        rows, leaves = level.children.rows, np.flatnonzero(level.children.leaf)
        few = np.bincount(rows[leaves], minlength=len(level.nodes)) <= _TOGETHER  # (N,)
        # A group's name: its node, or behind all nodes the number of its only fill.
        names = np.where(few[rows], rows, len(level.nodes) + np.arange(len(rows)))  # (M,)
        chosen = np.unique(names[child])
        members = leaves[np.isin(names[leaves], chosen)]
        groups = np.searchsorted(chosen, names[members])
        order = np.argsort(groups, kind="stable")
        members, groups = members[order], groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        mixture = self._reached(level, log2_q, members) + self._log2_shares
        paths = level.nodes.paths[rows[members[starts]]]
        prefixes = np.full((len(chosen), self._space.longest), -1, dtype=np.int64)
        prefixes[:, : paths.shape[1]] = paths
        self._ended.append(
            Groups(
                bits=level.costs[members],
                tokens=level.children.tokens[members],
                groups=groups,
                prefixes=prefixes,
                log2_weights=-np.logaddexp2.reduceat(np.logaddexp2.reduce(mixture, axis=1), starts),
                drawn=np.searchsorted(chosen, names[child]),
            )
        )
        self._order.append(draws)
