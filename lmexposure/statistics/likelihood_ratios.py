"""LiRA: how much likelier a score is if the text was in the training than if it was not.

Scores are taken as normal, in and out, with moments from other models (Carlini et al. 2022). Over a
matrix each model is judged by the others; texts of a kind are alike, so that what a few models say
of a text's means and spread is drawn to what they say of its kind.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, one_of
from lmexposure.errors import InputError
from lmexposure.statistics._references import alike_texts, shadow_models
from lmexposure.statistics._rows import column
from lmexposure.statistics._shrinkage import (
    FLAT,
    Floats,
    Side,
    drawn_together,
    kind_variances,
    never_differ,
    sides_of_others,
    two_sides,
)
from lmexposure.statistics.many_models import coin_matrix, coin_notes, score_matrix

CERTAIN = 1e9  # nats, or standard deviations: evidence of scores without any spread
_FEWEST_TEXTS = 4  # of a kind, that tell how its texts differ
Moments = tuple[Floats, Floats]  # mean and standard deviation, (N,)
Mode = Literal["online", "offline"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LiraScores:
    """A LiRA score for every model and text; higher = more likely in.

    Row by row they may be given to a bound for that row's model: its coins are nowhere in them but
    through its own scores, where the coins of all cells are independent. Whether a cell is NaN
    follows from the other models' coins alone, so a row may be given to its bound without those
    cells. Of a column they must not be dropped: among a text's few cells the NaN ones tell coins.
    """

    # log-likelihood ratio in nats ("online"), or standard deviations above the mean of models that
    # did not see the text ("offline"), shape (M, N), between -1e9 and 1e9, which stand for scores
    # without any spread; NaN where a text was in (or out) no other model, or nothing tells the
    # spread
    scores: NDArray[np.float64]
    included: NDArray[np.bool_]  # the coins, shape (M, N)
    mode: str  # "online" or "offline"
    notes: tuple[str, ...]  # what is not as it should be, and how many cells are NaN


def lira(target: ArrayLike, in_scores: ArrayLike, out_scores: ArrayLike) -> NDArray[np.float64]:
    """Online LiRA against given models: log N(target; in) - log N(target; out), in nats.

    As published: each text by itself, its moments taken for the true ones. Of a matrix of models
    `lira_matrix` makes more.

    Args:
        target: the audited model's score of each text, one or shape (n,); higher = more likely in.
            Negative log-perplexity is near enough to normal as it is.
        in_scores: of at least 2 other models that were trained with the text, (k,) for one text or
            (k, n).
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
    inside = _shadows("in_scores", in_scores, x.size)
    outside = _shadows("out_scores", out_scores, x.size)
    quadratic = (_deviations(x, outside) ** 2 - _deviations(x, inside) ** 2) / 2
    return quadratic + np.log(outside[1]) - np.log(inside[1])


