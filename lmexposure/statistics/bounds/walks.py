"""How often a walk of independent right-or-wrong guesses reaches given counts: exact."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

# A binomial count is further than the window's half-width from its mean with at most e^-40.
_LOG_TAIL = 40.0
# Below this size a plain convolution is faster than three Fourier transforms.
_SHORT = 400


def binomial_window(trials: int, log_odds: float) -> tuple[int, NDArray[np.float64]]:
    """The binomial probabilities that matter: the first count, and the probabilities from there.

    Counts outside the window have a probability below e^-39 together (Bernstein's inequality).
    The probabilities inside are scaled to sum to 1, and made from ratios of neighbours, which
    stay exact where factorials of a million do not.

    Args:
        trials: at least 0.
        log_odds: of one success, in nats; any finite number.

    Source: Boucheron, Lugosi, Massart 2013, Theorem 2.10 (Bernstein).

    >>> binomial_window(2, 0.0)[1].tolist()
    [0.25, 0.5, 0.25]
    """
    ((first, chances),) = _windows(np.array([trials]), log_odds)
    return first, chances


def _windows(trials: NDArray[np.int64], log_odds: float) -> list[tuple[int, NDArray[np.float64]]]:
    """`binomial_window` for several numbers of trials, side by side in one array."""
    mean = trials * float(special.expit(log_odds))
    half = np.sqrt(2 * mean * float(special.expit(-log_odds)) * _LOG_TAIL) + _LOG_TAIL / 3
    first = np.maximum(np.floor(mean - half), 0).astype(np.int64)
    last = np.minimum(np.ceil(mean + half), trials).astype(np.int64)
    sizes = last - first + 1
    ends = np.cumsum(sizes)
    starts = ends - sizes
    counts = np.arange(ends[-1]) + np.repeat(first - starts, sizes)
    # From the count before, which the first of a window has not; it may be 0.
    steps = np.log((np.repeat(trials, sizes) - counts + 1) / np.maximum(counts, 1)) + log_odds
    steps[starts] = 0.0
    logs = np.cumsum(steps)
    weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, starts), sizes))
    weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
    places = zip(first.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(one, weights[start:end]) for one, start, end in places]


def crossing_probability(
    looks: NDArray[np.int64], critical: NDArray[np.int64], log_odds: float
) -> float:
    """P(at one look at least, the right guesses so far are `critical` or more).

    Every guess is right with the same log-odds, independently. The distribution of the count is
    carried from look to look; what has reached a critical count is taken out and added up.

    Args:
        looks: numbers of guesses at which the count is looked at, strictly rising, shape (J,).
        critical: counts, shape (J,); more than the guesses of a look means never.
        log_odds: of a right guess, in nats.

    >>> crossing_probability(np.array([1, 2]), np.array([1, 2]), 0.0)
    0.5
    """
    crossed = 0.0
    first, alive = 0, np.ones(1)  # alive[i] = P(count = first + i, no crossing yet)
    windows = _windows(np.diff(looks, prepend=0), log_odds)
    for count, (start, step) in zip(critical.tolist(), windows, strict=True):
        first, alive = first + start, _convolve(alive, step)
        stays = max(0, count - first)
        crossed += float(alive[stays:].sum())
        if stays == 0:
            break
        alive = alive[:stays]
    return min(1.0, crossed)


def log_odds_low(
    looks: NDArray[np.int64], counts: NDArray[np.int64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The log-odds at which a binomial count is reached with just the given probability.

    This is the lower Clopper-Pearson bound on the log-odds of a right guess, for each look by
    itself; -infinity at a count of 0. All shapes (J,).
    """
    counts = np.clip(counts, 0, looks)
    seen = np.maximum(counts, 1)
    low = special.betaincinv(seen, looks - seen + 1, levels)
    # 1 - low from the other side: near 1 the difference would lose its digits.
    wrong = special.betainccinv(looks - seen + 1, seen, levels)
    with np.errstate(divide="ignore"):
        odds = np.log(low) - np.log(wrong)
    return np.where(counts == 0, -np.inf, odds)


def _convolve(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    """The full convolution; by Fourier transform where both are long."""
    if min(one.size, two.size) < _SHORT:
        return np.convolve(one, two)
    size = one.size + two.size - 1
    padded = 1 << (size - 1).bit_length()
    product = np.fft.rfft(one, padded) * np.fft.rfft(two, padded)
    # Rounding leaves numbers of 1e-17 below 0; as 0 they can only raise what crosses.
    return np.maximum(np.fft.irfft(product, padded)[:size], 0.0)
