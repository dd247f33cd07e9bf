"""Distances of growing texts to a fixed one, a row of the distance table each.

A row is what has to be known of a beginning to go on: of Hamming's distance the number of
differences, of Levenshtein's the distances to the beginnings of the target that can still be
reached within d edits, 2 d + 1 of them. What can no longer come within d is seen at once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lmexposure.scoring.runtime import Bools, Ints

Rows = NDArray[np.int16]


class Distance(Protocol):
    """Distances to a target of S tokens, within d."""

    def begin(self) -> Rows:
        """The row of the empty text, shape (1, W)."""

    def children(self, rows: Rows, place: int) -> tuple[Ints, Rows, Bools]:
        """What one more token makes of some texts of `place` tokens."""


def distance_to(target: Sequence[int], most: int, metric: str) -> Distance:
    """The distance that goes by this name."""
    return _KINDS[metric](target, most)


class Hamming:
    """Differences place by place."""

    def __init__(self, target: Sequence[int], most: int) -> None:
        self._target, self._most = list(target), most

    def begin(self) -> Rows:
        """See `Distance`."""
        return np.zeros((1, 1), dtype=np.int16)

    def children(self, rows: Rows, place: int) -> tuple[Ints, Rows, Bools]:
        """See `Distance`."""
        behind = np.stack([rows, rows + 1], axis=1).astype(np.int16)
        return np.array([self._target[place]]), behind, behind[:, :, 0] <= self._most


class Levenshtein:
    """Fewest insertions, deletions and exchanges; the rows of Wagner and Fischer 1974, banded."""

    def __init__(self, target: Sequence[int], most: int) -> None:
        self._target, self._most = np.array(target, dtype=np.int64), most
        self._shift = np.arange(-most, most + 1)  # of the target's beginning against the text's

    def begin(self) -> Rows:
        """See `Distance`."""
        return self._capped(np.abs(self._shift)[None], self._shift)

    def children(self, rows: Rows, place: int) -> tuple[Ints, Rows, Bools]:
        """See `Distance`."""
        ends = place + 1 + self._shift  # of the beginnings, in tokens
        inside = (ends >= 1) & (ends <= len(self._target))
        spelled = np.where(inside, self._target[np.clip(ends - 1, 0, len(self._target) - 1)], -1)
        tokens = np.unique(spelled[inside])
        differs = np.ones((len(tokens) + 1, len(ends)), dtype=np.int16)
        differs[:-1] = spelled[None] != tokens[:, None]
        behind = rows[:, None, :] + differs[None]  # exchanged, or the same
        skipped = np.full_like(rows, self._most + 1)
        skipped[:, :-1] = rows[:, 1:] + 1  # the new token is one too many
        behind = np.minimum(behind, skipped[:, None, :])
        behind[..., ends < 0] = self._most + 1
        behind[..., ends == 0] = np.minimum(behind[..., ends == 0], place + 1)
        for k in range(1, len(ends)):  # a token of the target is left out
            behind[..., k] = np.minimum(behind[..., k], behind[..., k - 1] + 1)
        behind = self._capped(behind, ends)
        alive = (behind + np.abs(self._shift)).min(-1) <= self._most
        return tokens, behind, alive

    def _capped(self, rows: NDArray[np.integer], ends: Ints) -> Rows:
        """Beginnings that the target does not have, and what is beyond d, are as good as lost."""
        out = (ends < 0) | (ends > len(self._target))
        return np.where(out, self._most + 1, np.minimum(rows, self._most + 1)).astype(np.int16)


_KINDS: dict[str, Callable[[Sequence[int], int], Distance]] = {
    "levenshtein": Levenshtein,
    "hamming": Hamming,
}
METRICS = tuple(_KINDS)
