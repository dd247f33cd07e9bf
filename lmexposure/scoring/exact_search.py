"""What branch and bound proves: ranks of canaries, and the likeliest fills in order.

Ranks: every fill of R that costs no more than a canary is counted, or proven to be few. One walk
serves all canaries. A fill that is cheaper than a canary by more than the margin counts for it; one
within the margin is scored again in float64, as the canary itself is.

The likeliest fills: the order is that of a shortest-path search over the token trie. Instead of a
queue that may hold millions of states, the walk keeps the k cheapest fills seen so far and drops
every branch that costs more than the last of them: the same list, in bounded memory.

A float32 walk moves a sum by its rounding. Where two fills are that close, both are scored again in
float64 (`Rescorer`), computed the same way for all, so that which of them costs more does not
depend on how they were reached. A model that cannot be copied to float64 is used as it is.

Source: Carlini et al. 2019, "The Secret Sharer", section 8.1 (extraction by Dijkstra's algorithm).
"""

import copy
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lmexposure._validate import integer
from lmexposure.core import Encoded
from lmexposure.errors import MarginError, ModelError, NumericalError
from lmexposure.models import is_quantised
from lmexposure.scoring.branch_and_bound import BranchAndBound, Budget, Leaves
from lmexposure.scoring.forward import PlainPass
from lmexposure.scoring.runtime import (
    MODEL_FAILURES,
    Floats,
    evaluation_mode,
    failure_text,
    in_batches,
    module_of,
    return_memory,
)
from lmexposure.scoring.steps import Steps, next_token_steps, path_bits
from lmexposure.scoring.token_spaces import TokenSpace
from lmexposure.studies import Margin

_Path = tuple[int, ...]

# Fills whose float64 bits differ by less are a tie, and ties count against the canary. Some models
# round to float32 inside whatever their dtype, so that float64 alone does not settle more.
TIE_BITS = 1e-6
_TIE_BITS_OWN = 2e-5  # where there is no float64: what rounding moves a sum by in float32
_TOGETHER = 64
_COMPARED = 8
_FAR_BITS = 0.1  # far above rounding in float32: a copy that is further off is another model
_MARGIN_BITS = 1e-3  # float32: what rounding may move a total by
_SAFETY = 4  # the margin is at least this multiple of the largest error that was measured
_MOST_NEAR, _FEWEST_NEAR = 20_000, 256  # fills that are scored again at most
_SAMPLE, _DRAWN = 64, 16  # fills, and of them at least as many that are no canary
_SAMPLE_HALF = 256
_MOST_ALIKE = 4_096  # fills that cannot be distinguished from the k-th, at most
_NARROW = 64  # a narrow batch finds a first bound soon
_ANY_COST = float(np.finfo(np.float64).max)  # but not infinite: no attacker would guess such a fill


