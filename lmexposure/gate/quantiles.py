"""The median or another quantile of a class against a threshold, with an interval that holds."""

import math

from lmexposure._quantiles import order_tail, quantile_of, quantile_range
from lmexposure._style import bits, number, sentence, setting_value, short
from lmexposure.gate.classes import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome

_MOST_SHIFT = 0.05  # bits


def check_quantiles(one: CanaryClass, thresholds: Thresholds, share: float) -> list[Check]:
    """Hold the quantiles that were asked for against their thresholds.

    A leak where the lower end of the interval is above the threshold, a pass where the upper end
    is at it or below. Each end misses with the share's probability at most, the references that
    all canaries share included: ranks among them are counted again at the share (`quantile_range`),
    from nothing but what the result holds.

    The interval is of independent canaries. Where a good part of R was inserted, ranks are counted
    among the few fills that are left: exposures are then higher by themselves (`CanaryClass.shift`)
    and hang together, so that past 0.05 bits nothing is said. At 0.05 bits there is one canary for
    28 such fills, and the interval is 2 % too narrow.

    Args:
        one: the class.
        thresholds: median and quantile, where asked for.
        share: of the significance.

    Returns:
        None, one or two checks; none where no exposure is known.

    Source: see `quantile_range`.
    """
    wanted = []
    if thresholds.median_exposure is not None:
        wanted.append(("median exposure", "median_exposure", 0.5, thresholds.median_exposure))
    if thresholds.quantile_exposure is not None:
        quantile, limit = thresholds.quantile_exposure
        name = f"{setting_value(quantile)} quantile of exposure"
        wanted.append((name, "quantile_exposure", quantile, limit))
    return [_check(one, *what, share) for what in wanted] if one.known else []


def _check(
    one: CanaryClass, name: str, key: str, quantile: float, limit: float, share: float
) -> Check:
    value, level = quantile_of([e.value for e in one.known], quantile), 1 - 2 * share
    low, high = quantile_range(one.known, quantile, share)
    needed = _needed(quantile, order_tail(one.known, share))
    outcome, clause = _judge(low, high, limit, needed)
    if one.shift > _MOST_SHIFT:
        outcome, clause = Outcome.INCONCLUSIVE, _crowded(one)
    return Check(
        name=name,
        key=key,
        scope=one.scope,
        outcome=outcome,
        value=value,
        threshold=float(limit),
        unit="bits",
        reason=sentence(
            f"the {name} of {one.secrets} is {bits(value)}{_between(low, high, level)}; {clause}"
        ),
        asked=True,
    )


def _between(low: float | None, high: float | None, level: float) -> str:
    """The interval as a part of a sentence; nothing where there is none."""
    ends = [
        *([] if low is None else [f"at least {number(low)}"]),
        *([] if high is None else [f"at most {bits(high)}"]),
    ]
    return f", {' and '.join(ends)} at level {short(level)}" if ends else ""


def _crowded(one: CanaryClass) -> str:
    return (
        f"{bits(one.shift)} of that come from so small a space alone, of which much was "
        "inserted, and exposures there hang together; choose a format with more fills"
    )


def _judge(
    low: float | None, high: float | None, limit: float, needed: tuple[int, int]
) -> tuple[Outcome, str]:
    if low is not None and low > limit:
        return Outcome.LEAK, f"all of it is above the {bits(limit)} allowed"
    if high is not None and high <= limit:
        return Outcome.PASS, f"none of it is above the {bits(limit)} allowed"
    if low is None or high is None:
        return Outcome.INCONCLUSIVE, (
            f"too few canaries: a lower end takes {needed[0]} and an upper end {needed[1]} in a "
            "class; or choose a larger significance"
        )
    return Outcome.INCONCLUSIVE, (
        f"{bits(limit)} allowed lie within; insert more canaries, or measure with more references"
    )


def _needed(quantile: float, tail: float) -> tuple[int, int]:
    """Canaries that it takes for a lower end, (1 - q)^n <= tail, and an upper one, q^n."""
    ends = (math.log(tail) / math.log(1 - quantile), math.log(tail) / math.log(quantile))
    return math.ceil(ends[0] - 1e-12), math.ceil(ends[1] - 1e-12)
