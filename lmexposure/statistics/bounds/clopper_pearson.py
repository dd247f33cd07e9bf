"""Epsilon from the two error rates of a rule: each with its exact bound, each choice at its price.

At a threshold fixed beforehand, the true positive rate is at least TPR_low and the false positive
rate at most FPR_high, each but for half of the significance (Clopper and Pearson 1934), and
(epsilon, delta)-DP allows TPR <= e^epsilon FPR + delta: epsilon is at least
ln((TPR_low - delta) / FPR_high). A threshold that is chosen on the scores costs part of them
(`SplitSample`) or part of the significance (`Bonferroni`).

`joint_beta_epsilon` gives a credible interval instead: both error rates under Jeffreys priors.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.optimize import brentq

from lmexposure._validate import bits_array, fraction, integer, one_of
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.bound import (
    SCORES_ALIKE,
    Floats,
    Terms,
    beta_nodes,
    beta_quantiles,
    group_delta,
    rate_notes,
    two_sample_notes,
)
from lmexposure.statistics.results import EpsilonBound

Counts = NDArray[np.signedinteger[Any]]

_DEFAULT_SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_ASSUMPTIONS = ("the threshold was chosen without using these scores", SCORES_ALIKE)
# Thresholds that a split sample is searched for, at ranks spread over both ends.
_CANDIDATES = 400
_PRIORS = (
    "the rule that guesses was fixed before these counts were seen",
    "guesses are independent of each other",
    "both error rates have Jeffreys priors: what is said is a belief, not a frequency",
)


@dataclass(frozen=True, kw_only=True)
class FixedThreshold:
    """One score, chosen without using these scores; above it a canary is guessed to be in.

    Source: `clopper_pearson_epsilon`.
    """

    value: float

    def __post_init__(self) -> None:
        if np.ndim(self.value) != 0:
            raise SettingsError(f"value={self.value!r} must be one number; see Bonferroni for more")
        bits_array("value", self.value)


@dataclass(frozen=True, kw_only=True)
class SplitSample:
    """The best threshold on one part of the scores, the bound from the other part.

    Source: Cox 1975, A note on data-splitting for the evaluation of significance levels.
    """

    fraction: float = 0.5  # of each sample, in (0, 1), the part that the threshold is chosen on

    def __post_init__(self) -> None:
        fraction("fraction", self.fraction)


@dataclass(frozen=True, kw_only=True)
class Bonferroni:
    """Several thresholds fixed beforehand; each gets its part of the significance.

    Source: Dunn 1961, Multiple comparisons among means (Bonferroni's inequality).
    """

    grid: Sequence[float] = _DEFAULT_SHARES  # the thresholds, at least one
    # "share": of the out-scores that lie above the threshold, each in (0, 1); "value": the
    # thresholds themselves
    by: str = "share"

    def __post_init__(self) -> None:
        one_of("by", self.by, ("share", "value"))
        for number in bits_array("grid", self.grid).tolist():
            if self.by == "share":
                fraction("grid", number)


@dataclass(frozen=True, kw_only=True)
class OrderStatistics:
    """All ranks on a fixed ladder, from both ends, at one joint level that is computed exactly.

    Source: proof at the top of `bounds/from_scores.py`.
    """


Threshold = FixedThreshold | SplitSample | Bonferroni | OrderStatistics


def rates(
    true_positives: ArrayLike,
    positives: int,
    false_positives: ArrayLike,
    negatives: int,
    *,
    tail: float,
) -> tuple[Floats, Floats]:
    """Lower bounds of the true, upper bounds of the false positive rate, each failing at `tail`."""
    tp, fp = np.atleast_1d(true_positives), np.atleast_1d(false_positives)
    low = special.betaincinv(np.maximum(tp, 1), positives - tp + 1, tail)
    high = special.betainccinv(fp + 1, np.maximum(negatives - fp, 1), tail)
    # betaincinv has no limit at a zero parameter: put it in.
    return np.where(tp == 0, 0.0, low), np.where(fp == negatives, 1.0, high)


def log_ratio(numerator: Floats, denominator: Floats, delta: float) -> Floats:
    """ln((numerator - delta) / denominator), 0 where that is not above 0."""
    excess = np.maximum(numerator - delta, denominator)
    return np.log(excess) - np.log(denominator)


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

    Source: Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709), with Clopper and Pearson 1934; delta
    as in Nasr et al. 2021 (arXiv 2101.04535).

    >>> bound = clopper_pearson_epsilon(90, 100, 10, 100, significance=0.05)
    >>> round(bound.value, 6)
    1.542152
    """
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    positives = integer("positives", positives, low=1, error=InputError)
    negatives = integer("negatives", negatives, low=1, error=InputError)
    tp = integer("true_positives", true_positives, low=0, high=positives, error=InputError)
    fp = integer("false_positives", false_positives, low=0, high=negatives, error=InputError)

    def bound(tp: int, fp: int) -> float:
        low, high = rates(tp, positives, fp, negatives, tail=terms.significance / 2)
        return terms.per_document(lambda group: float(log_ratio(low, high, group)[0]))

    value, most = bound(tp, fp), bound(positives, 0)
    return EpsilonBound(
        method="clopper_pearson_epsilon",
        value=value,
        **vars(terms),
        validity="iid-scores",
        counts={
            "true_positives": tp,
            "positives": positives,
            "false_positives": fp,
            "negatives": negatives,
        },
        threshold=None,
        threshold_choice="fixed beforehand by the caller, who counted",
        max_attainable=most,
        assumptions=_ASSUMPTIONS,
        notes=rate_notes(value, most, terms.delta, tp / positives, fp / negatives),
    )


class ThresholdRule(Terms):
    """The bound for each choice of threshold; all scores are ascending, of shapes (n,) and (m,)."""

    def bound(self, ins: Floats, outs: Floats, threshold: Threshold, seed: int) -> EpsilonBound:
        """The bound at a threshold that is chosen so; `seed` is of the split."""
        match threshold:
            case FixedThreshold(value=value):
                return self._best(ins, outs, np.array([float(value)]), "fixed beforehand")
            case SplitSample(fraction=share):
                return self._split(ins, outs, share, seed)
            case Bonferroni(grid=grid, by=by):
                return self._bonferroni(ins, outs, bits_array("grid", grid), by)
        raise SettingsError(
            f"threshold={threshold!r} must be OrderStatistics(), Bonferroni(), SplitSample() or "
            "FixedThreshold(value=...)"
        )

    def _best(
        self, ins: Floats, outs: Floats, at: Floats, choice: str, fp: Counts | None = None
    ) -> EpsilonBound:
        """The best of the thresholds `at`, each with its part of the significance."""
        tp = _above(ins, at)
        fp = _above(outs, at) if fp is None else fp
        values = self._values(tp, fp, ins.size, outs.size)
        best = int(values.argmax())
        value = float(values[best])
        full, none = np.array([ins.size]), np.array([0])
        most = max(float(self._values(full, none, ins.size, outs.size, parts=at.size)[0]), value)
        return EpsilonBound(
            method="epsilon_from_scores",
            value=value,
            **vars(self),
            validity="iid-scores",
            counts={
                "true_positives": int(tp[best]),
                "positives": ins.size,
                "false_positives": int(fp[best]),
                "negatives": outs.size,
            },
            threshold=float(at[best]),
            threshold_choice=choice,
            max_attainable=most,
            assumptions=(SCORES_ALIKE,),
            notes=two_sample_notes(value, most, self.delta, ins, outs),
        )

    def _split(self, ins: Floats, outs: Floats, share: float, seed: int) -> EpsilonBound:
        """Choose on one part, bound on the other."""
        generator = np.random.default_rng(seed)
        in_choice, in_rest = _parts("in_scores", ins, share, generator)
        out_choice, out_rest = _parts("out_scores", outs, share, generator)
        at = _candidates(in_choice, out_choice)
        tp, fp = _above(in_choice, at), _above(out_choice, at)
        values = self._values(tp, fp, in_choice.size, out_choice.size, parts=1)
        chosen = at[[int(values.argmax())]]
        choice = f"chosen on {share:g} of each sample (seed {seed}), bound on the rest"
        return self._best(in_rest, out_rest, chosen, choice)

    def _bonferroni(self, ins: Floats, outs: Floats, grid: Floats, by: str) -> EpsilonBound:
        """Thresholds fixed beforehand, as scores or as ranks of the out-scores."""
        if by == "value":
            return self._best(
                ins, outs, grid, f"best of {grid.size} scores fixed beforehand (Bonferroni)"
            )
        ranks = np.unique(np.clip(np.ceil(grid * outs.size), 1, outs.size).astype(np.int64))
        # The share above the r-th highest out-score is at most Beta(r, m - r + 1), as for r - 1
        # false positives, whatever ties there are.
        choice = f"best of {ranks.size} ranks of the out-scores fixed beforehand (Bonferroni)"
        return self._best(ins, outs, outs[outs.size - ranks], choice, ranks - 1)

    def _values(
        self, tp: Counts, fp: Counts, positives: int, negatives: int, parts: int | None = None
    ) -> Floats:
        """Bounds per threshold; both directions follow from the same two rates."""
        tail = self.significance / 2 / (parts or len(tp))
        tpr, fpr = rates(tp, positives, fp, negatives, tail=tail)
        if self.repetitions == 1 or self.delta == 0:
            # One delta for every threshold: no equation to solve for each.
            return _either_way(tpr, fpr, self.delta) / self.repetitions

        def at(index: int) -> float:
            return self.per_document(
                lambda group: float(_either_way(tpr[[index]], fpr[[index]], group)[0])
            )

        return np.array([at(index) for index in range(len(tp))])


def _above(ordered: Floats, at: Floats) -> Counts:
    """How many of the ascending scores lie strictly above each threshold, shape of `at`."""
    return np.asarray(ordered.size - np.searchsorted(ordered, at, side="right"))


def _either_way(tpr: Floats, fpr: Floats, delta: float) -> Floats:
    """The bound of whichever attack shows more: above means in, or below means out; (n,)."""
    return np.maximum(log_ratio(tpr, fpr, delta), log_ratio(1 - fpr, 1 - tpr, delta))


def _parts(
    name: str, scores: Floats, share: float, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    size = round(share * scores.size)
    if not 0 < size < scores.size:
        raise InputError(
            f"{name} has {scores.size} scores, too few to choose a threshold on {share:g} of them; "
            "use OrderStatistics()"
        )
    shuffled = generator.permutation(scores)
    return np.sort(shuffled[:size]), np.sort(shuffled[size:])


def _candidates(ins: Floats, outs: Floats) -> Floats:
    """Scores at ranks that are dense at the ends of each sample."""
    picked = []
    for scores in (ins, outs):
        steps = np.unique(np.geomspace(1, scores.size, _CANDIDATES // 4).astype(np.int64))
        picked += [scores[steps - 1], scores[scores.size - steps]]
    return np.unique(np.concatenate(picked))


@dataclass(frozen=True, kw_only=True)
class JointBetaEpsilon(EpsilonBound):
    """A posterior of epsilon; `value` is a lower credible bound that is 0 without signal."""

    # low, high, one_sided_low: as the source has them, which takes an attack that is worse than
    # chance as one that guesses the other way round: they are above 0 even without signal
    low: float  # lower end of the two-sided credible interval, in nats
    high: float  # upper end: epsilon as far as this one attack shows it, not a guarantee
    one_sided_low: float  # exceeded with posterior probability 1 - significance


# False negatives, false positives, true negatives, true positives.
_Four = tuple[int, int, int, int]


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
    fn = integer("false_negatives", false_negatives, low=0)
    fp = integer("false_positives", false_positives, low=0)
    tn = integer("true_negatives", true_negatives, low=0)
    tp = integer("true_positives", true_positives, low=0)
    positives, negatives = tp + fn, tn + fp
    if positives == 0 or negatives == 0:
        raise InputError(
            f"{positives} canaries were in and {negatives} were out; epsilon compares the two: "
            "give guesses for at least one of each"
        )
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    level = terms.significance

    def above(epsilon: float, counts: _Four = (fn, fp, tn, tp)) -> float:
        return _beyond(counts, epsilon, terms.delta, terms.repetitions)

    def above_either_way(epsilon: float) -> float:
        # Had every guess been the other way round, right ones would be wrong ones.
        return above(epsilon) + above(epsilon, (tp, tn, fp, fn))

    value = _quantile(above, 1 - level)
    most = _quantile(lambda epsilon: above(epsilon, (0, 0, negatives, positives)), 1 - level)
    return JointBetaEpsilon(
        method="joint_beta_epsilon",
        value=value,
        low=_quantile(above_either_way, 1 - level / 2),
        high=_quantile(above_either_way, level / 2),
        one_sided_low=_quantile(above_either_way, 1 - level),
        **vars(terms),
        validity="bayesian",
        counts={
            "false_negatives": fn,
            "false_positives": fp,
            "true_negatives": tn,
            "true_positives": tp,
        },
        threshold=None,
        threshold_choice="given by the counts",
        max_attainable=most,
        assumptions=_PRIORS,
        notes=rate_notes(value, most, terms.delta, tp / positives, fp / negatives),
    )


def _beyond(counts: _Four, epsilon: float, delta: float, repetitions: int) -> float:
    """Posterior probability that the epsilon of one document is above `epsilon`.

    With x the false positive rate and y the false negative rate, (epsilon, delta) allows
    y >= max(1 - delta - e^epsilon x, e^-epsilon (1 - delta - x)); y below that is beyond it.
    """
    delta = group_delta(epsilon, delta, repetitions)
    scale = math.exp(min(repetitions * epsilon, 700.0))
    fn, fp, tn, tp = counts
    misses = fn + 0.5, tp + 0.5
    marks = beta_quantiles(*misses)
    kink = (1 - delta) / (1 + scale)
    breaks = np.concatenate(
        [
            (1 - delta - marks) / scale,
            1 - delta - scale * marks,
            [kink, (1 - delta) / scale, 1 - delta],
        ]
    )
    x = beta_nodes(fp + 0.5, tn + 0.5, breaks)
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