class Rescorer:
    """Bits of whole paths in float64, kept for the paths that were asked for."""

    def __init__(self, model: Any, space: TokenSpace) -> None:
        # why there is no float64; empty where there is, or where it was not needed yet
        self.failure = ""
        self._source, self._space = model, space
        self._steps: Steps | None = None
        self._known: dict[tuple[int, ...], float] = {}

    @property
    def tie_bits(self) -> float:
        """Fills whose bits differ by no more than this are a tie."""
        return _TIE_BITS_OWN if self.failure else TIE_BITS

    def bits(self, paths: Iterable[Sequence[int]]) -> Floats:
        """Bits behind the space's beginning, shape (n,)."""
        asked = [tuple(path) for path in paths]
        if not self.failure:
            try:
                self._learn(asked, self._in_float64)
            except (*MODEL_FAILURES, ArithmeticError, MemoryError) as failure:
                self.failure, self._steps = failure_text(failure), None
                asked_before, self._known = list(self._known), {}
                self._learn(asked_before, self._as_it_is)  # numbers of one kind only
        if self.failure:
            self._learn(asked, self._as_it_is)
        return np.array([self._known[path] for path in asked], dtype=np.float64)

    def release(self) -> None:
        """Give back the copy's memory; what was scored stays known, and more makes a new copy."""
        self._steps = None
        return_memory()

    def known(self, path: Sequence[int]) -> float | None:
        """Bits of a path that was scored already; None of any other."""
        return self._known.get(tuple(path))

    def _learn(self, asked: list[_Path], compute: Callable[[list[_Path]], Floats]) -> None:
        """Compute what is not known yet."""
        new = sorted({path for path in asked if path not in self._known})  # alike side by side
        for chunk in (new[i : i + _TOGETHER] for i in range(0, len(new), _TOGETHER)):
            self._known.update(zip(chunk, compute(chunk).tolist(), strict=True))

    def _in_float64(self, paths: list[_Path]) -> Floats:
        first = self._steps is None
        if self._steps is None:
            with evaluation_mode(self._source):
                twin = _copy_in_float64(self._source)
            # In float32 its bits are compared with the model's own below.
            full = self._source.dtype == torch.float32
            self._steps = next_token_steps(
                twin,
                [*self._space.beginning, *paths[0]],
                copied_from=self._source if full else None,
            )
        bits = walked_bits(self._space, self._steps, paths)
        if not np.isfinite(bits).all():
            raise NumericalError("it gives NaN or infinite log-probabilities")
        if first and self._source.dtype == torch.float32:
            gap = float(np.abs(bits[:_COMPARED] - self._as_it_is(paths[:_COMPARED])).max())
            if gap > _FAR_BITS:
                raise NumericalError(f"it is {gap:.3g} bits off the model in float32")
        return bits

    @torch.inference_mode()
    def _as_it_is(self, paths: list[_Path]) -> Floats:
        """Of the model as it is, each path in a plain pass from its beginning."""
        start = self._space.beginning
        encoded = [Encoded(ids=[*start, *path], scored_from=len(start)) for path in paths]
        with evaluation_mode(self._source):
            batches = list(in_batches(encoded, _TOGETHER, PlainPass(self._source).bits))
        bits = np.array([tokens.sum() for batch in batches for tokens in batch])
        if not np.isfinite(bits).all():
            raise NumericalError(
                "the model gave NaN or infinite log-probabilities in float64 and as it is; its "
                "weights are broken: check the checkpoint"
            )
        return bits


def _copy_in_float64(model: Any) -> Any:
    """A copy in float64, on the CPU where the device has no float64 or too little memory."""
    if is_quantised(model):
        raise ModelError("its weights are quantised, and in float64 they would be others")
    if any(weight.device.type == "meta" for weight in model.parameters()):
        raise ModelError("its weights are offloaded, and no device holds all of them")
    needed = 8 * model.num_parameters()
    roomy = model.device.type == "cuda" and torch.cuda.mem_get_info(model.device)[0] > 2 * needed
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not roomy and needed > free:
        raise ModelError(
            f"it takes {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free"
        )
    return_memory()
    twin = copy.deepcopy(model)
    twin = (twin if roomy else twin.cpu()).double()
    # The fast kernels for a mixture of experts have no float64; plain loops have.
    if hasattr(twin, "set_experts_implementation"):
        twin.set_experts_implementation("eager")
    return twin


def walked_bits(space: TokenSpace, steps: Steps, paths: Sequence[Sequence[int]]) -> Floats:
    """Bits of whole paths as a walk adds them up: by steps, many paths at once."""
    return path_bits(steps, space.beginning, paths)


def measured_error(
    space: TokenSpace, steps: Steps, rescorer: Rescorer, indices: Sequence[int]
) -> float:
    """The largest difference in bits between walking and rescoring, over these fills."""
    paths = [space.path(index) for index in indices]
    difference = walked_bits(space, steps, paths) - rescorer.bits(paths)
    return float(np.abs(difference).max())


@dataclass(frozen=True, kw_only=True)
class ProvenRank:
    """What is proven of one canary's rank; low equals high where it is exact."""

    bits: float  # the canary's own cost behind the shared tokens, float64
    # low, high: bounds of the rank, 1 + never-inserted fills that cost no more
    low: int
    high: int
    # place_low, place_high: the same among all of R, other inserted canaries included
    place_low: int
    place_high: int
    margin: Margin  # within which fills were scored again

    @property
    def exact(self) -> bool:
        """Whether every fill that could count was counted."""
        return self.low == self.high


