"""Identifiers that a corpus holds anyway, compared with fresh draws of their format in their place.

Where identifiers are as likely as fresh draws, such as a random key that a model never saw, the
rank of each is uniform. Ranks that are too low say that the model knows them, or that they are not
like fresh draws at all. Identifiers of a random split that were held out of the training tell the
two apart: they look alike, whatever the source, and only those that were read can be known.

Witnesses of a manifest are fresh draws themselves, and compared with others like them.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.chance import rank_sum_test
from lmexposure.statistics.intervals import binomial_interval

_FPR = 0.01  # share of identifiers that chance puts among the lowest ranks
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %
_NEAR = 0.05  # a rate that is surely no more than this is near 1 %
_SIGNIFICANCE = 0.05
_LEVEL = 0.95
# Witnesses are let go at such a p-value after as many draws of each length.
_SETTLED_AT = {25: 0.1, 100: 0.02}
_BETWEEN = 300  # draws from one look at a single witness to the next
_FEW = 1000  # of more, an interval around 1 % ends far below 5 %


@dataclass(frozen=True, kw_only=True)
class RanksAmongDraws:
    """What the ranks of some identifiers say together."""

    identifiers: int  # how many there are, independent of each other
    draws: int  # fresh draws that each was compared with
    hits: int  # identifiers whose rank is among the lowest 1 %
    tpr: float  # their share, in [0, 1]: TPR at a FPR of 1 %; chance has at most .01
    # low, high: its interval, Clopper-Pearson
    low: float
    high: float
    level: float  # two-sided coverage of the interval
    median_exposure: float  # in bits; log2(draws + 1) - log2(rank), chance has a median of 1
    p_value: float  # how often chance alone gives ranks that are as low together, Fisher's test

    @property
    def shows(self) -> bool:
        """Whether the ranks are lower than chance has them: the test rejects at 5 %."""
        return self.p_value <= _SIGNIFICANCE

    @property
    def is_null(self) -> bool:
        """Whether the test does not reject, and the rate is at most 5 % by its interval."""
        return not self.shows and self.high <= _NEAR


def rank_among_draws(bits: float, draw_bits: ArrayLike) -> int:
    """The rank of an identifier among fresh draws, from 1; a tie counts against the identifier.

    Source: Phipson and Smyth 2010, Permutation p-values should never be zero: rank / (n + 1) is a
    p-value where identifier and draws are exchangeable.

    >>> rank_among_draws(3.0, [1.0, 3.0, 5.0])
    3
    """
    own = bits_array("bits", bits)
    return 1 + int((bits_array("draw_bits", draw_bits) <= own[0]).sum())


def ranks_among_draws(ranks: ArrayLike, draws: int, *, level: float = _LEVEL) -> RanksAmongDraws:
    """The rate of lowest ranks with its interval, and whether chance explains the ranks.

    Source: Fisher 1932, Statistical Methods for Research Workers, section 21.1; Clopper and Pearson
    1934 for the interval; Natural identifiers, ICLR 2026, for the comparison.

    >>> found = ranks_among_draws([1] * 50 + [500] * 50, 999)
    >>> found.hits, found.tpr, found.shows
    (50, 0.5, True)
    """
    draws, level = integer("draws", draws, low=_FEWEST_DRAWS), fraction("level", level)
    found = bits_array("ranks", ranks)
    bad = np.flatnonzero((found < 1) | (found > draws + 1) | (found != np.floor(found)))
    if bad.size:
        raise InputError(
            f"ranks[{bad[0]}]={found[bad[0]]:g} must be a whole number from 1 to {draws + 1}"
        )
    p_values = found / (draws + 1)
    hits = int((p_values <= _FPR).sum())
    ends = binomial_interval(hits, found.size, level=level)
    return RanksAmongDraws(
        identifiers=found.size,
        draws=draws,
        hits=hits,
        tpr=hits / found.size,
        low=float(ends.low[0]),
        high=float(ends.high[0]),
        level=level,
        median_exposure=float(np.median(-np.log2(p_values))),
        # A chi-squared variable of 2 n degrees of freedom, halved, is a gamma variable of shape n.
        p_value=float(stats.gamma.sf(-np.log(p_values).sum(), p_values.size)),
    )


@dataclass(frozen=True, kw_only=True)
class BesideHeldOut:
    """Identifiers that were in the training beside those that a random split held out."""

    read: int  # how many were in the training, in different documents
    held_out: int  # how many were not
    area: float  # share of pairs whose value that was read is the lower one; chance has .5
    p_value: float  # how often a random split has as many such pairs, one-sided

    @property
    def shows(self) -> bool:
        """Whether those that were read rank lower: the test rejects at 5 %."""
        return self.p_value <= _SIGNIFICANCE


def beside_held_out(read: ArrayLike, held_out: ArrayLike, *, seed: int = 0) -> BesideHeldOut:
    """Whether identifiers that were read are likelier than those of documents held out at random.

    Where documents were split at random and the model knows nothing of the split, every division of
    all values into two groups of these sizes is as likely as the one that is seen, whatever the
    values of the source look like. So the rank sum has its permutation distribution, which
    `rank_sum_test` counts or shuffles; its one-sided p-value is at most alpha at most as often as
    alpha. Ties count for neither side, which makes it larger.

    Source: Mann and Whitney 1947; Phipson and Smyth 2010 for shuffles.

    >>> found = beside_held_out([1, 2, 3, 4], [5, 6, 7, 8])
    >>> found.area, round(found.p_value, 4)
    (1.0, 0.0143)
    """
    inside, apart = bits_array("read", read), bits_array("held_out", held_out)
    ordered = np.sort(apart)
    below = int(np.searchsorted(ordered, inside, "left").sum())  # held out is likelier
    above = int((apart.size - np.searchsorted(ordered, inside, "right")).sum())
    pairs = inside.size * apart.size
    p_value = rank_sum_test(above, below, inside.size, apart.size, seed=seed) / 2
    return BesideHeldOut(
        read=inside.size,
        held_out=apart.size,
        area=(above + (pairs - above - below) / 2) / pairs,
        p_value=p_value if above > below else 1.0,
    )


def identifiers_needed() -> int:
    """How many independent identifiers it takes to tell a rate of 1 % from one above 5 %.

    Source: Clopper and Pearson 1934, the interval of `ranks_among_draws`.

    >>> identifiers_needed()
    142
    """
    return _needed()


@cache
def _needed() -> int:
    every = round(1 / _FPR)
    return 1 + max(
        n
        for n in range(1, _FEW + 1)
        if binomial_interval(-(-n // every), n, level=_LEVEL).high[0] > _NEAR
    )


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


def witness_looks(witnesses: int) -> list[int]:
    """After how many draws of each length the p-value of as many witnesses is looked at.

    Source: Besag and Clifford 1991; see `witness_settled`.
    """
    needed = draws_needed(witnesses)
    return [*_SETTLED_AT, *range(_BETWEEN, needed, _BETWEEN), needed]


def witness_settled(p: float, *, draws: int, witnesses: int) -> bool:
    """Whether more draws could not make this p-value, after as many, one that says something.

    One witness that is beaten has its p-value, whatever comes behind. Several are let go at 0.1
    after 25 draws of each length, and at 0.02 after 100. No price is paid for these looks: they
    fall in time, so whoever ends with p <= a had p <= a at the first look whose threshold is a or
    less, and that happens by chance with probability a at most.

    Source: Besag and Clifford 1991, sequential Monte Carlo p-values.

    >>> witness_settled(0.3, draws=25, witnesses=2), witness_settled(0.03, draws=25, witnesses=2)
    (True, False)
    """
    if witnesses == 1:
        return p > 1 / (1 + draws)
    return p >= _SETTLED_AT.get(draws, math.inf)


def _finite(values: ArrayLike) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise InputError("the bits must be a list of at least one finite number; score them again")
    return found
