import numpy as np
import pytest
from slow_search import SMALL, listed

from lmexposure.scoring.search.frontier import Nodes, children_of


@pytest.mark.parametrize("name", SMALL)
def test_children_are_the_continuations_of_each_node_side_by_side(name: str) -> None:
    _, _, space, _ = listed(name)
    nodes, seen = Nodes.root(space), 0
    assert len(nodes) == 1
    while len(nodes):
        children = children_of(space, nodes.states)
        at = 0
        for row, state in enumerate(nodes.states):
            after = space.continuations(int(state))
            mine = slice(at, at + len(after.tokens))
            assert (children.rows[mine] == row).all()
            for column in ("tokens", "states", "shares", "ends", "leaf"):
                np.testing.assert_array_equal(
                    getattr(children, column)[mine], getattr(after, column)
                )
            at += len(after.tokens)
        assert at == len(children)
        seen += int(children.ends.sum())
        costs = nodes.costs[children.rows] + children.tokens / 8
        inner = np.flatnonzero(~children.leaf)
        grown = children.nodes(nodes, costs, inner)
        assert (grown.costs == costs[inner]).all()
        for path, cost, state in zip(grown.paths, grown.costs, grown.states, strict=True):
            assert space.states(path.tolist())[-1] == state
            assert cost == path.sum() / 8
        nodes = grown.select(np.arange(len(grown))[::-1])  # any order, equal states apart
    assert seen == space.size


def test_selecting_nodes() -> None:
    nodes = Nodes(
        costs=np.array([1.0, 2.0, 3.0]), states=np.arange(3), paths=np.arange(6).reshape(3, 2)
    )
    chosen = nodes.select(np.array([2, 0]))
    assert chosen.costs.tolist() == [3.0, 1.0]
    assert chosen.states.tolist() == [2, 0]
    assert chosen.paths.tolist() == [[4, 5], [0, 1]]
    assert len(nodes.select(slice(1, None))) == 2
