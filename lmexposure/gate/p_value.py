"""The permutation test of a class against guessing: a leak where chance hardly explains it."""

import math
from collections.abc import Mapping
from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.fields import finite, table, whole
from lmexposure.gate.reading import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.gate.wording import are, number, sentence

__all__ = ["check_p_value", "read_p_value"]


def check_p_value(one: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Hold the p-value of one class against its share of the significance.

    A small p-value is a leak whatever its size in bits; a large one leaves room for few memorised
    canaries among many, which the largest exposure looks for. Where so few permutations cannot
    give a p-value as small as the share, one that is below the whole significance looks like a
    leak and cannot be told from chance: that is inconclusive. A larger one is then not tested.

    Args:
        one: the class.
        thresholds: whether the test is asked for.
        share: of the significance.

    Returns:
        The check; None where it was switched off.

    Raises:
        ResultError: a p-value that is none.
    """
    if thresholds.p_value is False:
        return None
    asked = thresholds.asked("p_value")
    test = None if one.summary is None else one.summary.get("guessing_test")
    p, least = read_p_value(test, where=f"guessing test of {one.scope}")
    suspicious = p is not None and p <= thresholds.significance
    outcome, reason = _judge(one, p, least, share, wanted=asked or suspicious)
    return Check(
        name="p-value against guessing",
        key="p_value",
        scope=one.scope,
        outcome=outcome,
        value=p,
        threshold=share,
        unit="",
        reason=reason,
        asked=asked,
    )


def read_p_value(test: object, *, where: str) -> tuple[float | None, float]:
    """The p-value of a permutation test, None where it is missing; and the least it could be.

    So many permutations give no less than 1 / (1 + permutations), and n numbers among n + m no
    less than one by the ways to choose them.

    Raises:
        ResultError: a number out of its range.
    """
    p = finite(table(test, where=where), "p_value", where=where)
    if p is None:
        return None, 1.0
    if not 0 < p <= 1:
        raise ResultError(f"{where}: p_value={p:g} must lie in (0, 1]; measure again")
    made = table(test, where=where)
    shuffles = whole(made, "permutations", low=1, where=where)
    return p, max(1 / (1 + shuffles), _least_by_ways(made, where))


def _least_by_ways(test: Mapping[str, Any], where: str) -> float:
    n = whole(test, "n", low=1, where=where)
    m = whole(test, "references", low=1, where=where)
    log_ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    return math.exp(-log_ways)


def _judge(
    one: CanaryClass, p: float | None, least: float, share: float, *, wanted: bool
) -> tuple[Outcome, str]:
    if p is None:
        reason = f"the p-value of {one.secrets} is missing, so nothing can be said; measure again"
        return Outcome.INCONCLUSIVE, sentence([reason])
    if p <= share:
        reason = (
            f"{one.secrets} {are(one.n)} more familiar to the model than chance explains (p = "
            f"{number(p)}; {number(share)} or less is a leak)"
        )
        return Outcome.LEAK, sentence([reason])
    if least > share:
        reason = (
            f"so few permutations and references cannot give p below {number(least)}, and a leak "
            f"takes {number(share)} (p = {number(p)}); measure with more permutations, or judge "
            "fewer classes"
        )
        return Outcome.INCONCLUSIVE if wanted else Outcome.NOT_TESTED, sentence([reason])
    told = (
        f"{one.secrets} cannot be told from secrets that the model never saw (p = {number(p)}; "
        f"{number(share)} or less would be a leak)"
    )
    return Outcome.PASS, sentence([told, "a few memorised among many could hide in their mean"])
