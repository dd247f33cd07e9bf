"""Exposure both ways, side by side: by rank among references, and off a curve through them."""

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lmexposure._style import count
from lmexposure._validate import bits_array
from lmexposure.errors import InputError
from lmexposure.statistics.sampled import SampledExposure, sampled_exposure
from lmexposure.statistics.skew_normal import SkewNormalExposure, skew_normal_exposure

_UNLIKELY = 1e-3  # by chance, for scores in their right order


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """Exposures of canaries in bits; higher = more memorised; columns of shape (n,), as given.

    Attributes:
        by_rank: among the references, which cannot show more than log2 of their number; what is
            `capped` is a lower bound. Its columns are here too: value, low, high, rank, capped.
        skew_normal: off the curve; None where it cannot be fitted, and a warning says why.
        warnings: of both, and whether the scores look the wrong way round.
    """

    by_rank: SampledExposure = field(repr=False)
    skew_normal: SkewNormalExposure | None = field(repr=False)
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        first = [f"{value:.2f}" for value in self.value[: None if self.value.size < 6 else 3]]
        more = ["..."] if len(first) < self.value.size else []
        of = count(self.value.size, "canary", "canaries")
        return f"<Exposures of {of}: {', '.join(first + more)} bits>"

    @property
    def value(self) -> NDArray[np.float64]:
        """By rank."""
        return self.by_rank.value

    @property
    def low(self) -> NDArray[np.float64]:
        """The lower ends of the intervals by rank."""
        return self.by_rank.low

    @property
    def high(self) -> NDArray[np.float64]:
        """The upper ends; infinite where the size of the space was not given."""
        return self.by_rank.high

    @property
    def rank(self) -> NDArray[np.int64]:
        """1 + references that cost no more."""
        return self.by_rank.rank

    @property
    def capped(self) -> NDArray[np.bool_]:
        """Whether the value is a lower bound: no reference costs as little."""
        return self.by_rank.capped


def exposure(
    bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    exhaustive: bool = False,
    level: float = 0.95,
) -> Exposures:
    """Exposure of each canary among references that the model never saw, both ways.

    Scores that look the wrong way round end in a warning that says so.

    Args:
        bits: log-perplexities of the canaries in bits, one or shape (n,); lower = more memorised.
        reference_bits: of fills that were never inserted, scored in the same way, shape (m,).
        space_size: how many fills the format has, where known; bounds the intervals.
        exhaustive: the references are all other fills, so that ranks are exact; needs `space_size`.
        level: two-sided coverage of each canary's interval.

    Raises:
        InputError: no numbers, a NaN or an infinity, or nothing but negative ones, which are no
            log-perplexities.
        SettingsError: `space_size` missing where needed or too small, `level` out of range.

    Source: see `sampled_exposure` and `skew_normal_exposure`.

    >>> exposure(3.5, range(1, 17)).value.tolist()
    [2.0]
    """
    canaries, references = bits_array("bits", bits), bits_array("reference_bits", reference_bits)
    _refuse_log_likelihoods(canaries, references)
    by_rank = sampled_exposure(
        canaries, references, space_size=space_size, exhaustive=exhaustive, level=level
    )
    said = [*_reversed(canaries, references), *by_rank.warnings]
    curve = None
    try:
        curve = skew_normal_exposure(canaries, references, space_size=space_size, level=level)
        said += [f"skew-normal curve: {line}" for line in curve.warnings]
    except InputError as failure:  # too few references, or all of them alike
        said.append(f"no skew-normal curve: {failure}")
    return Exposures(by_rank=by_rank, skew_normal=curve, warnings=tuple(said))


def _refuse_log_likelihoods(canaries: NDArray[np.float64], references: NDArray[np.float64]) -> None:
    """Differences to another model may be of either sign; a log-perplexity is never negative."""
    largest = max(canaries.max(), references.max())
    if largest < 0:
        raise InputError(
            f"all scores are negative, {largest:.4g} at most, as log-likelihoods are; give "
            "log-perplexities in bits, -log2 of the likelihood: turn the sign, and divide nats by "
            "ln 2"
        )


def _reversed(canaries: NDArray[np.float64], references: NDArray[np.float64]) -> list[str]:
    """Canaries above references by more than chance explains."""
    n, m = canaries.size, references.size
    above = stats.mannwhitneyu(canaries, references, alternative="greater", method="asymptotic")
    # All n above all m, in one order of (n + m)! / (n! m!).
    ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    all_above = canaries.min() > references.max() and ways > -math.log(_UNLIKELY)
    if not all_above and not above.pvalue < _UNLIKELY:
        return []
    line = (
        "the canaries cost more bits than references that the model never saw, more than chance "
        "explains: lower must mean more memorised; where higher does, as of a likelihood, turn the "
        "sign of both"
    )
    warnings.warn(line, stacklevel=3)
    return [line]
