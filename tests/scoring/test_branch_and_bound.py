import math
import time
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
from faulty_steps import Cramped, NanBehind, Watched
from numpy.typing import NDArray
from slow_search import PIN, SMALL, biased, listed, paths_of, steps_of

from lmexposure.canaries import Format
from lmexposure.errors import ModelError, NumericalError, SettingsError
from lmexposure.scoring import BranchAndBound, Budget, Leaves, Steps, TokenSpace, branch_and_bound

_sum_of_powers = branch_and_bound._sum_of_powers


class Seen:
    """The fills that a walk has visited, with their costs."""

    def __init__(self) -> None:
        self.costs: dict[tuple[int, ...], float] = {}

    def __call__(self, leaves: Leaves) -> None:
        paths = map(tuple, leaves.paths(np.arange(len(leaves.costs))).tolist())
        for path, cost in zip(paths, leaves.costs.tolist(), strict=True):
            assert path not in self.costs  # each fill is met once
            self.costs[path] = cost


def prepared(name: str) -> tuple[Steps, TokenSpace, dict[tuple[int, ...], float]]:
    """Steps, space, and the true bits of every path."""
    model, _, space, bits = listed(name)
    return steps_of(model, space), space, {p: bits[i] for p, i in paths_of(space).items()}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("batch", "spare"), [(4096, None), (3, 7), (4096, 0)])
def test_exactly_the_fills_within_the_limit_are_visited(
    name: str, batch: int, spare: int | None
) -> None:
    steps, space, truth = prepared(name)
    live = None if spare is None else space.longest + 1 + spare
    for quantile in (0.0, 0.2, 1.0):
        # Between two fills' bits, so that rounding decides nothing.
        ordered = np.sort([*truth.values(), math.inf])
        k = min(int(quantile * len(truth)), len(truth) - 1)
        while ordered[k + 1] - ordered[k] < 1e-3:
            k += 1
        limit = min((ordered[k] + ordered[k + 1]) / 2, 1e6)
        seen = Seen()
        walk = walk_of(space, steps, limit=limit, visit=seen, batch=batch, live_states=live)
        assert (walk.finished, walk.run()) == (False, True)
        assert walk.finished
        assert set(seen.costs) == {path for path, bits in truth.items() if bits <= limit}
        assert all(abs(cost - truth[path]) < 1e-3 for path, cost in seen.costs.items())
        assert walk.open_fills(np.array([limit])) == [0]
        assert walk.cheapest_open() == math.inf
        if live is not None:
            assert walk.most_live <= live


def test_a_fill_right_at_the_limit_is_within() -> None:
    steps, space, _ = prepared("digits")
    seen = Seen()
    walk_of(space, steps, visit=seen).run()
    for limit in sorted(seen.costs.values())[::9]:
        again = Seen()
        walk_of(space, steps, visit=again, limit=limit).run()
        assert again.costs == {p: cost for p, cost in seen.costs.items() if cost <= limit}


def inner_prefixes(space: TokenSpace) -> set[tuple[int, ...]]:
    """Every beginning that some fill goes on from: what a full walk has to compute."""
    return {path[:n] for path in paths_of(space) for n in range(len(path))}


@pytest.mark.parametrize("name", SMALL)
def test_a_node_is_computed_once_and_a_leaf_never(name: str) -> None:
    steps, space, _ = prepared(name)
    before = steps.evaluated
    walk = walk_of(space, steps)
    walk.run()
    assert walk.spent == steps.evaluated - before == len(inner_prefixes(space))


@pytest.mark.parametrize("name", ["digits", "nested"])
def test_live_states_are_counted_as_they_are(name: str) -> None:
    steps, space, _ = prepared(name)
    for live in range(space.longest + 1, space.longest + 30, 7):
        watched = Watched(steps)
        walk = walk_of(space, watched, live_states=live)
        walk.run()
        assert 1 <= watched.most <= walk.most_live <= live


