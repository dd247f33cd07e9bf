"""What one text in the training changes: counterfactual memorisation, and influence on others.

Many models were trained alike, each with texts of its own by coins. A text's counterfactual
memorisation is its mean score in the models that had it less that in the models that had not; its
influence on another text is the same difference of the other text's score.
Whether any of the texts leaves a trace is tested for all at once, by permutation of whole models.

Why that test is exact. A model s has coins C_s (N of them) and scores X_s. Where no text leaves a
trace, scores do not depend on coins, whatever the scores of one model have to do with each other.
The rows C_1, ..., C_M are exchangeable: by independent coins they are independent and alike; and
where each text is in just half of the models, by a random half of its own, numbering the models
anew makes no half likelier than another. So, given the scores, each way of dealing out the rows of
coins to the rows of scores is as likely as the real one, and so is the largest of all N statistics
under it (Westfall and Young 1993, section 2.6). Rows are dealt out whole: what the scores of one
model have in common stays as it is.

Where some texts do leave a trace, let the others be those whose scores, all together, depend on
none of their own coins; the texts with a trace may move them. The argument holds of these others,
and the largest over all texts is no less than the largest over them: that any of them is called is
as rare as the level says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import coverage, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import (
    Counts,
    Flags,
    Floats,
    Sides,
    coins_of,
    column,
    of_own,
    of_pairs,
    score_matrix,
    scores_and_coins,
)
from lmexposure.statistics.intervals import rate_difference

Side = Literal["greater", "two-sided"]
_ROUNDING = 1e-9  # of a statistic
_CELLS = 2**15  # statistics of pairs held at once: what a cache holds


@dataclass(frozen=True, kw_only=True, eq=False)
class CounterfactualMemorisation:
    """What each of N texts changes in its own score; higher = more memorised."""

    # models_in, models_out: with the text, and without, (N,); of fewer than two all else is NaN
    models_in: Counts
    models_out: Counts
    # mean_in, mean_out: of the score in these models, in its unit, shape (N,)
    mean_in: Floats
    mean_out: Floats
    value: Floats  # mean_in - mean_out, shape (N,)
    # low, high: its interval, for each text by itself, shape (N,)
    low: Floats
    high: Floats
    # by how many bits the whole text became likelier, shape (N,): `value` times the text's length;
    # of binary scores the log2 of the ratio of the two rates, infinite where one is 0
    log_ratio: Floats
    # standard deviation of the score between models alike, shape (N,): by fair coins the standard
    # error of `value` at S models is about spread * sqrt(4 / S)
    spread: Floats
    level: float  # coverage of the intervals
    method: str  # "Welch" or "Newcombe"


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """What each of N texts changes in the score of each of V others; higher = made it likelier."""

    # models_in, models_out: that had the text, and that had not, shape (N,)
    models_in: Counts
    models_out: Counts
    # mean of the models with the text less that of those without, (N, V); NaN of fewer than two
    value: Floats
    # low, high: its interval, for each pair by itself, shape (N, V)
    low: Floats
    high: Floats
    level: float  # coverage of the intervals


def counterfactual_memorisation(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    lengths: ArrayLike = 1.0,
    binary: bool = False,
    level: float = 0.95,
) -> CounterfactualMemorisation:
    """Mean score of the models that had a text less that of the models that had not.

    Args:
        scores: models x texts, shape (M, N), finite; higher = more likely. For texts that are to be
            compared: minus the text's bits, a token or a character.
        included: which text was in the training of which model, shape (M, N).
        lengths: tokens or characters that each text's bits were divided by, scalar or shape (N,).
        binary: scores are 0 and 1, such as "reproduced or not"; intervals are then Newcombe's.
        level: two-sided coverage.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none, lengths that are not
            above 0, binary scores that are neither 0 nor 1.
        SettingsError: a level out of range.

    Source: Zhang, Ippolito, Lee, Jagielski, Tramèr, Carlini 2023, Counterfactual memorization in
    neural language models, equation 1; Feldman and Zhang 2020, What neural networks memorize and
    why, equation 1; intervals of Welch 1947 and Newcombe 1998. Coverage at .95 with fair coins:
    Beta(8, 2) against Beta(5, 5) at 10, 20, 40 and 100 models .943, .947, .948 and .949 (20,000
    runs each); rates of .98 against .05 at 20, 40 and 100 models .911, .944 and .943 (5,000 runs
    each), where Welch's has .500, .762 and .869.

    >>> found = counterfactual_memorisation([[3.0], [5.0], [1.0], [2.0]], [[1], [1], [0], [0]])
    >>> found.value.tolist(), found.models_in.tolist()
    ([2.5], [2])
    """
    x, coins = scores_and_coins(scores, included)
    level, sizes = coverage("level", level), _lengths(lengths, x.shape[1])
    if binary and not np.isin(x, (0.0, 1.0)).all():
        raise InputError("binary scores must be 0 or 1; give binary=False for other numbers")
    centre = np.zeros(x.shape[1]) if binary else x.mean(axis=0)  # so that rates are not rounded
    sides = of_own(x - centre, coins)
    mean_in, mean_out = centre + sides.mean_in, centre + sides.mean_out
    low, high, log_ratio = *sides.ends(level), sides.difference * sizes
    if binary:
        low, high = _newcombe(mean_in, mean_out, sides, level)
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN where both rates are 0
            log_ratio = np.log2(mean_in) - np.log2(mean_out)
    return CounterfactualMemorisation(
        models_in=column(sides.models_in, np.int64),
        models_out=column(sides.models_out, np.int64),
        mean_in=column(mean_in, np.float64),
        mean_out=column(mean_out, np.float64),
        value=column(sides.difference, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        log_ratio=column(log_ratio, np.float64),
        spread=column(sides.spread, np.float64),
        level=level,
        method="Newcombe" if binary else "Welch",
    )


def influence(others: ArrayLike, included: ArrayLike, *, level: float = 0.95) -> Influence:
    """What each text changes in the scores of other texts, such as those that no model learned.

    Args:
        others: scores of the other texts, models x texts, shape (M, V), finite; higher = more
            likely. None of them was in a training by a coin, or their own coin moves them too.
        included: which of N texts was in the training of which model, shape (M, N).
        level: two-sided coverage.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none.
        SettingsError: a level out of range.

    Source: Zhang et al. 2023, Counterfactual memorization in neural language models, equation 2;
    Feldman and Zhang 2020, equation 2; intervals of Welch 1947.

    >>> influence([[3.0], [5.0], [1.0], [2.0]], [[1], [1], [0], [0]]).value.tolist()
    [[2.5]]
    """
    x = score_matrix("others", others)
    coins = coins_of(included, len(x))
    level = coverage("level", level)
    sides = of_pairs(x - x.mean(axis=0), coins)
    low, high = sides.ends(level)
    return Influence(
        models_in=column(coins.sum(axis=0), np.int64),
        models_out=column((~coins).sum(axis=0), np.int64),
        value=column(sides.difference, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        level=level,
    )


def memorisation_by_halves(
    scores: ArrayLike, included: ArrayLike, *, splits: int = 1, seed: int
) -> Floats:
    """What the most memorised texts show where they were not chosen by what they show.

    The largest of N estimates is too large: it was chosen for it. Half of the models order the
    texts, and the other half says what the text in each place shows; both ways, and the mean.

    Args:
        scores: as for `counterfactual_memorisation`.
        included: likewise.
        splits: of the models into halves, at random; the mean is over all.
        seed: of the splits.

    Returns:
        For each place, the most memorised first, what its text shows in the models that did not
        choose it, shape (N,); NaN where too few models are left on a side. It is of texts chosen
        from half of the models, which choose less well than all.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none.
        SettingsError: splits below 1, a negative seed.

    Source: Cox 1975, A note on data-splitting for the evaluation of significance levels. The
    largest of 1,000 texts without a trace, Beta(5, 5) scores, shows .22 by all of 20 models, and
    -.001 (standard error .005) by halves, in the mean over 200 sweeps.
    """
    x, coins = scores_and_coins(scores, included)
    splits = integer("splits", splits, low=1)
    rng, models = np.random.default_rng(integer("seed", seed, low=0)), len(x)
    found = []
    for _ in range(splits):
        first = np.isin(np.arange(models), rng.permutation(models)[: models // 2])
        halves = [of_own(x[half], coins[half]).difference for half in (first, ~first)]
        for chooses, says in (halves, halves[::-1]):
            found.append(says[np.argsort(-chooses, kind="stable")])
    known = ~np.isnan(found)
    total, count = np.where(known, found, 0.0).sum(axis=0), known.sum(axis=0)
    return column(np.where(count > 0, total / np.maximum(count, 1), np.nan), np.float64)


def _newcombe(
    rates_in: Floats, rates_out: Floats, sides: Sides, level: float
) -> tuple[Floats, Floats]:
    """Newcombe 1998, method 10: from Wilson's interval of each rate."""
    low, high = np.full(rates_in.shape, np.nan), np.full(rates_in.shape, np.nan)
    inside = _wilson(rates_in, sides.models_in, level)
    outside = _wilson(rates_out, sides.models_out, level)
    for n in np.flatnonzero(~np.isnan(rates_in)):
        found = rate_difference(_row(inside, int(n)), _row(outside, int(n)))
        low[n], high[n] = found.low, found.high
    return low, high