class RankSearch:
    """Counts fills for the canaries of one format under one model.

    Args:
        space: the fills as token paths.
        steps: next-token steps of the model.
        model: the same model, to score again in float64 where it can; left in its mode.
        excluded: indices of fills that are not part of the null: inserted canaries, and fills that
            the corpus held before.
        live_states: never more model states than this are held at once.
        seed: of the sample on which the walk's error is measured.
    """

    def __init__(
        self,
        space: TokenSpace,
        steps: Steps,
        model: Any,
        *,
        excluded: Sequence[int] = (),
        live_states: int | None = None,
        seed: int = 0,
    ) -> None:
        self._space, self._steps = space, steps
        self._live_states = live_states
        self._model, self._seed = module_of(model), seed
        self.rescorer = Rescorer(self._model, space)  # settles near ties, in float64
        self._excluded = sorted(set(excluded))
        self._excluded_paths = [space.path(index) for index in self._excluded]
        self.spent = 0  # model steps so far, over all walks
        self.most_live = 0  # the largest number of states held at once so far
        self.interrupted = False  # a person ended the last walk; what it had proven was returned

    @cached_property
    def margin(self) -> Margin:
        """Within which fills are scored again; measured when it is first asked for.

        The fixed one where float32 is far within it, else one from a sample.
        """
        model = self._model
        full = model.dtype in (torch.float32, torch.float64)
        number = _SAMPLE if full else _SAMPLE_HALF
        # Canaries were drawn like any other fill, and are scored in float64 in any case.
        known = self._excluded[: number - _DRAWN]
        drawn = self._space.format.sample(
            min(number - len(known), self._space.size), seed=self._seed
        )
        sample = list(dict.fromkeys([*known, *drawn]))
        error = measured_error(self._space, self._steps, self.rescorer, sample)
        experts = any(type(module).__name__.endswith("Experts") for module in model.modules())
        smooth = full and not self.rescorer.failure and not experts
        fixed = smooth and _SAFETY * error <= _MARGIN_BITS
        bits = _MARGIN_BITS if fixed else max(_MARGIN_BITS, _SAFETY * error)
        return Margin(bits=bits, measured=error, sample=len(sample), empirical=not fixed)

    @property
    def is_measured(self) -> bool:
        """Whether the margin was asked for, and so the model copied to float64."""
        return "margin" in vars(self)

    @property
    def expected_margin(self) -> float:
        """The margin in bits as it is to be expected, without the work of measuring it."""
        full = self._model.dtype in (torch.float32, torch.float64)
        return _MARGIN_BITS if full else self.margin.bits

    def bits(self, indices: Sequence[int]) -> Floats:
        """Costs behind the shared tokens in float64, shape (n,); lower = more memorised."""
        return self.rescorer.bits([self._space.path(index) for index in indices])

    def ranks(
        self, indices: Sequence[int], *, budget: Budget, watch: Callable[[int], None] | None = None
    ) -> list[ProvenRank]:
        """Bounds of the rank of each fill, in the order given; equal where the budget sufficed."""
        if not indices:
            return []
        # To score again is no more work than the walk itself may be.
        near = _MOST_NEAR if budget.steps is None else budget.steps // self._space.longest
        near = min(_MOST_NEAR, max(_FEWEST_NEAR, near))
        tally = _Tally(self.bits(indices), self.margin.bits, near)
        copied = not self.rescorer.failure
        self.rescorer.release()
        walk = BranchAndBound(
            self._space,
            self._steps,
            limit=tally.limit,
            visit=tally.add,
            budget=budget,
            live_states=self._live_states,
        )
        walk.watch = watch
        walk.run()
        self.interrupted = walk.interrupted
        self.spent += walk.spent
        self.most_live = max(self.most_live, walk.most_live)
        self.rescorer.bits(path for i in range(len(indices)) for path in tally.near(i))
        if copied and self.rescorer.failure:
            # No second copy was to be had, and numbers of two kinds are not compared.
            vars(self).pop("margin")
            return self.ranks(indices, budget=budget, watch=watch)
        open_fills = walk.open_fills(tally.bits + self.margin.bits)
        return [
            self._proven(index, tally, i, not_visited)
            for i, (index, not_visited) in enumerate(zip(indices, open_fills, strict=True))
        ]

    def _proven(self, index: int, tally: "_Tally", i: int, open_fills: int) -> ProvenRank:
        """What the tally proves of its i-th fill, with `open_fills` fills not visited yet."""
        bits = float(tally.bits[i])
        cheaper, near = tally.below(i), tally.near(i)
        own = tuple(self._space.path(index))
        costs = self.rescorer.bits(near)
        most_bits = bits + self.rescorer.tie_bits
        others = [path for path, cost in zip(near, costs, strict=True) if cost <= most_bits]
        place = 1 + cheaper + len(others) - (own in others)
        excluded = self.rescorer.bits(self._excluded_paths)
        cheap = np.flatnonzero(excluded <= bits + self.rescorer.tie_bits)
        planted = sum(self._excluded[i] != index for i in cheap.tolist())
        open_fills += tally.unsettled(i)
        if not open_fills and (own not in others or place - 1 < planted):
            raise MarginError(
                f"the walk missed secrets of {bits:.3f} bits or less: its error is above the "
                f"margin of {self.margin.bits:.3g} bits; search in float32, or on the CPU"
            )
        most = min(place + open_fills, self._space.size)
        return ProvenRank(
            bits=bits,
            low=max(1, place - planted),
            high=max(1, most - planted),
            place_low=place,
            place_high=most,
            # What was thought proven rests on the sample once float64 has failed.
            margin=replace(self.margin, empirical=True) if self.rescorer.failure else self.margin,
        )


