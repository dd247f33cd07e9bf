"""RMIA: by how much a model raises a text's probability, against what it does to other texts.

A text's probability is compared with what models give it that did and did not see it, and this
ratio with that of texts that no model saw.
"""

from math import log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics._references import shadow_models
from lmexposure.statistics.many_models import coin_matrix, score_matrix


def rmia(
    target_bits: ArrayLike,
    reference_bits: ArrayLike,
    population_bits: ArrayLike,
    population_reference_bits: ArrayLike,
    *,
    a: float = 1.0,
    gamma: float = 1.0,
) -> NDArray[np.float64]:
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
) -> NDArray[np.float64]:
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
    ratios: NDArray[np.float64] = -own - marginal
    return ratios


def rmia_matrix(
    bits: ArrayLike,
    included: ArrayLike,
    population_bits: ArrayLike,
    *,
    shadows: ArrayLike | None = None,
    gamma: float = 1.0,
) -> NDArray[np.float64]:
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
    scores: NDArray[np.float64] = (np.array(won) + among_equals) / (others.shape[1] + 1)
    return scores


def _mean_of_others(exponents: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
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