def _wilson(rates: Floats, models: Counts, level: float) -> tuple[Floats, Floats, Floats]:
    """Rate, low end and high end, shape (N,) each; Wilson 1927."""
    rates = np.clip(rates, 0.0, 1.0)
    z2 = special.ndtri((1 + level) / 2) ** 2 / np.maximum(models, 1)
    middle = (rates + z2 / 2) / (1 + z2)
    half = np.sqrt(z2 * (rates * (1 - rates) + z2 / 4)) / (1 + z2)
    return rates, np.clip(middle - half, 0.0, rates), np.clip(middle + half, rates, 1.0)


def _row(columns: tuple[Floats, Floats, Floats], n: int) -> tuple[float, float, float]:
    rate, low, high = (float(values[n]) for values in columns)
    return rate, low, high


def _lengths(lengths: ArrayLike, texts: int) -> Floats:
    """Lengths of shape (N,)."""
    array = np.asarray(lengths, dtype=np.float64)
    if array.shape not in ((), (texts,)) or not (np.isfinite(array) & (array > 0)).all():
        raise InputError(
            f"lengths has shape {array.shape}; give one number above 0, or one for each of "
            f"{texts} texts"
        )
    return np.broadcast_to(array, (texts,))


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxTTest:
    """How often chance gives any of all texts, or pairs, so large a studentised difference."""

    # Welch's, shape (N,) or (N, V); infinite where both sides are constant and differ; NaN with
    # fewer than two models on a side
    t: Floats
    p: Floats  # paid for by their number, in (0, 1], of the same shape; NaN likewise
    permutations: int  # that were drawn


