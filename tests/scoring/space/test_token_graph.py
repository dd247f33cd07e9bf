import numpy as np

from lmexposure.scoring.space.token_graph import ListedGraph


def test_dead_ends_are_left_out_and_equal_states_merged() -> None:
    #      0 -5-> 1 -7-> 3 (end)    2 -7-> 4 (end)    0 -9-> 5 (dead)
    moves: list[dict[int, int]] = [{6: 2, 5: 1, 9: 5}, {7: 3}, {7: 4, 8: 5}, {}, {}, {}]
    graph = ListedGraph(moves, [False, False, False, True, True, False], 0)
    assert (graph.count(graph.root), graph.longest(graph.root)) == (2, 2)
    tokens, states, shares, ends, leaf = graph.edges(graph.root)
    assert tokens.tolist() == [5, 6]
    assert states[0] == states[1] != graph.root
    np.testing.assert_array_equal(shares, [0.5, 0.5])
    assert not ends.any()
    assert not leaf.any()
    assert graph.step(graph.root, 5) == states[0]
    assert graph.step(graph.root, 9) is None
    _, _, _, ends, leaf = graph.edges(int(states[0]))
    assert (ends.tolist(), leaf.tolist()) == ([True], [True])


def test_a_state_can_be_complete_and_go_on() -> None:
    graph = ListedGraph([{1: 1}, {2: 2}, {}], [False, True, True], 0)
    assert graph.count(graph.root) == 2
    middle = graph.step(graph.root, 1)
    assert middle is not None
    assert graph.complete(middle)
    assert graph.edges(middle)[2].tolist() == [0.5]
    _, _, _, ends, leaf = graph.edges(graph.root)
    assert (ends.tolist(), leaf.tolist()) == ([True], [False])


def test_a_graph_without_fills_counts_none() -> None:
    graph = ListedGraph([{1: 1}, {}], [False, False], 0)
    assert (graph.count(graph.root), len(graph.edges(graph.root)[0])) == (0, 0)
