"""Bounds on epsilon from many trained models.

Where each text is in each model by a fair coin of its own, the mechanism is M trainings with the
coins of M x N cells, all independent. A coin touches one training alone, so that the M trainings
together are as private, coin by coin, as each of them. Three questions are asked of them, each with
`one_run_audit`, whose proof needs fair independent coins, and scores in which a coin shows through
the trained models alone:

together: all cells are one audit. The order may be any function of the trained models, and is that
    of scores less their text's mean over all models: about half of the models hold a text, so that
    its mean lies between in and out without a look at a coin. Leave-one-out scores would not do:
    a model's score is made with the other models' coins, which are guessed in the same audit.
per model: each model is an audit of its own. The other models' coins are independent of its coins,
    so that its row of leave-one-out scores may use them. Of M bounds the largest is claimed, each
    at a share 1/M of the significance.
per text: each text is an audit of its own, whose cells are its coins in M models, by raw scores. Of
    N bounds the largest is claimed, each at a share 1/N.

Where each model has many correlated canaries of its own (`lidp_epsilon`, lifted privacy), a
canary's score says little of the next canary's in the same model, yet not nothing: models are the
independent draws here, and the canaries of a model only make its share of guesses steadier. How
much the guesses of a model depend on each other shows in the spread of the shares, and a bet that
adapts to the spread (`mean_at_least`) needs no model of it.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from lmexposure._validate import bits_array, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Flags, Floats, alike_texts, column, scores_and_coins
from lmexposure.statistics.bounds.bound import Terms, rate_notes
from lmexposure.statistics.bounds.one_run import Audit, one_run_audit, right_guesses
from lmexposure.statistics.intervals import binomial_interval
from lmexposure.statistics.results import EpsilonBound

_TRAINED_APART = "the models were trained independently of each other, each from its own coins"
# No single draw may cost more than this share of the capital.
_STAKE = 0.75
_ASSUMPTIONS = (
    "models are trained independently of each other: each with fresh canaries, drawn "
    "independently and alike",
    "the threshold was fixed before these scores were seen",
    "the models behind out_scores were trained with one canary fewer, or the neighbours differ in "
    "a replaced document, not in one that was added",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LargestBound:
    """The largest of several bounds at one joint level."""

    bound: EpsilonBound  # the largest, with the significance of all of them together
    number: int  # of the model, or of the text, that it is of
    chosen_from: int  # how many there were
    # the bound of each by itself at the whole significance, which holds for a model or a text that
    # was named beforehand; NaN where there is none. Shape (M,) or (N,).
    values: Floats


def together_epsilon(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    kinds: Sequence[Hashable],
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    seed: int,
) -> EpsilonBound:
    """Bound the epsilon of a training recipe with all cells of many models at once.

    Args:
        scores: raw, models x texts, shape (M, N), finite; higher = more likely in.
        included: which text was in the training of which model, by fair coins, shape (M, N).
        kinds: of the texts, N of them; scores of a kind are of one scale.
        significance: how often, at most, the bound may lie above the truth.
        delta: of the claim, for one document.
        repetitions: copies of each text in a model that has it.
        seed: of ties, independent of the coins.

    Returns:
        The bound, of class "any-dp".

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: proof at the top of this module, on that of `one_run_audit`.
    """
    x, coins = scores_and_coins(scores, included)
    # Less each text's mean over all models, in units of its kind's spread.
    away = x - x.mean(axis=0)
    for places in alike_texts(kinds, [1] * x.shape[1]).values():
        away[:, places] /= away[:, places].std() or 1.0
    bound = one_run_audit(
        away.ravel(),
        coins.ravel(),
        significance=significance,
        delta=delta,
        repetitions=repetitions,
        seed=seed,
    )
    return replace(bound, assumptions=(*bound.assumptions, _TRAINED_APART))


def per_model_epsilon(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    seed: int,
) -> LargestBound:
    """The largest of the bounds that each model's own coins give.

    Args:
        scores: leave-one-out, shape (M, N), as `lira_matrix` gives them; higher = more likely in. A
            cell that is NaN is left out of its row.
        included: as for `together_epsilon`.
        significance: of all bounds together.
        delta: as for `together_epsilon`.
        repetitions: as for `together_epsilon`.
        seed: as for `together_epsilon`.

    Raises:
        InputError: as `together_epsilon`, or no model whose coins can be audited.
        SettingsError: a setting out of range.

    Source: proof at the top of this module; Boole's inequality.
    """
    x, coins = scores_and_coins(scores, included, may_miss=True)
    rows = [(own[~np.isnan(own)], its[~np.isnan(own)]) for own, its in zip(x, coins, strict=True)]
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    return _largest(rows, terms, seed, what="models")


def per_text_epsilon(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    seed: int,
) -> LargestBound:
    """The largest of the bounds that each text's own coins in many models give.

    Args:
        scores: raw, shape (M, N), finite; higher = more likely in. Leave-one-out scores of a text
            are made with the very coins that are guessed.
        included: as for `together_epsilon`.
        significance: of all bounds together.
        delta: as for `together_epsilon`.
        repetitions: as for `together_epsilon`.
        seed: as for `together_epsilon`.

    Raises:
        InputError: as `together_epsilon`, or no text whose coins can be audited.
        SettingsError: a setting out of range.

    Source: proof at the top of this module; Boole's inequality.
    """
    x, coins = scores_and_coins(scores, included)
    columns = list(zip(x.T, coins.T, strict=True))
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    return _largest(columns, terms, seed, what="texts")


def _largest(
    cells: Sequence[tuple[Floats, Flags]], terms: Terms, seed: int, *, what: str
) -> LargestBound:
    """Audit each by itself; only the best is audited again at its share of the level."""
    seed = integer("seed", seed, low=0)
    share = replace(terms, significance=terms.significance / len(cells))
    values, shares = np.full(len(cells), np.nan), np.full(len(cells), -np.inf)
    alone: _Known = {}
    paid: _Known = {}
    for number, (own, its) in enumerate(cells):
        try:
            right = right_guesses(own, its, seed=seed)[1]
        except InputError:  # coins that are hardly fair, or nothing left
            continue
        values[number] = _bound(right, terms, alone)
        shares[number] = _bound(right, share, paid)
    if np.isnan(values).all():
        raise InputError(
            f"the coins of none of the {len(cells)} {what} can have been tossed fairly, or none "
            "has a score; give each canary in each model a fair coin of its own"
        )
    best = int(np.argmax(np.where(np.isneginf(shares), -1, shares)))
    bound = one_run_audit(*cells[best], **vars(share), seed=seed)
    return LargestBound(
        bound=replace(
            bound,
            significance=terms.significance,
            assumptions=(*bound.assumptions, _TRAINED_APART),
            threshold_choice=f"{bound.threshold_choice}; the largest of {len(cells)} {what}, each "
            f"at a significance of {share.significance:.3g}",
        ),
        number=best,
        chosen_from=len(cells),
        values=column(values, np.float64),
    )


_Known = dict[tuple[int, float], float]


def _bound(right: Flags, terms: Terms, known: _Known) -> float:
    """Of guesses in the order of their reveal; one for as many, with one strongest look."""
    audit = Audit(canaries=right.size, **vars(terms))
    if audit.delta > 0:  # what is forgiven differs from stage to stage
        return audit.decide(right).epsilon
    key = right.size, audit.strength(right)
    if key not in known:
        known[key] = audit.decide(right).epsilon
    return known[key]


def mean_at_least(values: Floats, significance: float) -> float:
    """A lower bound on the mean of independent draws, valid for every distribution on [0, 1].

    For an upper bound take one minus the bound for `1 - values`.

    Bet against each possible mean m on every draw in turn: where m is the mean (or above it), the
    capital is a nonnegative (super)martingale and reaches 1 / significance with probability
    `significance` at most (Ville). Every m against which it does so is excluded. The capital
    falls with m, so that what is left is an interval.

    Source: Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by
    betting, equation 26 (their predictable plug-in bets, one-sided).
    """
    goal = -math.log(significance)
    bets = _bets(values, goal)

    def wealth(mean: float) -> float:
        stakes = np.minimum(bets, _STAKE / mean)
        return float(np.max(np.cumsum(np.log1p(stakes * (values - mean))))) - goal

    # Just above 0 only a capital that beats every mean counts; at 1 no bet can win.
    least = 1e-12
    return float(brentq(wealth, least, 1.0, xtol=1e-12)) if wealth(least) > 0 else 0.0


def _bets(values: Floats, goal: float) -> Floats:
    """What to stake on each draw, from the draws before it alone, shape (n,)."""
    n = values.size
    seen = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(values)) / (seen + 1)
    variance = (0.25 + np.cumsum((values - mean) ** 2)) / (seen + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * goal / (n * before))


def lidp_epsilon(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    threshold: float,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
) -> EpsilonBound:
    """Lower bound on epsilon from n models with K canaries each, which need not be independent.

    With p the probability that an inserted canary scores above the threshold and q that a fresh
    one does: p <= e^epsilon q + delta, and 1 - q <= e^epsilon (1 - p) + delta. The rate of a
    model is a number in [0, 1], and the rates of different models are independent: p is bounded
    from below and q from above at half the significance each, and both inequalities then hold at
    no further price. With independent canaries the bound tightens as with n K models, with
    canaries that move together as with n.

    Args:
        in_scores: scores of the inserted canaries, shape (models, canaries), or (models,) for
            one each; higher = more likely in.
        out_scores: scores of fresh canaries, drawn like the inserted ones and not in the model's
            text, shape (models, canaries); neither number needs to be that of `in_scores`.
        threshold: scores strictly above it are guessed to be in; fixed beforehand.
        significance: how often, at most, the bound may lie above the truth.
        delta: of the claim, in [0, 1), for one document.
        repetitions: copies of each canary.

    Returns:
        The bound in nats, 0 without signal.

    Raises:
        InputError: an empty array, another shape, or a score that is not finite.
        SettingsError: a setting out of range.

    Source: Pillutla et al. 2023, Unleashing the power of randomization in auditing differentially
    private ML, Algorithm 1. Their intervals take moments of second and fourth order, by
    Bernstein's inequality or asymptotically; the ones by betting used here hold for every n and
    are narrower than the former. One canary a model: Clopper-Pearson.
    """
    inside, outside = _scores("in_scores", in_scores), _scores("out_scores", out_scores)
    cut = float(bits_array("threshold", threshold)[0])
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    hits, alarms = inside > cut, outside > cut  # (models, canaries)
    value = _epsilon(hits, alarms, terms)
    perfect = np.ones_like(hits), np.zeros_like(alarms)
    # A bet adapts to what it sees, so that no order of draws is provably the best one.
    most = max(value, _epsilon(*perfect, terms))
    return EpsilonBound(
        method="lidp_epsilon",
        value=value,
        **vars(terms),
        validity="any-dp",
        counts={
            "in_models": inside.shape[0],
            "in_canaries": inside.size,
            "in_above": int(hits.sum()),
            "out_models": outside.shape[0],
            "out_canaries": outside.size,
            "out_above": int(alarms.sum()),
        },
        threshold=cut,
        threshold_choice="fixed beforehand",
        max_attainable=most,
        assumptions=_ASSUMPTIONS,
        notes=rate_notes(value, most, terms.delta, float(hits.mean()), float(alarms.mean())),
    )


def _scores(name: str, values: ArrayLike) -> Floats:
    """Finite scores of shape (models, canaries)."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim not in (1, 2) or scores.size == 0:
        raise InputError(
            f"{name} has shape {scores.shape}; give one row for each model and one column for "
            "each of its canaries"
        )
    bits_array(name, scores.ravel())
    return scores.reshape(len(scores), -1)


def _epsilon(hits: Flags, alarms: Flags, terms: Terms) -> float:
    """The bound for one document; the rates do not depend on delta and are bounded once."""
    tail = terms.significance / 2
    inside, outside = _at_least(hits, tail), 1 - _at_least(~alarms, tail)

    def bound_at(grouped: float) -> float:
        return max(
            _log_ratio(inside - grouped, outside), _log_ratio(1 - outside - grouped, 1 - inside)
        )

    return terms.per_document(bound_at)


def _at_least(guesses: Flags, significance: float) -> float:
    """A lower bound on the share of true guesses."""
    models, canaries = guesses.shape
    if canaries == 1:
        interval = binomial_interval(int(guesses.sum()), models, level=1 - 2 * significance)
        return float(interval.low[0])
    return mean_at_least(guesses.mean(axis=1), significance)


def _log_ratio(above: float, below: float) -> float:
    # `below` is an upper bound from finitely many models, hence above 0 wherever `above` is.
    return max(0.0, math.log(above / below)) if above > 0 else 0.0
