"""LiRA: how much likelier a score is under models that saw a canary than under those that did not.

Scores are taken as normal, in and out, with moments from other models (Carlini et al. 2022).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, one_of
from lmexposure.errors import InputError
from lmexposure.statistics._rows import column
from lmexposure.statistics.membership.matrices import coin_matrix, coin_notes, score_matrix

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation, (N,)


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
        mode: "online" compares in with out; "offline" only looks how far above out a score lies.
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
