"""Scores to audit with, from bits: each turned so that higher means more likely in.

Which score a bound is computed from must be named before the data are seen, or the level be split.

RMIA: by how much a model raises a text's probability, against what it does to other texts. A text's
probability is compared with what models give it that did and did not see it, and this ratio with
that of texts that no model saw.

Labels alone: which tokens of a text a model would have written itself. A logistic regression learns
from other models what a greedy match in each place says, shared by the texts of a kind, as a text
by itself has a coin and a vector a model and no more.
"""

import zlib
from collections.abc import Hashable, Sequence
from math import log2
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import (
    Flags,
    Floats,
    alike_texts,
    coin_matrix,
    score_matrix,
    shadow_models,
)

_FLAT_BITS = 1e-5  # a spread below this is rounding of a flat distribution in float32
# (M, C, 1 + L): models, texts, and a 1 before the matches. As floats they are only model by model.
Design = Flags
_TOGETHER = 12  # steps that all fits take at the first curvature, before each goes on alone
_ALONE = 200  # steps of Newton's method; each is halved at most so often that it is none
_HALVINGS = 40
_CLOSE = 1e-9  # the last step moves no weight by more, in nats
_DIGITS = 6  # of a logit: what the last step leaves open is not shown


def zlib_ratio(target_bits: ArrayLike, texts: Sequence[str]) -> Floats:
    """Negative log-perplexity in units of the text's length under zlib.

    Source: Carlini et al. 2021, Extracting training data from large language models.
    """
    bits = bits_array("target_bits", target_bits)
    if isinstance(texts, str) or len(texts) != bits.size:
        raise InputError(
            f"texts must be a list of {bits.size} strings, one a number of target_bits"
        )
    lengths = np.array([8.0 * len(zlib.compress(text.encode("utf-8"))) for text in texts])
    return np.asarray(-bits / lengths)


def min_k(token_bits: Sequence[ArrayLike], *, share: float = 0.2) -> Floats:
    """Mean log-probability of each text's least likely tokens.

    Args:
        token_bits: for each text the bits of its tokens, a flat list or array; lower = more
            expected.
        share: of the tokens that count, in (0, 1], rounded down, but at least one token.

    Returns:
        Shape (n,), bits a token, at most 0; higher = more likely in.

    Raises:
        InputError: no texts, a text without tokens, a number that is not finite.
        SettingsError: `share` out of range.

    Source: Shi et al. 2024, Detecting pretraining data from large language models.

    >>> min_k([[1, 9, 2, 7, 1]], share=0.4).tolist()
    [-8.0]
    """
    flat, lengths = _flattened("token_bits", token_bits)
    return _lowest_mean(-flat, lengths, share)


def min_k_plus_plus(
    token_bits: Sequence[ArrayLike],
    mean_bits: Sequence[ArrayLike],
    std_bits: Sequence[ArrayLike],
    *,
    share: float = 0.2,
) -> Floats:
    """Mean of each text's lowest standardised token log-probabilities.

    A token's log-probability is compared with what the model expects of a token drawn from its own
    distribution there: (mean_bits - token_bits) / std_bits. Where that distribution is flat, each
    token is as expected: 0.

    Args:
        token_bits: for each text the bits of its tokens; lower = more expected.
        mean_bits: for each text, at each position, the mean over the vocabulary of the bits,
            weighted by probability (the entropy).
        std_bits: likewise their standard deviation, at least 0.
        share: of the tokens that count, in (0, 1], rounded down, but at least one token.

    Returns:
        Shape (n,), standard deviations; higher = more likely in.

    Raises:
        InputError: no texts, a text without tokens, lengths that differ, a number that is not
            finite, a negative standard deviation.
        SettingsError: `share` out of range.

    Source: Zhang et al. 2025, Min-K%++: improved baseline for pre-training data detection.

    >>> min_k_plus_plus([[1, 6]], [[2, 3]], [[1, 2]]).tolist()
    [-1.5]
    """
    flat, lengths = _flattened("token_bits", token_bits)
    mean, mean_lengths = _flattened("mean_bits", mean_bits)
    spread, spread_lengths = _flattened("std_bits", std_bits)
    for name, other in (("mean_bits", mean_lengths), ("std_bits", spread_lengths)):
        if not np.array_equal(lengths, other):
            raise InputError(f"{name} must hold one number for each of token_bits, text by text")
    if (spread < 0).any():
        raise InputError(f"std_bits holds {spread.min():g}; a standard deviation is at least 0")
    flatly = spread < _FLAT_BITS
    scores = np.where(flatly, 0.0, (mean - flat) / np.where(flatly, 1.0, spread))
    return _lowest_mean(scores, lengths, share)


