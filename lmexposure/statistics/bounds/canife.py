"""The value that CANIFE gives for a round's epsilon: a point, and no bound.

It is the largest of ln((1 - delta - FPR) / FNR) and ln((1 - delta - FNR) / FPR) over all thresholds
of the scores themselves, so that it is chosen on the data, and lies above the truth more often than
not: in 67 % of rounds of 100 scores at mu 1 (simulated). It is shown for comparison alone.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lmexposure._validate import bits_array, delta_of_dp


def canife_point(in_scores: ArrayLike, out_scores: ArrayLike, *, delta: float) -> float:
    """A round's empirical epsilon, in nats, as its source has it.

    Rates of 0 count as one error: 50 scores of each kind give 3.89 at most at a small delta.

    Source: Maddock et al. 2023 (arXiv 2210.02912), section 3 and appendix; the false positives are
        of rounds without the canary, and the false negatives of rounds with it.

    >>> round(canife_point([1.0] * 50, [0.0] * 50, delta=1e-5), 2)
    3.89
    """
    inside, outside = bits_array("in_scores", in_scores), bits_array("out_scores", out_scores)
    delta = delta_of_dp("delta", delta)
    best = 0.0
    for threshold in np.unique(np.concatenate([inside, outside])):
        missed = max(1, int((inside < threshold).sum())) / inside.size
        alarms = max(1, int((outside >= threshold).sum())) / outside.size
        for rate, other in ((alarms, missed), (missed, alarms)):
            if 1 - delta - rate > other:
                best = max(best, math.log((1 - delta - rate) / other))
    return best
