"""The median or another quantile of a class against a threshold, with an exact interval."""

import math

from lmexposure.gate.reading import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.gate.wording import bits, number, sentence

__all__ = ["check_quantiles"]


def check_quantiles(one: CanaryClass, thresholds: Thresholds, share: float) -> list[Check]:
    """Hold the quantiles that were asked for against their thresholds.

    A leak where the lower end of the interval is above the threshold, a pass where the upper end
    is at it or below. Each end misses with the share's probability at most. A capped exposure is a
    lower bound: the upper end is taken from the upper ends of the exposures.

    Args:
        one: the class.
        thresholds: median and quantile, where asked for.
        share: of the significance.

    Returns:
        None, one or two checks; none where no exposure is known.

    Source: order statistics (David and Nagaraja 2003, section 7.1), for canaries drawn like these.
    """
    wanted = []
    if thresholds.median_exposure is not None:
        wanted.append(("median exposure", "median_exposure", 0.5, thresholds.median_exposure))
    if thresholds.quantile_exposure is not None:
        quantile, limit = thresholds.quantile_exposure
        name = f"{quantile:g} quantile of exposure"
        wanted.append((name, "quantile_exposure", quantile, limit))
    return [_check(one, *what, share) for what in wanted] if one.known else []


def _check(
    one: CanaryClass, name: str, key: str, quantile: float, limit: float, share: float
) -> Check:
    # Imported here: scipy.stats costs most of a second, and few gates ask for a quantile.
    from lmexposure.statistics import quantile_interval

    level = 1 - 2 * share
    values = quantile_interval([e.value for e in one.known], quantile, level=level)
    tops = [e.high if e.capped else e.value for e in one.known]
    low, high = values.low, quantile_interval(tops, quantile, level=level).high
    outcome, clause = _judge(low, high, limit, _needed(quantile, share))
    return Check(
        name=name,
        key=key,
        scope=one.scope,
        outcome=outcome,
        value=values.value,
        threshold=float(limit),
        unit="bits",
        reason=sentence(
            [
                f"the {name} of {one.secrets} is {bits(values.value)}, between "
                f"{'unknown' if low is None else number(round(low, 1))} and "
                f"{'unknown' if high is None else bits(high)} at level {level:.3g}; {clause}"
            ]
        ),
        asked=True,
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
    return Outcome.INCONCLUSIVE, f"{bits(limit)} allowed lie within; insert more canaries"


def _needed(quantile: float, share: float) -> tuple[int, int]:
    """Canaries that it takes for a lower end, (1 - q)^n <= share, and an upper one, q^n."""
    ends = (math.log(share) / math.log(1 - quantile), math.log(share) / math.log(quantile))
    return math.ceil(ends[0] - 1e-12), math.ceil(ends[1] - 1e-12)
