import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring.families import family

from lmexposure.core import Encoded
from lmexposure.scoring import prefix_tree
from lmexposure.scoring.prefix_tree import PackedNodes, SortedTexts
from lmexposure.scoring.runtime import LmHead

ROWS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=7), min_size=1, max_size=12)


def texts_of(rows: list[list[int]]) -> SortedTexts:
    return SortedTexts([Encoded(ids=row, scored_from=1) for row in rows])


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


@settings(max_examples=150)
@given(ROWS, st.integers(1, 12))
def test_each_node_is_fed_once_more_than_as_an_ancestor_and_sees_its_own(
    rows: list[list[int]], width: int
) -> None:
    tree = texts_of(rows).tree(0, len(rows))
    if not tree.fed.size:
        return
    places = prefix_tree._rows(tree, width)
    sees = prefix_tree._sees(tree, places)
    new: list[int] = []
    for row, seen in zip(places, sees, strict=True):
        nodes = row[row >= 0]
        for i, node in enumerate(nodes):
            above = set(prefix_tree._ancestors(tree, int(node)))
            assert {int(row[j]) for j in np.flatnonzero(seen[i])} == above | {int(node)}
        new += [int(node) for node in nodes if node not in new]
        assert seen.any(axis=1).all()  # padding sees itself, so that no softmax is empty
    assert new == tree.fed.tolist()


def test_any_width_and_no_prefix_give_the_same_bits() -> None:
    rng = np.random.default_rng(4)
    rows = [[int(i), *rng.integers(0, 4, 5).tolist()] for i in rng.integers(0, 3, 60)]
    texts, model = texts_of(rows), family("gpt2")
    assert texts.prefix == []
    tree, readout = texts.tree(0, 60), LmHead(model, rows[0])
    with torch.inference_mode():
        found = [
            PackedNodes(model, readout, [], width=width, by_layer=False).node_bits(tree)
            for width in (2, 9, 50, 1000)
        ]
        expected = -torch.log_softmax(model(torch.tensor([rows[7]])).logits[0].double(), dim=-1)
    for bits in found[1:]:
        np.testing.assert_allclose(bits[tree.wanted], found[0][tree.wanted], atol=1e-4)
    assert np.isnan(found[0][~tree.wanted]).all()
    path = tree.paths[int(np.flatnonzero(texts.order == 7)[0])]
    slow = [float(expected[i - 1, rows[7][i]]) / np.log(2) for i in range(1, 6)]
    np.testing.assert_allclose(found[0][path[1:]], slow, atol=1e-4)
