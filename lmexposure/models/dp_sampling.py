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

_FEWEST, _EPOCHS, _MOST_COINS = 60, 8, 20_000_000


@dataclass(frozen=True, kw_only=True)
class DpBatches:
    """Where the documents of a step come from, for a training without a torch loader.

    Args:
        count: number of documents N; they have the numbers 0 to N - 1.
        batch: document numbers -> what `loss` takes of them, such as (input_ids, labels); an empty
            list gives an empty batch.
        sample: the numbers of the documents of the next step; each call draws anew.
        rate: the probability by which `sample` takes a document, where it is known; held against
            the claim exactly, next to the test of what is drawn.
        generators: of torch or numpy, from which `sample` draws; they are put back. The global ones
            need not be named.
        pool: how many documents this process draws from; None: all.
    """

    count: int
    batch: Callable[[Sequence[int]], Any]
    sample: Callable[[], Sequence[int]]
    rate: float | None = None
    generators: Sequence[Any] = ()
    pool: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Batches that were drawn.

    Args:
        sizes: documents in each of the M batches, shape (M,).
        counts: batches that each document is in, shape (N,).
        repeated: batches that hold a document twice.
    """

    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    repeated: int


def draw(batches: DpBatches, rate: float) -> Drawn:
    """Draw eight epochs of batches, at least 60 batches, and at most 20 million coins' worth.

    Args:
        batches: what to draw from.
        rate: as claimed; it decides how many batches an epoch has.

    Raises:
        SettingsError: a document number outside the corpus.
    """
    count = batches.count
    steps = max(_FEWEST, min(int(_EPOCHS / rate), _MOST_COINS // count))
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
    """A torch batch sampler as a function that begins the next epoch when one is over.

    Raises:
        SettingsError: when called, and an epoch holds no batch at all.
    """

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


def sizes_p(drawn: Drawn, documents: float) -> float:
    """Two-sided p-value of how much the batches' sizes differ, at whatever rate they came.

    The sum of squares about the mean has the moments of binomial sizes; its law is taken as the
    gamma law of these moments. Constant sizes have a sum of 0.
    """
    sizes, steps = drawn.sizes, len(drawn.sizes)
    rate = min(1.0, sizes.mean() / documents)
    variance = documents * rate * (1 - rate)
    if not 0 < rate < 1:
        return 0.0  # never, or always all of them
    fourth = variance * (1 + (3 * documents - 6) * rate * (1 - rate))
    spread = (steps - 1) * (fourth - variance**2)
    mean, found = (steps - 1) * variance, float(((sizes - sizes.mean()) ** 2).sum())
    return _gamma_p(found, mean, spread)


def meetings_p(drawn: Drawn, documents: float) -> tuple[float, float, float]:
    """Two-sided p-value of how often a document is in two of the batches; found; expected.

    Given the sizes s, two batches t and u share s_t s_u / n documents in the mean, hypergeometric,
    and different pairs of batches are uncorrelated. Within a shuffled epoch they share none.
    """
    sizes, n = drawn.sizes.astype(float), documents
    found = float((drawn.counts * (drawn.counts - 1) / 2).sum())
    expected = float(sizes.sum() ** 2 - (sizes**2).sum()) / (2 * n)
    product = sizes * (n - sizes)
    variance = float(product.sum() ** 2 - (product**2).sum()) / (2 * n**2 * (n - 1))
    if variance <= 0:
        return float(found == round(expected)), found, expected
    # A Poisson law in units of the ratio, which is at most 1, has both moments.
    unit = variance / expected
    below = special.gammaincc(found / unit + 1, expected / unit)
    above = special.gammainc(found / unit, expected / unit) if found else 1.0
    return float(min(1.0, 2 * min(below, above))), found, expected


def _gamma_p(found: float, mean: float, variance: float) -> float:
    law = stats.gamma(mean**2 / variance, scale=variance / mean)
    return float(min(1.0, 2 * min(law.cdf(found), law.sf(found))))
