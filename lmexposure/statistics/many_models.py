"""What many trained models say of each canary: LiRA, and each canary next to all of them together.

Scores and coins come as matrices, models x canaries. LiRA takes scores as normal, in and out, with
moments from other models (Carlini et al. 2022). A mechanism that publishes one record in full and
protects all others has a tiny TPR over the population, and none of its averages shows what became
of that record (Aerni et al. 2024): `canaries_and_population` shows both.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, fraction, one_of
from lmexposure.errors import InputError
from lmexposure.statistics._rows import column, finite_or_none, plain_list
from lmexposure.statistics.membership import tpr_at_fpr
from lmexposure.statistics.roc import roc_curve

_UNLIKELY = 1e-6
Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation, (N,)
_ASSUMPTIONS = (
    "the models were trained independently of each other",
    "each canary's coins are independent, with one probability over all models",
    "the population numbers are points without an interval: scores of one model are dependent",
)


def score_matrix(name: str, values: ArrayLike, *, may_miss: bool = False) -> NDArray[np.float64]:
    """Return finite float64 numbers of shape (M, N), M and N at least 1.

    Args:
        name: for messages.
        values: to be checked.
        may_miss: let NaN pass, as `lira_matrix` gives it; the caller says what becomes of it.

    Raises:
        InputError: another number of dimensions, nothing in it, or a NaN or infinity.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"{name} has shape {array.shape}; give one row a model and one column a canary"
        )
    bad = np.argwhere(np.isinf(array) if may_miss else ~np.isfinite(array))
    if bad.size:
        row, place = (int(i) for i in bad[0])
        raise InputError(
            f"{name}[{row}, {place}]={array[row, place]} is not finite ({len(bad)} of "
            f"{array.size} are not); a missing score cannot be dropped: score it again"
        )
    return array


