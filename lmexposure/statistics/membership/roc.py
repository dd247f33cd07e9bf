"""The ROC curve as counts: how many are guessed in at every threshold, ties kept together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array
from lmexposure.statistics._rows import column


@dataclass(frozen=True, kw_only=True, eq=False)
class RocCurve:
    """The ordinary ROC curve: every threshold that makes a difference, and what it costs.

    Attributes:
        thresholds: each different score once, ascending, then infinity; a canary is guessed in
            where its score is at least the threshold. Shape (K,).
        true_positives: canaries that were in and are guessed in, shape (K,), descending.
        false_positives: canaries that were out and are guessed in, shape (K,), descending.
        positives: canaries that were in.
        negatives: canaries that were out.
    """

    thresholds: NDArray[np.float64]
    true_positives: NDArray[np.int64]
    false_positives: NDArray[np.int64]
    positives: int
    negatives: int

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

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values; the last threshold, infinity, is None."""
        return {
            "curve": "ordinary",
            "thresholds": [*self.thresholds[:-1].tolist(), None],
            "true_positives": self.true_positives.tolist(),
            "false_positives": self.false_positives.tolist(),
            "positives": self.positives,
            "negatives": self.negatives,
            "area": self.area,
        }


def roc_curve(in_scores: ArrayLike, out_scores: ArrayLike) -> RocCurve:
    """The ordinary ROC curve of a score that should tell canaries that were in from others.

    Args:
        in_scores: of canaries that were in, one or shape (m,), finite; higher = more likely in.
        out_scores: of canaries that were out, one or shape (n,), finite.

    Returns:
        Counts at every threshold, O(m + n) numbers.

    Raises:
        InputError: no scores on one side, more than one dimension, a NaN or an infinity.

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
