"""What many trained models say of each canary, next to all of them together.

Scores and coins come as matrices, models x canaries. A mechanism that publishes one record in full
and protects all others has a tiny TPR over the population, and none of its averages shows what
became of that record (Aerni et al. 2024): `canaries_and_population` shows both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import fraction
from lmexposure.statistics.arrays import Counts, Flags, Floats, coin_notes, column, scores_and_coins
from lmexposure.statistics.membership import roc_curve, tpr_at_fpr

_ASSUMPTIONS = (
    "the models were trained independently of each other",
    "each canary's coins are independent, with one probability over all models",
    "the population numbers are points without an interval: scores of one model are dependent",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class CanariesAndPopulation:
    """How well members are told from others, by canary and over all cells; higher = more leaks."""

    # for each canary the share of the models that saw it whose score is strictly above that of
    # every model that did not: its TPR without a false positive. Shape (N,); NaN where a canary was
    # in all models or in none, or has a cell without a score.
    canary_tpr: Floats
    # how often chance alone gives a canary so high a `canary_tpr`; exact, shape (N,)
    canary_p: Floats
    # the advantage (TPR - FPR) of each canary is at least this, for all N at once with confidence 1
    # - significance; shape (N,)
    canary_low: Floats
    worst: int  # the canary with the lowest p, of several the one with the higher `canary_tpr`
    # its p-value, times the number of canaries: how often chance gives one such among them, at most
    # 1
    worst_p: float
    # TPR at `fpr` of one threshold for all cells; None where not resolvable
    population_tpr: float | None
    population_advantage: float  # largest TPR - FPR of one threshold for all cells
    population_area: float  # area under the ROC curve of all cells
    # fpr, significance, models, canaries: as given
    fpr: float
    significance: float
    models: int
    canaries: int
    # assumptions, notes: what must hold, and what is not as it should be
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]


def canaries_and_population(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    fpr: float = 0.001,
    significance: float = 0.05,
    may_miss: bool = False,
) -> CanariesAndPopulation:
    """Each canary's own leak, and the leak of the population.

    Source: Aerni, Zhang, Tramèr 2024, Evaluations of machine learning privacy defenses are
    misleading.
    """
    x, coins = scores_and_coins(scores, included, may_miss=may_miss)
    known = ~np.isnan(x)
    fpr, significance = fraction("fpr", fpr), fraction("significance", significance)
    inside, outside = x[coins & known], x[~coins & known]
    curve = roc_curve(inside, outside)
    pooled = tpr_at_fpr(inside, outside, fpr=fpr, level=1 - significance)
    tpr, p, low = _own_rates(x, coins, significance / x.shape[1])
    worst = int(np.lexsort((-np.nan_to_num(tpr), p))[0])
    unresolved = () if pooled.note is None else (f"population: {pooled.note}",)
    return CanariesAndPopulation(
        canary_tpr=column(tpr, np.float64),
        canary_p=column(p, np.float64),
        canary_low=column(low, np.float64),
        worst=worst,
        worst_p=min(1.0, float(p[worst]) * x.shape[1]),
        population_tpr=pooled.value,
        population_advantage=curve.advantage,
        population_area=curve.area,
        fpr=fpr,
        significance=significance,
        models=x.shape[0],
        canaries=x.shape[1],
        assumptions=_ASSUMPTIONS,
        notes=coin_notes(coins) + _missing(known) + _one_sided(coins) + unresolved,
    )


def _own_rates(x: Floats, coins: Flags, significance: float) -> tuple[Floats, Floats, Floats]:
    """TPR above all models without the canary, its p-value, and the advantage's low end: (N,)."""
    highest = x.max(axis=0, where=~coins, initial=-np.inf)  # (N,), NaN where one of them is
    m, n = coins.sum(axis=0), (~coins).sum(axis=0)
    known = (n > 0) & ~np.isnan(x).any(axis=0)
    above = np.where(known, (coins & (x > highest)).sum(axis=0), 0)
    tpr = np.where((m > 0) & known, above / np.maximum(m, 1), np.nan)
    # Chance puts all of the `above` highest of M places into m of them: C(M - k, n) / C(M, n).
    log_p = _log_choose(m + n - above, n) - _log_choose(m + n, n)
    tail = significance / 2
    # The FPR of that threshold is at most Beta(1, n).
    fpr_high = np.where(n > 0, 1 - tail ** (1 / np.maximum(n, 1)), 1.0)
    tpr_low = special.betaincinv(np.maximum(above, 1), np.maximum(m - above + 1, 1), tail)
    low = np.maximum(0.0, np.where(above > 0, tpr_low, 0.0) - fpr_high)
    return tpr, np.exp(np.minimum(0.0, log_p)), low


def _log_choose(total: Counts, chosen: Counts) -> Floats:
    return np.asarray(
        special.gammaln(total + 1)
        - special.gammaln(chosen + 1)
        - special.gammaln(total - chosen + 1)
    )


def _missing(known: Flags) -> tuple[str, ...]:
    if known.all():
        return ()
    without = int((~known).any(axis=0).sum())
    return (
        f"{int((~known).sum())} of {known.size} cells have no score (NaN) and are left out of the "
        f"population; their {without} of {known.shape[1]} canaries have no rate of their own",
    )


def _one_sided(coins: Flags) -> tuple[str, ...]:
    missing = int((coins.all(axis=0) | ~coins.any(axis=0)).sum())
    if not missing:
        return ()
    return (
        f"{missing} of {coins.shape[1]} canaries were in all models or in none, and have no rate "
        "of their own; train more models",
    )