def coin_matrix(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return booleans of this shape: which canary was in the training set of which model.

    Raises:
        InputError: another shape, or something that is neither true/false nor 1/0.
    """
    array = np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; give one coin a score, shape {shape}")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(
            f"{name} must hold true (in) and false (out), or 1 and 0, and nothing else"
        )
    return array.astype(bool)


def coin_notes(included: NDArray[np.bool_]) -> tuple[str, ...]:
    """Say where coins of shape (M, N) cannot have been tossed independently.

    A design that puts each canary into exactly half of the models makes a model's coin a function
    of the others' coins, and a score that uses the other models then reads it.
    """
    models, canaries = included.shape
    notes = []
    if _all_alike(included.sum(axis=0), models):
        notes.append(
            "every canary is in the same number of models, so that a model's coins follow from the "
            "other models' coins; toss each cell's coin by itself, or give these scores to no "
            "bound that needs independent coins"
        )
    if _all_alike(included.sum(axis=1), canaries):
        notes.append(
            "every model holds the same number of canaries, so that its coins are not independent "
            "of each other; no bound that needs independent coins holds for them"
        )
    return tuple(notes)


def _all_alike(sums: NDArray[np.int64], trials: int) -> bool:
    """All sums are the same, where independent coins would hardly ever give that."""
    count = int(sums[0])
    if not 0 < count < trials or (sums != count).any():
        return False
    share = count / trials
    # By Stirling's formula no count is likelier than this; the first sum sets what the others are.
    likeliest = min(0.5, 1 / np.sqrt(2 * np.pi * trials * share * (1 - share)))
    return bool((len(sums) - 1) * np.log(likeliest) < np.log(_UNLIKELY))


@dataclass(frozen=True, kw_only=True, eq=False)
class LiraScores:
    """A LiRA score for every model and canary; higher = more likely in.

    Row by row they may be given to a bound for that row's model: its coins are nowhere in them but
    through its own scores, where the coins of all cells are independent. Whether a cell is NaN
    follows from the other models' coins alone, so a row may be given to its bound without those
    cells. Of a column they must not be dropped: among a canary's few cells the NaN ones tell coins.

    Attributes:
        scores: log-likelihood ratio in nats ("online"), or standard deviations above the mean of
            models that did not see the canary ("offline"), shape (M, N); NaN where a canary was in
            (or out) too few other models to know a mean and a spread.
        included: the coins, shape (M, N).
        mode: "online" or "offline".
        global_variance: one variance for all canaries.
        notes: what is not as it should be, and how many cells are NaN.
    """

    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    mode: str
    global_variance: bool
    notes: tuple[str, ...]


def lira(target: ArrayLike, in_scores: ArrayLike, out_scores: ArrayLike) -> NDArray[np.float64]:
    """Online LiRA against given models: log N(target; in) - log N(target; out), in nats.

    Args:
        target: the audited model's score of each canary, one or shape (n,); higher = more likely
            in. Negative log-perplexity is near enough to normal as it is.
        in_scores: of at least 2 other models that were trained with the canary, (k,) for one canary
            or (k, n).
        out_scores: of at least 2 other models that were trained without it, (l,) or (l, n).

    Returns:
        Shape (n,), higher = more likely in.

    Raises:
        InputError: shapes that do not fit, a NaN or an infinity, scores without any spread.

    Source: Carlini et al. 2022, Membership inference attacks from first principles, Algorithm 1;
    standard deviations with n - 1.

    >>> lira(2.0, [1, 2, 3], [0, -1, 1]).tolist()
    [2.0]
    """
    x = bits_array("target", target)
    return _log_ratio(
        x, _shadows("in_scores", in_scores, x.size), _shadows("out_scores", out_scores, x.size)
    )


def lira_offline(target: ArrayLike, out_scores: ArrayLike) -> NDArray[np.float64]:
    """Offline LiRA: standard deviations by which a score lies above models without the canary.

    One-sided: a score far below is no sign of membership. P(as high by chance) is the normal tail
    beyond the value; the value itself does not saturate as that probability does.

    Args:
        target: the audited model's score of each canary, one or shape (n,); higher = more likely
            in.
        out_scores: of at least 2 other models that were trained without it, (l,) or (l, n).

    Returns:
        Shape (n,), higher = more likely in.

    Raises:
        InputError: as `lira`.

    Source: Carlini et al. 2022, the offline variant.

    >>> lira_offline(2.0, [0, -1, 1]).tolist()
    [2.0]
    """
    x = bits_array("target", target)
    return _deviations(x, _shadows("out_scores", out_scores, x.size))


def lira_matrix(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    mode: Literal["online", "offline"] = "online",
    global_variance: bool = False,
) -> LiraScores:
    """LiRA of every model, with all other models as its reference.

    Args:
        scores: models x canaries, shape (M, N), finite; higher = more likely in.
        included: which canary was in the training set of which model, shape (M, N); the coins of
            all cells must be independent.
        mode: "online" compares in with out; "offline" only measures how far a score lies above out.
        global_variance: one variance for all canaries, for a few models: of the scores around
            their canary's own mean, where the original takes it around the mean of all canaries.

    Returns:
        Scores of shape (M, N), O(M N) memory and O(M^2 N) time.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none; no canary that was in
            (and out) enough other models to know a mean and a spread; scores without any spread.
        SettingsError: an unknown mode.

    Source: Carlini et al. 2022; leave-one-out as in Aerni et al. 2024.
    """
    x = score_matrix("scores", scores)
    coins = coin_matrix("included", included, x.shape)
    one_of("mode", mode, ("online", "offline"))
    found = np.empty_like(x)
    for model in range(len(x)):
        outside = _masked_moments(x, ~coins, model, "out", global_variance)
        if mode == "offline":
            found[model] = _deviations(x[model], outside)
        else:
            inside = _masked_moments(x, coins, model, "in", global_variance)
            found[model] = _log_ratio(x[model], inside, outside)
    missing = np.isnan(found)
    if missing.all():
        side = "out" if mode == "offline" else "in or out"
        raise InputError(
            f"no canary has a score: each was {side} in too few of {len(x)} models; LiRA needs "
            f"{_needed(global_variance)} others on a side: {_way_out(global_variance)}"
        )
    return LiraScores(
        scores=column(found, np.float64),
        included=column(coins, np.bool_),
        mode=mode,
        global_variance=global_variance,
        notes=coin_notes(coins) + _missing_notes(missing, global_variance),
    )


def _missing_notes(missing: NDArray[np.bool_], pooled: bool) -> tuple[str, ...]:
    if not missing.any():
        return ()
    canaries = int(missing.any(axis=0).sum())
    return (
        f"{int(missing.sum())} of {missing.size} scores are NaN, of {canaries} of "
        f"{missing.shape[1]} canaries: in (or out) in fewer than {_needed(pooled)} of the other "
        f"models; {_way_out(pooled)}",
    )


def _way_out(pooled: bool) -> str:
    return "train more models" + ("" if pooled else ", or use global_variance=True")


def _needed(pooled: bool) -> int:
    """Other models on a side: for a mean, and for a spread where each canary has its own."""
    return 1 if pooled else 2


def _deviations(x: NDArray[np.float64], moments: Moments) -> NDArray[np.float64]:
    mean, spread = moments
    return (x - mean) / spread


def _log_ratio(x: NDArray[np.float64], inside: Moments, outside: Moments) -> NDArray[np.float64]:
    """The difference of two normal log-densities, nats: (N,)."""
    quadratic = (_deviations(x, outside) ** 2 - _deviations(x, inside) ** 2) / 2
    return quadratic + np.log(outside[1]) - np.log(inside[1])


def _shadows(name: str, values: ArrayLike, canaries: int) -> Moments:
    """Mean and spread over models, each shape (N,)."""
    array = np.asarray(values, dtype=np.float64)
    array = score_matrix(name, array[:, None] if array.ndim == 1 else array)
    if array.shape[0] < 2 or array.shape[1] != canaries:
        raise InputError(
            f"{name} has shape {array.shape}; give at least 2 models (rows) and one column for "
            f"each of {canaries} canaries"
        )
    _refuse_flat(np.ptp(array, axis=0) == 0, name)
    return array.mean(axis=0), array.std(axis=0, ddof=1)


def _masked_moments(
    x: NDArray[np.float64], mask: NDArray[np.bool_], left_out: int, side: str, pooled: bool
) -> Moments:
    """Mean and spread over the models of a side, one model left out, each shape (N,).

    NaN where too few models are left.
    """
    mask = mask.copy()
    mask[left_out] = False
    counts = mask.sum(axis=0)  # (N,)
    enough = counts >= _needed(pooled)
    mean = np.where(enough, np.where(mask, x, 0).sum(axis=0) / np.maximum(counts, 1), np.nan)
    highest = x.max(axis=0, where=mask, initial=-np.inf)
    flat = enough & (highest == x.min(axis=0, where=mask, initial=np.inf))
    squares = (np.where(mask & enough, x - mean, 0) ** 2).sum(axis=0)
    name = f"scores ({side}, without model {left_out})"
    if not pooled:
        _refuse_flat(flat, name)
        return mean, np.sqrt(np.where(enough, squares, np.nan) / np.maximum(counts - 1, 1))
    if not enough.any():
        return mean, mean
    _refuse_flat(np.atleast_1d(flat[enough].all()), name)
    return mean, np.full_like(mean, np.sqrt(squares.sum() / (counts[enough] - 1).sum()))


def _refuse_flat(flat: NDArray[np.bool_], name: str) -> None:
    if flat.any():
        raise InputError(
            f"{name}: canary {int(flat.argmax())} has the same score in all models, so that its "
            "spread is 0; give scores that are not rounded, more models, or, over a matrix, "
            "global_variance=True"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CanariesAndPopulation:
    """How well members can be told from others, canary by canary and over all cells together.

    All rates lie in [0, 1]; higher = more leaks.

    Attributes:
        canary_tpr: for each canary the share of the models that saw it whose score is strictly
            above that of every model that did not: its TPR without a false positive. Shape (N,);
            NaN where a canary was in all models or in none, or has a cell without a score.
        canary_p: how often chance alone gives a canary so high a `canary_tpr`; exact, shape (N,).
        canary_low: the advantage (TPR - FPR) of each canary is at least this, for all N at once
            with confidence 1 - significance; shape (N,).
        worst: the canary with the lowest p, of several the one with the higher `canary_tpr`.
        worst_p: its p-value, times the number of canaries: how often chance gives one such among
            them, at most 1.
        population_tpr: TPR at `fpr` of one threshold for all cells; None where not resolvable.
        population_advantage: largest TPR - FPR of one threshold for all cells.
        population_area: area under the ROC curve of all cells.
        fpr, significance, models, canaries: as given.
        assumptions, notes: what must hold, and what is not as it should be.
    """

    canary_tpr: NDArray[np.float64]
    canary_p: NDArray[np.float64]
    canary_low: NDArray[np.float64]
    worst: int
    worst_p: float
    population_tpr: float | None
    population_advantage: float
    population_area: float
    fpr: float
    significance: float
    models: int
    canaries: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values; the worst canary, then the population, then every canary."""
        return {
            "worst": {
                "canary": self.worst,
                "tpr": finite_or_none(self.canary_tpr[self.worst]),
                "advantage_low": float(self.canary_low[self.worst]),
                "p": self.worst_p,
            },
            "population": {
                "fpr": self.fpr,
                "tpr": self.population_tpr,
                "advantage": self.population_advantage,
                "area": self.population_area,
            },
            "canary_tpr": plain_list(self.canary_tpr),
            "canary_p": self.canary_p.tolist(),
            "canary_low": self.canary_low.tolist(),
            "significance": self.significance,
            "models": self.models,
            "canaries": self.canaries,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }


def canaries_and_population(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    fpr: float = 0.001,
    significance: float = 0.05,
    may_miss: bool = False,
) -> CanariesAndPopulation:
    """Each canary's own leak, and the leak of the population.

    With few models a canary's best threshold fits the noise, and the worst of many canaries looks
    leaked without any leak. So a canary's own threshold is fixed beforehand, at the highest score
    of the models that did not see it, and the p-value and the low end are of that threshold and
    paid for all canaries (Bonferroni).

    Args:
        scores: models x canaries, shape (M, N), finite; higher = more likely in.
        included: which canary was in the training set of which model, shape (M, N).
        fpr: at which the population's TPR is given, in (0, 1).
        significance: of all low ends together.
        may_miss: the scores are of `lira_matrix` and may be NaN. A canary with a NaN has no rate of
            its own, since among its cells the NaN ones can tell coins; its other cells count in the
            population, for whether a cell is NaN says nothing of its own coin. Notes say how many.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none; all cells in or none.
        SettingsError: `fpr` or `significance` out of range.

    Source: Aerni, Zhang, Tramèr 2024, Evaluations of machine learning privacy defenses are
    misleading.
    """
    x = score_matrix("scores", scores, may_miss=may_miss)
    coins = coin_matrix("included", included, x.shape)
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


def _own_rates(
    x: NDArray[np.float64], coins: NDArray[np.bool_], significance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
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


def _log_choose(total: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = (
        special.gammaln(total + 1)
        - special.gammaln(chosen + 1)
        - special.gammaln(total - chosen + 1)
    )
    return logs


def _missing(known: NDArray[np.bool_]) -> tuple[str, ...]:
    if known.all():
        return ()
    without = int((~known).any(axis=0).sum())
    return (
        f"{int((~known).sum())} of {known.size} cells have no score (NaN) and are left out of the "
        f"population; their {without} of {known.shape[1]} canaries have no rate of their own",
    )


def _one_sided(coins: NDArray[np.bool_]) -> tuple[str, ...]:
    missing = int((coins.all(axis=0) | ~coins.any(axis=0)).sum())
    if not missing:
        return ()
    return (
        f"{missing} of {coins.shape[1]} canaries were in all models or in none, and have no rate "
        "of their own; train more models",
    )