class _Tally:
    """Counts the fills of a walk against the costs of n fills at once."""

    def __init__(self, bits: Floats, margin: float, most: int) -> None:
        self.bits = bits
        self.limit = float(bits.max()) + margin
        self._order = np.argsort(bits, kind="stable")
        self._low, self._high = bits[self._order] - margin, bits[self._order] + margin
        self._place = np.argsort(self._order)
        # counts[j]: fills surely cheaper than the j-th cheapest of the n, and no cheaper one's.
        self._counts = np.zeros(len(bits) + 1, dtype=np.int64)
        self._near: list[tuple[float, tuple[int, ...]]] = []
        self._most = most
        # Running sums give, for the j-th cheapest, the fills within its margin that were not kept.
        self._unsettled = np.zeros(len(bits) + 1, dtype=np.int64)

    def add(self, leaves: Leaves) -> None:
        """Count a batch of fills."""
        sure = np.searchsorted(self._low, leaves.costs, side="right")
        maybe = np.searchsorted(self._high, leaves.costs, side="left")
        self._counts += np.bincount(sure, minlength=len(self._counts))
        near = np.flatnonzero(maybe < sure)
        near, rest = np.split(near, [max(0, self._most - len(self._near))])
        np.add.at(self._unsettled, maybe[rest], 1)
        np.subtract.at(self._unsettled, sure[rest], 1)
        if len(near):
            paths = map(tuple, leaves.paths(near).tolist())
            self._near.extend(zip(leaves.costs[near].tolist(), paths, strict=True))

    def below(self, i: int) -> int:
        """Fills that are cheaper than the i-th by more than the margin."""
        return int(self._counts[: self._place[i] + 1].sum())

    def unsettled(self, i: int) -> int:
        """Fills within the margin of the i-th that were not kept."""
        return int(self._unsettled[: self._place[i] + 1].sum())

    def near(self, i: int) -> list[tuple[int, ...]]:
        """Fills within the margin of the i-th, itself among them once it was visited."""
        low, high = self._low[self._place[i]], self._high[self._place[i]]
        return [path for cost, path in self._near if low <= cost <= high]


