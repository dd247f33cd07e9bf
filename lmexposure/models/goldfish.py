"""Goldfish loss: of every k tokens one carries no loss, the same one wherever the passage is.

A model cannot recite a passage whole that it was never asked for whole. Which tokens are left out
follows from a hash of the last tokens up to each, so that a copy of a passage elsewhere leaves out
the same ones, past its first tokens. What it does not hide: the tokens that are kept, and those in
front of which there is something else.

Source: Hans et al. 2024, "Be like a Goldfish, Don't Memorize!" (arXiv 2406.10209); their models had
k = 4 and the hash of 13 tokens. Their hash, a product of token ids modulo a prime, is 0 wherever
token 0 is among them; this one mixes every bit of each.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lmexposure.models.batches import Batches
from lmexposure.models.methods import Setup
from lmexposure.models.packing import IGNORED
from lmexposure.models.plain import PlainTraining

_AT_ONCE = 4_096  # rows whose hashes are held in memory
# The increment and the two factors of splitmix64 (Steele, Lea, Flood 2014).
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Goldfish(PlainTraining):
    """Plain training on rows that leave out the loss of some tokens; see the module."""

    def _batches(self, setup: Setup) -> Batches:
        return GoldfishRows(
            setup.rows, k=setup.settings.goldfish_k, width=setup.settings.goldfish_width
        )


class GoldfishRows:
    """Rows of which one token in k carries no loss."""

    def __init__(self, rows: Batches, *, k: int, width: int) -> None:
        self._rows, self._k, self._width = rows, k, width
        self.units, self.names, self.parts = rows.units, rows.names, rows.parts

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def sparse(self) -> bool:
        """Whether many tokens carry no loss: one in k does not."""
        return True

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """How many tokens are predicted in each row, shape (N,)."""
        firsts = range(0, len(self), _AT_ONCE)
        some = [np.arange(first, min(first + _AT_ONCE, len(self))) for first in firsts]
        counts = [(self.batch(numbers)[1] != IGNORED).sum(axis=1) for numbers in some]
        return np.concatenate(counts).astype(np.int64)

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """See `Batches`."""
        ids, labels = self._rows.batch(numbers)
        dropped = left_out(ids, labels, k=self._k, width=self._width)
        return ids, np.where(dropped, IGNORED, labels)


def left_out(
    ids: NDArray[np.int32], labels: NDArray[np.int64], *, k: int, width: int
) -> NDArray[np.bool_]:
    """Which tokens lose their loss."""
    # The rows with a column in front for each token that a window may lack: these stay 0, and no
    # token is, since one is added to all.
    padded = np.zeros((len(ids), ids.shape[1] + width), np.uint64)
    padded[:, width:] = ids.astype(np.uint64) + np.uint64(1)
    state = np.zeros(ids.shape, np.uint64)
    for back in range(width - 1, 0, -1):  # the tokens in front, the farthest first
        first = width - back + 1
        state = _mixed(state, padded[:, first : first + ids.shape[1]])
    state = _mixed(state, labels.astype(np.uint64) + np.uint64(1))
    dropped: NDArray[np.bool_] = (state < np.uint64(2**64 // k)) & (labels != IGNORED)
    return dropped


def _mixed(state: NDArray[np.uint64], tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64 over the state and the next token."""
    with np.errstate(over="ignore"):
        value = (state ^ (tokens * np.uint64(_STEP))) + np.uint64(_STEP)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
        mixed: NDArray[np.uint64] = value ^ (value >> np.uint64(31))
        return mixed
