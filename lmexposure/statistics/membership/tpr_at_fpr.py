"""TPR at a low FPR, with an interval that counts both samples, or the word that it cannot be told.

A threshold with a false-positive rate of f is not known, only estimated from the scores of those
that were out. An interval of the TPR at an estimated threshold alone is too narrow: at a FPR of
0.1 % and 2,000 negatives, the threshold rests on two scores.
"""

from bisect import bisect_left
from dataclasses import asdict, dataclass
from math import floor, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, fraction


@dataclass(frozen=True, kw_only=True)
class TprAtFpr:
    """The largest share of those in that a threshold finds at a FPR of at most `fpr`.

    Attributes:
        fpr: false-positive rate allowed, in (0, 1).
        value: TPR of these scores, in [0, 1]; higher = more leaks. None where not resolvable.
        low, high: two-sided interval of the TPR for such scores without end; None likewise.
        level: coverage, at least.
        threshold: a score strictly above it is guessed in, for `value`; None likewise.
        false_positives: scores of those out above it; None likewise.
        positives, negatives: scores on each side.
        note: why there is no number; None where there is one.
        validity: the scores of each side are independent and alike given the model.
    """

    fpr: float
    value: float | None
    low: float | None
    high: float | None
    level: float
    threshold: float | None
    false_positives: int | None
    positives: int
    negatives: int
    note: str | None
    validity: str = "iid-scores"

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self)


def tpr_at_fpr(
    in_scores: ArrayLike, out_scores: ArrayLike, *, fpr: float, level: float = 0.95
) -> TprAtFpr:
    """TPR at a false-positive rate, with an exact interval over both samples.

    The low end counts those in strictly above the r-th highest score of those out, whose FPR is
    V ~ Beta(r, n - r + 1) at most: were the TPR at `fpr` only b, P(so many) <= P(V > fpr) +
    P(V <= fpr) P(Bin(m, b) >= count). The high end likewise with those at or above the s-th
    highest. The ranks r and s follow from n, `fpr` and `level` alone, so that nothing is chosen on
    the data; ties only widen the interval.

    Args:
        in_scores: of canaries that were in, one or shape (m,), finite; higher = more likely in.
        out_scores: of canaries that were out, one or shape (n,), finite.
        fpr: strictly between 0 and 1.
        level: two-sided coverage; each side may miss with (1 - level) / 2.

    Returns:
        The TPR with its interval. Nothing but a note where (1 - fpr)^n is not below
        (1 - level) / 2, that is below about ln(2 / (1 - level)) / fpr negatives: even a threshold
        above all of them could have a higher FPR.

    Raises:
        InputError: no scores on one side, more than one dimension, a NaN or an infinity.
        SettingsError: `fpr` or `level` out of range.

    Source: order statistics of uniforms (David and Nagaraja 2003, section 2.3) under Clopper and
    Pearson 1934.

    >>> tpr_at_fpr(range(10), range(100), fpr=0.01).note
    '100 negatives do not resolve a FPR of 0.01 at level 0.95; it takes 368'
    """
    inside = np.sort(bits_array("in_scores", in_scores))
    outside = np.sort(bits_array("out_scores", out_scores))
    fpr, level = fraction("fpr", fpr), fraction("level", level)
    m, n, side = inside.size, outside.size, (1 - level) / 2
    fixed: dict[str, Any] = {"fpr": fpr, "level": level, "positives": m, "negatives": n}
    needed = floor(log(side) / log1p(-fpr)) + 1
    if n < needed:
        return TprAtFpr(
            **fixed,
            value=None,
            low=None,
            high=None,
            threshold=None,
            false_positives=None,
            note=f"{n} negatives do not resolve a FPR of {fpr:g} at level {level:g}; "
            f"it takes {needed}",
        )
    # The slack keeps 0.1 of 30 from being 2.
    threshold = float(outside[n - 1 - floor(fpr * n + 1e-9)])
    return TprAtFpr(
        **fixed,
        value=_above(inside, threshold) / m,
        low=_low(inside, outside, fpr, side),
        high=_high(inside, outside, fpr, side),
        threshold=threshold,
        false_positives=_above(outside, threshold),
        note=None,
    )


def _above(ordered: NDArray[np.float64], threshold: float) -> int:
    return int(ordered.size - np.searchsorted(ordered, threshold, side="right"))


def _low(
    inside: NDArray[np.float64], outside: NDArray[np.float64], fpr: float, side: float
) -> float:
    """Half of what may go wrong goes to the threshold, or as much as the highest score takes."""
    m, n = inside.size, outside.size
    # P(V > fpr) = P(Bin(n, fpr) < r)
    r = max(1, bisect_left(range(n), side / 2, key=lambda k: special.bdtr(k, n, fpr)))
    spent = float(special.bdtr(r - 1, n, fpr))
    count = _above(inside, float(outside[n - r]))
    if count == 0:
        return 0.0
    return float(special.betaincinv(count, m - count + 1, (side - spent) / (1 - spent)))


def _high(
    inside: NDArray[np.float64], outside: NDArray[np.float64], fpr: float, side: float
) -> float:
    """The same from above: P(V <= fpr) = P(Bin(n, fpr) >= s)."""
    m, n = inside.size, outside.size
    s = 1 + bisect_left(range(n), -side / 2, key=lambda k: -special.bdtrc(k, n, fpr))
    if s > n:
        return 1.0
    spent = float(special.bdtrc(s - 1, n, fpr))
    count = m - int(np.searchsorted(inside, outside[n - s], side="left"))
    if count == m:
        return 1.0
    return float(special.betainccinv(count + 1, m - count, (side - spent) / (1 - spent)))