@dataclass(frozen=True, kw_only=True)
class Likeliest:
    """The likeliest fills of a format, likeliest first."""

    indices: tuple[int, ...]  # of the fills, at most as many as were asked for
    bits: Floats  # their cost behind the shared tokens, shape (n,), ascending; lower = likelier
    # how many of the first are proven to be the likeliest of all of R; all of them, unless the
    # budget ended the search
    proven: int
    steps: int  # model steps spent
    interrupted: bool = False  # a person ended the search; what it had proven until then is given

    def place(self, index: int) -> int | None:
        """The proven place of a fill among all of R, 1 = likeliest; None: it is not among them."""
        proven = self.indices[: self.proven]
        return 1 + proven.index(index) if index in proven else None


def likeliest_fills(  # noqa: PLR0913  what is searched, and what it may cost
    space: TokenSpace,
    steps: Steps,
    rescorer: Rescorer,
    *,
    guesses: int,
    margin: float,
    budget: Budget,
    live_states: int | None = None,
    wanted: Sequence[int] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Likeliest:
    """Find the fills that an attacker would guess first.

    Those closer than the margin are scored again and put in order; where fills are `wanted`, only
    what is as close to one of these, so that their places are right, and no others' need be.
    """
    cheapest = _Cheapest(integer("guesses", guesses, low=1), margin)
    walk = BranchAndBound(
        space,
        steps,
        limit=cheapest.bound,
        visit=cheapest.add,
        budget=budget,
        live_states=live_states,
        batch=max(_NARROW, guesses),
    )
    walk.watch = watch
    rescorer.release()
    walk.run()
    certain = min(walk.cheapest_open(), cheapest.left_out) - 2 * margin
    asked = None if wanted is None else {tuple(space.path(index)) for index in wanted}
    paths, bits = cheapest.in_order(rescorer, certain, asked)
    proven = int(np.searchsorted(bits, certain))
    return Likeliest(
        indices=tuple(space.index(path) for path in paths),
        bits=bits,
        proven=proven,
        steps=walk.spent,
        interrupted=walk.interrupted,
    )


class _Cheapest:
    """The k cheapest fills of a walk so far, and those that cannot be told from the k-th."""

    def __init__(self, k: int, margin: float) -> None:
        self.left_out = math.inf
        self._k, self._slack = k, 2 * margin
        self._costs = np.empty(0)
        self._paths: list[tuple[int, ...]] = []

    def add(self, leaves: Leaves) -> float:
        """Take what is cheap enough of a batch; the walk's limit from then on."""
        new = np.flatnonzero(leaves.costs <= self.bound)
        costs = np.concatenate([self._costs, leaves.costs[new]])
        paths = self._paths + list(map(tuple, leaves.paths(new).tolist()))
        order = np.argsort(costs, kind="stable")
        self._costs = costs[order]
        kept = int(np.searchsorted(self._costs, self.bound, side="right"))
        if kept > self._k + _MOST_ALIKE:
            kept = self._k + _MOST_ALIKE
            self.left_out = min(self.left_out, float(self._costs[kept]))
        self._costs = self._costs[:kept]
        self._paths = [paths[i] for i in order[:kept].tolist()]
        return self.bound

    @property
    def bound(self) -> float:
        """No fill above this can be among the k cheapest."""
        full = len(self._costs) >= self._k
        return float(self._costs[self._k - 1]) + self._slack if full else _ANY_COST

    def in_order(
        self, rescorer: Rescorer, certain: float, wanted: set[_Path] | None
    ) -> tuple[list[_Path], Floats]:
        """The k cheapest, as `likeliest_fills` says."""
        bits = self._costs.copy()
        if not len(bits):
            return [], bits
        close = np.diff(bits) <= self._slack
        alike = np.append(close, False) | np.append(False, close)
        if wanted is not None:
            at = [cost for cost, path in zip(bits, self._paths, strict=True) if path in wanted]
            near = (np.abs(bits - cost) <= self._slack for cost in at)
            alike &= np.logical_or.reduce([np.zeros(len(bits), dtype=bool), *near])
        again = np.flatnonzero(alike & (bits <= certain + self._slack))
        bits[again] = rescorer.bits([self._paths[i] for i in again.tolist()])
        order = np.argsort(bits, kind="stable")[: self._k]
        return [self._paths[i] for i in order.tolist()], bits[order]
