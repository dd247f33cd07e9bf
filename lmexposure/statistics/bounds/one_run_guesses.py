"""A bound on epsilon from one model and a fixed number of guesses, with a delta paid."""

import numpy as np
from scipy import special

from lmexposure._validate import integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import Terms, guess_notes, largest_rejected
from lmexposure.statistics.bounds.one_run import binomial_window
from lmexposure.statistics.results import EpsilonBound

# What every bound from a fixed number of guesses needs.
FIXED_GUESSES = (
    "each canary went in by its own fair coin, tossed independently (not exactly half of them)",
    "the number of guesses was fixed beforehand: the best of several numbers is no bound",
)


def one_run_epsilon(
    *,
    canaries: int,
    guesses: int,
    correct: int,
    delta: float = 0.0,
    significance: float = 0.05,
    repetitions: int = 1,
) -> EpsilonBound:
    """Bound epsilon from below with the right guesses of one audit.

    Args:
        canaries: included by fair independent coins, at least 1.
        guesses: canaries of which it was guessed whether they went in, from 1 to `canaries`; the
            number was fixed beforehand, which canaries they are was not.
        correct: right guesses, from 0 to `guesses`.
        delta: the claim's delta for one document, in [0, 1).
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        repetitions: copies of every canary.

    Returns:
        The bound, of class "any-dp".

    Raises:
        InputError: counts that do not fit each other.
        SettingsError: a setting out of range.

    Source: Steinke, Nasr, Jagielski 2023, Theorem 5.2.

    >>> bound = one_run_epsilon(canaries=100, guesses=100, correct=75)
    >>> round(bound.value, 4)
    0.7022
    """
    check_guesses(canaries, guesses, correct)
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)

    level = terms.significance

    def bound(right: int) -> float:
        # A delta can only lower the bound: the search need not begin above Clopper-Pearson's.
        seen = max(right, 1)
        low = float(special.betaincinv(seen, guesses - seen + 1, level))
        wrong = float(special.betainccinv(guesses - seen + 1, seen, level))
        above = max(0.0, float(np.log(low / wrong)))

        def at(paid: float) -> float:
            return largest_rejected(
                lambda epsilon: p_value(canaries, guesses, right, epsilon, paid) - level, above
            )

        return terms.per_document(at)

    value, most = bound(correct), bound(guesses)
    return EpsilonBound(
        method="one_run_epsilon",
        value=value,
        **vars(terms),
        validity="any-dp",
        counts={"canaries": canaries, "guesses": guesses, "correct": correct},
        threshold=None,
        threshold_choice="a number of guesses fixed beforehand",
        max_attainable=most,
        assumptions=FIXED_GUESSES,
        notes=guess_notes(value, most, terms.delta, guesses, correct),
    )


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How often, at most, an (epsilon, delta)-DP training gives this number of right guesses.

    Source: Steinke, Nasr, Jagielski 2023, Theorem 5.2.
    """
    if correct == 0:
        return 1.0
    # From the side of the wrong guesses, which keeps its digits where nearly all are right.
    tail = float(special.betaincc(guesses - correct + 1, correct, special.expit(-epsilon)))
    if delta == 0:
        return tail
    return min(1.0, tail + 2 * canaries * delta * _most_per_guess(guesses, correct, epsilon))


def _most_per_guess(guesses: int, correct: int, epsilon: float) -> float:
    """The largest of P(correct > W >= correct - i) / i over i = 1 ... correct.

    The mean over i falls once the next probability is below it, and W has one mode: where the
    counts that matter are exhausted, no larger i gives more.
    """
    first, chances = binomial_window(guesses, epsilon)
    below = chances[: max(0, correct - first)][::-1]
    if below.size == 0:
        return 0.0
    # The window may end below `correct`: the counts in between have no weight, but a place.
    skipped = max(0, correct - first - chances.size)
    means = np.cumsum(below) / (skipped + np.arange(1, below.size + 1))
    return float(means.max())


def check_guesses(canaries: int, guesses: int, correct: int) -> None:
    """Refuse counts that do not fit each other."""
    integer("canaries", canaries, low=1, error=InputError)
    integer("guesses", guesses, low=1, high=canaries, error=InputError)
    integer("correct", correct, low=0, high=guesses, error=InputError)
