"""What many trained models say: of each canary, of all cells, and with models as the units.

Scores and coins come as matrices, models x canaries. A mechanism that publishes one record in full
and protects all others has a tiny TPR over the population, and none of its averages shows what
became of that record (Aerni et al. 2024): `canary_rates` does.

A cell is a model and a text. The cells of a model depend on each other, for they are of one
training; so do leave-one-out scores of different models, each of which is made with the others
(without a signal the area under their curve spreads 1.6 times as far as that of independent cells).
So the interval of `cell_rates` leaves models out, and makes all scores again from those that are
left. It is of these texts and other models: other texts may be harder or easier. Two rates over the
same models and texts are compared by `lower_rate_p`, which is far surer of their difference than
two intervals are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log1p

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import (
    Counts,
    Flags,
    Floats,
    coin_matrix,
    column,
    score_matrix,
    scores_and_coins,
)
from lmexposure.statistics.membership import area_under_curve, tpr_at_fpr
from lmexposure.statistics.results import CellRate


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryRates:
    """How well the models that saw a canary are told from the others; shape (N,) each."""

    # share of the models that saw it whose score is strictly above that of every model that did
    # not; NaN where it was in all or in none
    tpr: Floats
    p: Floats  # how often chance alone gives so high a `tpr`; exact
    low: Floats  # TPR - FPR is at least this, at `significance` for all N


def canary_rates(
    scores: ArrayLike, included: ArrayLike, *, significance: float = 0.05
) -> CanaryRates:
    """Each canary's own leak.

    Source: Aerni, Zhang, Tramèr 2024, Evaluations of machine learning privacy defenses are
    misleading.
    """
    x, coins = scores_and_coins(scores, included)
    tail = fraction("significance", significance) / x.shape[1] / 2
    highest = x.max(axis=0, where=~coins, initial=-np.inf)  # (N,)
    m, n = coins.sum(axis=0), (~coins).sum(axis=0)
    above = np.where(n > 0, (coins & (x > highest)).sum(axis=0), 0)
    tpr = np.where((m > 0) & (n > 0), above / np.maximum(m, 1), np.nan)
    # Chance puts all of the `above` highest of M places into m of them: C(M - k, n) / C(M, n).
    log_p = _log_choose(m + n - above, n) - _log_choose(m + n, n)
    # The FPR of that threshold is at most Beta(1, n).
    fpr_high = np.where(n > 0, 1 - tail ** (1 / np.maximum(n, 1)), 1.0)
    tpr_low = special.betaincinv(np.maximum(above, 1), np.maximum(m - above + 1, 1), tail)
    low = np.maximum(0.0, np.where(above > 0, tpr_low, 0.0) - fpr_high)
    return CanaryRates(tpr=tpr, p=np.exp(np.minimum(0.0, log_p)), low=low)


def _log_choose(total: Counts, chosen: Counts) -> Floats:
    return np.asarray(
        special.gammaln(total + 1)
        - special.gammaln(chosen + 1)
        - special.gammaln(total - chosen + 1)
    )


# Given which models are kept, shape (M,): their scores, one row a kept model, NaN where there is
# none, shape (kept, N).
Attack = Callable[[Flags], ArrayLike]

_RATES = (0.01, 0.001)
_PARTS = 32  # of models, each left out once: more parts say hardly more of the spread
_FEWEST_MODELS = 4
_LEAST = 1e-12  # variance of a share that is taken for none
CURVE = tuple(float(f"{rate:.6g}") for rate in np.geomspace(1e-4, 1, 41))  # rates of the ROC curve


@dataclass(frozen=True, kw_only=True, eq=False)
class CellRates:
    """What the cells of some texts show; higher = more leaks."""

    area: float  # under the ROC curve, in [0, 1], with its interval `area_low`, `area_high`
    area_low: float
    area_high: float
    rates: tuple[CellRate, ...]  # TPR at low FPRs
    # fpr, tpr, low, high: points of the ROC curve that these cells resolve, shape (P,) each
    fpr: Floats
    tpr: Floats
    low: Floats
    high: Floats
    level: float  # coverage of each interval
    models: int  # units of the intervals
    # cells_in, cells_out: with a score
    cells_in: int
    cells_out: int
    cells_missing: int  # without one


def cell_rates(
    attack: Attack,
    included: ArrayLike,
    *,
    groups: Mapping[str, ArrayLike],
    fprs: Sequence[float] = _RATES,
    level: float = 0.95,
) -> dict[str, CellRates]:
    """Area, TPR at low FPRs and ROC curve over cells, group by group.

    An interval is, at each end, the wider of two: that of cells which are independent, exact for
    every number of them, and that of a jackknife which leaves out a model at a time (of more than
    32, a part of the models) and makes all scores again without it. By Efron and Stein 1981 the
    jackknife's variance is not too small in the mean; Korn and Graubard's rule makes an interval of
    it, for as many independent models as have that variance. A symmetric one misses where a few
    models leak and most do not.

    Where none that leaks is among these models, no model that is left out shows a spread. So the
    upper end of a TPR is no lower than Clopper and Pearson's for as many coins as there are models,
    with the TPR's share of heads: of all laws on [0, 1] of one mean, coins spread farthest. With no
    leak in 16 models it is at least .21, as of such a sample .21 of all models may leak.

    Source: Efron and Stein 1981, The jackknife estimate of variance; Korn and Graubard
    1998, Confidence intervals for proportions with small expected number of positive counts;
    `tpr_at_fpr` and `area_under_curve` for independent cells.
    """
    coins = np.asarray(included)
    coins = coin_matrix("included", coins, coins.shape)
    if coins.ndim != 2 or len(coins) < _FEWEST_MODELS:
        raise InputError(
            f"included has shape {coins.shape}; models are the units of an interval, and it takes "
            f"at least {_FEWEST_MODELS}"
        )
    level = fraction("level", level)
    fprs = tuple(fraction("fprs", rate) for rate in fprs)
    places = {name: np.asarray(its, dtype=np.intp) for name, its in groups.items()}
    everyone = np.ones(len(coins), dtype=bool)
    whole = _scores(attack, everyone, coins.shape[1])
    spread: dict[str, list[Floats]] = {name: [] for name in groups}
    parts = min(len(coins), _PARTS)
    for part in (np.arange(first, len(coins), parts) for first in range(parts)):
        kept = everyone.copy()
        kept[part] = False
        scores = _scores(attack, kept, coins.shape[1])
        for name, its in places.items():
            cells = _Cells.of(scores[:, its], coins[kept][:, its])
            spread[name].append(cells.numbers(fprs))
    return {
        name: _rates(name, whole[:, its], coins[:, its], np.array(spread[name]), fprs, level)
        for name, its in places.items()
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class RateParts:
    """TPR at a FPR over cells, and what it owes to each model and to each text."""

    value: float  # the TPR, in [0, 1], higher = more leaks
    without: Floats  # that of the other models, threshold and all, each left out, shape (M,)
    # found cells of each text, less as many as the TPR expects of it, as a share of all cells in;
    # shape (N,), 0 of texts that do not count
    of_texts: Floats
    counted: Flags  # which texts count, shape (N,)
    positives: int  # cells in


def rate_parts(
    scores: ArrayLike, included: ArrayLike, *, texts: ArrayLike, fpr: float
) -> RateParts | None:
    """The TPR over the cells of some texts, taken apart; None where they are all in, or all out.

    Source: Efron and Stein 1981, the jackknife; Cameron, Gelbach and Miller 2011, two-way clusters.
    """
    x, coins = scores_and_coins(scores, included, may_miss=True)
    rate = np.array([fraction("fpr", fpr)])
    counted = np.isin(np.arange(x.shape[1]), np.asarray(texts, dtype=np.intp))
    x = np.where(counted, x, np.nan)
    cells = _Cells.of(x, coins)
    if not cells.two_sided:
        return None
    positives, inside = cells.inside.size, coins & ~np.isnan(x)
    value = float(cells.tpr(rate)[0])
    found = inside & (x > cells.thresholds(rate))
    without = np.full(len(x), np.nan)
    for model in range(len(x)):
        others = _Cells.of(np.delete(x, model, axis=0), np.delete(coins, model, axis=0))
        if others.two_sided:
            without[model] = others.tpr(rate)[0]
    return RateParts(
        value=value,
        without=without,
        of_texts=(found.sum(axis=0) - value * inside.sum(axis=0)) / positives,
        counted=counted,
        positives=positives,
    )


def lower_rate_p(lower: RateParts, higher: RateParts) -> float:
    """How often chance alone puts one rate so far below another, were it truly no lower.

    What a cell shows is of its model, of its text (all models judge a text by nearly the same
    others), and its own. The jackknife's variance of the difference, a model left out of both, has
    the first and the last; that of the texts' sums has the second and the last. The variance taken
    is the sum of both, so that what is of the cells alone counts twice, and of one cell more: where
    all of the difference is in a few cells, or in none, the spread that is seen is too small. What
    both rates have in common, coins, seeds and how hard a text is, cancels. Student's t has as many
    degrees of freedom as there are models, or texts, less one. Measured: see
    `test_a_rate_is_called_lower_as_seldom_as_its_p_says`.

    Source: Efron and Stein 1981; Cameron, Gelbach and Miller 2011, Robust inference with multiway
    clustering, who take the cells' own variance off once.
    """
    if (lower.without.shape, lower.counted.shape) != (higher.without.shape, higher.counted.shape):
        raise InputError(
            f"lower has {lower.without.size} models and {lower.counted.size} texts, higher "
            f"{higher.without.size} and {higher.counted.size}; give rates of the same"
        )
    models, texts = lower.without.size, int((lower.counted | higher.counted).sum())
    if min(models, texts) < 2:
        return 1.0
    left = higher.without - lower.without
    of_models = (models - 1) / models * float(((left - left.mean()) ** 2).sum())
    of_texts = texts / (texts - 1) * float(((higher.of_texts - lower.of_texts) ** 2).sum())
    one_cell = 1 / min(lower.positives, higher.positives) ** 2
    away = (higher.value - lower.value) / np.sqrt(of_models + of_texts + one_cell)
    p = float(special.stdtr(min(models, texts) - 1, -away))
    return 1.0 if np.isnan(p) else p


def models_needed(fpr: float, texts: int, *, level: float = 0.95) -> int:
    """How many models it takes until the cells without a text resolve a FPR.

    Source: as `tpr_at_fpr`: (1 - fpr)^n below (1 - level) / 2.

    >>> models_needed(0.001, 100)
    74
    """
    texts = integer("texts", texts, low=1)
    negatives = floor(log((1 - fraction("level", level)) / 2) / log1p(-fraction("fpr", fpr))) + 1
    return ceil(2 * negatives / texts)


def _scores(attack: Attack, kept: Flags, texts: int) -> Floats:
    scores = score_matrix("scores of the attack", attack(kept), may_miss=True)
    if scores.shape != (int(kept.sum()), texts):
        raise InputError(
            f"the attack gave scores of shape {scores.shape} for {int(kept.sum())} models and "
            f"{texts} texts; give one row a model that is kept"
        )
    return scores


@dataclass(frozen=True)
class _Cells:
    """Scores in and out, ascending, of the cells that have one."""

    inside: Floats
    outside: Floats

    @classmethod
    def of(cls, scores: Floats, coins: Flags) -> "_Cells":
        known = ~np.isnan(scores)
        return cls(np.sort(scores[known & coins]), np.sort(scores[known & ~coins]))

    @property
    def two_sided(self) -> bool:
        return bool(self.inside.size and self.outside.size)

    def numbers(self, fprs: Sequence[float]) -> Floats:
        """The area, the TPR at each rate, then at those of the curve; NaN where a side is empty."""
        if not self.two_sided:
            return np.full(1 + len(fprs) + len(CURVE), np.nan)
        left, right = (np.searchsorted(self.outside, self.inside, end) for end in ("left", "right"))
        area = float((left + right).mean() / 2 / self.outside.size)
        return np.concatenate([[area], self.tpr(np.array([*fprs, *CURVE]))])

    def tpr(self, fprs: Floats) -> Floats:
        """With as many false positives as a rate allows, and no more."""
        m, thresholds = self.inside.size, self.thresholds(fprs)
        return (m - np.searchsorted(self.inside, thresholds, "right")) / m

    def thresholds(self, fprs: Floats) -> Floats:
        """Above which a cell is found, at each rate."""
        n = self.outside.size
        allowed = np.floor(fprs * n + 1e-9).astype(np.intp)
        return np.where(allowed >= n, -np.inf, self.outside[np.maximum(n - 1 - allowed, 0)])


def _rates(
    name: str, scores: Floats, coins: Flags, spread: Floats, fprs: Sequence[float], level: float
) -> CellRates:
    """Of one group; `spread` holds the numbers of each part left out, (parts, numbers)."""
    cells = _Cells.of(scores, coins)
    if not cells.two_sided:
        raise InputError(
            f"group {name!r} has {cells.inside.size} scored cases with their text and "
            f"{cells.outside.size} without; it takes both"
        )
    numbers = cells.numbers(fprs)
    ends = _ends(numbers, spread, level)
    # Clopper and Pearson's upper end, where each model is a coin: heads leaks in full.
    wrong = len(scores) * (1 - numbers[1:])
    right, side = len(scores) * numbers[1:], (1 - level) / 2
    most = special.betainccinv(right + 1, np.where(wrong > 0, wrong, 1), side)
    ends[1, 1:] = np.maximum(ends[1, 1:], np.where(wrong > 0, most, 1.0))
    area = area_under_curve(cells.inside, cells.outside, level=level)
    found = [
        _rate(cells, fpr, ends[:, 1 + i], level, scores.shape[1]) for i, fpr in enumerate(fprs)
    ]
    curve = _curve(cells, numbers[1 + len(fprs) :], ends[:, 1 + len(fprs) :], level)
    return CellRates(
        area=numbers[0],
        area_low=min(area.low, float(ends[0, 0])),
        area_high=max(area.high, float(ends[1, 0])),
        rates=tuple(found),
        level=level,
        models=len(scores),
        cells_in=cells.inside.size,
        cells_out=cells.outside.size,
        cells_missing=int(np.isnan(scores).sum()),
        **curve,
    )


def _ends(values: Floats, spread: Floats, level: float) -> Floats:
    """Of intervals of shares by the jackknife over parts, low and high: (2, numbers)."""
    known = spread[~np.isnan(spread).any(axis=1)]
    parts = len(known)
    if parts < 2:
        return np.stack([np.zeros_like(values), np.ones_like(values)])
    variance = (parts - 1) / parts * ((known - known.mean(axis=0)) ** 2).sum(axis=0)
    side = (1 - level) / 2
    few = special.ndtri(side) / special.stdtrit(parts - 1, side)
    models = few**2 * values * (1 - values) / np.maximum(variance, _LEAST)
    right, wrong = models * values, models * (1 - values)
    inner = (right > 0) & (wrong > 0)  # a value of 0 or 1 is left to independent cells
    k, rest = np.where(inner, right, 1), np.where(inner, wrong, 1)
    low = np.where(inner, special.betaincinv(k, rest + 1, side), values)
    high = np.where(inner, special.betainccinv(k + 1, rest, side), values)
    return np.stack([low, high])


def _rate(cells: _Cells, fpr: float, ends: Floats, level: float, texts: int) -> CellRate:
    exact = tpr_at_fpr(cells.inside, cells.outside, fpr=fpr, level=level)
    note = (
        f"{cells.outside.size:,} cases without their text are too few for a false-positive rate of "
        f"{fpr:g}; with {texts:,} texts it takes {models_needed(fpr, texts, level=level):,} models"
    )
    return CellRate(
        fpr=fpr,
        value=exact.value,
        low=None if exact.low is None else min(exact.low, float(ends[0])),
        high=None if exact.high is None else max(exact.high, float(ends[1])),
        note=None if exact.note is None else note,
    )


def _curve(cells: _Cells, tpr: Floats, ends: Floats, level: float) -> dict[str, Floats]:
    """The points at which these cells resolve the FPR."""
    points = []
    for fpr, value, low, high in zip(CURVE[:-1], tpr[:-1], *ends[:, :-1], strict=True):
        exact = tpr_at_fpr(cells.inside, cells.outside, fpr=fpr, level=level)
        if exact.low is not None and exact.high is not None:
            points.append((fpr, value, min(exact.low, low), max(exact.high, high)))
    columns = zip(*points, (1.0, 1.0, 1.0, 1.0), strict=True)
    names = ("fpr", "tpr", "low", "high")
    return {n: column(values, np.float64) for n, values in zip(names, columns, strict=True)}
