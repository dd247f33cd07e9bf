import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.models import Encoded
from lmexposure.scoring.tree import SortedTexts


def _texts(rows: list[list[int]], start: int = 1) -> list[Encoded]:
    return [Encoded(ids=row, scored_from=start) for row in rows]


ROWS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=6), min_size=1, max_size=12)


@settings(max_examples=200)
@given(ROWS, st.data())
def test_each_text_is_one_path_of_a_tree_without_twins(
    rows: list[list[int]], data: st.DataObject
) -> None:
    encoded = [
        Encoded(ids=row, scored_from=data.draw(st.integers(1, len(row) - 1))) for row in rows
    ]
    texts = SortedTexts(encoded)
    tree = texts.tree(0, len(texts))
    P = len(tree.prefix)
    assert min(map(len, rows)) > P
    for place, path in enumerate(tree.paths):
        nodes = path[path >= 0]
        ids = encoded[texts.order[place]].ids
        assert [*tree.prefix, *tree.tokens[nodes]] == ids
        np.testing.assert_array_equal(tree.parents[nodes], [-1, *nodes[:-1]][: len(nodes)])
        np.testing.assert_array_equal(tree.depths[nodes], P + np.arange(len(nodes)))
    # One node for each different beginning behind the prefix, and each wanted by its texts alone.
    beginnings = {tuple(row[: end + 1]) for row in rows for end in range(P, len(row))}
    assert len(tree.tokens) == len(beginnings)
    inner = {tuple(row[: end + 1]) for row in rows for end in range(P, len(row) - 1)}
    assert len(tree.fed) == texts.fed.sum() == len(inner)
    wanted = {
        tuple(e.ids[: end + 1]) for e in encoded for end in range(max(P, e.scored_from), len(e.ids))
    }
    assert tree.wanted.sum() == len(wanted)


@settings(max_examples=100)
@given(ROWS)
def test_what_stands_below_a_node_follows_it_without_a_gap(rows: list[list[int]]) -> None:
    tree = SortedTexts(_texts(rows)).tree(0, len(rows))
    below = [[node] for node in range(len(tree.tokens))]
    for node in range(len(tree.tokens) - 1, -1, -1):
        if tree.parents[node] >= 0:
            below[tree.parents[node]] += below[node]
    for node, nodes in enumerate(below):
        assert sorted(nodes) == list(range(node, tree.ends[node]))


def test_parts_of_the_texts_have_trees_of_their_own() -> None:
    rng = random.Random(0)
    rows = [[9, 8, *rng.choices(range(3), k=rng.randrange(1, 6))] for _ in range(100)]
    encoded = _texts(rows, start=2)
    texts = SortedTexts(encoded)
    assert texts.prefix[:2] == [9, 8]
    for first, last in [(0, 40), (40, 41), (41, 100)]:
        tree = texts.tree(first, last)
        node_bits = np.where(tree.wanted, tree.tokens + 10.0 * tree.depths, np.nan)
        bits = tree.text_bits(node_bits, np.array([np.nan, 18.0]))
        for place, found in zip(range(first, last), bits, strict=True):
            ids = encoded[texts.order[place]].ids
            assert found.tolist() == [t + 10.0 * i for i, t in enumerate(ids)][2:]


def test_bits_of_the_prefix_are_those_of_every_text() -> None:
    texts = SortedTexts([Encoded(ids=[5, 6, 7, i], scored_from=1 + i % 3) for i in range(3)])
    tree = texts.tree(0, 3)
    bits = tree.text_bits(np.array([1.0, 2.0, 3.0]), np.array([np.nan, 10.0, 20.0]))
    assert [b.tolist() for b in bits] == [[10.0, 20.0, 1.0], [20.0, 2.0], [3.0]]


def test_the_longest_text_is_among_those_to_probe() -> None:
    rows = [[1, 2, i, *range(i % 7)] for i in range(50)]
    texts = SortedTexts(_texts(rows))
    assert len(texts.longest()) == 9
    places = texts.probe(least=5, nodes=20)
    assert any(len(rows[texts.order[place]]) == 9 for place in places)
    assert len(places) >= 5
    assert texts.fed[places.start : places.stop].sum() >= 20
    assert texts.probe(least=5, nodes=10**9).stop == 50


@pytest.mark.parametrize("vocabulary", [100, 100_000])
def test_a_large_vocabulary_is_sorted_as_a_small_one_is(vocabulary: int) -> None:
    rng = random.Random(1)
    rows = [[0, rng.randrange(vocabulary), rng.randrange(3)] for _ in range(200)]
    order = SortedTexts(_texts(rows)).order
    assert [rows[i] for i in order] == sorted(rows)
