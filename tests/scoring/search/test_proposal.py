import itertools
import math
from typing import Any

import numpy as np
import pytest
from slow_search import SMALL, listed, steps_of

from lmexposure.scoring.search.proposal import Top, deeper, expand_top

REACH = [0.1, 0.4, 0.6, 0.9]
APART = [name for name in SMALL if not name.startswith("nested")]


def top_of(name: str, most_nodes: int) -> tuple[Any, Any, Top]:
    model, _, space, _ = listed(name)
    steps = steps_of(model, space)
    before = steps.evaluated
    top = expand_top(space, steps, REACH, most_nodes=most_nodes)
    assert steps.evaluated - before <= max(1, most_nodes)
    return space, steps, top


@pytest.mark.parametrize("name", APART)
def test_no_h_is_less_than_what_its_children_add_up_to(name: str) -> None:
    """What the known-beforehand largest weight rests on, on every level, expanded before or not."""
    space, steps, top = top_of(name, 12)
    state, level = top.state, top.levels[-1]
    levels = list(top.levels)
    while len(level.inner):
        state, level = deeper(space, steps, state, level, level.inner, top.limits)
        levels.append(level)
    assert len(levels) == space.longest
    for above, below in itertools.pairwise(levels):
        parents = above.bounds[above.inner]
        np.testing.assert_array_less(below.totals, parents + 1e-5)
        sums = np.zeros(parents.shape)
        np.add.at(sums, below.children.rows, np.exp2(below.conditional))
        np.testing.assert_allclose(sums, 1)
    for level in levels:
        counts = [space.count(int(state)) for state in level.children.states]
        np.testing.assert_allclose(level.log2_child_fills, np.log2(counts), atol=1e-9)
        np.testing.assert_allclose(level.bounds[:, -1], np.log2(counts), atol=1e-9)
        assert (level.bounds <= top.limits - level.costs[:, None] + 1e-5).all()


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("most_nodes", [1, 5, 12, 40, 10**6])
def test_limits_reach_as_far_as_asked(name: str, most_nodes: int) -> None:
    space, _, top = top_of(name, most_nodes)
    whole = math.log2(space.size)
    assert (np.diff(top.limits) >= 0).all()
    assert (top.limits[0], top.limits[-1]) == (0, math.inf)
    assert (top.log2_totals <= np.minimum(top.limits, whole) + 1e-6).all()
    for reach, limit, total in zip(REACH, top.limits[1:-1], top.log2_totals[1:-1], strict=True):
        assert total == pytest.approx(reach * whole, abs=1e-6) or limit < 1e-6
    assert top.log2_totals[-1] == pytest.approx(whole)
    if most_nodes == 1:
        assert len(top.levels) == 1
    if most_nodes == 10**6:  # all of it expanded: the total counts each fill by itself
        assert len(top.levels) == space.longest
        bits = listed(name)[3]
        exact = [np.minimum(1, np.exp2(np.minimum(t - bits, 0))).sum() for t in top.limits]
        np.testing.assert_allclose(np.exp2(top.log2_totals), exact, rtol=1e-3)


def test_the_further_it_was_expanded_the_smaller_the_total() -> None:
    """At one limit of all: the first component's, 0."""
    totals = [top_of("merged words", n)[2].log2_totals[0] for n in (1, 5, 12, 40, 10**6)]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0] - 1


def test_a_pick_follows_the_conditional_to_its_edges() -> None:
    _, _, top = top_of("merged words", 10**6)
    level = top.levels[1]
    for j in range(len(top.limits)):
        for node in range(len(level.nodes)):
            mine = np.flatnonzero(level.children.rows == node)
            heaped = np.cumsum(np.exp2(level.conditional[mine, j]))
            edges = np.concatenate([[0.0], heaped])
            for k, child in enumerate(mine):
                for u in (edges[k] + 1e-9, (edges[k] + edges[k + 1]) / 2, edges[k + 1] - 1e-9):
                    found = level.pick(np.array([node]), np.array([j]), np.array([u]))
                    assert found.tolist() == [child]
            last = level.pick(np.array([node]), np.array([j]), np.array([np.nextafter(1, 0)]))
            assert last.tolist() == [mine[-1]]
