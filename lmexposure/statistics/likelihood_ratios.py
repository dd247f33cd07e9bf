"""LiRA: how much likelier a score is if the text was in the training than if it was not.

Scores are taken as normal, in and out, with moments from other models (Carlini et al. 2022). Over a
matrix each model is judged by the others; texts of a kind are alike, so that what a few models say
of a text's means and spread is drawn to what they say of its kind. Means and variances each go as
far to those of the kind as the texts of the kind are alike, and that is estimated from them
(empirical Bayes).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from lmexposure._validate import bits_array, one_of
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import (
    Flags,
    Floats,
    alike_texts,
    coin_notes,
    column,
    score_matrix,
    scores_and_coins,
    shadow_models,
)

FLAT = 1e-5  # a spread below this is rounding in float32
_LEAST = 0.01  # variance of a scaled score: a side that never changes is no surer than that
_ALIKE = 1e-6  # variances whose logarithms have a variance below this are one variance
_FEWEST_LOGS = 8  # of variances, in and out, that tell how those of a kind differ
_FEWEST_PAIRS = 4  # of means, in and out, that tell how texts of a kind lie apart
CERTAIN = 1e9  # nats, or standard deviations: evidence of scores without any spread
_FEWEST_TEXTS = 4  # of a kind, that tell how its texts differ
Moments = tuple[Floats, Floats]  # mean and standard deviation, (N,)
Mode = Literal["online", "offline"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Of the models that saw each text, or of those that did not."""

    counts: Floats  # of models, shape (C, 1)
    means: Floats  # shape (C, T); 0 where there is no model
    squares: Floats  # of the distances to these means, summed over models, shape (C, T)

    @property
    def freedom(self) -> Floats:
        """What is left of each text's models when its mean is taken, shape (C, 1)."""
        return np.maximum(self.counts - 1, 0)

    def joined(self, other: "Side") -> "Side":
        """Both sides' models together.

        Source: Chan, Golub, LeVeque 1983, Algorithms for computing the sample variance, eq. 2.1.
        """
        counts = self.counts + other.counts
        away, share = other.means - self.means, other.counts / np.maximum(counts, 1)
        return Side(
            counts=counts,
            means=self.means + share * away,
            squares=self.squares + other.squares + self.counts * share * away**2,
        )


Sides = tuple[Side, Side]  # in and out


def sides_of_others(x: Floats, coins: Flags) -> Iterator[Sides]:
    """In and out, model by model, of all models but that one; of scores (M, C, T), coins (M, C).

    What came before a model is joined to what comes after it, and nothing is taken away again: a
    model's own coin, subtracted, would show in the last digits, where it puts equal scores in an
    order that no guess may know.
    """
    nothing = two_sides(x[:0], coins[:0])
    after = [nothing]
    for row, its in zip(x[:0:-1], coins[:0:-1], strict=True):
        after.append(_joined(_alone(row, its), after[-1]))
    before = nothing
    for row, its in zip(x, coins, strict=True):
        yield _joined(before, after.pop())
        before = _joined(before, _alone(row, its))


def _alone(x: Floats, its: Flags) -> Sides:
    """Of one model."""
    return two_sides(x[None], its[None])


def _joined(first: Sides, second: Sides) -> Sides:
    return first[0].joined(second[0]), first[1].joined(second[1])


def two_sides(x: Floats, coins: Flags) -> Sides:
    """In and out, of scores (M, C, T) and coins (M, C)."""
    return _side(x, coins), _side(x, ~coins)


def _side(x: Floats, here: Flags) -> Side:
    counts = here.sum(axis=0)[:, None].astype(np.float64)
    means = np.einsum("mct,mc->ct", x, here) / np.maximum(counts, 1)
    squares = np.zeros_like(means)
    for own, its in zip(x, here, strict=True):
        squares += its[:, None] * (own - means) ** 2
    return Side(counts=counts, means=means, squares=squares)


def never_differ(x: Floats, shadows: Flags) -> Flags:
    """Which scores, (M, C) of (M, C, T), are those that all shadows have.

    They tell nothing, whatever how many of the shadows are in and out makes of them: of equal
    scores that would put the models in the order of their coins.
    """
    first = x[shadows][0]
    alike = (x[shadows] == first).all(axis=(0, 2))
    return np.asarray(alike & (x == first).all(axis=2))


