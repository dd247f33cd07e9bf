"""The chance in a DP training: whether batches are Poisson samples, and noise is normal.

Under the claim each of n documents is in each of M batches by a coin of its own of probability q:
tested are sizes, documents that meet again, and how many there are in all. And all coordinates of
all steps' noise are independent normal numbers of a known size. Each p-value here is exact or an
upper bound at any number of batches or coordinates, so that levels of a millionth hold as well.
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
_SPREAD_EXPONENTS = np.geomspace(1e-4, 30, 120)


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
    return spread_p(counts, batches, rate), found, expected


def spread_p(values: NDArray[np.int64], trials: int, rate: float) -> float:
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
        h = sign * _SPREAD_EXPONENTS[:, None] / np.sqrt(len(values))
        moments = special.logsumexp(h * scores, b=weights, axis=1)
        bounds.append(float(np.exp((len(values) * moments - h[:, 0] * found).min())))
    return float(min(1.0, 2 * min(bounds) + _BEYOND))


Floats = NDArray[np.float64]

_TAILS = (3.0, 4.0)  # in standard deviations
_MOST_SORTED = 1 << 20  # values of which the distribution is compared
_NEIGHBOURS = 3
CLEAR = 1e-6  # a p-value at which a reason is named
_EXPONENTS = np.geomspace(1e-4, 0.999, 120)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of T steps on W weights, in units of the claimed standard deviation."""

    squares: Floats  # (T, W): sum over a weight's coordinates
    sizes: NDArray[np.int64]  # (W,): coordinates
    kept: Floats  # (T, S): coordinates that were kept
    weight: NDArray[np.int64]  # (S,): the weight that each of them belongs to


def noise_p(noise: Noise) -> dict[str, float]:
    """The p-value of each test, corrected for what it chooses from; see the functions below."""
    squares, sizes = noise.squares, noise.sizes
    steps = len(squares)
    return {
        "all": _smallest(size_p(squares.sum(), steps * sizes.sum())),
        "step": _smallest(size_p(squares.sum(1), sizes.sum())),
        "weight": _smallest(size_p(squares.sum(0), steps * sizes)),
        "cell": _smallest(size_p(squares, sizes)),
        "law": law_p(noise.kept),
        **{f"tail {at:g}": tail_p(noise.kept, at) for at in _TAILS},
        "pair": pair_p(noise.kept),
        "copies": copies_p(noise.kept),
        "volume": _smallest([volume_p(part) for part in _parts(noise)]),
    }


def size_p(squares: Floats, coordinates: NDArray[np.int64]) -> Floats:
    """Two-sided p-values of sums of squares: chi-squared, exactly."""
    law = stats.chi2(coordinates)
    return np.minimum(1.0, 2 * np.minimum(law.cdf(squares), law.sf(squares)))  # type: ignore[no-any-return]


