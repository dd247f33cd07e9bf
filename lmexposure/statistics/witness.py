"""Whether a model knows a manifest's witnesses better than one that never read them can."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import integer
from lmexposure.errors import InputError

PERMUTATIONS = 20_000
_AT_ONCE = 1_000


def witness_certificate(secret_bits: ArrayLike, *, size: int) -> float:
    """The evidence in the probabilities of the witnesses alone, in bits; higher = better known.

    A model that is independent of the secrets gives the fills of a format, behind their common
    beginning, probabilities 2^-b that sum to at most 1 (Kraft's inequality). So of a fill drawn
    uniformly from R the expectation of |R| 2^-b is at most 1: an e-value. Of k different fills the
    product has an expectation of at most |R|^k / (|R| (|R| - 1) ...), by which it is divided here,
    since the sum over different fills is at most that over all. Half of the mean of the k and half
    of their product is an e-value again: the mean sees one witness that is known well, the product
    many that are known a little. By Markov's inequality it exceeds 2^t with probability 2^-t at
    most.

    Args:
        secret_bits: of each witness, -log2 of its probability behind the beginning that all fills
            share, shape (k,).
        size: of R, without what was set aside; at least k.

    Source: Kraft 1949; Shafer and Vovk 2019, e-values by Markov's inequality.

    Raises:
        InputError: no witness, or a number that is not finite.

    >>> round(witness_certificate([0.0, 0.0], size=2**20), 3)
    39.0
    """
    gains = math.log2(size) - _finite(secret_bits)
    k = gains.size
    drawn = sum(math.log2(size / (size - i)) for i in range(k))
    mean = float(np.logaddexp2.reduce(gains)) - math.log2(k)
    return float(np.logaddexp2(mean, gains.sum() - drawn)) - 1.0


def witness_p_value(witness_bits: ArrayLike, draw_bits: ArrayLike, *, seed: int) -> float:
    """How often fills drawn like the witnesses are known as well by chance; lower = better known.

    To a model that is independent of the secrets, witnesses and fresh draws are exchangeable. The
    statistic is the sum of the witnesses' log-perplexities; ties count against them. One witness
    has its exact rank; of several, 20,000 subsets are drawn, (1 + as low) / (1 + 20,000).

    Args:
        witness_bits: log-perplexity of each witness, shape (k,), lower = better known.
        draw_bits: of the fresh draws, in the same rows, shape (n,).
        seed: of the subsets.

    Source: Phipson and Smyth 2010, p-values of drawn permutations.

    Raises:
        InputError: no witness, no draw, or a number that is not finite.

    >>> witness_p_value([1.0], [2.0, 3.0, 4.0], seed=0)
    0.25
    """
    own, drawn = _finite(witness_bits), _finite(draw_bits)
    if own.size == 1:
        return float((1 + (drawn <= own[0]).sum()) / (1 + drawn.size))
    pool, rng = np.concatenate([own, drawn]), np.random.default_rng(seed)
    # A rounding must not tell equal sums apart.
    limit, below = own.sum() + 1e-9 * max(1.0, abs(own.sum())), 0
    for _ in range(PERMUTATIONS // _AT_ONCE):
        keys = rng.random((_AT_ONCE, pool.size))
        chosen = np.argpartition(keys, own.size - 1, axis=1)[:, : own.size]
        below += int((pool[chosen].sum(axis=1) <= limit).sum())
    return (1 + below) / (1 + PERMUTATIONS)


def draws_needed(witnesses: int) -> int:
    """How many fresh draws let the p-value of these witnesses fall below 1 in 4,000.

    Source: counting; n draws have n + 1 ranks beside one witness, and (n + 1)(n + 2) / 2 subsets
    beside two.
    """
    return 4_000 if integer("witnesses", witnesses, low=1) == 1 else 300


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise InputError("the bits must be a list of at least one finite number; score them again")
    return found
