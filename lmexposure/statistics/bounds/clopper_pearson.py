"""Epsilon from counts at one threshold, each rate with its exact bound."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import delta_of_dp, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.groups import per_document

_ASSUMPTIONS = (
    "the threshold was chosen without a look at these scores",
    "scores are independent given the model, and alike but for the insertion",
)


def rates(
    true_positives: ArrayLike,
    positives: int,
    false_positives: ArrayLike,
    negatives: int,
    *,
    tail: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower bounds of the true, upper bounds of the false positive rate, each failing at `tail`."""
    tp, fp = np.atleast_1d(true_positives), np.atleast_1d(false_positives)
    low = special.betaincinv(np.maximum(tp, 1), positives - tp + 1, tail)
    high = special.betainccinv(fp + 1, np.maximum(negatives - fp, 1), tail)
    # betaincinv has no limit at a zero parameter: put it in.
    return np.where(tp == 0, 0.0, low), np.where(fp == negatives, 1.0, high)


def log_ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """ln((numerator - delta) / denominator), 0 where that is not above 0."""
    excess = np.maximum(numerator - delta, denominator)
    result: NDArray[np.float64] = np.log(excess) - np.log(denominator)
    return result


def clopper_pearson_epsilon(
    true_positives: int,
    positives: int,
    false_positives: int,
    negatives: int,
    *,
    significance: float,
    delta: float = 0.0,
    repetitions: int = 1,
) -> EpsilonBound:
    """Lower bound ln((TPR_low - delta) / FPR_high) at a threshold fixed beforehand.

    One rule only, "a score above the threshold means in"; each rate's one-sided bound holds at
    half the significance. `epsilon_from_scores` prices in the other direction, and the choice of
    the threshold.

    Args:
        true_positives: canaries that were in and guessed to be in.
        positives: canaries that were in, at least 1.
        false_positives: canaries that were not in and guessed to be in.
        negatives: canaries that were not in, at least 1.
        significance: in (0, 1).
        delta: of one document, in [0, 1).
        repetitions: copies of each canary.

    Returns:
        The bound in nats, class "iid-scores".

    Raises:
        SettingsError: significance, delta or repetitions out of range.
        InputError: counts that do not belong together.

    Source: Jagielski, Ullman, Oprea 2020, section 4 (arXiv 2006.07709), with Clopper and Pearson
    1934; delta as in Nasr et al. 2021 (arXiv 2101.04535), equation 4.

    >>> bound = clopper_pearson_epsilon(90, 100, 10, 100, significance=0.05)
    >>> round(bound.value, 6)
    1.542152
    """
    significance, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    repetitions = integer("repetitions", repetitions, low=1)
    positives = integer("positives", positives, low=1, error=InputError)
    negatives = integer("negatives", negatives, low=1, error=InputError)
    tp = integer("true_positives", true_positives, low=0, high=positives, error=InputError)
    fp = integer("false_positives", false_positives, low=0, high=negatives, error=InputError)

    def bound(tp: int, fp: int) -> float:
        low, high = rates(tp, positives, fp, negatives, tail=significance / 2)
        return per_document(
            lambda group: float(log_ratio(low, high, group)[0]),
            delta=delta,
            repetitions=repetitions,
        )

    value = bound(tp, fp)
    return EpsilonBound(
        method="clopper_pearson_epsilon",
        value=value,
        significance=significance,
        delta=delta,
        validity="iid-scores",
        counts={
            "true_positives": tp,
            "positives": positives,
            "false_positives": fp,
            "negatives": negatives,
        },
        threshold=None,
        threshold_choice="fixed beforehand by the caller, who counted",
        max_attainable=bound(positives, 0),
        repetitions=repetitions,
        adjacency=adjacency(repetitions),
        assumptions=_ASSUMPTIONS,
        notes=_notes(value, tp / positives, fp / negatives),
    )


def _notes(value: float, tpr: float, fpr: float) -> tuple[str, ...]:
    if value > 0:
        return ()
    if tpr < fpr:
        return (
            "worse than chance: fewer canaries that were in lie above the threshold than of those "
            "that were not, so that the bound is 0; higher scores must mean in",
        )
    return ("no signal that these counts can tell from chance: the bound is 0",)
