"""Area under the ROC curve, with an interval that does not shrink to nothing at an area of 1."""

from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from lmexposure._validate import bits_array, fraction, one_of

__all__ = ["AreaUnderCurve", "area_under_curve"]

_INDEPENDENT = (
    "scores of those in are independent and alike given the model; so are those of the rest"
)
_ASSUMPTIONS = {
    "hoeffding": (_INDEPENDENT,),
    "newcombe": (
        _INDEPENDENT,
        "many scores, whose spread is near that of two exponential distributions: too narrow where "
        "a part of the canaries is memorised and the rest is not",
    ),
}


@dataclass(frozen=True, kw_only=True)
class AreaUnderCurve:
    """P(score in > score out) + P(equal) / 2, in [0, 1]; 0.5 = guessing, higher = more leaks.

    Attributes:
        value: of these scores.
        low, high: two-sided interval of the area for such scores without end.
        level: coverage wanted.
        method: "hoeffding" or "newcombe".
        validity: "iid-scores" (holds for every sample size and distribution) or "asymptotic".
        positives, negatives: scores on each side.
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    validity: str
    positives: int
    negatives: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"assumptions": list(self.assumptions), "notes": list(self.notes)}


def area_under_curve(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    level: float = 0.95,
    method: Literal["hoeffding", "newcombe"] = "hoeffding",
) -> AreaUnderCurve:
    """Area under the ordinary ROC curve, ties as half.

    "hoeffding" holds for every distribution and every number of scores: the area is a two-sample U
    statistic, so that its Chernoff bound is that of min(m, n) independent numbers in [0, 1]. At an
    area of 1 it is the exact Clopper-Pearson bound of min(m, n) successes. "newcombe" is narrower
    and right for many, alike scores: the variance of Hanley and McNeil 1982 with both sample sizes
    in it replaced by their mean, at the area sought instead of the area found.

    Args:
        in_scores: of canaries that were in, one or shape (m,), finite; higher = more likely in.
        out_scores: of canaries that were out, one or shape (n,), finite.
        level: two-sided coverage.
        method: of the interval.

    Raises:
        InputError: no scores on one side, more than one dimension, a NaN or an infinity.
        SettingsError: `level` or `method` out of range.

    Source: Hoeffding 1963, Theorem 1 and section 5 (U statistics); Newcombe 2006, Statistics in
    Medicine 25, 559-573, method 5.

    >>> round(area_under_curve([3, 4], [1, 2]).low, 6)
    0.158114
    """
    inside = np.sort(bits_array("in_scores", in_scores))
    outside = np.sort(bits_array("out_scores", out_scores))
    level = fraction("level", level)
    one_of("method", method, tuple(_ASSUMPTIONS))
    m, n, value = inside.size, outside.size, _area(inside, outside)
    rule = _hoeffding if method == "hoeffding" else _newcombe
    low, high = rule(value, m, n, 1 - level), 1 - rule(1 - value, m, n, 1 - level)
    return AreaUnderCurve(
        value=value,
        low=low,
        high=high,
        level=level,
        method=method,
        validity="iid-scores" if method == "hoeffding" else "asymptotic",
        positives=m,
        negatives=n,
        assumptions=_ASSUMPTIONS[method],
        notes=_notes(low, high),
    )


def _area(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """Pairs that are ordered rightly, ties as half, by two searches in sorted scores."""
    below = int(np.searchsorted(outside, inside, side="left").sum())
    not_above = int(np.searchsorted(outside, inside, side="right").sum())
    return (below + not_above) / (2 * inside.size * outside.size)


def _notes(low: float, high: float) -> tuple[str, ...]:
    if high < 0.5:
        return ("worse than chance: higher scores must mean in; turn their sign",)
    if low <= 0.5:
        return ("no better than chance at this level",)
    return ()


def _hoeffding(value: float, m: int, n: int, significance: float) -> float:
    """The lowest area that the one found does not contradict.

    P(area found >= value) <= exp(-k KL(value || area)), k = min(m, n).
    """
    if value == 0:
        return 0.0
    allowed = log(2 / significance) / min(m, n)

    def excess(area: float) -> float:
        divergence = special.rel_entr(value, area) + special.rel_entr(1 - value, 1 - area)
        return float(divergence) - allowed

    return float(optimize.bisect(excess, 0.0, value, xtol=1e-15))


def _newcombe(value: float, m: int, n: int, significance: float) -> float:
    """The area below the one found that lies z of its own standard deviations away from it."""
    if value == 0:
        return 0.0
    z = float(special.ndtri(1 - significance / 2))
    mean_size = (m + n) / 2

    def excess(area: float) -> float:
        skew = (1 - area) / (2 - area) + area / (1 + area)
        variance = area * (1 - area) * (1 + (mean_size - 1) * skew) / (m * n)
        return value - area - z * sqrt(variance)

    # An area of 1 is a root of its own, but not the one sought.
    return float(optimize.brentq(excess, 0.0, min(value, 1 - 1e-12), xtol=1e-14))
