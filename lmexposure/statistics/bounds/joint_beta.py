"""A credible interval for epsilon: both error rates of an attack under Jeffreys priors."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.optimize import brentq

from lmexposure._validate import integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import (
    Terms,
    beta_nodes,
    beta_quantiles,
    group_delta,
    rate_notes,
)
from lmexposure.statistics.results import EpsilonBound

_ASSUMPTIONS = (
    "the rule that guesses was fixed before these counts were seen",
    "guesses are independent of each other",
    "both error rates have Jeffreys priors: what is said is a belief, not a frequency",
)


@dataclass(frozen=True, kw_only=True)
class JointBetaEpsilon(EpsilonBound):
    """A posterior of epsilon; `value` is a lower credible bound that is 0 without signal.

    These three follow the source, which takes an attack that is worse than chance as one that
    guesses the other way round: they are above 0 even without signal. `value` counts the side
    better than chance only, and equals `one_sided_low` wherever the attack works.
    """

    low: float  # lower end of the two-sided credible interval, in nats
    high: float  # upper end: epsilon as far as this one attack shows it, not a guarantee
    one_sided_low: float  # exceeded with posterior probability 1 - significance


@dataclass(frozen=True, kw_only=True)
class _Counts:
    false_negatives: int
    false_positives: int
    true_negatives: int
    true_positives: int

    def rates(self) -> tuple[float, float]:
        """The true and the false positive rate."""
        positives = self.true_positives + self.false_negatives
        return (
            self.true_positives / positives,
            self.false_positives / (self.true_negatives + self.false_positives),
        )

    def turned(self) -> "_Counts":
        """The counts had every guess been the other way round."""
        return _Counts(
            false_negatives=self.true_positives,
            false_positives=self.true_negatives,
            true_negatives=self.false_positives,
            true_positives=self.false_negatives,
        )

    def perfect(self) -> "_Counts":
        """The counts had every guess been right."""
        return _Counts(
            false_negatives=0,
            false_positives=0,
            true_negatives=self.true_negatives + self.false_positives,
            true_positives=self.true_positives + self.false_negatives,
        )


def joint_beta_epsilon(
    *,
    false_negatives: int,
    false_positives: int,
    true_negatives: int,
    true_positives: int,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
) -> JointBetaEpsilon:
    """Posterior of epsilon given the four counts of an attack.

    Not a confidence bound. Epsilon is the larger of two ratios of error rates: where both are
    equal, as in randomised response, `value` at significance 0.05 lay above the truth in 11 % of
    samples of 1,000 canaries a side, because each ratio has its own chance to be overestimated.
    Where one ratio is clearly the larger, in about 5 %.

    Args:
        false_negatives: inserted canaries that were guessed to be out.
        false_positives: canaries left out that were guessed to be in.
        true_negatives: canaries left out that were guessed to be out.
        true_positives: inserted canaries that were guessed to be in.
        significance: posterior probability outside the interval.
        delta: of the claim, in [0, 1), for one document.
        repetitions: copies of each canary.

    Returns:
        `value`, and `low`, `high`, `one_sided_low` as the source has them; in nats.

    Raises:
        InputError: no canary that was in, or none that was out.
        SettingsError: a count or a setting out of range.

    Source: Zanella-Beguelin et al. 2022, Bayesian estimation of differential privacy.

    >>> bound = joint_beta_epsilon(
    ...     false_negatives=12,
    ...     false_positives=58,
    ...     true_negatives=200,
    ...     true_positives=200,
    ...     significance=0.05,
    ...     delta=1e-5,
    ... )
    >>> round(bound.low, 3), round(bound.high, 3)
    (2.105, 3.211)
    """
    counts = _Counts(
        false_negatives=integer("false_negatives", false_negatives, low=0),
        false_positives=integer("false_positives", false_positives, low=0),
        true_negatives=integer("true_negatives", true_negatives, low=0),
        true_positives=integer("true_positives", true_positives, low=0),
    )
    _both_sides(counts)
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    level = terms.significance

    def above(epsilon: float, counts: _Counts = counts) -> float:
        return _beyond(counts, epsilon, terms.delta, terms.repetitions)

    def above_either_way(epsilon: float) -> float:
        return above(epsilon) + above(epsilon, counts.turned())

    value = _quantile(above, 1 - level)
    most = _quantile(lambda epsilon: above(epsilon, counts.perfect()), 1 - level)
    return JointBetaEpsilon(
        method="joint_beta_epsilon",
        value=value,
        low=_quantile(above_either_way, 1 - level / 2),
        high=_quantile(above_either_way, level / 2),
        one_sided_low=_quantile(above_either_way, 1 - level),
        **vars(terms),
        validity="bayesian",
        counts=vars(counts).copy(),
        threshold=None,
        threshold_choice="given by the counts",
        max_attainable=most,
        assumptions=_ASSUMPTIONS,
        notes=rate_notes(value, most, terms.delta, *counts.rates()),
    )


def _both_sides(counts: _Counts) -> None:
    positives = counts.true_positives + counts.false_negatives
    negatives = counts.true_negatives + counts.false_positives
    if positives == 0 or negatives == 0:
        raise InputError(
            f"{positives} canaries were in and {negatives} were out; epsilon compares the two: "
            "give guesses for at least one of each"
        )


def _beyond(counts: _Counts, epsilon: float, delta: float, repetitions: int) -> float:
    """Posterior probability that the epsilon of one document is above `epsilon`.

    With x the false positive rate and y the false negative rate, (epsilon, delta) allows
    y >= max(1 - delta - e^epsilon x, e^-epsilon (1 - delta - x)); y below that is beyond it.
    """
    delta = group_delta(epsilon, delta, repetitions)
    scale = math.exp(min(repetitions * epsilon, 700.0))
    misses = counts.false_negatives + 0.5, counts.true_positives + 0.5
    marks = beta_quantiles(*misses)
    kink = (1 - delta) / (1 + scale)
    breaks = np.concatenate(
        [
            (1 - delta - marks) / scale,
            1 - delta - scale * marks,
            [kink, (1 - delta) / scale, 1 - delta],
        ]
    )
    x = beta_nodes(counts.false_positives + 0.5, counts.true_negatives + 0.5, breaks)
    edge = np.maximum(1 - delta - scale * x.value, (x.complement - delta) / scale)
    return float(x.weight @ special.betainc(*misses, np.clip(edge, 0.0, 1.0)))


def _quantile(beyond: Callable[[float], float], target: float) -> float:
    """Where the falling probability `beyond` reaches `target`; 0 where it starts below."""
    if beyond(0.0) <= target:
        return 0.0
    high = 1.0
    while beyond(high) > target:
        high *= 2
    low = 0.0 if high == 1 else high / 2
    return float(brentq(lambda e: beyond(e) - target, low, high, xtol=1e-9))
