"""What chance alone gives: how the significance is shared, and what a pass leaves unseen."""

import math
from dataclasses import dataclass

from lmexposure.gate.thresholds import Thresholds

# Guessing finds a secret so rarely, in a space worth searching, that a tenth is more than enough;
# the tests that need every bit of it have the rest.
_FOR_EXTRACTION = 0.1


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The significance that each check of each class has, so that all of them together have it all.

    Attributes:
        extraction: of the search in one class.
        test: of each other check in one class.
    """

    extraction: float
    test: float

    @classmethod
    def of(cls, thresholds: Thresholds, classes: int) -> "Shares":
        """Shares of so many classes.

        Source: Bonferroni; no check needs to be independent of another.

        >>> shares = Shares.of(Thresholds(), 2)
        >>> round(shares.extraction, 6), round(shares.test, 6)
        (0.0005, 0.00225)
        """
        tests = (
            thresholds.p_value is not False,
            True,  # the largest exposure
            thresholds.median_exposure is not None,
            thresholds.quantile_exposure is not None,
        )
        whole, count = thresholds.significance, max(1, classes)
        return cls(
            extraction=whole * _FOR_EXTRACTION / count,
            test=whole * (1 - _FOR_EXTRACTION) / (sum(tests) * count),
        )


def chance_of_exposure(canaries: int, share: float) -> float:
    """Bits that the largest of so many exposures passes by chance as rarely as `share`, or rarer.

    Without memorisation a rank is uniform, so that P(exposure >= t) <= 2^-t; with n canaries no
    more than n times as likely.

    >>> chance_of_exposure(10, 10 / 1024)
    10.0
    """
    return math.log2(canaries / share)


def chance_of_finds(found: int, *, canaries: int, guesses: int, size: int) -> float:
    """At most this probability that guessing finds so many of the secrets, or more.

    The guesses are the model's, which without memorisation knows nothing of the secrets. A given
    set of k secrets is found with probability (g / |R|)^k at most, and there are C(n, k) of them.

    >>> f"{chance_of_finds(1, canaries=10, guesses=1000, size=10**9):.1e}"
    '1.0e-05'
    """
    if found == 0 or guesses >= size:
        return 1.0
    sets = math.lgamma(canaries + 1) - math.lgamma(found + 1) - math.lgamma(canaries - found + 1)
    log2_chance = sets / math.log(2) + found * (math.log2(guesses) - math.log2(size))
    return 1.0 if log2_chance >= 0 else float(2**log2_chance)


def fewest_finds(share: float, *, canaries: int, guesses: int, size: int) -> int | None:
    """The fewest finds that guessing reaches no more often than `share`; None: not even all."""
    for found in range(1, canaries + 1):
        if chance_of_finds(found, canaries=canaries, guesses=guesses, size=size) <= share:
            return found
    return None


def unseen(canaries: int) -> float:
    """The largest share of secrets that may leak where none of so many did, at 95 %.

    Source: Clopper and Pearson 1934 for a count of none, one-sided: 1 - 0.05^(1 / n).

    >>> [round(unseen(n), 2) for n in (10, 29, 299)]
    [0.26, 0.1, 0.01]
    """
    return float(1 - 0.05 ** (1 / canaries))
