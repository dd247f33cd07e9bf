"""Whether a model knows a manifest's witnesses better than one that never read them can."""

import math

import numpy as np
from numpy.typing import ArrayLike

from lmexposure._validate import integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Floats

PERMUTATIONS = 20_000
_AT_ONCE = 1_000


def witness_certificate(secret_bits: ArrayLike, *, sizes: ArrayLike) -> float:
    """The evidence in the probabilities of the witnesses alone, in bits; higher = better known.

    A model that is independent of the secrets gives the fills of a format, behind their common
    beginning, probabilities 2^-b that sum to at most 1 (Kraft's inequality). So of a fill drawn
    uniformly from N the expectation of N 2^-b is at most 1: an e-value. Of k different fills, drawn
    from sets of which each holds the smaller ones, the product has an expectation of at most
    N_1 / N_1 * N_2 / (N_2 - 1) ..., by which it is divided here, since the sum over different fills
    is at most that over all; and each fill has a chance of at most 1 / (N - (k - 1)), so that
    N - (k - 1) stands for N in the mean. Half of the mean of the k and half of their product is an
    e-value again: the mean sees one witness that is known well, the product many that are known a
    little. By Markov's inequality it exceeds 2^t with probability 2^-t at most.

    Source: Kraft 1949; Shafer and Vovk 2019, e-values by Markov's inequality.

    >>> round(witness_certificate([0.0, 0.0], sizes=2**20), 3)
    39.0
    """
    bits = _finite(secret_bits)
    of_each = np.broadcast_to(_finite(np.atleast_1d(sizes)), bits.shape)
    gains = np.log2(of_each) - bits
    drawn = float(-np.log2(1 - np.arange(bits.size) / np.sort(of_each)).sum())
    spared = np.log2(1 - (bits.size - 1) / of_each)
    mean = float(np.logaddexp2.reduce(gains + spared)) - math.log2(bits.size)
    return float(np.logaddexp2(mean, gains.sum() - drawn)) - 1.0


def witness_p_value(
    witness_bits: ArrayLike,
    draw_bits: ArrayLike,
    *,
    tokens: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int,
) -> float:
    """How often fills drawn like the witnesses are known as well by chance; lower = better known.

    To a model that is independent of the secrets, witnesses and fresh draws of as many tokens are
    exchangeable. That holds also where the tokenizer was made from the witnesses, as far as it
    gives others of its tokens to as many: a text in fewer tokens is likelier in any model, and is
    compared with its like. The statistic is the sum of the witnesses' log-perplexities; ties count
    against them. Of several witnesses 20,000 choices are drawn, (1 + as low) / (1 + 20,000). One is
    compared with draw after draw until one is as low: the l-th, so that p = 1 / l, since the l - 1
    before it are all worse with probability 1 / l at most.

    Source: Phipson and Smyth 2010, p-values of drawn permutations; Besag and Clifford 1991,
    sequential Monte Carlo p-values.

    >>> witness_p_value([1.0], [2.0, 3.0, 4.0], seed=0)
    0.25
    """
    own, drawn = _finite(witness_bits), np.asarray(draw_bits, dtype=np.float64)
    if drawn.size:
        _finite(drawn)
    kinds = np.zeros(own.size), np.zeros(drawn.size)
    if tokens is not None:
        kinds = np.asarray(tokens[0], dtype=float), np.asarray(tokens[1], dtype=float)
    if own.size == 1:
        low = drawn[kinds[1] == kinds[0]] <= own[0]
        return 1 / (1 + int(low.argmax() if low.any() else low.size))
    pools = [
        (np.concatenate([own[kinds[0] == kind], drawn[kinds[1] == kind]]), int(number))
        for kind, number in zip(*np.unique(kinds[0], return_counts=True), strict=True)
    ]
    rng, below = np.random.default_rng(seed), 0
    # A rounding must not tell equal sums apart.
    limit = own.sum() + 1e-9 * max(1.0, abs(own.sum()))
    for _ in range(PERMUTATIONS // _AT_ONCE):
        sums = sum(_chosen(rng, pool, number) for pool, number in pools)
        below += int((sums <= limit).sum())
    return (1 + below) / (1 + PERMUTATIONS)


def _chosen(rng: np.random.Generator, pool: Floats, k: int) -> Floats:
    """Sums of k different ones of the pool, chosen `_AT_ONCE` times."""
    keys = rng.random((_AT_ONCE, pool.size))
    chosen = np.argpartition(keys, k - 1, axis=1)[:, :k]
    return np.asarray(pool[chosen].sum(axis=1))


def draws_needed(witnesses: int) -> int:
    """How many fresh draws let the p-value of these witnesses fall below 1 in 4,000.

    Source: counting; n draws have n + 1 ranks beside one witness, and at least n + 1 choices each
    beside two.
    """
    return 4_000 if integer("witnesses", witnesses, low=1) == 1 else 300


def _finite(values: ArrayLike) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise InputError("the bits must be a list of at least one finite number; score them again")
    return found
