"""A lower bound on the mu of a single step of a training, when every step is an experiment.

In each step a fair coin decides whether a canary is added to the sum of the gradients, and what is
read off the noisy sum along the canary is a score, in units of the canary: about 1 where it was
added, about 0 where it was not. If a step hides one document as mu-GDP, the bound is at most mu but
for `significance` of the trainings.

`step_guesses_epsilon` guesses the coin by a threshold that is fixed beforehand. Given all that came
before, a guess of a fair coin is right with probability Phi(mu / 2) at most: (1 + TV) / 2 of two
Gaussians mu apart. So the count of right guesses is at most that of independent tosses with this
probability, however a step depends on earlier ones, and however steps differ.

Ranks, as `gaussian_dp_epsilon` has them, need scores that are alike in all steps.

CANIFE's value for a round's epsilon, `canife_point`, is a point and no bound. It is the largest of
ln((1 - delta - FPR) / FNR) and ln((1 - delta - FNR) / FPR) over all thresholds of the scores
themselves, so that it is chosen on the data, and lies above the truth more often than not: in 67 %
of rounds of 100 scores at mu 1 (simulated). It is shown for comparison alone.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import delta_of_dp, fraction
from lmexposure.statistics.arrays import two_samples
from lmexposure.statistics.bounds.bound import fair_coins
from lmexposure.statistics.bounds.gaussian import GaussianEpsilon, epsilon_of_mu

_NORMAL = NormalDist()
_ASSUMPTIONS = (
    "each step is mu-GDP: no test tells it with one document more from N(mu, 1) against N(0, 1)",
    "each step's coin was fair, and tossed apart from all else",
    "the bound is of a step that the document is in: sampling is not tested",
)


def step_guesses_epsilon(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    threshold: float = 0.5,
    significance: float = 0.05,
    delta: float,
) -> GaussianEpsilon:
    """Bound the mu of a step by guesses of fair coins; steps may depend on each other.

    Args:
        scores: one a step, shape (n,); higher = more likely added.
        included: what the coins said, shape (n,), booleans or 0 and 1.
        threshold: a canary with a score above it is guessed to be in; fixed beforehand.
        significance: how often, at most, the bound may lie above the truth.
        delta: at which the epsilon of a step is read off, in (0, 1).

    Returns:
        the bound of one step; `mu` in standard deviations, 0 without signal.

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: proof at the top of this module; Clopper and Pearson 1934 for the probability; the
        experiment is that of Nasr et al. 2023 (arXiv 2302.07956), section 5.

    >>> coins = np.arange(1000) % 2 == 0
    >>> round(step_guesses_epsilon(coins * 1.0, coins, delta=1e-5).mu, 2)
    5.5
    """
    values, coins = fair_coins(scores, included)
    level, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    right = int(((values > threshold) == coins).sum())
    mu, most = (_mu_of_guesses(count, values.size, level) for count in (right, values.size))
    return GaussianEpsilon(
        method="step_guesses_epsilon",
        value=epsilon_of_mu(mu=mu, delta=delta),
        mu=mu,
        significance=level,
        delta=delta,
        validity="gaussian",
        counts={"steps": values.size, "correct": right},
        threshold=threshold,
        threshold_choice="fixed beforehand",
        max_attainable=epsilon_of_mu(mu=most, delta=delta),
        assumptions=_ASSUMPTIONS,
    )


def _mu_of_guesses(right: int, steps: int, level: float) -> float:
    """The largest mu under which as many right guesses are rarer than `level`; 0 where none."""
    least = float(special.betaincinv(right, steps - right + 1, level)) if right else 0.0
    return 2 * _NORMAL.inv_cdf(least) if least > 0.5 else 0.0


def canife_point(in_scores: ArrayLike, out_scores: ArrayLike, *, delta: float) -> float:
    """A round's empirical epsilon, in nats, as its source has it.

    Source: Maddock et al. 2023 (arXiv 2210.02912), section 3 and appendix; the false positives are
        of rounds without the canary, and the false negatives of rounds with it.

    >>> round(canife_point([1.0] * 50, [0.0] * 50, delta=1e-5), 2)
    3.89
    """
    inside, outside = two_samples(in_scores, out_scores)
    delta = delta_of_dp("delta", delta)
    best = 0.0
    for threshold in np.unique(np.concatenate([inside, outside])):
        missed = max(1, int((inside < threshold).sum())) / inside.size
        alarms = max(1, int((outside >= threshold).sum())) / outside.size
        for rate, other in ((alarms, missed), (missed, alarms)):
            if 1 - delta - rate > other:
                best = max(best, math.log((1 - delta - rate) / other))
    return best
