"""Bounds on epsilon from many trained models, in which each text is by a fair coin of its own.

The mechanism is M trainings with the coins of M x N cells, all independent. A coin touches one
training alone, so that the M trainings together are as private, coin by coin, as each of them.
Three questions are asked of them, each with `one_run_audit`, whose proof needs fair independent
coins, and scores in which a coin shows through the trained models alone:

together: all cells are one audit. The order may be any function of the trained models, and is that
    of scores less their text's mean over all models: about half of the models hold a text, so that
    its mean lies between in and out without a look at a coin. Leave-one-out scores would not do:
    a model's score is made with the other models' coins, which are guessed in the same audit.
per model: each model is an audit of its own. The other models' coins are independent of its coins,
    so that its row of leave-one-out scores may use them. Of M bounds the largest is claimed, each
    at a share 1/M of the significance.
per text: each text is an audit of its own, whose cells are its coins in M models, by raw scores. Of
    N bounds the largest is claimed, each at a share 1/N.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import integer
from lmexposure.errors import InputError
from lmexposure.statistics._references import alike_texts
from lmexposure.statistics._rows import column
from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.one_run import Audit, one_run_audit, right_guesses
from lmexposure.statistics.many_models import coin_matrix, score_matrix
from lmexposure.statistics.results import EpsilonBound

_TRAINED_APART = "the models were trained independently of each other, each from its own coins"


@dataclass(frozen=True, kw_only=True, eq=False)
class LargestBound:
    """The largest of several bounds at one joint level."""

    bound: EpsilonBound  # the largest, with the significance of all of them together
    number: int  # of the model, or of the text, that it is of
    chosen_from: int  # how many there were
    # the bound of each by itself at the whole significance, which holds for a model or a text that
    # was named beforehand; NaN where there is none. Shape (M,) or (N,).
    values: NDArray[np.float64]


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
    x = score_matrix("scores", scores)
    coins = coin_matrix("included", included, x.shape)
    bound = one_run_audit(
        _centred(x, kinds).ravel(),
        coins.ravel(),
        significance=significance,
        delta=delta,
        repetitions=repetitions,
        seed=seed,
    )
    return replace(bound, assumptions=(*bound.assumptions, _TRAINED_APART))


def _centred(x: NDArray[np.float64], kinds: Sequence[Hashable]) -> NDArray[np.float64]:
    """Scores less their text's mean over all models, in units of their kind's spread: (M, N)."""
    away: NDArray[np.float64] = x - x.mean(axis=0)
    for places in alike_texts(kinds, [1] * x.shape[1]).values():
        away[:, places] /= away[:, places].std() or 1.0
    return away


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
    x = score_matrix("scores", scores, may_miss=True)
    coins = coin_matrix("included", included, x.shape)
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
    x = score_matrix("scores", scores)
    coins = coin_matrix("included", included, x.shape)
    columns = list(zip(x.T, coins.T, strict=True))
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    return _largest(columns, terms, seed, what="texts")


def _largest(
    cells: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]],
    terms: Terms,
    seed: int,
    *,
    what: str,
) -> LargestBound:
    """Audit each by itself; only the best is audited again at its share of the level."""
    seed = integer("seed", seed, low=0)
    share = replace(terms, significance=terms.significance / len(cells))
    alone, paid = _Several(terms), _Several(share)
    values, shares = np.full(len(cells), np.nan), np.full(len(cells), -np.inf)
    for number, (own, its) in enumerate(cells):
        try:
            right = right_guesses(own, its, seed=seed)[1]
        except InputError:  # coins that are hardly fair, or nothing left
            continue
        values[number], shares[number] = alone.bound(right), paid.bound(right)
    if np.isnan(values).all():
        raise InputError(
            f"the coins of none of the {len(cells)} {what} can have been tossed fairly, or none "
            "has a score; give each cell a fair coin of its own"
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


class _Several:
    """Bounds of many audits: those of as many guesses, with one strongest look, are one number."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._known: dict[tuple[int, float], float] = {}

    def bound(self, right: NDArray[np.bool_]) -> float:
        """Of guesses right or wrong, in the order of their reveal."""
        audit = Audit(canaries=right.size, **vars(self._terms))
        if audit.delta > 0:  # what is forgiven differs from stage to stage
            return audit.decide(right).epsilon
        key = right.size, audit.strength(right)
        if key not in self._known:
            self._known[key] = audit.decide(right).epsilon
        return self._known[key]
