"""Longest runs of documents that no model read, or of which some leak.

What a model follows is a coin of each place. Sides fall at random.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics import centred, length_strata

Split = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]  # scores, sides, strata


def of_lengths(
    draws: np.random.Generator,
    sides: NDArray[np.bool_],  # whether a document is of the corpus, (N,)
    *,
    longer: int = 1,  # how many times as long the documents of the corpus are
    most: int = 1_000,  # that a run can be
    chance: float | NDArray[np.float64] = 0.5,  # of each coin, or of each document's
    leaks: int = 0,  # documents of the corpus with 20 more in their row
) -> Split:
    """Longest rows of coins, looked at over one length within a stratum."""
    lengths = draws.integers(10, 60, size=sides.size) * np.where(sides, longer, 1)
    strata = length_strata(lengths)
    least = {group: lengths[strata == group].min() for group in np.unique(strata)}
    kept = np.array([least[group] for group in strata])
    # The largest of n geometric numbers: P(below k) = (1 - chance^k)^n.
    largest = np.floor(np.log(1 - draws.random(sides.size) ** (1 / kept)) / np.log(chance))
    largest[:leaks] += 20
    return centred(np.minimum(largest, most), strata), sides, strata


def halves(size: int) -> NDArray[np.bool_]:
    """As many documents of the corpus as held-out ones, shape (2 size,)."""
    return np.arange(2 * size) < size


OF_LENGTHS: dict[str, Callable[[np.random.Generator], Split]] = {
    "one law": lambda draws: of_lengths(draws, halves(60)),
    "twice as long": lambda draws: of_lengths(draws, halves(60), longer=2),
    "heavy ties": lambda draws: of_lengths(draws, halves(60), most=4),
    "one-token runs": lambda draws: of_lengths(draws, halves(60), most=1, chance=0.02),
    "2,000 against 400": lambda draws: of_lengths(draws, np.arange(2_400) < 2_000),
}