def law_p(kept: Floats) -> float:
    """P-value of the largest distance to the normal distribution function.

    Source: Massart 1990: P(D > d) <= 2 exp(-2 n d^2) at every n, whatever the law.
    """
    values = np.sort(kept.ravel()[:: -(-kept.size // _MOST_SORTED)])
    n = len(values)
    expected = special.ndtr(values)
    above = np.arange(1, n + 1) / n - expected
    distance = max(float(above.max()), float((1 / n - above).max()))
    return min(1.0, 2 * float(np.exp(-2 * n * distance**2)))


def tail_p(kept: Floats, at: float) -> float:
    """Two-sided p-value of how many coordinates lie farther out than `at`: binomial, exactly."""
    found, rate = int((np.abs(kept) > at).sum()), 2 * special.ndtr(-at)
    law = stats.binom(kept.size, rate)
    return float(min(1.0, 2 * min(law.cdf(found), law.sf(found - 1))))


def pair_p(kept: Floats) -> float:
    """P-value of the two steps whose noise is most alike, for all pairs.

    Given one step's noise the direction of the other's is uniform on the sphere, so that the
    squared cosine has a beta law (1/2, (S - 1)/2) exactly.
    """
    cosines = _cosines(kept)
    steps, coordinates = kept.shape
    largest = float(np.abs(cosines[np.triu_indices(steps, 1)]).max())
    left = max(0.0, 1 - largest**2)
    single = special.betainc((coordinates - 1) / 2, 0.5, left) if coordinates > 1 else 1.0
    return float(min(1.0, steps * (steps - 1) / 2 * single))


def most_alike(kept: Floats) -> tuple[int, int]:
    """The two steps whose noise is most alike."""
    above = np.triu(np.abs(_cosines(kept)), 1)
    first, second = np.unravel_index(int(above.argmax()), above.shape)
    return int(first), int(second)


def copies_p(kept: Floats) -> float:
    """P-value of two coordinates that are each other's multiple over the steps, for all pairs.

    A coordinate is a vector over T steps, and its direction uniform on the sphere: the sine squared
    between two has a beta law ((T - 1)/2, 1/2). All pairs are paid for; only neighbours in one of
    two sorted orders are looked at, where copies lie side by side.
    """
    lengths = np.linalg.norm(kept, axis=0)
    directions = (kept[:, lengths > 0] / lengths[lengths > 0]).T  # (S, T)
    coordinates, steps = directions.shape
    if coordinates < 2 or steps < 2:
        return 1.0
    directions = directions * np.where(directions[:, :1] < 0, -1.0, 1.0)
    nearest = 2.0
    for key in (0, 1):
        ordered = directions[np.argsort(directions[:, key])]
        for ahead in range(1, min(_NEIGHBOURS, coordinates - 1) + 1):
            gaps = np.square(ordered[ahead:] - ordered[:-ahead]).sum(1)
            nearest = min(nearest, float(gaps.min()))
    cosine = 1 - nearest / 2
    single = special.betainc((steps - 1) / 2, 0.5, min(1.0, nearest / 2 * (1 + cosine)))
    return float(min(1.0, coordinates * (coordinates - 1) / 2 * single))


def copied(kept: Floats) -> bool:
    """Whether two coordinates follow each other where each step's noise is made equally large."""
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return copies_p(kept / np.where(lengths > 0, lengths, 1.0)) < CLEAR


def volume_p(kept: Floats) -> float:
    """P-value of how far T steps' noise spans less than T independent directions would.

    With fewer independent coordinates than there are, steps' noise is more alike than it should be.
    The determinant of the cosines is a product of independent beta variables ((S - t)/2, t/2), t
    from 1 to T - 1: each step's distance to the span of those before. E[det^-h] follows, and
    Markov's inequality for it bounds the tail at each h.
    """
    steps, coordinates = kept.shape
    found = float(np.linalg.slogdet(_cosines(kept))[1])
    before = np.arange(1, steps)
    first, second = (coordinates - before) / 2, before / 2
    h = _EXPONENTS[:, None] * first.min()
    moments = special.betaln(first - h, second) - special.betaln(first, second)
    return float(min(1.0, np.exp((moments.sum(1) + h[:, 0] * found).min())))


def _parts(noise: Noise) -> list[Floats]:
    """All that was kept, and of each weight, where coordinates are enough."""
    enough = 4 * len(noise.kept)
    parts = [noise.kept] if noise.kept.shape[1] >= enough else []
    for place in np.flatnonzero(np.bincount(noise.weight) >= enough):
        parts.append(noise.kept[:, noise.weight == place])
    return parts


def _cosines(kept: Floats) -> Floats:
    """Between steps, shape (T, T); of a step without noise 0."""
    lengths = np.linalg.norm(kept, axis=1)
    rows = kept / np.where(lengths > 0, lengths, 1.0)[:, None]
    found: Floats = rows @ rows.T
    np.fill_diagonal(found, 1.0)
    return found


def _smallest(p: Floats | list[float]) -> float:
    """The smallest p-value, times their number."""
    found = np.ravel(p)
    return float(min(1.0, found.min() * found.size)) if found.size else 1.0
