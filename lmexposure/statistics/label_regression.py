"""Membership from labels alone: which tokens of a text a model would have written itself.

A logistic regression learns from other models what a greedy match in each place says, shared by the
texts of a kind, as a text by itself has a coin and a vector a model and no more.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import positive
from lmexposure.errors import InputError
from lmexposure.statistics._references import alike_texts, shadow_models
from lmexposure.statistics.many_models import coin_matrix

# (M, C, 1 + L): models, texts, and a 1 before the matches. As floats they are only model by model.
Design = NDArray[np.bool_]

_TOGETHER = 12  # steps that all fits take at the first curvature, before each goes on alone
_ALONE = 200  # steps of Newton's method; each is halved at most so often that it is none
_HALVINGS = 40
_CLOSE = 1e-9  # the last step moves no weight by more, in nats
_DIGITS = 6  # of a logit: what the last step leaves open is not shown


def label_logits(
    matches: Sequence[ArrayLike],
    included: ArrayLike,
    *,
    kinds: Sequence[Hashable],
    shadows: ArrayLike | None = None,
    ridge: float = 1.0,
) -> NDArray[np.float64]:
    """How far greedy matches speak for membership, by a regression over the other models.

    The texts of a kind with vectors of one length have weights in common. The weights that judge a
    model are fitted without it. The fitted base rate is no part of a logit: it follows from how
    many of the other models' coins say "in", and no match at all is 0.

    Source: ridge regression after le Cessie and van Houwelingen 1992, Ridge estimators in logistic
    regression, by Newton's method; labels as a membership score after Choquette-Choo et al. 2021,
    Label-only membership inference attacks. Each model's fit begins at that of all shadows and
    keeps its curvature, so that all fits go over the matches together.
    """
    coins = coin_matrix("included", included, (*np.shape(included)[:1], len(matches)))
    vectors = [_matches(f"matches[{i}]", value, len(coins)) for i, value in enumerate(matches)]
    references = shadow_models(shadows, len(coins))
    ridge = positive("ridge", ridge)
    logits = np.empty(coins.shape)
    for places in alike_texts(kinds, [vector.shape[1] for vector in vectors]).values():
        x = np.stack([vectors[place] for place in places], axis=1)  # (M, C, L)
        logits[:, places] = _logits(x, coins[:, places], references, ridge)
    return logits


def _matches(name: str, values: ArrayLike, models: int) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.ndim != 2 or len(array) != models or not array.shape[1]:
        raise InputError(
            f"{name} has shape {array.shape}; give one row for each of {models} models and at "
            "least one token"
        )
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(f"{name} must hold true and false, or 1 and 0, and nothing else")
    return array.astype(bool)


def _logits(
    x: NDArray[np.bool_], coins: NDArray[np.bool_], shadows: NDArray[np.bool_], ridge: float
) -> NDArray[np.float64]:
    """Of the texts of one kind and length, (M, C): the fit without each shadow, and with all."""
    # A place that is the same everywhere says nothing, and its ridge weight would be 0.
    places = np.flatnonzero((x[shadows] != x[shadows][:1, :1]).any(axis=(0, 1)))
    x = np.concatenate([np.ones((*coins.shape, 1), dtype=bool), x[..., places]], axis=2)
    weights = _fits(x[shadows], coins[shadows], ridge)
    of_model = np.full(len(x), len(weights) - 1)
    of_model[shadows] = np.arange(len(weights) - 1)
    found = np.stack(
        [rows[:, 1:] @ weights[own, 1:] for rows, own in zip(x, of_model, strict=True)]
    )
    return np.round(found, _DIGITS) + 0.0  # and -0 is 0


def _fits(x: Design, y: NDArray[np.bool_], ridge: float) -> NDArray[np.float64]:
    """Weights without each model, and last with all of them: (M + 1, 1 + L).

    NaN where the models that are left were all in, or all out.
    """
    models = len(x)
    found = np.full((models + 1, x.shape[2]), np.nan)
    inside = y.sum() - np.append(y.sum(axis=1), 0)
    rest = y.size - np.append(np.full(models, y.shape[1]), 0)
    two_sided = (inside > 0) & (inside < rest)
    if not two_sided[-1]:
        return found
    found[-1] = _newton(x, y, ridge, np.zeros(x.shape[2]))
    wanted = np.flatnonzero(two_sided[:-1])
    found[wanted], close = _together(x, y, ridge, found[-1], wanted)
    for model in wanted[~close]:
        others = np.arange(models) != model
        found[model] = _newton(x[others], y[others], ridge, found[-1])
    return found


def _penalty(size: int, ridge: float) -> NDArray[np.float64]:
    """The base rate's weight is free."""
    return np.append(0.0, np.full(size - 1, ridge))


def _newton(
    x: Design, y: NDArray[np.bool_], ridge: float, start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weights of one fit, (1 + L,): Newton's method with halved steps."""
    penalty, weights = _penalty(x.shape[2], ridge), start

    def loss(at: NDArray[np.float64]) -> float:
        z = np.stack([rows @ at for rows in x])
        return float((np.logaddexp(0, z) - y * z).sum() + penalty @ at**2 / 2)

    for _ in range(_ALONE):
        gradient = -penalty * weights
        for rows, coins in zip(x, y, strict=True):
            gradient += (coins - special.expit(rows @ weights)) @ rows
        curvature = _curvature(x, weights).sum(axis=0) + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        before, halvings = loss(weights), 0
        while loss(weights + step) > before and halvings < _HALVINGS:
            step, halvings = step / 2, halvings + 1
        weights = weights + step
        if np.abs(step).max() <= _CLOSE:
            break
    return weights


def _curvature(x: Design, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each model adds to the second derivative of a loss, (M, 1 + L, 1 + L)."""
    found = np.empty((len(x), weights.size, weights.size))
    for model, rows in enumerate(x):
        chance = special.expit(rows @ weights)
        found[model] = (rows * (chance * (1 - chance))[:, None]).T @ rows.astype(np.float64)
    return found


def _together(
    x: Design,
    y: NDArray[np.bool_],
    ridge: float,
    start: NDArray[np.float64],
    wanted: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The fits without each wanted model, (W, 1 + L), and which of them came to their end.

    A fit without one of many models is near that of all, and so is its curvature.
    """
    penalty = _penalty(x.shape[2], ridge)
    own = _curvature(x, start)
    curvature = own.sum(axis=0) + np.diag(penalty) - own[wanted]  # (W, 1 + L, 1 + L)
    weights = np.tile(start, (wanted.size, 1))
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that runs away goes on alone
        for _ in range(_TOGETHER):
            gradient = -penalty * weights
            for model, coins in enumerate(y):
                rows = x[model].astype(np.float64)
                missed = coins[:, None] - special.expit(rows @ weights.T)  # (C, W)
                missed[:, wanted == model] = 0
                gradient += missed.T @ rows
            step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
            weights = weights + step
            close = np.abs(step).max(axis=1) <= _CLOSE
            if close.all():
                break
    return weights, close