def kind_variances(inside: Side, outside: Side) -> Floats:
    """Of each text's tokens around its two means, (C, T), its own drawn to those of its kind.

    Variances of a kind differ as far as those in go with those out, text by text: chance makes both
    spread, but not together, however scores are distributed. What is left of the spread is chance;
    where that is more than normal scores have, a text's own variance counts as of fewer models. The
    prior counts as many models as it takes for that.

    Source: Smyth 2004, Linear models and empirical Bayes methods for assessing differential
    expression in microarray experiments, section 6.2; there, chance is that of normal scores.
    """
    freedom, squares = inside.freedom + outside.freedom, inside.squares + outside.squares
    logs, loose = _logarithms(squares, freedom)  # the texts that are not loose have no logarithm
    if not loose.any():
        return np.full_like(squares, FLAT**2)
    differ, share = _differences(inside, outside, logs, loose, freedom)
    if differ < _ALIKE:
        of_kind = np.broadcast_to(squares.sum(axis=0) / freedom.sum(), squares.shape)
        return of_kind + FLAT**2
    # Where the trigamma function is `differ`: it lies between 1/x and 1/x + 1/x^2.
    low, high = 1 / differ, 1 / differ + 1 / np.sqrt(differ)
    prior = 2 * float(optimize.brentq(lambda x: special.polygamma(1, x) - differ, low, high))
    of_kind = np.exp(_middle(logs, loose) + special.digamma(prior / 2)) * 2 / prior
    of_kind = of_kind * loose.any(axis=0)
    return np.asarray((prior * of_kind + share * squares) / (prior + share * freedom) + FLAT**2)


def _logarithms(squares: Floats, freedom: Floats) -> tuple[Floats, Flags]:
    """Of variances, less what chance does to them in the mean, and where there are any."""
    known = np.maximum(freedom, 1)
    loose = (freedom > 0) & (squares > FLAT**2 * known)
    logs = np.log(np.where(loose, squares, 1)) - np.log(2) - special.digamma(known / 2)
    return logs, loose


def _middle(logs: Floats, loose: Flags) -> Floats:
    """Of each token over the texts, (T,)."""
    return np.asarray(np.where(loose, logs, 0).sum(axis=0) / np.maximum(loose.sum(axis=0), 1))


def _differences(
    inside: Side, outside: Side, logs: Floats, loose: Flags, freedom: Floats
) -> tuple[float, float]:
    """The variance of the logarithms of true variances, and how far degrees of freedom count."""
    sides = [_logarithms(side.squares, side.freedom) for side in (inside, outside)]
    both = sides[0][1] & sides[1][1]
    left = int(both.sum()) - int(both.any(axis=0).sum())
    left_of_all = max(int(loose.sum()) - int(loose.any(axis=0).sum()), 1)
    spread = float((np.where(loose, logs - _middle(logs, loose), 0) ** 2).sum()) / left_of_all
    by_chance = float(np.where(loose, special.polygamma(1, np.maximum(freedom, 1) / 2), 0).sum())
    by_chance /= int(loose.sum())
    if left < _FEWEST_LOGS:  # too few on both sides: scores are taken as normal
        return spread - by_chance, 1.0
    away = [np.where(both, its - _middle(its, both), 0) for its, _ in sides]
    differ = min(float((away[0] * away[1]).sum()) / left, spread - by_chance)
    if differ < _ALIKE:
        return 0.0, 1.0
    return differ, min(1.0, by_chance / (spread - differ))


