"""Approximate lower bounds on TPR / FPR that other tools print, for comparison only."""

import math
from dataclasses import dataclass
from typing import Any

from scipy import special

from lmexposure._validate import fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import EpsilonBound

_ASSUMPTIONS = (
    "both counts are large: the normal approximation fails where few lie above the threshold",
    "the threshold was chosen without a look at these scores",
    "scores are independent given the model, and alike but for the insertion",
)
_EXACT = "clopper_pearson_epsilon keeps its level for all counts"


@dataclass(frozen=True, kw_only=True)
class RatioBound(EpsilonBound):
    """An approximate bound: `ratio` bounds TPR / FPR from below; `value` is its log, at least 0."""

    ratio: float


@dataclass(frozen=True, kw_only=True)
class RatioBounds:
    """Four approximations from the same counts."""

    katz_log: RatioBound
    walters: RatioBound
    bailey: RatioBound
    inverse_sinh: RatioBound

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "katz_log": self.katz_log.to_dict(),
            "walters": self.walters.to_dict(),
            "bailey": self.bailey.to_dict(),
            "inverse_sinh": self.inverse_sinh.to_dict(),
        }


def ratio_bounds(tp: int, fn: int, fp: int, tn: int, *, significance: float) -> RatioBounds:
    """Lower bounds on TPR / FPR by four normal approximations, one-sided, delta = 0.

    They are here to compare with, not to rely on. Printed for the best of all thresholds of 1,000
    scores a side, as tools do, they exceed the true epsilon in 54 % (Katz) to 62 % (Bailey) of
    audits instead of 5 %. At one threshold fixed beforehand nothing guarantees their level either:
    Bailey's exceeds the truth in up to 6.6 % (TPR .9, ten false positives expected of 1,000). Where
    nothing lies above the threshold a made-up count takes its place: of 500 canaries a side, told
    apart without an error, Bailey's cube at significance .01 makes a ratio of 108, exact counts 94.

    Args:
        tp: canaries that were in, above the threshold.
        fn: canaries that were in, not above it; tp + fn >= 1.
        fp: canaries that were not in, above the threshold.
        tn: canaries that were not in, not above it; fp + tn >= 1.
        significance: in (0, 1), one-sided.

    Returns:
        The four bounds, class "asymptotic"; a ratio of 0 where tp is 0.

    Raises:
        SettingsError: significance out of range.
        InputError: counts below 0, or a sample without canaries.

    Source: Katz et al. 1978 (log); Walter 1975 (half added to each count); Bailey 1987 (cube
    root); Newman 2001 (inverse hyperbolic sine); zeros as in the R package asbio.

    >>> round(ratio_bounds(473, 511, 755, 950, significance=0.05).katz_log.ratio, 8)
    1.01166194
    """
    significance = fraction("significance", significance)
    tp, fn, fp, tn = (
        integer(name, value, low=0, error=InputError)
        for name, value in (("tp", tp), ("fn", fn), ("fp", fp), ("tn", tn))
    )
    n, m = tp + fn, fp + tn
    if n == 0 or m == 0:
        raise InputError(
            f"tp + fn = {n} and fp + tn = {m} must both be at least 1: without canaries on both "
            "sides there is no ratio"
        )
    z = -float(special.ndtri(significance))
    formulas = {
        "katz_log": _katz_log,
        "walters": _walters,
        "bailey": _bailey,
        "inverse_sinh": _inverse_sinh,
    }

    def bound(name: str) -> RatioBound:
        formula = formulas[name]
        ratio = formula(tp, n, fp, m, z) if tp else 0.0
        value = math.log(ratio) if ratio > 1 else 0.0
        return RatioBound(
            method=f"ratio_bounds.{name}",
            value=value,
            ratio=ratio,
            significance=significance,
            delta=0.0,
            validity="asymptotic",
            counts={"true_positives": tp, "positives": n, "false_positives": fp, "negatives": m},
            threshold=None,
            threshold_choice="fixed beforehand by the caller, who counted",
            max_attainable=math.log(max(1.0, formula(n, n, 0, m, z))),
            assumptions=_ASSUMPTIONS,
            notes=(_EXACT,) + (() if value else ("no signal: the bound is 0",)),
        )

    return RatioBounds(
        katz_log=bound("katz_log"),
        walters=bound("walters"),
        bailey=bound("bailey"),
        inverse_sinh=bound("inverse_sinh"),
    )


def _variance(x: float, n: float, y: float, m: float) -> float:
    """Of the log ratio, by the delta method."""
    return max(0.0, 1 / x - 1 / n + 1 / y - 1 / m)


def _inner(x: float, n: int, y: float, m: int, empty: float) -> tuple[float, float]:
    """Counts away from where the variance degenerates."""
    if x == n and y == m:
        return n - 0.5, m - 0.5
    return x, y or empty


def _katz_log(x: float, n: int, y: float, m: int, z: float) -> float:
    x, y = _inner(x, n, y, m, 0.5)
    return x / n / (y / m) * math.exp(-z * math.sqrt(_variance(x, n, y, m)))


def _walters(x: float, n: int, y: float, m: int, z: float) -> float:
    if x == n and y == m:
        x, y = n - 0.5, m - 0.5
    x, y, n_half, m_half = x + 0.5, y + 0.5, n + 0.5, m + 0.5
    spread = math.sqrt(_variance(x, n_half, y, m_half))
    return x / n_half / (y / m_half) * math.exp(-z * spread)


def _bailey(x: float, n: int, y: float, m: int, z: float) -> float:
    x, y = (n - 0.5 if x == n else x), (m - 0.5 if y == m else y or 0.5)
    p, q = 1 - x / n, 1 - y / m
    inside = p / x + q / y - z**2 * p * q / (9 * x * y)
    below = 1 - z**2 * q / (9 * y)
    if below == 0:
        return 0.0
    cube = (1 - z * math.sqrt(max(0.0, inside)) / 3) / below
    return max(0.0, x / n / (y / m) * cube**3)


def _inverse_sinh(x: float, n: int, y: float, m: int, z: float) -> float:
    x, y = _inner(x, n, y, m, z**2 or 0.5)
    return x / n / (y / m) * math.exp(-2 * math.asinh(z / 2 * math.sqrt(_variance(x, n, y, m))))
