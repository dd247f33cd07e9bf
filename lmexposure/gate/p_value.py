"""The permutation test of a class against guessing: a leak where chance hardly explains it."""

import math

from lmexposure._style import are, large, probability, sentence, short
from lmexposure.gate.classes import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.records import (
    GuessingTest,
)


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
    """
    if thresholds.p_value is False:
        return None
    asked = thresholds.asked("p_value")
    suspicious = one.test is not None and one.test.p_value <= thresholds.significance
    outcome, reason = _judge(one, share, wanted=asked or suspicious)
    return Check(
        name="p-value against guessing",
        key="p_value",
        scope=one.scope,
        outcome=outcome,
        value=None if one.test is None else one.test.p_value,
        threshold=share,
        reason=sentence(reason),
        asked=asked,
    )


def _least(test: GuessingTest) -> float:
    """The least that a permutation test can give.

    As many permutations give no less than 1 / (1 + permutations), and n numbers among n + m no
    less than one by the ways to choose them.
    """
    n, m = test.n, test.references
    log_ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    return max(1 / (1 + test.permutations), math.exp(-log_ways))


def _judge(one: CanaryClass, share: float, *, wanted: bool) -> tuple[Outcome, str]:
    if one.test is None:
        reason = f"the p-value of {one.secrets} is missing, so nothing can be said; measure again"
        return Outcome.INCONCLUSIVE, reason
    p, least, limit = one.test.p_value, _least(one.test), short(share)
    if p <= share:
        reason = (
            f"{one.secrets} {are(one.n)} more familiar to the model than chance explains: secrets "
            f"that it never saw look so familiar in 1 of {large(math.floor(1 / p))} tests "
            f"(p = {probability(p)}; {limit} or less is a leak)"
        )
        return Outcome.LEAK, reason
    if least > share:
        reason = (
            f"so few permutations and references cannot give p below {probability(least)}, and a "
            f"leak takes {limit} (p = {probability(p)}); measure with more permutations, or judge "
            "fewer classes"
        )
        return Outcome.INCONCLUSIVE if wanted else Outcome.NOT_TESTED, reason
    return Outcome.PASS, (
        f"{one.secrets} cannot be told from secrets that the model never saw (p = "
        f"{probability(p)}; {limit} or less would be a leak); a few memorised among many could "
        "hide in their mean"
    )
