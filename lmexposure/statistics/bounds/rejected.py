"""The largest epsilon that a p-value rejects: the lower bound that a test gives.

Any epsilon that is rejected will do, even where the p-value is not monotone in epsilon (it is not
where a delta is paid): whoever keeps to a smaller epsilon keeps to this one too, and the outcomes
that reject some epsilon above the truth are those above one threshold of one statistic, which has
no larger chance than the significance at the truth.
"""

from collections.abc import Callable
from functools import cache

from scipy.optimize import brentq

_FIRST_STEP = 0.05
_WIDTH = 1e-10


def largest_rejected(excess: Callable[[float], float], above: float) -> float:
    """The largest epsilon >= 0 with `excess(epsilon) <= 0`; 0 where there is none.

    The search goes up from `above` to the first epsilon that is not rejected, and down from there
    in growing steps to one that is. Whatever it stops at is rejected, and so is a valid bound.

    Args:
        excess: the p-value less the significance; above 0 for every epsilon from some point on.
        above: where to begin, at least 0; best no epsilon beyond the first not rejected is.

    >>> round(largest_rejected(lambda epsilon: epsilon - 1.25, 0.0), 6)
    1.25
    """
    # The solver asks again for both ends of its interval.
    excess = cache(excess)
    high, step = above, _FIRST_STEP
    while excess(high) <= 0:
        high, step = high + step, 2 * step
    low, step = high, _FIRST_STEP
    while low > 0:
        low, high, step = max(0.0, low - step), low, 2 * step
        if excess(low) <= 0:
            root = float(brentq(excess, low, high, xtol=_WIDTH))
            # The root is known to its width only: stay on the side that is rejected.
            return max(low, root - 10 * _WIDTH)
    return 0.0
