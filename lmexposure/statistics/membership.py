"""How well scores tell members from others: the area under the ROC curve, and the TPR at a low FPR.

Each with an interval that counts both samples. That of the area does not shrink to nothing at an
area of 1. That of the TPR knows that a threshold with a false-positive rate of f is only estimated,
from the scores of those that were out: at a FPR of 0.1 % and 2,000 negatives it rests on two
scores.

The ROC curve is given as counts. Its concave hull is what thresholds chosen by a coin could reach
on these scores. It lies above the ordinary curve, and above guessing without any signal: its
corners are chosen on the very scores it describes. It is no estimate and has no interval.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import floor, log, log1p, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from lmexposure._validate import fraction, one_of
from lmexposure.errors import SettingsError
from lmexposure.statistics.arrays import Counts, Floats, column, two_samples
from lmexposure.statistics.results import AreaUnderCurve, Membership, TprAtFpr

_INDEPENDENT = (
    "scores of those in are independent and alike given the model; so are those of the rest"
)
_ASSUMPTIONS = {
    "effective": (_INDEPENDENT, "scores enough on each side that their spread shows in them"),
    "hoeffding": (_INDEPENDENT,),
    "newcombe": (
        _INDEPENDENT,
        "many scores, whose spread is near that of two exponential distributions: too narrow where "
        "a part of the canaries is memorised and the rest is not",
    ),
}
_RATES = (0.1, 0.01, 0.001)
_WORTH_A_PASS = 0.1  # of the points; a pass over all that drops fewer costs more than it saves


def area_under_curve(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    level: float = 0.95,
    method: Literal["effective", "newcombe", "hoeffding"] = "effective",
) -> AreaUnderCurve:
    """Area under the ordinary ROC curve, ties as half.

    "effective" is the wider of two intervals at each end. The one is Clopper and Pearson's for as
    many independent pairs as an area of this variance speaks for: DeLong's variance, with a
    placement of one half added on each side, so that it does not vanish at an area of 1. The other
    is "newcombe": the variance of Hanley and McNeil 1982 with both sample sizes in it replaced by
    their mean, at the area sought instead of the area found. Measured at level .95 (378 cells of
    500 runs: 9 sizes from 10 to 1,000 a side, 7 areas from .5 to .999, 6 distributions, ties and
    memorised parts among them): coverage .98 in the mean and
    .934 at least, .62 to .73 as wide as "hoeffding"; "newcombe" is .49 as wide and covered .94 in
    the mean, but only .76 where those in are spread wider than the rest or partly memorised.

    "hoeffding" holds for every distribution and every number of scores: the area is a two-sample U
    statistic, so that its Chernoff bound is that of min(m, n) independent numbers in [0, 1].

    Source: DeLong, DeLong and Clarke-Pearson 1988, Biometrics 44, 837-845; Clopper and Pearson
    1934; Newcombe 2006, Statistics in Medicine 25, 559-573, method 5; Hoeffding 1963, Theorem 1
    and section 5 (U statistics).

    >>> round(area_under_curve([3, 4], [1, 2], method="hoeffding").low, 6)
    0.158114
    """
    inside, outside = two_samples(in_scores, out_scores)
    level = fraction("level", level)
    one_of("method", method, tuple(_ASSUMPTIONS))
    found = _placements(inside, outside)
    ends = _RULES[method]
    lower_means_in = _Placements(1 - found.inside, 1 - found.outside)
    low, high = ends(found, 1 - level), 1 - ends(lower_means_in, 1 - level)
    note = "no better than chance at this level"
    if high < 0.5:
        note = "worse than chance: higher scores must mean in; turn their sign"
    return AreaUnderCurve(
        value=found.area,
        low=low,
        high=high,
        level=level,
        method=method,
        validity="iid-scores" if method == "hoeffding" else "asymptotic",
        positives=inside.size,
        negatives=outside.size,
        assumptions=_ASSUMPTIONS[method],
        notes=(note,) if low <= 0.5 else (),
    )


@dataclass(frozen=True)
class _Placements:
    """For each score the share of the other side that it is on the right side of, ties as half."""

    # inside, outside: shapes (m,) and (n,); the mean of either is the area
    inside: Floats
    outside: Floats

    @property
    def area(self) -> float:
        # Twice the pairs that are ordered rightly is a whole number.
        pairs = self.inside.size * self.outside.size
        return round(2 * pairs * float(self.inside.mean())) / (2 * pairs)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.inside.size, self.outside.size


def _placements(inside: Floats, outside: Floats) -> _Placements:
    """By two searches each way in sorted scores."""

    def below(own: Floats, others: Floats) -> Floats:
        ends = np.searchsorted(others, own, side="left") + np.searchsorted(others, own, "right")
        return ends / (2 * others.size)

    return _Placements(below(inside, outside), 1 - below(outside, inside))


def _effective(found: _Placements, significance: float) -> float:
    """The lower of Clopper and Pearson's for the pairs that there are in effect, and Newcombe's."""
    (m, n), area = found.sizes, found.area
    spread = sum(
        float(np.append(placed, 0.5).var(ddof=1)) / placed.size
        for placed in (found.inside, found.outside)
    )
    added = (m + n) / 2  # pairs of the added placements, half of which are right
    middle = (area * m * n + added / 2) / (m * n + added)
    pairs = max(1.0, middle * (1 - middle) / spread) if spread > 0 else float(min(m, n))
    right = area * pairs
    exact = special.betaincinv(right, pairs - right + 1, significance / 2) if right > 0 else 0.0
    return min(float(exact), _newcombe(found, significance))


def _hoeffding(found: _Placements, significance: float) -> float:
    """The lowest area that the one found does not contradict.

    P(area found >= value) <= exp(-k KL(value || area)), k = min(m, n).
    """
    value = found.area
    if value == 0:
        return 0.0
    allowed = log(2 / significance) / min(found.sizes)

    def excess(area: float) -> float:
        divergence = special.rel_entr(value, area) + special.rel_entr(1 - value, 1 - area)
        return float(divergence) - allowed

    return float(optimize.bisect(excess, 0.0, value, xtol=1e-15))


def _newcombe(found: _Placements, significance: float) -> float:
    """The area below the one found that lies z of its own standard deviations away from it."""
    (m, n), value = found.sizes, found.area
    if value == 0:
        return 0.0
    z = float(special.ndtri(1 - significance / 2))
    mean_size = (m + n) / 2

    def excess(area: float) -> float:
        skew = (1 - area) / (2 - area) + area / (1 + area)
        variance = area * (1 - area) * (1 + (mean_size - 1) * skew) / (m * n)
        return value - area - z * sqrt(variance)

    # An area of 1 is a root of its own, but not the one sought; at a level near 0 that is nearer.
    highest = min(value, 1 - 1e-12)
    if excess(highest) >= 0:
        return highest
    return float(optimize.brentq(excess, 0.0, highest, xtol=1e-14))


_RULES = {"effective": _effective, "newcombe": _newcombe, "hoeffding": _hoeffding}


def tpr_at_fpr(
    in_scores: ArrayLike, out_scores: ArrayLike, *, fpr: float, level: float = 0.95
) -> TprAtFpr:
    """TPR at a false-positive rate, with an exact interval over both samples.

    The low end counts those in strictly above the r-th highest score of those out, whose FPR is
    V ~ Beta(r, n - r + 1) at most: were the TPR at `fpr` only b, P(count or more) <= P(V > fpr) +
    P(V <= fpr) P(Bin(m, b) >= count). The high end likewise with those at or above the s-th
    highest. The ranks r and s follow from n, `fpr` and `level` alone, so that nothing is chosen on
    the data; ties only widen the interval.

    Source: order statistics of uniforms (David and Nagaraja 2003, section 2.1) under Clopper and
    Pearson 1934.

    >>> tpr_at_fpr(range(10), range(100), fpr=0.01).note
    '100 texts that were not in are too few for a false-positive rate of 0.01; it takes 368'
    """
    inside, outside = two_samples(in_scores, out_scores)
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
            note=f"{n:,} texts that were not in are too few for a false-positive rate of {fpr:g}; "
            f"it takes {needed:,}",
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


def _above(ordered: Floats, threshold: float) -> int:
    return int(ordered.size - np.searchsorted(ordered, threshold, side="right"))


def _low(inside: Floats, outside: Floats, fpr: float, side: float) -> float:
    """Half of what may go wrong goes to the threshold, or as much as the highest score takes."""
    m, n = inside.size, outside.size
    # P(V > fpr) = P(Bin(n, fpr) < r)
    r = max(1, bisect_left(range(n), side / 2, key=lambda k: special.bdtr(k, n, fpr)))
    spent = float(special.bdtr(r - 1, n, fpr))
    count = _above(inside, float(outside[n - r]))
    if count == 0:
        return 0.0
    return float(special.betaincinv(count, m - count + 1, (side - spent) / (1 - spent)))


def _high(inside: Floats, outside: Floats, fpr: float, side: float) -> float:
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


def membership_metrics(
    in_scores: ArrayLike, out_scores: ArrayLike, *, level: float = 0.95
) -> Membership:
    """Area under the curve, and the true-positive rates at false-positive rates of 10, 1, 0.1 %.

    Source: `area_under_curve` and `tpr_at_fpr`; at low rates, as Carlini et al. 2022 ask for.
    """
    rates = (tpr_at_fpr(in_scores, out_scores, fpr=rate, level=level) for rate in _RATES)
    return Membership(
        area_under_curve=area_under_curve(in_scores, out_scores, level=level),
        tpr_at_fpr=tuple(rates),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RocCurve:
    """The ordinary ROC curve: every threshold that makes a difference, and what it costs."""

    # each score once, ascending, then infinity, (K,); a canary is guessed in from it upwards
    thresholds: Floats
    true_positives: Counts  # canaries that were in and are guessed in, shape (K,), descending
    false_positives: Counts  # canaries that were out and are guessed in, likewise
    positives: int  # canaries that were in
    negatives: int  # canaries that were out

    @property
    def tpr(self) -> Floats:
        """Share of those in that are guessed in, in [0, 1], shape (K,)."""
        return self.true_positives / self.positives

    @property
    def fpr(self) -> Floats:
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
    inside, outside = two_samples(in_scores, out_scores)
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

    true_positives: Counts
    false_positives: Counts
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

    >>> from lmexposure.statistics.membership import roc_curve
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


def _thinned(points: Counts) -> Counts:
    """Drop points on or below the line between their neighbours: none of them is a corner."""
    while points.shape[1] > 2:
        (dx, dy) = np.diff(points, axis=1)
        turns = dx[:-1] * dy[1:] - dy[:-1] * dx[1:]  # below 0 = to the right = a corner so far
        keep = np.concatenate([[True], turns < 0, [True]])
        if keep.mean() > 1 - _WORTH_A_PASS:
            break
        points = points[:, keep]
    return points


def _chain(points: Counts) -> Counts:
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
