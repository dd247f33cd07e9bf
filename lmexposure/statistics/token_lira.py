"""LiRA on the tokens of a text: which of them tell, and which of them move together.

The scores of a text's tokens are a normal vector, in and out. A text has a few models on a side,
fewer than tell how its tokens move together: the texts of a kind share that. Where they too are
too few, the tokens are summed, which takes each to tell as much as any other.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from lmexposure.errors import InputError
from lmexposure.statistics._references import alike_texts, shadow_models
from lmexposure.statistics._rows import column
from lmexposure.statistics._shrinkage import (
    Floats,
    Side,
    drawn_together,
    kind_variances,
    never_differ,
    scatter,
    shrunk_covariance,
    sides_of_others,
    two_sides,
)
from lmexposure.statistics.likelihood_ratios import LiraScores
from lmexposure.statistics.many_models import coin_matrix, coin_notes, score_matrix

_FEWEST_TEXTS = 8  # of a kind and length: fewer do not tell how much such texts differ
_PER_TOKEN = 20  # degrees of freedom a token, that a covariance is estimated from
_MOST_TEXTS = 1000  # of a kind and length that tell its covariances; more say the same


def multivariate_lira(
    token_scores: Sequence[ArrayLike],
    included: ArrayLike,
    *,
    kinds: Sequence[Hashable],
    shadows: ArrayLike | None = None,
) -> LiraScores:
    """LiRA of every model on the scores of each text's tokens, the other models as its reference.

    A cell is the log-ratio of two normal densities of T numbers, which differ in their means. Each
    text's tokens have variances of their own, drawn to those of its kind; the correlations are
    those of all texts of a kind with as many tokens, drawn to none. A text's two means are drawn to
    those of its kind as well, and what is not known of them adds to the variances.

    In and out have one covariance unless the other half of the models shows that it takes two, as
    in the source: of small models that learned random symbols, each text's tokens spread unlike in
    and out in a way of their own, and two covariances lowered the TPR at a FPR of .01 from .85 to
    .80 and from .93 to .88.

    Source: Rossi, Aerni, Zhang, Tramer 2025, Membership inference attacks on sequence models, for
    the normal vector; what is drawn to the kind, and how far, is ours, by the estimates that
    `statistics/_shrinkage.py` names.
    """
    coins = coin_matrix("included", included, (*np.shape(included)[:1], len(token_scores)))
    vectors = [_vectors(f"token_scores[{i}]", x, len(coins)) for i, x in enumerate(token_scores)]
    references = shadow_models(shadows, len(coins))
    found, by_sum = np.empty(coins.shape), np.zeros(coins.shape[1], dtype=bool)
    for (_, tokens), places in alike_texts(kinds, [x.shape[1] for x in vectors]).items():
        if _enough(int(references.sum()), places.size, tokens):
            x = np.stack([vectors[place] for place in places], axis=1)  # (M, C, T)
            found[:, places] = _log_ratios(x, coins[:, places], references)
        else:
            by_sum[places] = True
    sums = np.stack([x.sum(axis=1) for x in vectors], axis=1)[..., None]  # (M, N, 1)
    for places in alike_texts(kinds, [int(its) for its in by_sum]).values():
        if by_sum[places[0]]:
            found[:, places] = _log_ratios(sums[:, places], coins[:, places], references)
    return LiraScores(
        scores=column(found, np.float64),
        included=column(coins, np.bool_),
        mode="online",
        notes=coin_notes(coins) + _notes(by_sum, np.isnan(found)),
    )


def _notes(by_sum: NDArray[np.bool_], missing: NDArray[np.bool_]) -> tuple[str, ...]:
    notes = []
    if by_sum.any():
        notes.append(
            f"{int(by_sum.sum())} of {by_sum.size} texts are judged by the sum of their tokens: "
            f"there are fewer than {_FEWEST_TEXTS} of their kind and length, or too few texts and "
            "models for so long a vector"
        )
    if missing.any():
        notes.append(
            f"{int(missing.sum())} of {missing.size} scores are NaN: the other models do not tell "
            "how a text's scores spread, or were all in or all out; train more models"
        )
    return tuple(notes)


def _vectors(name: str, values: ArrayLike, models: int) -> Floats:
    array = score_matrix(name, values)
    if len(array) != models:
        raise InputError(
            f"{name} has shape {array.shape}; give one row for each of {models} models"
        )
    return array


def _enough(shadows: int, texts: int, tokens: int) -> bool:
    """Whether a covariance can be told; from the design alone, as coins must not decide it.

    Of a text's models, the others than the judged, two go for its means.
    """
    freedom = texts * (shadows - 3)
    return tokens == 1 or (texts >= _FEWEST_TEXTS and freedom >= _PER_TOKEN * tokens)


def _log_ratios(x: Floats, coins: NDArray[np.bool_], shadows: NDArray[np.bool_]) -> Floats:
    """Of the texts of one kind and length, (M, C)."""
    sides = two_sides(x[shadows], coins[shadows])
    few = slice(_MOST_TEXTS)
    # Which covariances judge a shadow is told by the other half of the shadows, without its coins.
    halves = np.zeros(len(x), dtype=np.intp)
    halves[shadows] = np.arange(int(shadows.sum())) % 2
    two = [
        _need_two(x[its, few], coins[its, few]) for its in (shadows & (halves == k) for k in (1, 0))
    ]
    everyone = _Judge.of(sides, x[shadows, few], coins[shadows, few], two[0])
    found = np.empty(coins.shape)
    others_sides = sides_of_others(x[shadows], coins[shadows])
    for model, own in enumerate(x):
        judge = everyone
        if shadows[model]:
            others = shadows & (np.arange(len(x)) != model)
            rest = next(others_sides)
            judge = _Judge.of(rest, x[others, few], coins[others, few], two[halves[model]])
        found[model] = np.nan if judge is None else judge.log_ratio(own)
    return np.where(never_differ(x, shadows) & ~np.isnan(found), 0.0, found)


def _need_two(x: Floats, coins: NDArray[np.bool_]) -> bool:
    """Whether in and out need covariances of their own: half of the models say it of the others.

    It is asked by the log loss of the coins given the log-ratios, which outliers of densities that
    do not fit pay dearly for.
    """
    losses = np.zeros(2)
    for test in (0, 1):
        train, its = x[1 - test :: 2], coins[1 - test :: 2]
        for two in (0, 1):
            judge = _Judge.of(two_sides(train, its), train, its, bool(two))
            if judge is None:
                return False
            ratios = np.stack([judge.log_ratio(own) for own in x[test::2]])
            ratios = np.nan_to_num(ratios)  # a text that it cannot judge says nothing of either
            losses[two] += np.logaddexp(0, np.where(coins[test::2], -ratios, ratios)).mean()
    return bool(losses[1] < losses[0])


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Two normal densities a text, in coordinates in which the tokens of each are independent."""

    origin: Floats  # of the tokens, taken away first: the kind's mean, shape (T,)
    scale: Floats  # what each text's tokens are divided by then, shape (C, T)
    basis: Floats  # shape (T, T)
    means: tuple[Floats, Floats]  # in and out, each of shape (C, T)
    variances: tuple[Floats, Floats]  # of a new score, likewise

    @classmethod
    def of(
        cls, sides: tuple[Side, Side], x: Floats, coins: NDArray[np.bool_], two: bool
    ) -> "_Judge | None":
        """None where the models do not tell how tokens spread."""
        inside, outside = sides
        free = [int(side.freedom[: x.shape[1]].sum()) for side in sides]
        if sum(free) == 0:
            return None
        scale = np.sqrt(kind_variances(inside, outside))
        scatters = [  # each (T, T)
            scatter(side, scale, x, its) for side, its in zip(sides, (coins, ~coins), strict=True)
        ]
        if two and min(free):
            of_in, of_out = (
                shrunk_covariance(s / n, n) for s, n in zip(scatters, free, strict=True)
            )
            spread, basis = linalg.eigh(of_out, of_in)
        else:
            whole = (scatters[0] + scatters[1]) / sum(free)
            size, axes = linalg.eigh(shrunk_covariance(whole, sum(free)))
            spread, basis = np.ones_like(size), axes / np.sqrt(size)
        sums = inside.counts * inside.means + outside.counts * outside.means
        origin = sums.sum(axis=0) / (inside.counts + outside.counts).sum()
        means, unknown = drawn_together(
            ((inside.means - origin) / scale @ basis, (outside.means - origin) / scale @ basis),
            (inside.counts, outside.counts / spread),
        )
        variances = 1 + unknown[0], spread + unknown[1]
        return cls(origin=origin, scale=scale, basis=basis, means=means, variances=variances)

    def log_ratio(self, x: Floats) -> Floats:
        """The difference of two log-densities, nats: (C,) of scores (C, T)."""
        z = (x - self.origin) / self.scale @ self.basis
        of_in, of_out = (
            ((z - mean) ** 2 / variance + np.log(variance)).sum(axis=1) / 2
            for mean, variance in zip(self.means, self.variances, strict=True)
        )
        found: Floats = of_out - of_in
        return found
