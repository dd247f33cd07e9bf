"""How far two kinds of texts, or two kinds of models, lie apart, with an interval."""

from dataclasses import dataclass
from math import hypot

from numpy.typing import ArrayLike
from scipy import stats

from lmexposure._validate import bits_array, fraction
from lmexposure.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference with its interval.

    Source: of rates Newcombe 1998, method 10; of means Welch 1947.
    """

    value: float  # first - second, in their unit
    # low, high: its interval
    low: float
    high: float


def rate_difference(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> Difference:
    """The difference of two rates, from the interval of each.

    The nearer end of one interval and the farther of the other, as if the two were independent:
    rates of texts in the same models go up and down together, which makes it wider than it need be.

    Source: Newcombe 1998, Interval estimation for the difference between independent proportions,
    method 10, with the intervals that are given; Zou and Donner 2008 for any intervals.

    >>> rate_difference((0.7, 0.6, 0.8), (0.3, 0.2, 0.4)).value
    0.4
    """
    for value, low, high in (first, second):
        if not 0 <= low <= value <= high <= 1:
            raise InputError(
                f"a rate of {value} with an interval from {low} to {high}: it must be 0 <= low <= "
                "value <= high <= 1"
            )
    value = first[0] - second[0]
    below = hypot(first[0] - first[1], second[2] - second[0])
    above = hypot(first[2] - first[0], second[0] - second[1])
    return Difference(
        value=round(value, 12), low=max(-1.0, value - below), high=min(1.0, value + above)
    )


def mean_difference(first: ArrayLike, second: ArrayLike, *, level: float = 0.95) -> Difference:
    """The difference of two means of independent numbers, whose spreads may differ.

    Source: Welch 1947, The generalization of Student's problem when several different population
    variances are involved; `scipy.stats.ttest_ind`.
    """
    level = fraction("level", level)
    a, b = bits_array("first", first), bits_array("second", second)
    for name, values in (("first", a), ("second", b)):
        if values.size == 1:
            raise InputError(f"{name} has one number, which has no spread; give at least 2")
    value = float(a.mean() - b.mean())
    if not (a.std() or b.std()):
        return Difference(value=value, low=value, high=value)
    found = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
    return Difference(value=value, low=float(found.low), high=float(found.high))