def test_too_few_live_states_are_refused() -> None:
    steps, space, _ = prepared("check digit")
    for live in (space.longest, 0, -1):
        with pytest.raises(SettingsError, match=f"live_states={live} must be .* at least 5"):
            walk_of(space, steps, live_states=live)
    with pytest.raises(SettingsError, match="batch=0"):
        walk_of(space, steps, batch=0)


def walk_of(space: TokenSpace, steps: Any, **given: Any) -> BranchAndBound:
    settings: dict[str, Any] = {"limit": math.inf, "visit": Seen(), "budget": Budget()} | given
    return BranchAndBound(space, steps, **settings)


@pytest.mark.parametrize("given", [{"steps": 0}, {"steps": -3}, {"seconds": 0}, {"seconds": -1.0}])
def test_a_budget_that_allows_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"budget: .* leave the exact search out"):
        Budget(**given)
    assert Budget(steps=1, seconds=0.1).steps == 1


@pytest.mark.parametrize("name", SMALL)
def test_wherever_the_budget_ends_nothing_is_lost(name: str) -> None:
    """Visited and open together bound the fills within each limit, at every single step."""
    steps, space, truth = prepared(name)
    full = len(inner_prefixes(space))
    everything = np.array(sorted(truth.values()))
    limits = np.quantile(everything, [0.0, 0.01, 0.1, 0.3, 0.6, 1.0]) + 1e-3
    for budget in {*range(1, 13), *range(13, full, max(1, full // 6)), full}:
        seen = Seen()
        walk = walk_of(space, steps, visit=seen, budget=Budget(steps=budget), batch=7)
        finished = walk.run()
        assert walk.spent <= budget
        assert finished == (budget >= full)
        costs = np.array([*seen.costs.values()])
        for limit, still in zip(limits.tolist(), walk.open_fills(limits), strict=True):
            missing = int((everything <= limit - 1e-3).sum()) - int((costs <= limit).sum())
            assert isinstance(still, int)
            assert missing <= still <= space.size
        unseen = [bits for path, bits in truth.items() if path not in seen.costs]
        assert walk.cheapest_open() <= min(unseen, default=math.inf) + 1e-3


def test_a_walk_goes_on_where_its_budget_ended() -> None:
    steps, space, truth = prepared("check digit")
    walk = walk_of(space, steps, budget=Budget(steps=1))
    assert walk.open_fills(np.array([99.0, 1.0])) == [space.size] * 2  # not begun
    assert walk.cheapest_open() == 0
    assert not walk.run()
    assert not walk.run()  # no step is left
    assert walk.spent == 1
    walk._budget = Budget()
    assert walk.run()
    assert set(walk._visit.costs) == set(truth)  # type: ignore[attr-defined]


def test_seconds_end_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, space, _ = prepared("check digit")
    clock = iter(np.arange(0.0, 1e4, 1.0))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    walk = walk_of(space, steps, budget=Budget(seconds=5.0), batch=3)
    assert not walk.run()  # at second 0 it begins, at seconds 1 to 4 it goes on
    assert 1 < walk.spent <= 1 + 4 * 3
    assert 0 < walk.open_fills(np.array([1e6]))[0] <= space.size


@pytest.mark.parametrize("message", ["CUDA out of memory.", "can't allocate memory: 8 bytes"])
def test_memory_short_halves_the_batch_and_goes_on(message: str) -> None:
    steps, space, truth = prepared("check digit")
    for most in (1, 2, 5, 33):
        cramped = Cramped(steps, most, message)
        walk = walk_of(space, cramped)
        assert walk.run()
        assert set(walk._visit.costs) == set(truth)  # type: ignore[attr-defined]
        assert 1 <= cramped.refused <= 12
        assert walk.spent == len(inner_prefixes(space))  # what failed is not counted


def test_no_memory_for_a_single_node_and_other_failures() -> None:
    steps, space, _ = prepared("check digit")
    with pytest.raises(ModelError, match="out of memory with one state at a time"):
        walk_of(space, Cramped(steps, 0)).run()
    with pytest.raises(RuntimeError, match="wrong shape"):
        walk_of(space, Cramped(steps, 0, "wrong shape")).run()


def test_nan_in_one_branch_ends_the_walk() -> None:
    steps, space, truth = prepared("check digit")
    broken = NanBehind(steps, next(iter(truth))[0])
    with pytest.raises(NumericalError, match="NaN 1 tokens into the secrets"):
        walk_of(space, broken).run()


def test_a_branch_without_probability_is_left_out() -> None:
    model, space = biased(PIN, {"7": -math.inf})
    dead = space.path(37)[1]
    seen = Seen()
    walk = walk_of(space, steps_of(model, space), limit=1e6, visit=seen)
    assert walk.run()
    assert set(seen.costs) == {path for path in paths_of(space) if dead not in path}


def nested_format() -> Format:
    """A hundred fills, each of which begins the next one."""
    entries = ["1" * n for n in range(1, 101)]
    return Format(name="ones", template="My PIN is {choice:w}", lists={"w": entries})


def test_fills_that_begin_one_another_are_no_disjoint_events() -> None:
    """A model that is sure of its next "1" gives all of them about no bits at all."""
    model, space = biased(nested_format(), {"1": 60.0})
    steps = steps_of(model, space)
    for budget in (1, 2, 50, 99):
        seen = Seen()
        walk = walk_of(space, steps, visit=seen, budget=Budget(steps=budget))
        walk.run()
        assert len(seen.costs) == budget
        assert walk.open_fills(np.array([0.5]))[0] >= 100 - budget


HUGE = Format(name="huge", template="My PIN is {digits:40}")


def test_bounds_of_a_huge_space_are_exact_integers() -> None:
    model, space = biased(HUGE)
    walk = walk_of(space, steps_of(model, space), budget=Budget(steps=30), limit=1e4)
    walk.run()
    nothing, little, half, all_of_it = walk.open_fills(np.array([-1.0, 20.0, 120.0, 1e4]))
    assert nothing == 0
    assert 0 < little <= 1 << 20
    assert 1 << 52 < half <= (1 << 120) + (1 << 80)
    assert isinstance(half, int)
    # None of the 10^40 has been visited, so all are open, to the last one.
    assert all_of_it == 10**40
    sums = [sum(space.count(int(s)) for s in e.nodes.states) for e in walk._stack]
    assert sum(sums) == 10**40


def exact_sum(exponents: NDArray[np.float64]) -> int:
    getcontext().prec = 120
    total = sum((Decimal(2) ** Decimal(float(x)) for x in exponents), Decimal(0))
    return int(total.to_integral_value(rounding="ROUND_CEILING"))


@pytest.mark.parametrize("largest", [0.0, 0.5, 3.0, 30.0, 51.5, 52.0, 53.5, 100.0, 200.25])
@pytest.mark.parametrize("n", [1, 2, 100])
def test_a_sum_of_powers_is_rounded_up_and_hardly(largest: float, n: int) -> None:
    for seed in range(3):
        exponents = np.random.default_rng(seed).uniform(0, largest, n)
        exponents[0] = largest
        found, truth = _sum_of_powers(exponents), exact_sum(exponents)
        assert isinstance(found, int)
        assert truth <= found <= math.ceil(Decimal(truth) * (1 + Decimal("2.1e-9"))) + 1


def test_a_sum_of_whole_powers() -> None:
    assert _sum_of_powers(np.empty(0)) == 0
    assert _sum_of_powers(np.zeros(1)) in (1, 2)
    for exponents in ([3, 5, 5], [60, 0], [5000, 4999], [13000]):
        truth = sum(1 << x for x in exponents)
        found = _sum_of_powers(np.array(exponents, dtype=float))
        assert 0 <= found - truth <= max(1, truth * 3 // 10**9)