def drawn_together(
    means: tuple[Floats, Floats], known: tuple[Floats, Floats]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Each text's two means given its kind, and their variances: two pairs of shape (C, T).

    Source: Efron and Morris 1973, Stein's estimation rule and its competitors, for pairs.
    """
    both = ((known[0] > 0) & (known[1] > 0)).all(axis=1)
    if both.sum() < _FEWEST_PAIRS:
        with np.errstate(divide="ignore"):
            errors = [np.where(k > 0, 1 / k, np.nan) + 0 * means[0] for k in known]
        return means, (errors[0], errors[1])
    pairs = np.stack([mean[both] for mean in means], axis=-1)  # (K, T, 2)
    centre = pairs.mean(axis=0)
    away = pairs - centre
    of_errors = np.stack([(1 / k[both]).mean(axis=0) + 0 * centre[:, 0] for k in known], axis=-1)
    apart = np.einsum("kti,ktj->tij", away, away) / (len(pairs) - 1)
    # Not all of the errors, as few pairs tell their own spread but roughly.
    apart -= (len(pairs) - 3) / (len(pairs) - 1) * of_errors[..., None] * np.eye(2)
    values, vectors = np.linalg.eigh(apart)
    apart = (vectors * np.maximum(values, 0)[:, None, :]) @ vectors.swapaxes(1, 2)
    return _given(means, known, centre, apart)


def _given(
    means: tuple[Floats, Floats], known: tuple[Floats, Floats], centre: Floats, apart: Floats
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Means and variances of pairs around `centre` (T, 2) with the covariances `apart` (T, 2, 2).

    (apart^-1 + diag(u, w))^-1 is written out, so that `apart` may be singular, and u or w be 0.
    """
    of_in, of_out, common = apart[:, 0, 0], apart[:, 1, 1], apart[:, 0, 1]
    size = np.maximum(of_in * of_out - common**2, 0)
    u, w = known
    whole = 1 + u * of_in + w * of_out + u * w * size
    unknown_in, unknown_out = (of_in + w * size) / whole, (of_out + u * size) / whole
    shared = common / whole
    pull_in, pull_out = u * (means[0] - centre[:, 0]), w * (means[1] - centre[:, 1])
    drawn_in = centre[:, 0] + unknown_in * pull_in + shared * pull_out
    drawn_out = centre[:, 1] + shared * pull_in + unknown_out * pull_out
    return (drawn_in, drawn_out), (unknown_in, unknown_out)


@dataclass(frozen=True, kw_only=True, eq=False)
class LiraScores:
    """A LiRA score for every model and text; higher = more likely in.

    Row by row they may be given to a bound for that row's model: its coins are nowhere in them but
    through its own scores, where the coins of all cells are independent. Whether a cell is NaN
    follows from the other models' coins alone, so a row may be given to its bound without those
    cells. Of a column they must not be dropped: among a text's few cells the NaN ones tell coins.
    """

    # log-likelihood ratio in nats ("online"), or standard deviations above the mean of models that
    # did not see the text ("offline"), shape (M, N); +-1e9 without any spread; NaN where a text was
    # in (or out) no other model, or nothing tells the spread
    scores: Floats
    included: Flags  # the coins, shape (M, N)
    mode: str  # "online" or "offline"
    notes: tuple[str, ...]  # what is not as it should be, and how many cells are NaN


def lira(target: ArrayLike, in_scores: ArrayLike, out_scores: ArrayLike) -> Floats:
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


def lira_offline(target: ArrayLike, out_scores: ArrayLike) -> Floats:
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

    Source: Carlini et al. 2022; leave-one-out as in Aerni et al. 2024; variances by Smyth 2004,
    means by Efron and Morris 1973.
    """
    x, coins = scores_and_coins(scores, included)
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
    notes = coin_notes(coins)
    if missing.any():
        texts = int(missing.any(axis=0).sum())
        notes += (
            f"{int(missing.sum())} of {missing.size} scores are NaN, of {texts} of "
            f"{missing.shape[1]} texts: in (or out of) none of the other models; train more models",
        )
    return LiraScores(
        scores=column(found, np.float64),
        included=column(coins, np.bool_),
        mode=mode,
        notes=notes,
    )


def _of_kind(x: Floats, coins: Flags, shadows: Flags, mode: Mode) -> Floats:
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
    return densities[1] - densities[0]


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
    return (own - mean) / np.sqrt(variance + left)


def _variances(inside: Side, outside: Side) -> tuple[Floats, Floats]:
    """Of a new score around its mean, in and out, (C, 1) each; NaN where nothing tells."""
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
