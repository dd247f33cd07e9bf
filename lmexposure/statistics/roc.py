"""The ROC curve as counts, and its concave hull.

The hull is what thresholds chosen by a coin could reach on these scores. It lies above the ordinary
curve, and above guessing without any signal: its corners are chosen on the very scores it
describes. It is no estimate and has no interval.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array
from lmexposure.errors import SettingsError
from lmexposure.statistics._rows import column

_WORTH_A_PASS = 0.1  # of the points; a pass over all that drops fewer costs more than it saves


@dataclass(frozen=True, kw_only=True, eq=False)
class RocCurve:
    """The ordinary ROC curve: every threshold that makes a difference, and what it costs."""

    # each different score once, ascending, then infinity; a canary is guessed in where its score is
    # at least the threshold. Shape (K,).
    thresholds: NDArray[np.float64]
    # canaries that were in and are guessed in, shape (K,), descending
    true_positives: NDArray[np.int64]
    # canaries that were out and are guessed in, shape (K,), descending
    false_positives: NDArray[np.int64]
    positives: int  # canaries that were in
    negatives: int  # canaries that were out

    @property
    def true_negatives(self) -> NDArray[np.int64]:
        """Canaries that were out and are guessed out, shape (K,)."""
        return self.negatives - self.false_positives

    @property
    def false_negatives(self) -> NDArray[np.int64]:
        """Canaries that were in and are guessed out, shape (K,)."""
        return self.positives - self.true_positives

    @property
    def tpr(self) -> NDArray[np.float64]:
        """Share of those in that are guessed in, in [0, 1], shape (K,)."""
        return self.true_positives / self.positives

    @property
    def fpr(self) -> NDArray[np.float64]:
        """Share of those out that are guessed in, in [0, 1], shape (K,)."""
        return self.false_positives / self.negatives

    @property
    def area(self) -> float:
        """Area under this curve in [0, 1], ties as half; 0.5 = guessing, higher = more leaks."""
        steps = self.false_positives[:-1] - self.false_positives[1:]
        heights = self.true_positives[:-1] + self.true_positives[1:]
        return float((steps * heights).sum()) / (2 * self.positives * self.negatives)

    @property
    def advantage(self) -> float:
        """Largest TPR - FPR in [0, 1]; its threshold is chosen on these very scores."""
        return float((self.tpr - self.fpr).max())


def roc_curve(in_scores: ArrayLike, out_scores: ArrayLike) -> RocCurve:
    """The ordinary ROC curve of a score that should tell canaries that were in from others.

    Source: Fawcett 2006, An introduction to ROC analysis, algorithm 1.

    >>> roc_curve([0, 4, 6, 7], [1, 2, 3, 5]).area
    0.6875
    """
    inside = np.sort(bits_array("in_scores", in_scores))
    outside = np.sort(bits_array("out_scores", out_scores))
    thresholds = np.append(np.unique(np.concatenate([inside, outside])), np.inf)
    return RocCurve(
        thresholds=column(thresholds, np.float64),
        true_positives=column(inside.size - np.searchsorted(inside, thresholds), np.int64),
        false_positives=column(outside.size - np.searchsorted(outside, thresholds), np.int64),
        positives=inside.size,
        negatives=outside.size,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RocHull:
    """Corners of the hull, from (0, 0) to (positives, negatives), shape (K,)."""

    true_positives: NDArray[np.int64]
    false_positives: NDArray[np.int64]
    positives: int
    negatives: int

    @property
    def area(self) -> float:
        """Area under the hull in [0.5, 1]; optimistic, since it follows the noise upwards."""
        steps = np.diff(self.false_positives)
        heights = self.true_positives[:-1] + self.true_positives[1:]
        return float((steps * heights).sum()) / (2 * self.positives * self.negatives)

    def tpr_at(self, fpr: float) -> float:
        """The hull's TPR at a FPR in [0, 1]."""
        if not 0 <= fpr <= 1:
            raise SettingsError(f"fpr={fpr!r} must lie in [0, 1]")
        # Of the corners without a false positive the last is the highest.
        first = int(np.flatnonzero(self.false_positives == 0)[-1])
        x, y = self.false_positives[first:] / self.negatives, self.true_positives[first:]
        return float(np.interp(fpr, x, y / self.positives))


def concave_hull(curve: RocCurve) -> RocHull:
    """The smallest concave curve that nowhere lies below an ordinary ROC curve.

    Source: Provost and Fawcett 2001, Robust classification for imprecise environments.

    >>> from lmexposure.statistics.roc import roc_curve
    >>> concave_hull(roc_curve([0, 4, 6, 7], [1, 2, 3, 5])).area
    0.8125
    """
    points = np.stack([curve.false_positives[::-1], curve.true_positives[::-1]])  # (2, K)
    corners = _chain(_thinned(points))
    return RocHull(
        true_positives=column(corners[1], np.int64),
        false_positives=column(corners[0], np.int64),
        positives=curve.positives,
        negatives=curve.negatives,
    )


def _thinned(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop points on or below the line between their neighbours: none of them is a corner."""
    while points.shape[1] > 2:
        (dx, dy) = np.diff(points, axis=1)
        turns = dx[:-1] * dy[1:] - dy[:-1] * dx[1:]  # below 0 = to the right = a corner so far
        keep = np.concatenate([[True], turns < 0, [True]])
        if keep.mean() > 1 - _WORTH_A_PASS:
            break
        points = points[:, keep]
    return points


def _chain(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Andrew's monotone chain over points in ascending order: the corners, (2, K)."""
    corners: list[tuple[int, int]] = []
    for x, y in points.T.tolist():
        while len(corners) > 1:
            (x0, y0), (x1, y1) = corners[-2:]
            if (x1 - x0) * (y - y1) < (y1 - y0) * (x - x1):
                break
            corners.pop()
        corners.append((x, y))
    return np.array(corners, dtype=np.int64).T
