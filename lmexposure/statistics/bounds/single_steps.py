"""Lower bounds on the mu of a single step of a training, when every step is an experiment.

In each step a fair coin decides whether a canary is added to the sum of the gradients, and what is
read off the noisy sum along the canary is a score, in units of the canary: about 1 where it was
added, about 0 where it was not. If a step hides one document as mu-GDP, every bound here is at most
mu but for `significance` of the trainings.

- `step_guesses_epsilon` guesses the coin by a threshold that is fixed beforehand. Given all that
  came before, a guess of a fair coin is right with probability Phi(mu / 2) at most: (1 + TV) / 2 of
  two Gaussians mu apart. So the count of right guesses is at most that of independent tosses with
  this probability, however a step depends on earlier ones, and however steps differ.
- `step_rates_epsilon` bounds both error rates (Nasr et al. 2023), each with half of the
  significance. Where steps differ, the means of their rates obey the same trade-off, which is
  concave. It takes steps to be independent, and needs more of them.
- `step_noise_epsilon` bounds the standard deviation of the scores, which a known shift leaves as
  the noise alone. It grants that the noise is normal, and needs fewest steps.

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
_GAUSSIAN_STEP = (
    "each step is mu-GDP: no test tells it with one document more from N(mu, 1) against N(0, 1)"
)
_FAIR_COINS = "each step's coin was fair, and tossed apart from all else"
_THE_STEP_ALONE = "the bound is of a step that the document is in: sampling is not tested"


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
    return _bound(
        "step_guesses_epsilon",
        (mu, most),
        delta=delta,
        significance=level,
        threshold=threshold,
        counts={"steps": values.size, "correct": right},
        assumptions=(_FAIR_COINS,),
    )


def step_rates_epsilon(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    threshold: float = 0.5,
    significance: float = 0.05,
    delta: float,
) -> GaussianEpsilon:
    """Bound the mu of a step by the rates of both errors; steps are independent.

    Source: Nasr et al. 2023 (arXiv 2302.07956), equation 2: mu >= Phi^-1(1 - FPR) - Phi^-1(FNR) at
        the upper ends of both rates; Hoeffding 1956 for rates that differ from step to step.
    """
    values, coins = fair_coins(scores, included)
    level, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    inside, outside = int(coins.sum()), int((~coins).sum())
    missed = int((values[coins] <= threshold).sum())
    alarms = int((values[~coins] > threshold).sum())
    mu, most = (
        _mu_of_rates(found[0], inside, found[1], outside, level)
        for found in ((missed, alarms), (0, 0))
    )
    return _bound(
        "step_rates_epsilon",
        (mu, most),
        delta=delta,
        significance=level,
        threshold=threshold,
        counts={"in": inside, "out": outside, "missed": missed, "alarms": alarms},
        assumptions=(_FAIR_COINS, "steps are independent, given what they may depend on"),
    )


def step_noise_epsilon(
    scores: ArrayLike, included: ArrayLike, *, significance: float = 0.05, delta: float
) -> GaussianEpsilon:
    """Bound the mu of a step by the spread of its scores; their noise is normal.

    Source: the sum of squares of n normal errors over their variance is chi-square with n degrees
        of freedom; mu is the shift over the standard deviation (Dong, Roth and Su 2019).
    """
    values, coins = fair_coins(scores, included)
    level, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    squares = float(((values - coins) ** 2).sum())
    mu = math.inf
    if squares > 0:
        mu = math.sqrt(float(special.chdtri(values.size, 1 - level)) / squares)
    return _bound(
        "step_noise_epsilon",
        (mu, None),
        delta=delta,
        significance=level,
        threshold=None,
        counts={"steps": values.size},
        assumptions=("the noise is normal, and alike in all steps",),
    )


def guesses_needed(mu: float, *, shown: float, significance: float = 0.05) -> int:
    """Steps after which guesses show a given part of a step's mu, in the mean.

    Source: the normal approximation of the binomial in `step_guesses_epsilon`.

    >>> guesses_needed(1.0, shown=0.9)
    1819
    """
    part, level = fraction("shown", shown), fraction("significance", significance)
    right, least = (_NORMAL.cdf(part_of * mu / 2) for part_of in (1.0, part))
    z = _NORMAL.inv_cdf(1 - level)
    return math.ceil((z * math.sqrt(right * (1 - right)) / (right - least)) ** 2)


def _mu_of_guesses(right: int, steps: int, level: float) -> float:
    """The largest mu under which as many right guesses are rarer than `level`; 0 where none."""
    least = float(special.betaincinv(right, steps - right + 1, level)) if right else 0.0
    return 2 * _NORMAL.inv_cdf(least) if least > 0.5 else 0.0


def _mu_of_rates(missed: int, inside: int, alarms: int, outside: int, level: float) -> float:
    """0 where either rate may be 1."""
    if not inside or not outside or missed == inside or alarms == outside:
        return 0.0
    most_missed = float(special.betaincinv(missed + 1, inside - missed, 1 - level / 2))
    most_alarms = float(special.betaincinv(alarms + 1, outside - alarms, 1 - level / 2))
    return max(0.0, _NORMAL.inv_cdf(1 - most_alarms) - _NORMAL.inv_cdf(most_missed))


def _bound(
    method: str,
    found: tuple[float, float | None],
    *,
    delta: float,
    significance: float,
    threshold: float | None,
    counts: dict[str, int],
    assumptions: tuple[str, ...],
) -> GaussianEpsilon:
    mu, most = found
    value = math.inf if mu == math.inf else epsilon_of_mu(mu=mu, delta=delta)
    return GaussianEpsilon(
        method=method,
        value=value,
        mu=mu,
        significance=significance,
        delta=delta,
        validity="gaussian",
        counts=counts,
        threshold=threshold,
        threshold_choice="fixed beforehand" if threshold is not None else "none: the spread counts",
        max_attainable=None if most is None else epsilon_of_mu(mu=most, delta=delta),
        assumptions=(_GAUSSIAN_STEP, *assumptions, _THE_STEP_ALONE),
    )


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
