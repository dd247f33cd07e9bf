"""A token tree level by level through the model's own states, for models that cannot be packed.

All nodes at one depth are one batch of next-token steps, each on its parent's state.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.scoring.readout import Readout
from lmexposure.scoring.steps import Steps
from lmexposure.scoring.tree import TokenTree

Ints = NDArray[np.int64]


class LevelForward:
    """Bits of a tree's nodes by next-token steps.

    Args:
        model: a causal language model in evaluation mode.
        readout: from its hidden states to bits, for the prefix's own tokens.
        steps: trusted next-token steps of this model.
        prefix: the tokens that stand before every node, at least one.
    """

    def __init__(self, model: Any, readout: Readout, steps: Steps, prefix: list[int]) -> None:
        self._model, self._readout, self._steps, self._prefix = model, readout, steps, prefix

    def prefix_bits(self) -> NDArray[np.float64]:
        """Bits of the prefix's own tokens, shape (P,); NaN for the first."""
        ids = torch.tensor([self._prefix], device=self._model.device)
        hidden, _ = self._readout.hidden(input_ids=ids)
        return self._readout.sequence_bits(hidden[0], self._prefix)

    def node_bits(self, tree: TokenTree) -> NDArray[np.float64]:
        """Bits of every wanted node, shape (K,); of the others NaN."""
        bits = np.full(len(tree.tokens), np.nan)
        places = np.full(len(tree.tokens), -1)  # of each node among those of its depth
        rows, children = self._wanted(tree, np.array([-1]), places)
        state, bits[children] = self._steps.start(self._prefix, tree.tokens[children])
        for level in _levels(tree):
            above = np.maximum(places[tree.parents[level]], 0)
            above[tree.parents[level] < 0] = 0
            places[level] = np.arange(len(level))
            rows, children = self._wanted(tree, level, places)
            state, bits[children] = self._steps.advance(
                state, above, tree.tokens[level], rows, tree.tokens[children]
            )
        return bits

    def _wanted(self, tree: TokenTree, level: Ints, places: Ints) -> tuple[Ints, Ints]:
        """The wanted nodes right below a level, and the place of each one's parent in it."""
        depth = len(self._prefix) if level[0] < 0 else int(tree.depths[level[0]]) + 1
        children = np.flatnonzero(tree.wanted & (tree.depths == depth))
        return places[tree.parents[children]], children


def _levels(tree: TokenTree) -> list[Ints]:
    """The nodes to feed, those of one depth together, from the top."""
    depths = tree.depths[tree.fed]
    return [tree.fed[depths == depth] for depth in np.unique(depths)]
