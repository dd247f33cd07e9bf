"""Whether noise is normal, of the claimed size, and independent over coordinates and steps.

Under the claim all coordinates of all steps are independent normal numbers of a known size. Each
p-value here is exact or an upper bound at any number of coordinates, so that levels of a millionth
hold as well.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

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
