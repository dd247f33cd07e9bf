"""A bound on epsilon from one model, if its training trades errors as a Gaussian mechanism does."""

import math
from functools import lru_cache
from statistics import NormalDist

from lmexposure._validate import fraction, integer
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu
from lmexposure.statistics.bounds.one_run_guesses import FIXED_GUESSES, check_guesses
from lmexposure.statistics.bounds.rejected import largest_rejected

_ASSUMPTIONS = (
    *FIXED_GUESSES,
    "the training's trade-off between false positives and false negatives is a Gaussian one",
)

# Of Python's own: for one number at a time they are ten times as fast as scipy's.
_NORMAL, _ROOT_2 = NormalDist(), math.sqrt(2)


def one_run_fdp_epsilon(
    *,
    canaries: int,
    guesses: int,
    correct: int,
    delta: float,
    significance: float = 0.05,
    repetitions: int = 1,
) -> EpsilonBound:
    """Bound epsilon from below with right guesses, within the family of Gaussian trade-offs.

    Args:
        canaries: included by fair independent coins, at least 1.
        guesses: from 1 to `canaries`, their number fixed beforehand.
        correct: right guesses, from 0 to `guesses`.
        delta: at which epsilon is read off the trade-off, for one document; in (0, 1): a Gaussian
            trade-off has no finite epsilon at 0.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        repetitions: copies of every canary.

    Returns:
        The bound, of class "gaussian".

    Raises:
        InputError: counts that do not fit each other.
        SettingsError: a setting out of range.

    Source: Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), the audit of a fixed number of
    guesses under f-DP, with two choices per canary and the trade-off of Dong, Roth, Su 2022.

    >>> bound = one_run_fdp_epsilon(canaries=100, guesses=80, correct=70, delta=1e-6)
    >>> round(bound.value, 4)
    3.2956
    """
    check_guesses(canaries, guesses, correct)
    significance, delta = fraction("significance", significance), fraction("delta", delta)
    repetitions = integer("repetitions", repetitions, low=1)

    def bound(right: int) -> float:
        # A group of r documents of a mu-GDP training is r mu-GDP (Dong, Roth, Su 2022, Theorem 2).
        mu = largest_excluded_mu(canaries, guesses, right, significance) / repetitions
        return epsilon_of_mu(mu=mu, delta=delta)

    value, ceiling = bound(correct), bound(guesses)
    return EpsilonBound(
        method="one_run_fdp_epsilon",
        value=value,
        significance=significance,
        delta=delta,
        validity="gaussian",
        counts={"canaries": canaries, "guesses": guesses, "correct": correct},
        threshold=None,
        threshold_choice="a number of guesses fixed beforehand",
        max_attainable=ceiling,
        repetitions=repetitions,
        adjacency=adjacency(repetitions),
        assumptions=_ASSUMPTIONS,
        notes=() if value > 0 else ("no signal beyond chance, or too few guesses to show one",),
    )


@lru_cache(maxsize=1024)
def largest_excluded_mu(canaries: int, guesses: int, correct: int, significance: float) -> float:
    """The largest mu whose trade-off cannot give so many right guesses that often; 0 if none."""
    if correct == 0:
        return 0.0
    return largest_rejected(
        lambda mu: -_overflow(canaries, guesses, correct, significance, mu), 0.0
    )


def _overflow(canaries: int, guesses: int, correct: int, significance: float, mu: float) -> float:
    """By how much the guesses would exceed all there are; above 0, mu is rejected.

    Suppose that `correct` guesses or more are right with probability `significance`. Of a canary
    drawn at random, `right` and `wrong` are the chances that its guess is right, or wrong, while
    the count of right guesses is at least `count`. The trade-off says how much `wrong` there must
    be at one count less, for the `right` there is; and at one count, wrong brings right with it in
    the ratio count to guesses - count. A canary is guessed with `guesses / canaries` in all.
    """
    whole = guesses / canaries
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    for count in range(correct - 1, -1, -1):
        needed = math.erfc((mu - _NORMAL.inv_cdf(right)) / _ROOT_2) / 2
        if needed <= wrong:  # now and at every count below: `right` stays as it is
            break
        right += count / (guesses - count) * (needed - wrong)
        wrong = needed
        if right + wrong > whole:
            break
    return right + wrong - whole
