import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring.families import family

from lmexposure.models import Encoded
from lmexposure.scoring import packed
from lmexposure.scoring.packed import PackedForward
from lmexposure.scoring.readout import Readout
from lmexposure.scoring.tree import SortedTexts

ROWS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=7), min_size=2, max_size=12)


def _tree_of(rows: list[list[int]]) -> SortedTexts:
    return SortedTexts([Encoded(ids=row, scored_from=1) for row in rows])


@settings(max_examples=150)
@given(ROWS, st.integers(1, 12))
def test_each_node_is_fed_once_more_than_as_an_ancestor_and_sees_its_own(
    rows: list[list[int]], width: int
) -> None:
    tree = _tree_of(rows).tree(0, len(rows))
    if not tree.fed.size:
        return
    places = packed._rows(tree, width)
    sees = packed._sees(tree, places)
    new: list[int] = []
    for row, seen in zip(places, sees, strict=True):
        nodes = row[row >= 0]
        for i, node in enumerate(nodes):
            above = set(packed._ancestors(tree, int(node)))
            assert {int(row[j]) for j in np.flatnonzero(seen[i])} == above | {int(node)}
        new += [int(node) for node in nodes if node not in new]
        assert seen.any(axis=1).all()  # padding sees itself, so that no softmax is empty
    assert new == tree.fed.tolist()


def test_any_width_and_no_prefix_give_the_same_bits() -> None:
    rng = np.random.default_rng(4)
    rows = [[int(i), *rng.integers(0, 4, 5).tolist()] for i in rng.integers(0, 3, 60)]
    texts, model = _tree_of(rows), family("gpt2")
    assert texts.prefix == []
    tree, readout = texts.tree(0, 60), Readout(model, rows[0])
    with torch.inference_mode():
        found = [
            PackedForward(model, readout, [], width=width, by_layer=False).node_bits(tree)
            for width in (2, 9, 50, 1000)
        ]
        expected = -torch.log_softmax(model(torch.tensor([rows[7]])).logits[0].double(), dim=-1)
    for bits in found[1:]:
        np.testing.assert_allclose(bits[tree.wanted], found[0][tree.wanted], atol=1e-4)
    assert np.isnan(found[0][~tree.wanted]).all()
    path = tree.paths[int(np.flatnonzero(texts.order == 7)[0])]
    slow = [float(expected[i - 1, rows[7][i]]) / np.log(2) for i in range(1, 6)]
    np.testing.assert_allclose(found[0][path[1:]], slow, atol=1e-4)
