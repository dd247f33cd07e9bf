"""A bound on epsilon from one trained model, whose canaries went in by fair independent coins.

Given the model and the coins seen so far, (epsilon, 0)-DP lets the next guess be right with at most
q = 1 / (1 + e^-epsilon). So the right guesses, in whatever order the scores put them, stay below a
walk of independent guesses that are right with q, and every statistic that rises with them can be
calibrated on that walk, exactly: `rays` says where the audit looks, `calibration` how.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, delta_of_dp, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.calibration import Audit
from lmexposure.statistics.bounds.rays import reveal
from lmexposure.statistics.bounds.tossed import refuse_unlikely_coins, true_or_false

# Ties need a stream of their own: coins tossed with the same seed must not order them.
_TIES = (0x7469_6573,)

FAIR_COINS = (
    "each canary went in by its own fair coin, tossed independently (not exactly half of them), "
    "after all candidates, positions and contexts were drawn",
    "a score depends on the coins through the trained model alone, and none is missing",
)


def one_run_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    seed: int,
) -> EpsilonBound:
    """Bound epsilon from below with one trained model and canaries included by fair coins.

    Args:
        scores: one per canary, shape (m,), finite; higher = more likely in the training data
            (the negative log-perplexity, for one).
        included: whether the canary went in, shape (m,), booleans or 0 and 1.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        delta: the claim's delta for one document, in [0, 1).
        repetitions: copies of every canary; canaries of other repetitions need their own call.
        seed: of the order of equal scores, independent of the coins even if they used it too.

    Returns:
        The bound, of class "any-dp": it holds however the canaries act on each other.

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: Steinke, Nasr, Jagielski 2023, Proposition 5.1, for one guess; Buehler 1957 for the
    bound that an order of outcomes gives; Dwork and Roth 2014, Theorem 2.2, for groups.
    Related: arXiv 2602.06518 on sequential auditing.

    >>> coins = np.random.default_rng(1).random(400) < 0.5
    >>> round(one_run_audit(4 * coins, coins, seed=1).value, 1)
    4.7
    """
    coins, right = right_guesses(scores, included, seed=seed)
    significance, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    repetitions = integer("repetitions", repetitions, low=1)
    audit = Audit(
        canaries=coins.size, significance=significance, delta=delta, repetitions=repetitions
    )
    found, ceiling = audit.decide(right), audit.ceiling()
    looks = audit.strongest(right, found.forgiven)
    return EpsilonBound(
        method="one_run_audit",
        value=found.epsilon,
        significance=significance,
        delta=delta,
        validity="any-dp",
        counts=_counts(coins, looks, found.forgiven),
        threshold=None,
        threshold_choice=_choice(looks),
        max_attainable=ceiling,
        repetitions=repetitions,
        adjacency=adjacency(repetitions),
        assumptions=FAIR_COINS,
        notes=signal_notes(found.epsilon, ceiling, right),
    )


def right_guesses(
    scores: ArrayLike, included: ArrayLike, *, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The fair coins, and which guesses are right in the order of `reveal`; both of shape (m,).

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a seed that is no whole number from 0.
    """
    values, coins = bits_array("scores", scores), true_or_false(included)
    if coins.size != values.size:
        raise InputError(
            f"included has {coins.size} entries for {values.size} scores; give one for each canary"
        )
    refuse_unlikely_coins(int(coins.sum()), coins.size, 0.5)
    stream = np.random.SeedSequence(integer("seed", seed, low=0), spawn_key=_TIES)
    return coins, reveal(values, coins, np.random.default_rng(stream))


def _counts(
    coins: NDArray[np.bool_], looks: dict[str, tuple[int, int]], forgiven: int
) -> dict[str, int]:
    """Canaries, and of each ray the look that showed most; all right guesses, none forgiven."""
    found = {"canaries": coins.size, "included": int(coins.sum()), "forgiven": forgiven}
    for name in sorted(looks):
        found[f"{name}_guesses"], found[f"{name}_correct"] = looks[name]
    return found


def _choice(looks: dict[str, tuple[int, int]]) -> str:
    name, (guesses, correct) = next(iter(looks.items()))
    return (
        f"looks on three rays, fixed beforehand and all paid for; the ray '{name}' decided, with "
        f"{correct} of {guesses} guesses right"
    )


def signal_notes(value: float, ceiling: float, right: NDArray[np.bool_]) -> tuple[str, ...]:
    """What a reader of a bound of 0 should know; right guesses of all canaries, shape (m,)."""
    if ceiling == 0:
        return (
            "even if every guess were right, so many canaries could show nothing at this "
            "significance, delta and number of repetitions",
        )
    if value == 0 and 2 * int(right.sum()) < right.size:
        return (
            f"{int(right.sum())} of {right.size} guesses are right, fewer than by chance: no "
            "signal, or scores in the wrong direction (higher must mean more likely in)",
        )
    return ("no signal beyond chance",) if value == 0 else ()