def lira_offline(target: ArrayLike, out_scores: ArrayLike) -> NDArray[np.float64]:
    """Offline LiRA: standard deviations by which a score lies above models without the text.

    One-sided: a score far below is no sign of membership. P(as high by chance) is the normal tail
    beyond the value; the value itself does not saturate as that probability does.

    Args:
        target: the audited model's score of each text, one or shape (n,); higher = more likely in.
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
    kinds: Sequence[Hashable] | None = None,
    mode: Mode = "online",
    shadows: ArrayLike | None = None,
) -> LiraScores:
    """LiRA of every model, with the other models as its reference.

    A text's variance is drawn to that of its kind, and in and out share it but for a factor of the
    kind. Its two means are drawn to those of its kind as far as texts of the kind are alike: of
    texts that are exchangeable, means of their own are noise and cost more than they tell. What is
    left unknown of a mean is added to the variance; of a text by itself that is the factor 1 + 1/n
    of a new score.

    Source: Carlini et al. 2022; leave-one-out as in Aerni et al. 2024; variances by Smyth 2004,
    means by Efron and Morris 1973.
    """
    x = score_matrix("scores", scores)
    coins = coin_matrix("included", included, x.shape)
    one_of("mode", mode, ("online", "offline"))
    references = shadow_models(shadows, len(x))
    found = np.empty_like(x)
    every = [""] * x.shape[1] if kinds is None else kinds
    for places in alike_texts(every, [1] * x.shape[1]).values():
        found[:, places] = _of_kind(x[:, places], coins[:, places], references, mode)
    missing = np.isnan(found)
    if missing.all():
        side = "out of" if mode == "offline" else "in, or out of,"
        raise InputError(
            f"no text has a score: each was {side} none of the other of {len(x)} models, or "
            "nothing tells the spread; train more models"
        )
    return LiraScores(
        scores=column(found, np.float64),
        included=column(coins, np.bool_),
        mode=mode,
        notes=coin_notes(coins) + _missing_notes(missing),
    )


def _of_kind(x: Floats, coins: NDArray[np.bool_], shadows: NDArray[np.bool_], mode: Mode) -> Floats:
    """LiRA of texts that are alike, (M, C)."""
    spread = float(x[shadows].std())
    scaled = ((x - x[shadows].mean()) / (spread or 1.0))[:, :, None]  # (M, C, 1)
    everyone = two_sides(scaled[shadows], coins[shadows])
    others = sides_of_others(scaled[shadows], coins[shadows])
    judge = _online if mode == "online" else _offline
    found = np.empty_like(x)
    for model, own in enumerate(scaled):
        sides = next(others) if shadows[model] else everyone
        found[model] = np.clip(judge(own, *sides)[:, 0], -CERTAIN, CERTAIN)
    return np.where(never_differ(x[:, :, None], shadows) & ~np.isnan(found), 0.0, found)


def _online(own: Floats, inside: Side, outside: Side) -> Floats:
    """The difference of two normal log-densities, nats: (C, 1)."""
    both = inside, outside
    variances = _variances(inside, outside)
    known = tuple(side.counts / v for side, v in zip(both, variances, strict=True))
    means, unknown = drawn_together((inside.means, outside.means), (known[0], known[1]))
    densities = []
    for side, mean, left, v in zip(both, means, unknown, variances, strict=True):
        whole = np.where(side.counts > 0, v + left, np.nan)
        densities.append(((own - mean) ** 2 / whole + np.log(whole)) / 2)
    found: Floats = densities[1] - densities[0]
    return found


def _offline(own: Floats, inside: Side, outside: Side) -> Floats:
    """Standard deviations above the mean of out, (C, 1)."""
    _, variance = _variances(inside, outside)
    known = outside.counts / variance
    here = known[:, 0] > 0
    mean, left = outside.means, 1 / np.where(known > 0, known, np.nan)
    if here.sum() >= _FEWEST_TEXTS:
        # Of a single mean a text: James and Stein's rule towards the mean of the kind.
        centre = mean[here].mean()
        apart = max(0.0, float(mean[here].var(ddof=1) - left[here].mean()))
        share = apart / (apart + left)
        mean, left = centre + share * (mean - centre), share * left
    found: Floats = (own - mean) / np.sqrt(variance + left)
    return found


def _variances(inside: Side, outside: Side) -> tuple[Floats, Floats]:
    """Of a new score around its mean, in and out, each of shape (C, 1); NaN where nothing tells.

    In and out share a text's variance but for a factor of the kind.
    """
    freedom = [float(side.freedom.sum()) for side in (inside, outside)]
    if sum(freedom) == 0:
        nothing = np.full_like(inside.means, np.nan)
        return nothing, nothing
    shared = kind_variances(inside, outside)
    found = [
        shared * (max(float((side.squares / shared).sum()) / free, FLAT**2) if free else 1.0)
        for side, free in zip((inside, outside), freedom, strict=True)
    ]
    return found[0], found[1]


def _missing_notes(missing: NDArray[np.bool_]) -> tuple[str, ...]:
    if not missing.any():
        return ()
    texts = int(missing.any(axis=0).sum())
    return (
        f"{int(missing.sum())} of {missing.size} scores are NaN, of {texts} of {missing.shape[1]} "
        "texts: in (or out of) none of the other models; train more models",
    )


def _deviations(x: Floats, moments: Moments) -> Floats:
    mean, spread = moments
    return (x - mean) / spread


def _shadows(name: str, values: ArrayLike, texts: int) -> Moments:
    """Mean and spread over models, each shape (N,)."""
    array = np.asarray(values, dtype=np.float64)
    array = score_matrix(name, array[:, None] if array.ndim == 1 else array)
    if array.shape[0] < 2 or array.shape[1] != texts:
        raise InputError(
            f"{name} has shape {array.shape}; give at least 2 models (rows) and one column for "
            f"each of {texts} texts"
        )
    flat = np.ptp(array, axis=0) == 0
    if flat.any():
        raise InputError(
            f"{name}: text {int(flat.argmax())} has the same score in all models, so that its "
            "spread is 0; give scores that are not rounded, or more models"
        )
    return array.mean(axis=0), array.std(axis=0, ddof=1)
