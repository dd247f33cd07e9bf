"""Exposure beyond the references, read off a skew-normal curve fitted to them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.statistics._rows import column, plain_list, row
from lmexposure.statistics.goodness import (
    Fit,
    GoodnessOfFit,
    bootstrap_fits,
    goodness_of_fit,
    look_at,
)
from lmexposure.statistics.skew_normal_curve import SkewNormal, fit_skew_normal

__all__ = ["SkewNormalExposure", "skew_normal_exposure"]

_ASSUMPTIONS = (
    "log-perplexities of never-inserted fills follow a skew-normal curve, also far beyond the "
    "references: no test on the references can show this",
    "the interval is the curve's sampling error only (parametric bootstrap), given that family",
    "references are drawn uniformly from the fills never inserted, scored like the canary",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SkewNormalExposure:
    """Extrapolated exposures in bits; higher = more memorised; columns of shape (n,), as given.

    `extrapolated_bits` is how far `value` lies beyond log2(references), the most that the sample
    itself can show. `exceeds_space` marks values above log2 of the space's size, which no
    exposure can have; they are left as fitted. `warnings` is never to be dropped: a curve that
    does not fit has been seen to say 90 or 15 bits where the truth was 30.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    extrapolated_bits: NDArray[np.float64]
    exceeds_space: NDArray[np.bool_]
    references: int
    level: float
    seed: int
    curve: SkewNormal
    goodness: GoodnessOfFit
    warnings: tuple[str, ...]
    method: str = "skew_normal"
    assumptions: tuple[str, ...] = _ASSUMPTIONS

    def row(self, i: int) -> dict[str, Any]:
        """The i-th canary alone, in plain Python values, with the warnings that concern it."""
        bounds = (float(self.low[i]), float(self.high[i]), self.level)
        warnings = list(_about_the_curve(self.curve, self.goodness))
        if self.extrapolated_bits[i] > 0:
            beyond = float(self.extrapolated_bits[i])
            warnings.append(_beyond_sample(beyond, self.references))
        if self.exceeds_space[i]:
            warnings.append(_BEYOND_SPACE)
        value = float(self.value[i])
        return row(value, bounds, None, False, self.method, self.assumptions, warnings)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, columns as lists."""
        return {
            "method": self.method,
            "value": plain_list(self.value),
            "low": plain_list(self.low),
            "high": plain_list(self.high),
            "extrapolated_bits": plain_list(self.extrapolated_bits),
            "exceeds_space": self.exceeds_space.tolist(),
            "references": self.references,
            "level": self.level,
            "seed": self.seed,
            "curve": self.curve.to_dict(),
            "goodness": self.goodness.to_dict(),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def skew_normal_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    level: float = 0.95,
    bootstraps: int = 199,
    seed: int = 0,
) -> SkewNormalExposure:
    """Exposure of each canary as -log2 of a fitted skew-normal curve's probability below it.

    Unlike the rank among references it has no cap; what it says beyond them is as good as the
    curve, which two looks examine (see `GoodnessOfFit`). Time grows with references times
    bootstraps: about a second for 10,000 times 199.

    Args:
        canary_bits: log-perplexities in bits, one or shape (n,); lower = more memorised.
        reference_bits: log-perplexities in bits of never-inserted fills, shape (m,), m >= 20,
            not all equal.
        space_size: size of the randomness space, where known, to warn of impossible values.
        level: two-sided coverage of each interval, conditional on the skew-normal family; with
            100 to 400 references, 95 % intervals were seen to hold in 90 to 97 % of cases.
        bootstraps: samples drawn from the fitted curve and fitted again, for interval and
            goodness; at least 39, and 2 / (1 - level) - 1.
        seed: of these samples; the same seed gives the same result.

    Returns:
        Columns of shape (n,) in the order given; one canary gives shape (1,).

    Raises:
        InputError: too few references, all equal, a NaN or an infinity.
        SettingsError: a setting out of range.

    Source: Carlini et al. 2019, The Secret Sharer, section 4 (approximation by distribution
    modelling); percentile interval, Davison and Hinkley 1997, section 5.3.
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = np.sort(bits_array("reference_bits", reference_bits))
    level = fraction("level", level)
    seed = integer("seed", seed, low=0)
    # The interval's ends are order statistics of the bootstraps: they must exist.
    fewest = max(39, math.ceil(2 / (1 - level) - 1 - 1e-9))
    bootstraps = integer("bootstraps", bootstraps, low=fewest)
    space_bits = (
        math.inf if space_size is None else math.log2(integer("space_size", space_size, low=2))
    )
    observed = look_at(references, fit_skew_normal(references))
    fits = bootstrap_fits(observed.curve, references.size, bootstraps=bootstraps, seed=seed)
    goodness = goodness_of_fit(observed, fits)
    value = observed.curve.exposure(canaries)
    low, high = _percentiles(canaries, value, fits, level)
    beyond = np.maximum(value - math.log2(references.size), 0.0)
    exceeds = value > space_bits
    return SkewNormalExposure(
        value=column(value, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        extrapolated_bits=column(beyond, np.float64),
        exceeds_space=column(exceeds, np.bool_),
        references=references.size,
        level=level,
        seed=seed,
        curve=observed.curve,
        goodness=goodness,
        warnings=_about_the_curve(observed.curve, goodness)
        + _warnings(beyond, exceeds, references.size),
    )


def _percentiles(
    canaries: NDArray[np.float64], value: NDArray[np.float64], fits: list[Fit], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile interval over the bootstrap curves, widened to hold the value, shape (n,) each."""
    exposures = np.stack([fit.curve.exposure(canaries) for fit in fits])  # (bootstraps, n)
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(exposures, ends, axis=0, method="weibull")
    return np.minimum(low, value), np.maximum(high, value)


# Past this shape the curve is a half-normal: nothing lies below its location.
_SHARP = 100.0
_BEYOND_SPACE = (
    "more bits than the randomness space has: no exposure can be so high; the curve's tail is too "
    "thin for these references"
)


def _about_the_curve(curve: SkewNormal, goodness: GoodnessOfFit) -> tuple[str, ...]:
    """What concerns every number that is read off this curve."""
    if curve.shape < _SHARP:
        return goodness.warnings
    return (
        *goodness.warnings,
        f"DO NOT RELY ON THIS: the likeliest curve (shape {curve.shape:.3g}) has no low tail, so "
        "that anything below the references gets an absurd exposure; use the sampled exposure",
    )


def _beyond_sample(beyond: float, references: int) -> str:
    return (
        f"extrapolated {beyond:.1f} bits beyond the {math.log2(references):.1f} bits that "
        f"{references} references can show"
    )


def _warnings(
    beyond: NDArray[np.float64], exceeds: NDArray[np.bool_], references: int
) -> tuple[str, ...]:
    """What concerns some of the canaries, with their number."""
    lines = []
    if (beyond > 0).any():
        count = int((beyond > 0).sum())
        most = _beyond_sample(float(beyond.max()), references)
        lines.append(f"{count} of {beyond.size} canaries: up to {most}")
    if exceeds.any():
        lines.append(f"{int(exceeds.sum())} of {exceeds.size} canaries: {_BEYOND_SPACE}")
    return tuple(lines)