def memorisation_test(
    scores: ArrayLike, included: ArrayLike, *, permutations: int = 999, seed: int
) -> MaxTTest:
    """Test all texts at once: does any score higher in the models that had it?

    Args:
        scores: as for `counterfactual_memorisation`; texts may be of different scales.
        included: likewise. Rows of coins must be exchangeable: by independent coins, or each text
            in just half of the models by a random half of its own.
        permutations: of models; no p is below 1 / (1 + permutations).
        seed: of the permutations.

    Returns:
        The test, one-sided, one p for each text.

    Raises:
        InputError: shapes, numbers that are not finite, coins that are none.
        SettingsError: permutations below 1.

    Source: proof at the top of this module; Westfall and Young 1993, Resampling-based multiple
    testing, section 2.6; studentised as by Janssen 1997, so that spreads may differ.
    """
    x, coins = scores_and_coins(scores, included)
    return _tested(x, coins, "greater", permutations, seed)


def influence_test(
    others: ArrayLike, included: ArrayLike, *, permutations: int = 999, seed: int
) -> MaxTTest:
    """Test all pairs at once: does any text move the score of another, up or down?

    Source: as `memorisation_test`.
    """
    x = score_matrix("others", others)
    return _tested(x, coins_of(included, len(x)), "two-sided", permutations, seed)


def _statistics(z: Floats, coins: Flags, side: Side) -> Iterator[Floats]:
    """Of each text, (N,), where one side counts; else of pairs, some texts at a time, (n, V)."""
    if side == "greater":
        yield of_own(z, coins).t
        return
    step = max(1, _CELLS // z.shape[1])
    for start in range(0, coins.shape[1], step):
        yield of_pairs(z, coins[:, start : start + step]).t


def _tested(x: Floats, coins: Flags, side: Side, permutations: int, seed: int) -> MaxTTest:
    """The largest statistic of each way of dealing rows of scores to rows of coins."""
    permutations = integer("permutations", permutations, low=1)
    z = x - x.mean(axis=0)
    rng = np.random.default_rng(integer("seed", seed, low=0))
    t = np.concatenate(list(_statistics(z, coins, side)))
    largest = []
    for _ in range(permutations):
        dealt = _statistics(z[rng.permutation(len(z))], coins, side)
        largest.append(max(_largest(part, side) for part in dealt))
    own = np.abs(t) if side == "two-sided" else t
    # What is equal but for rounding counts as equal, against the text.
    reached = own - _ROUNDING * np.where(np.isfinite(own), np.abs(own), 0.0)
    count = permutations - np.searchsorted(np.sort(largest), reached)
    p = np.where(np.isnan(t), np.nan, (1 + count) / (1 + permutations))
    return MaxTTest(t=column(t, np.float64), p=column(p, np.float64), permutations=permutations)


def _largest(t: Floats, side: Side) -> float:
    """Of all texts; minus infinity where none has enough models."""
    known = t[~np.isnan(t)]
    return float((np.abs(known) if side == "two-sided" else known).max(initial=-np.inf))
