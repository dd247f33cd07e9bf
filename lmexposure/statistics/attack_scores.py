"""Scores to audit with, from bits: each turned so that higher means more likely in.

Which score a bound is computed from must be named before the data are seen, or the level be split.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array
from lmexposure.errors import InputError, SettingsError

_FLAT_BITS = 1e-5  # a spread below this is rounding of a flat distribution in float32


def negative_log_perplexity(target_bits: ArrayLike) -> NDArray[np.float64]:
    """The plainest score: log-perplexity with its sign turned, shape (n,), higher = more likely in.

    Source: Yeom et al. 2018, Privacy risk in machine learning.
    """
    return -bits_array("target_bits", target_bits)


def reference_difference(target_bits: ArrayLike, base_bits: ArrayLike) -> NDArray[np.float64]:
    """Bits that training saved on each text, against a model that did not see it.

    Source: Watson et al. 2021, On the importance of difficulty calibration in
    membership inference attacks.

    >>> reference_difference([10, 20], [15, 20]).tolist()
    [5.0, 0.0]
    """
    target, base = bits_array("target_bits", target_bits), bits_array("base_bits", base_bits)
    if target.shape != base.shape:
        raise InputError(
            f"base_bits has shape {base.shape}; give one for each of {target.size} target_bits"
        )
    return base - target


def zlib_ratio(target_bits: ArrayLike, texts: Sequence[str]) -> NDArray[np.float64]:
    """Negative log-perplexity in units of the text's length under zlib.

    Source: Carlini et al. 2021, Extracting training data from large language models.
    """
    bits = bits_array("target_bits", target_bits)
    if isinstance(texts, str) or len(texts) != bits.size:
        raise InputError(
            f"texts must be a list of {bits.size} strings, one a number of target_bits"
        )
    lengths = np.array([8.0 * len(zlib.compress(text.encode("utf-8"))) for text in texts])
    ratios: NDArray[np.float64] = -bits / lengths
    return ratios


def min_k(token_bits: Sequence[ArrayLike], *, share: float = 0.2) -> NDArray[np.float64]:
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
) -> NDArray[np.float64]:
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


def _flattened(name: str, rows: Sequence[ArrayLike]) -> tuple[NDArray[np.float64], NDArray[Any]]:
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


def _lowest_mean(
    values: NDArray[np.float64], lengths: NDArray[Any], share: float
) -> NDArray[np.float64]:
    """Mean of the lowest `share` of each text's values, shape (n,)."""
    if not 0 < share <= 1:
        raise SettingsError(f"share={share!r} must lie above 0 and not above 1")
    counted = np.maximum(1, np.floor(share * lengths + 1e-9)).astype(np.int64)
    text = np.repeat(np.arange(lengths.size), lengths)
    ordered = values[np.lexsort((values, text))]
    place = np.arange(values.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keep = place < counted[text]
    sums = np.bincount(text[keep], ordered[keep], minlength=lengths.size)
    means: NDArray[np.float64] = sums / counted
    return means
