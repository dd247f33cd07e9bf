"""How often a text comes out of a model that is asked many times, and what many tries leave open.

A text of b bits under a decoding rule comes out of one try with probability p = 2^-b. It is
(n, p)-discoverable where n tries give it with chance p (Hayes et al. 2025). Everything is computed
in logarithms, since p of 10^-18 and n of 10^16 are ordinary here.

What sampling has not found yet is estimated from what it found once and twice (Chao 1984, 1987).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from lmexposure._validate import coverage, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Floats
from lmexposure.statistics.intervals import binomial_interval

_ROUNDING = 1e-9  # bits below 0 that a sum of rounded numbers may have


def tries_for(bits: ArrayLike, chance: float) -> Floats:
    """The fewest tries of which at least one gives a text with this chance.

    Source: Hayes et al. 2025 (arXiv 2410.19482): n >= log(1 - p) / log(1 - p_z).

    >>> tries_for([0, 1, 10, math.inf], 0.5).tolist()
    [1.0, 1.0, 710.0, inf]
    """
    wanted = math.log1p(-fraction("chance", chance))
    with np.errstate(divide="ignore"):
        # Below 2^-1000 the probability itself, as far as floats go.
        tries = wanted / np.log1p(-np.exp2(-_checked(bits)))
    # A whole number that rounding lifted by a last digit stays what it is.
    return np.maximum(1.0, np.ceil(tries * (1 - 1e-12)))


def _checked(bits: ArrayLike) -> Floats:
    values = np.atleast_1d(np.asarray(bits, dtype=np.float64))
    wrong = ~(values >= -_ROUNDING)
    if wrong.any():
        raise InputError(
            f"bits hold {values[wrong][0]}, which no text has; they are -log2 of a probability"
        )
    return np.maximum(values, 0.0)


@dataclass(frozen=True, kw_only=True)
class Between:
    """A probability of which a part is known and the rest was sampled."""

    # low, high: ends; proven where `level` is 1
    low: float
    high: float
    level: float  # two-sided


def known_and_sampled(
    known: float,
    open_mass: float,
    *,
    hits: int = 0,
    draws: int = 0,
    unsampled: float = 0.0,
    level: float = 0.95,
) -> Between:
    """A probability in two parts: one computed, the other sampled.

    Source: Clopper and Pearson 1934 of the sampled share; a known part is added as in stratified
        sampling with one stratum read whole (Cochran 1977, chapter 5).
    """
    masses = {"known": known, "open_mass": open_mass, "unsampled": unsampled}
    for name, mass in masses.items():
        if not -_ROUNDING <= mass <= 1 + 1e-6:
            raise InputError(f"{name}={mass!r} is a probability; give 0 to 1")
    open_mass, highest = max(0.0, open_mass), known + max(0.0, unsampled)
    if not draws or open_mass == 0:
        return Between(low=min(1.0, known), high=min(1.0, highest + open_mass), level=1.0)
    share = binomial_interval(hits, draws, level=level)
    low, high = known + open_mass * float(share.low[0]), highest + open_mass * float(share.high[0])
    return Between(low=min(1.0, low), high=min(1.0, high), level=level)


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """What repeated sampling has not found yet."""

    found: int  # different passages
    # once, twice: passages that were found so often
    once: int
    twice: int
    draws: int  # samples
    unseen: float  # passages that are at least still there, an estimate of a lower bound
    # low, high: interval of `unseen`; None where no passage was found
    low: float | None
    high: float | None
    level: float  # of that
    next_new: float  # chance that one more sample holds a new passage (Good and Turing)
    assumes: str = (
        "samples are independent and by one rule; passages that hardly ever come out cannot be "
        "counted, so the estimate is of the least number that is left"
    )


def unseen_passages(counts: ArrayLike, draws: int, *, level: float = 0.95) -> Unseen:
    """Estimate how many passages more sampling would find, from how often each was found.

    Chao's lower bound for incidences, bias-corrected: (n - 1) / n * f1 (f1 - 1) / (2 (f2 + 1)),
    with f1 and f2 the passages found in one and in two of n samples. Its interval is log-normal
    (Chao 1987), so that it stays above 0.

    Source: Chao 1987, "Estimating the population size for capture-recapture data with unequal
    catchability"; Good 1953.
    """
    integer("draws", draws, low=1)
    coverage("level", level)
    found = np.atleast_1d(np.asarray(counts))
    if found.size and (found.min() < 1 or found.max() > draws):
        raise InputError(f"counts must be whole numbers from 1 to draws={draws}")
    f1, f2 = int((found == 1).sum()), int((found == 2).sum())
    share = (draws - 1) / draws
    single = share * f1 * (f1 - 1) / (2 * (f2 + 1))
    unseen = max(0.0, single)
    # Of the bias-corrected estimate, as the delta method gives it.
    square = share**2 * f1 * (2 * f1 - 1) ** 2 / (4 * (f2 + 1) ** 2)
    mixed = share**2 * f1**2 * f2 * (f1 - 1) ** 2 / (4 * (f2 + 1) ** 4)
    variance = single + square + mixed
    low, high = _log_normal(unseen, variance, level) if found.size else (None, None)
    return Unseen(
        found=int(found.size),
        once=f1,
        twice=f2,
        draws=draws,
        unseen=unseen,
        low=low,
        high=high,
        level=level,
        next_new=f1 / draws,
    )


def _log_normal(unseen: float, variance: float, level: float) -> tuple[float, float]:
    if unseen == 0:
        return 0.0, math.sqrt(variance) * float(ndtri((1 + level) / 2))
    spread = math.sqrt(math.log1p(variance / unseen**2))
    factor = math.exp(float(ndtri((1 + level) / 2)) * spread)
    return unseen / factor, unseen * factor
