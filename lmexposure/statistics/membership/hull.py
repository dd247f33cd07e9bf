"""The concave hull of a ROC curve: what thresholds chosen by a coin could reach on these scores.

It lies above the ordinary curve, and above guessing without any signal: its corners are chosen on
the very scores it describes. It is no estimate and has no interval.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import SettingsError
from lmexposure.statistics._rows import column
from lmexposure.statistics.membership.roc import RocCurve

_WORTH_A_PASS = 0.1  # of the points; a pass over all that drops fewer costs more than it saves


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
        """The hull's TPR at a FPR in [0, 1].

        Raises:
            SettingsError: `fpr` out of range.
        """
        if not 0 <= fpr <= 1:
            raise SettingsError(f"fpr={fpr!r} must lie in [0, 1]")
        # Of the corners without a false positive the last is the highest.
        first = int(np.flatnonzero(self.false_positives == 0)[-1])
        x, y = self.false_positives[first:] / self.negatives, self.true_positives[first:]
        return float(np.interp(fpr, x, y / self.positives))

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "curve": "concave hull",
            "true_positives": self.true_positives.tolist(),
            "false_positives": self.false_positives.tolist(),
            "positives": self.positives,
            "negatives": self.negatives,
            "area": self.area,
        }


def concave_hull(curve: RocCurve) -> RocHull:
    """The smallest concave curve that nowhere lies below an ordinary ROC curve.

    Args:
        curve: what `roc_curve` gave.

    Source: Provost and Fawcett 2001, Robust classification for imprecise environments.

    >>> from lmexposure.statistics.membership.roc import roc_curve
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
