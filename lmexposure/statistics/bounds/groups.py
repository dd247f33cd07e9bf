"""Group privacy: what r copies of a canary say about one document.

An (epsilon, delta)-DP mechanism changes by at most (r epsilon, delta_r) when r documents change,
delta_r = delta (e^(r epsilon) - 1) / (e^epsilon - 1).
"""

import math
from collections.abc import Callable

from scipy.optimize import brentq


def group_delta(epsilon: float, delta: float, repetitions: int) -> float:
    """The delta of a group of documents whose epsilon is `repetitions * epsilon`; at most 1.

    Args:
        epsilon: of one document, in nats, at least 0.
        delta: of one document, in [0, 1).
        repetitions: documents in the group, at least 1.

    Source: Dwork and Roth 2014, Theorem 2.2, with the geometric sum kept; Vadhan 2017, Lemma 2.2.

    >>> group_delta(0.0, 1e-5, 4) == 4e-5
    True
    """
    if delta == 0 or repetitions == 1:
        return delta
    if epsilon == 0:
        return min(1.0, repetitions * delta)
    # (e^(r epsilon) - 1) / (e^epsilon - 1) without overflow.
    log_ratio = (repetitions - 1) * epsilon + math.log(
        math.expm1(-repetitions * epsilon) / math.expm1(-epsilon)
    )
    return math.exp(min(0.0, math.log(delta) + log_ratio))


def per_document(bound_at: Callable[[float], float], *, delta: float, repetitions: int) -> float:
    """The smallest epsilon of one document that a group's bound does not contradict, in nats.

    Args:
        bound_at: the lower bound on the group's epsilon for a given delta of the group; it must
            not grow with delta. A delta of 1 excludes nothing: it is never asked for.
        delta: of one document.
        repetitions: documents in the group.

    Returns:
        The smallest epsilon >= 0 with `repetitions * epsilon >= bound_at(group_delta(epsilon))`.
    """
    if repetitions == 1 or delta == 0:
        return max(0.0, bound_at(delta)) / repetitions

    def short(epsilon: float) -> float:
        grouped = group_delta(epsilon, delta, repetitions)
        return (bound_at(grouped) if grouped < 1 else 0.0) - repetitions * epsilon

    if short(0.0) <= 0:
        return 0.0
    # What the bound is at the smallest delta of all can only be too much.
    most = bound_at(delta) / repetitions
    if short(most) >= 0:
        return most
    return float(brentq(short, 0.0, most, xtol=1e-12))