def _flattened(name: str, rows: Sequence[ArrayLike]) -> tuple[Floats, NDArray[Any]]:
    """All numbers in one array, and how many of them each text has."""
    if len(rows) == 0:
        raise InputError(f"{name} holds no texts; give at least one")
    arrays = [np.asarray(row, dtype=np.float64) for row in rows]
    for number, array in enumerate(arrays):
        if array.ndim != 1 or array.size == 0:
            raise InputError(
                f"{name}[{number}] has shape {array.shape}; give one number for each of a text's "
                "tokens, at least one"
            )
    return bits_array(name, np.concatenate(arrays)), np.array([array.size for array in arrays])


def _lowest_mean(values: Floats, lengths: NDArray[Any], share: float) -> Floats:
    """Mean of the lowest `share` of each text's values, shape (n,)."""
    if not 0 < share <= 1:
        raise SettingsError(f"share={share!r} must lie above 0 and not above 1")
    counted = np.maximum(1, np.floor(share * lengths + 1e-9)).astype(np.int64)
    text = np.repeat(np.arange(lengths.size), lengths)
    ordered = values[np.lexsort((values, text))]
    place = np.arange(values.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keep = place < counted[text]
    sums = np.bincount(text[keep], ordered[keep], minlength=lengths.size)
    return sums / counted


def rmia(
    target_bits: ArrayLike,
    reference_bits: ArrayLike,
    population_bits: ArrayLike,
    population_reference_bits: ArrayLike,
    *,
    a: float = 1.0,
    gamma: float = 1.0,
) -> Floats:
    """Offline RMIA: share of population texts over which a canary's likelihood ratio wins.

    A text's ratio is P(text | model) over its probability under any model, which offline is guessed
    from reference models that never saw the text: ((1 + a) mean P + (1 - a)) / 2. All is done in
    logarithms, so that long texts do not underflow.

    Args:
        target_bits: log-perplexity of each canary under the audited model, one or shape (n,), bits;
            lower = more memorised.
        reference_bits: of the same under reference models that saw none of them, shape (R, n).
        population_bits: of texts that no model saw, under the audited model, shape (z,).
        population_reference_bits: of the same under the reference models, shape (R, z).
        a: how far a model that saw a text raises its probability towards 1, in [0, 1]; 1 = not at
            all. Below 1 the 1 - a drowns the probability of a whole text, which is tiny: give bits
            per token then, or leave it at 1.
        gamma: by which factor a ratio must be larger than a population text's, above 0.

    Returns:
        Shape (n,), in [0, 1]; higher = more likely in. z population texts give only z + 1 different
        scores. A ratio that is equal does not win.

    Raises:
        InputError: shapes that do not fit, a NaN or an infinity.
        SettingsError: `a` or `gamma` out of range.

    Source: Zarifzadeh, Liu, Shokri 2024, Low-cost high-power membership inference attacks, the
    offline variant.

    >>> rmia([1, 3], [[2, 3]], [2, 2], [[2, 2]]).tolist()
    [1.0, 0.0]
    """
    if not 0 <= a <= 1:
        raise SettingsError(f"a={a!r} must lie in [0, 1]; 1 takes the reference models as they are")
    gamma = positive("gamma", gamma)
    own = _log_ratios("target_bits", target_bits, "reference_bits", reference_bits, a)
    others = np.sort(
        _log_ratios(
            "population_bits",
            population_bits,
            "population_reference_bits",
            population_reference_bits,
            a,
        )
    )
    return np.searchsorted(others, own - log2(gamma), side="left") / others.size


def _log_ratios(
    name: str, bits: ArrayLike, reference_name: str, reference_bits: ArrayLike, a: float
) -> Floats:
    """log2 of P(text | model) / P(text), shape (n,)."""
    own, references = bits_array(name, bits), score_matrix(reference_name, reference_bits)
    if references.shape[1] != own.size:
        raise InputError(
            f"{reference_name} has shape {references.shape}; give one row a reference model and "
            f"one column for each of the {own.size} texts of {name}"
        )
    mean = np.logaddexp2.reduce(-references, axis=0) - log2(len(references))
    seen = log2((1 - a) / 2) if a < 1 else -np.inf
    marginal = np.logaddexp2(log2((1 + a) / 2) + mean, seen)
    return np.asarray(-own - marginal)


def rmia_matrix(
    bits: ArrayLike,
    included: ArrayLike,
    population_bits: ArrayLike,
    *,
    shadows: ArrayLike | None = None,
    gamma: float = 1.0,
) -> Floats:
    """Online RMIA of every model, with the other models as its references.

    A text's probability under any model is the mean of that under models that saw it and that under
    models that did not, each side with half of the weight, however many models it has. V documents
    give V + 1 different shares of wins, too few to tell a FPR below about 1 / V: unlike in the
    source, texts with equally many wins are in the order of their ratios.

    Source: Zarifzadeh, Liu, Shokri 2024, Low-cost high-power membership inference attacks, the
    online variant; leave-one-out as in Aerni et al. 2024.

    >>> rmia_matrix([[1], [2], [2]], [[1], [1], [0]], [[2], [2], [2]]).round(2).tolist()
    [[0.88], [0.16], [nan]]
    """
    x, others = score_matrix("bits", bits), score_matrix("population_bits", population_bits)
    if len(others) != len(x):
        raise InputError(
            f"population_bits has shape {others.shape}; give one row for each of {len(x)} models"
        )
    coins = coin_matrix("included", included, x.shape)
    references = shadow_models(shadows, len(x))[:, None]
    gamma = positive("gamma", gamma)
    inside, outside = (_mean_of_others(-x, side & references) for side in (coins, ~coins))
    with np.errstate(invalid="ignore"):  # a side without models is NaN
        ratios = -x - (np.logaddexp2(inside, outside) - 1)
    population = -others - _mean_of_others(-others, np.broadcast_to(references, others.shape))
    own = ratios - log2(gamma)
    won = [
        np.searchsorted(np.sort(theirs), its, side="left")
        for its, theirs in zip(own, population, strict=True)
    ]
    among_equals = (1 + own / (1 + np.abs(own))) / 2  # rises with the ratio, and never ends
    return np.asarray((np.array(won) + among_equals) / (others.shape[1] + 1))


def _mean_of_others(exponents: Floats, mask: Flags) -> Floats:
    """log2 of the mean probability over the masked rows but the row's own, shape (M, N).

    NaN where there is none. Sums of those above and of those below: nothing is subtracted, as next
    to a probability that is far larger the others would be lost.
    """
    terms = np.where(mask, exponents, -np.inf)
    nothing = np.full((1, terms.shape[1]), -np.inf)
    above = np.logaddexp2.accumulate(np.concatenate([nothing, terms[:-1]]), axis=0)
    below = np.logaddexp2.accumulate(np.concatenate([nothing, terms[:0:-1]]), axis=0)[::-1]
    counts = mask.sum(axis=0) - mask
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = np.logaddexp2(above, below) - np.log2(counts)
    return np.where(counts > 0, sums, np.nan)


def label_logits(
    matches: Sequence[ArrayLike],
    included: ArrayLike,
    *,
    kinds: Sequence[Hashable],
    shadows: ArrayLike | None = None,
    ridge: float = 1.0,
) -> Floats:
    """How far greedy matches speak for membership, by a regression over the other models.

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


def _matches(name: str, values: ArrayLike, models: int) -> Flags:
    array = np.asarray(values)
    if array.ndim != 2 or len(array) != models or not array.shape[1]:
        raise InputError(
            f"{name} has shape {array.shape}; give one row for each of {models} models and at "
            "least one token"
        )
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise InputError(f"{name} must hold true and false, or 1 and 0, and nothing else")
    return array.astype(bool)


def _logits(x: Flags, coins: Flags, shadows: Flags, ridge: float) -> Floats:
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


def _fits(x: Design, y: Flags, ridge: float) -> Floats:
    """Weights without each model, last with all, (M + 1, 1 + L); NaN where one side is empty."""
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


def _penalty(size: int, ridge: float) -> Floats:
    """The base rate's weight is free."""
    return np.append(0.0, np.full(size - 1, ridge))


def _newton(x: Design, y: Flags, ridge: float, start: Floats) -> Floats:
    """The weights of one fit, (1 + L,): Newton's method with halved steps."""
    penalty, weights = _penalty(x.shape[2], ridge), start

    def loss(at: Floats) -> float:
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


def _curvature(x: Design, weights: Floats) -> Floats:
    """What each model adds to the second derivative of a loss, (M, 1 + L, 1 + L)."""
    found = np.empty((len(x), weights.size, weights.size))
    for model, rows in enumerate(x):
        chance = special.expit(rows @ weights)
        found[model] = (rows * (chance * (1 - chance))[:, None]).T @ rows.astype(np.float64)
    return found


def _together(
    x: Design, y: Flags, ridge: float, start: Floats, wanted: NDArray[np.intp]
) -> tuple[Floats, Flags]:
    """The fits without each wanted model, (W, 1 + L), and which of them came to their end."""
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
