"""Exposure by rank among references, with the interval that sampling leaves open."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._quantiles import ExposureEstimate
from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import SettingsError
from lmexposure.statistics._rows import column, plain_list, row
from lmexposure.statistics.intervals import binomial_interval

_SAME_SCORING = "canary and references are fills of one format, scored in the same way"
_SAMPLED = (
    _SAME_SCORING,
    "references are drawn uniformly, without replacement, from the fills never inserted",
    "the interval (Clopper-Pearson) holds for one canary, not for all of them jointly",
)
_EXACT = (_SAME_SCORING, "the references are all fills that were never inserted")


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledExposure:
    """Exposures by rank, in bits; higher = more memorised; columns of shape (n,), order as given.

    `value` = log2(n) - log2(rank); where `capped`, no reference came as low as the canary, and
    `value` is a lower bound: show it with ">=". `rank` counts among the references, ties against
    the canary. `method` is "sampled", or "exact" where the references are all there are: then
    `value` = log2(space_size) - log2(rank) and the interval is that point.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rank: NDArray[np.int64]
    capped: NDArray[np.bool_]
    references: int
    level: float
    method: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    space_bits: float = math.inf

    def estimates(self) -> list[ExposureEstimate]:
        """Each canary with what its error comes from, as `exposure_summary` takes it.

        `bits` is the rank, since log-perplexities are not kept: beside estimates of another kind
        give all of them their log-perplexities (`dataclasses.replace`), or none are in order.
        """
        columns = (self.value, self.low, self.high, self.capped, self.rank)
        return [
            ExposureEstimate(
                method=self.method,
                value=value,
                low=low,
                high=high,
                capped=capped,
                level=self.level,
                bits=rank,
                references=self.references,
                space_bits=self.space_bits,
            )
            for value, low, high, capped, rank in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def row(self, i: int) -> dict[str, Any]:
        """The i-th canary alone, in plain Python values; None stands for infinity."""
        bounds = (float(self.low[i]), float(self.high[i]), self.level)
        capped = bool(self.capped[i])
        warnings = [_cap_warning(self.references)] if capped else []
        if not math.isfinite(self.high[i]):
            warnings.append("no upper bound: the size of the randomness space was not given")
        value, rank = float(self.value[i]), int(self.rank[i])
        return row(value, bounds, rank, capped, self.method, self.assumptions, warnings)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, columns as lists; None stands for infinity."""
        return {
            "method": self.method,
            "value": plain_list(self.value),
            "low": plain_list(self.low),
            "high": plain_list(self.high),
            "level": self.level,
            "rank": self.rank.tolist(),
            "capped": self.capped.tolist(),
            "references": self.references,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def sampled_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    exhaustive: bool = False,
    level: float = 0.95,
) -> SampledExposure:
    """Exposure of each canary by its rank among references that the model never saw.

    Args:
        canary_bits: log-perplexities in bits, one or shape (n,); lower = more memorised.
        reference_bits: log-perplexities in bits of never-inserted fills, shape (m,).
        space_size: size of the format's randomness space, where known; bounds the interval.
        exhaustive: the references are all the fills that were never inserted, so that the rank
            is exact; needs `space_size`.
        level: two-sided coverage of each canary's interval.

    Returns:
        Columns of shape (n,) in the order given; one canary gives shape (1,). The interval is
        that of the canary's exposure among all never-inserted fills.

    Raises:
        InputError: no numbers, a NaN or an infinity.
        SettingsError: `space_size` missing where needed or too small, `level` out of range.

    Source: Carlini et al. 2019, The Secret Sharer, section 4 (exposure, and its approximation by
    sampling); ties as in tensorflow/privacy, against the canary.

    >>> sampled_exposure(3.5, range(1, 17)).value.tolist()
    [2.0]
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = np.sort(bits_array("reference_bits", reference_bits))
    level = fraction("level", level)
    _check_space(space_size, references.size, exhaustive)
    k = np.searchsorted(references, canaries, side="right")  # (n,) references <= canary
    total = space_size if exhaustive and space_size is not None else references.size
    value = math.log2(total) - np.log2(1 + k)
    if exhaustive:
        low, high, capped = value, value, np.zeros(k.shape, bool)
    else:
        low, high = _interval(k, references.size, space_size, level)
        low, high, capped = np.minimum(low, value), np.maximum(high, value), k == 0
    return SampledExposure(
        value=column(value, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        rank=column(1 + k, np.int64),
        capped=column(capped, np.bool_),
        references=references.size,
        level=level,
        method="exact" if exhaustive else "sampled",
        assumptions=_EXACT if exhaustive else _SAMPLED,
        warnings=_warnings(capped, references.size),
        space_bits=math.inf if space_size is None else math.log2(space_size),
    )


def _check_space(space_size: int | None, references: int, exhaustive: bool) -> None:
    """Refuse a space that cannot hold the references and the canary."""
    if space_size is not None:
        integer("space_size", space_size, low=2)
        if references >= space_size:
            raise SettingsError(
                f"space_size={space_size} must be above the {references} references: they are "
                "different fills, and the canary is one more; give each reference once"
            )
    elif exhaustive:
        raise SettingsError(
            "exhaustive=True needs space_size, the number of all fills of the format"
        )


def _interval(
    k: NDArray[np.int64], n: int, space_size: int | None, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exposures that the counts leave open, shape (n,) each.

    With p = P(a reference is as low as the canary), the rank is 1 + p |R| at most, so that
    exposure = log2|R| - log2(rank) >= -log2(p + 1/|R|), and never above log2|R|.
    """
    p = binomial_interval(k, n, level=level)
    own = 0.0 if space_size is None else 1 / space_size
    most = math.inf if space_size is None else math.log2(space_size)
    with np.errstate(divide="ignore"):  # a lower bound of 0 means no upper bound on exposure
        high = -np.log2(p.low)
    return np.maximum(-np.log2(p.high + own), 0.0), np.minimum(high, most)


def _cap_warning(references: int) -> str:
    return (
        f"lower than all {references} references: the exposure is at least "
        f"{math.log2(references):.2f} bits, and more references could show more"
    )


def _warnings(capped: NDArray[np.bool_], references: int) -> tuple[str, ...]:
    count = int(capped.sum())
    return (f"{count} of {capped.size} canaries: {_cap_warning(references)}",) if count else ()
