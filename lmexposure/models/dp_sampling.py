"""Whether batches are Poisson samples: sizes, documents that meet again, and how many in all.

Under the claim, each of n documents is in each of M batches by a coin of its own of probability q.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from lmexposure.errors import SettingsError

_FEWEST, _USUAL, _EPOCHS, _MOST_COINS = 60, 1000, 8, 20_000_000
_BEYOND = 1e-12  # probability of the values that a bound on a tail leaves out, paid for
_EXPONENTS = np.geomspace(1e-4, 30, 120)


@dataclass(frozen=True, kw_only=True)
class DpBatches:
    """Where the documents of a step come from, for a training without a torch loader."""

    count: int  # number of documents N; they have the numbers 0 to N - 1
    # document numbers -> what `loss` takes of them, such as (input_ids, labels); an empty list
    # gives an empty batch
    batch: Callable[[Sequence[int]], Any]
    # the numbers of the documents of the next step; each call draws anew
    sample: Callable[[], Sequence[int]]
    # the probability by which `sample` takes a document, where it is known; held against the claim
    # exactly, next to the test of what is drawn
    rate: float | None = None
    # of torch or numpy, from which `sample` draws; they are put back. The global ones need not be
    # named.
    generators: Sequence[Any] = ()
    pool: int | None = None  # how many documents this process draws from; None: all


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Batches that were drawn."""

    sizes: NDArray[np.int64]  # documents in each of the M batches, shape (M,)
    counts: NDArray[np.int64]  # batches that each document is in, shape (N,)
    repeated: int  # batches that hold a document twice


def draw(batches: DpBatches, rate: float) -> Drawn:
    """Draw eight epochs or 1,000 batches, of at most 20 million coins, but at least 60 batches."""
    count = batches.count
    steps = max(_FEWEST, min(max(int(_EPOCHS / rate), _USUAL), _MOST_COINS // count))
    counts, sizes, repeated = np.zeros(count, np.int64), [], 0
    for _ in range(steps):
        numbers = np.asarray(batches.sample(), dtype=np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
            raise SettingsError(
                f"the sampler gave document {numbers.max()} of {count}; numbers go from 0 to "
                f"{count - 1}"
            )
        repeated += len(np.unique(numbers)) < numbers.size
        np.add.at(counts, numbers, 1)
        sizes.append(numbers.size)
    return Drawn(sizes=np.array(sizes), counts=counts, repeated=int(repeated))


def endless(sampler: Any) -> Callable[[], list[int]]:
    """A torch batch sampler as a function that begins the next epoch when one is over."""

    def epochs() -> Iterator[list[int]]:
        while True:
            given = 0
            for numbers in sampler:
                yield [int(number) for number in numbers]
                given += 1
            # Opacus' sampler of several processes leaves empty batches out.
            missing = len(sampler) - given if hasattr(sampler, "num_replicas") else 0
            yield from ([] for _ in range(missing))
            if not given + missing:
                raise SettingsError("the loader's sampler gives no batch; it has no documents")

    numbers = epochs()
    return lambda: next(numbers)


def rate_p(drawn: Drawn, documents: float, rate: float) -> float:
    """Two-sided p-value of how many documents came in all: binomial (documents x M, rate)."""
    total, coins = int(drawn.sizes.sum()), round(documents * len(drawn.sizes))
    below, above = stats.binom.cdf(total, coins, rate), stats.binom.sf(total - 1, coins, rate)
    return float(min(1.0, 2 * min(below, above)))


def sizes_p(drawn: Drawn, documents: int, rate: float) -> float:
    """Two-sided p-value of how much the batches' sizes differ; see `_spread_p`."""
    return _spread_p(drawn.sizes, documents, rate)


def extremes_p(drawn: Drawn, documents: int, rate: float) -> float:
    """P-value of a largest size too small or a smallest too large, as where batches are cut.

    M independent sizes are all at most k with probability F(k)^M, exactly.
    """
    law, batches = stats.binom(documents, rate), len(drawn.sizes)
    cut = batches * law.logcdf(drawn.sizes.max())
    filled = batches * law.logsf(drawn.sizes.min() - 1)
    return float(min(1.0, 2 * np.exp(min(cut, filled))))


def meetings_p(drawn: Drawn, documents: int, rate: float) -> tuple[float, float, float]:
    """Two-sided p-value of how often a document is in two of the batches; found; expected."""
    batches = len(drawn.sizes)
    counts = np.sort(drawn.counts)[len(drawn.counts) - documents :]
    found = float((counts * (counts - 1) / 2).sum())
    expected = documents * batches * (batches - 1) / 2 * rate**2
    if np.count_nonzero(drawn.counts) > documents:  # of a pool that changes
        return 1.0, found, expected
    return _spread_p(counts, batches, rate), found, expected


def _spread_p(values: NDArray[np.int64], trials: int, rate: float) -> float:
    """Two-sided p-value of the spread of independent binomial values.

    The sum of (x - mean)^2 - (1 - 2 rate) (x - mean) is tested, which is uncorrelated with the sum
    of x. Markov's inequality for exp(h times it) bounds both tails at each h and any number of
    values; its moments are of a window that any of the values leaves with probability 1e-12, which
    is paid for.
    """
    law = stats.binom(trials, rate)
    beyond = _BEYOND / len(values) / 2
    support = np.arange(int(law.ppf(beyond)), int(law.isf(beyond)) + 1, dtype=float)
    weights = law.pmf(support)
    mean, variance = trials * rate, trials * rate * (1 - rate)
    if variance == 0:
        return float((values == mean).all())
    skew = 1 - 2 * rate  # cov((x - mean)^2, x) / var(x)

    def score(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (x - mean) ** 2 - skew * (x - mean) - variance

    unit = float(np.sqrt(weights @ score(support) ** 2))
    if unit == 0:  # one trial at an even rate: whatever the values are, their spread is this
        return 1.0
    found, scores = float(score(values.astype(float)).sum()) / unit, score(support) / unit
    bounds = []
    for sign in (1.0, -1.0):
        h = sign * _EXPONENTS[:, None] / np.sqrt(len(values))
        moments = special.logsumexp(h * scores, b=weights, axis=1)
        bounds.append(float(np.exp((len(values) * moments - h[:, 0] * found).min())))
    return float(min(1.0, 2 * min(bounds) + _BEYOND))
