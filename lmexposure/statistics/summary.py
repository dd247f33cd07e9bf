"""Many canaries' exposures in a few numbers, beside what guessing would give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._quantiles import ExposureEstimate
from lmexposure._validate import bits_array, fraction
from lmexposure.errors import InputError
from lmexposure.statistics.bca import MeanInterval, mean_interval
from lmexposure.statistics.controls import ControlsComparison, compare_with_controls
from lmexposure.statistics.guessing import GUESSING, GuessingBaseline
from lmexposure.statistics.intervals import (
    QuantileInterval,
    estimated_quantile,
    quantile_interval,
)
from lmexposure.statistics.sampled import SampledExposure


@dataclass(frozen=True, kw_only=True)
class ExposureSummary:
    """Exposures in bits of canaries of one kind; higher = more memorised.

    Quantiles carry intervals that hold, what references or draws leave open included where it is
    known, the mean an approximate one: over canaries drawn like these and this one model. `notes`
    says where an interval is missing or rough, and where capped exposures make a number a lower
    bound. `controls` is None where none were given.
    """

    n: int
    mean: float
    standard_error: float | None
    lower_quartile: QuantileInterval
    median: QuantileInterval
    upper_quartile: QuantileInterval
    capped: int
    level: float
    notes: tuple[str, ...]
    mean_interval: MeanInterval
    controls: ControlsComparison | None
    guessing: GuessingBaseline = GUESSING

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "n": self.n,
            "mean": self.mean,
            "standard_error": self.standard_error,
            "lower_quartile": self.lower_quartile.to_dict(),
            "median": self.median.to_dict(),
            "upper_quartile": self.upper_quartile.to_dict(),
            "capped": self.capped,
            "level": self.level,
            "notes": list(self.notes),
            "mean_interval": self.mean_interval.to_dict(),
            "controls": None if self.controls is None else self.controls.to_dict(),
            "guessing": self.guessing.to_dict(),
        }


def exposure_summary(
    exposures_bits: ArrayLike | SampledExposure,
    *,
    level: float = 0.95,
    capped: ArrayLike | None = None,
    estimates: Sequence[ExposureEstimate] | None = None,
    controls_bits: ArrayLike | None = None,
    control_estimates: Sequence[ExposureEstimate] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    guessing: GuessingBaseline = GUESSING,
) -> ExposureSummary:
    """Mean with its bootstrap interval, quartiles with exact ones, and controls as the null.

    Args:
        exposures_bits: one exposure a canary, in bits, one or shape (n,), finite; or what
            `sampled_exposure` gave, with its references.
        level: two-sided coverage wanted of the mean's interval and of each quantile's.
        capped: which of them are lower bounds (`SampledExposure.capped`), shape (n,).
        estimates: of the same canaries in the same order, where exposures rest on references or
            draws: the quantiles' intervals then hold what these leave open. None takes bare
            exposures for known.
        controls_bits: exposures of controls of the same format and references, shape (m,).
        control_estimates: of the controls, like `estimates`.
        resamples: of the bootstrap for the mean, at least 100, or 0 for none; about 0.3 s for
            10,000 canaries, and none beyond that.
        seed: of the resamples and of the permutations with the controls.
        guessing: what a model that knows nothing would give; the limit of many references where
            nothing is said.

    Returns:
        The summary; what n canaries cannot give is None, and a note says why.

    Raises:
        InputError: no exposures, a NaN or an infinity, `capped` or `estimates` of another shape.
        SettingsError: a setting out of range.

    Source: `mean_interval`, `quantile_interval`, `estimated_quantile`, `compare_with_controls`;
    guessing, Jagielski 2023.

    >>> exposure_summary([1.0, 2.0, 6.0]).mean
    3.0
    """
    if isinstance(exposures_bits, SampledExposure):
        capped = exposures_bits.capped if capped is None else capped
        estimates = exposures_bits.estimates() if estimates is None else estimates
        exposures_bits = exposures_bits.value
    exposures = bits_array("exposures_bits", exposures_bits)
    level, n = fraction("level", level), exposures.size
    caps = np.zeros(n, bool) if capped is None else np.atleast_1d(np.asarray(capped, bool))
    if caps.shape != (n,):
        raise InputError(f"capped has shape {caps.shape}; give one flag for each of {n} exposures")
    quartiles = [_quantile(exposures, estimates, q, level) for q in (0.25, 0.5, 0.75)]
    mean = mean_interval(exposures, level=level, resamples=resamples, seed=seed)
    controls = None
    if controls_bits is not None:
        controls = compare_with_controls(
            exposures, controls_bits, level=level, seed=seed, control_estimates=control_estimates
        )
    return ExposureSummary(
        n=n,
        mean=mean.value,
        standard_error=float(exposures.std(ddof=1) / math.sqrt(n)) if n > 1 else None,
        lower_quartile=quartiles[0],
        median=quartiles[1],
        upper_quartile=quartiles[2],
        capped=int(caps.sum()),
        level=level,
        notes=_notes(exposures, caps, quartiles, mean),
        mean_interval=mean,
        controls=controls,
        guessing=guessing,
    )


def _quantile(
    exposures: NDArray[np.float64],
    estimates: Sequence[ExposureEstimate] | None,
    quantile: float,
    level: float,
) -> QuantileInterval:
    if estimates is None:
        return quantile_interval(exposures, quantile, level=level)
    if len(estimates) != exposures.size:
        raise InputError(
            f"estimates holds {len(estimates)} for {exposures.size} exposures; give one for each"
        )
    return estimated_quantile(estimates, quantile, level=level)


def _notes(
    exposures: NDArray[np.float64],
    caps: NDArray[np.bool_],
    quartiles: list[QuantileInterval],
    mean: MeanInterval,
) -> tuple[str, ...]:
    """What is missing, and what is only a lower bound."""
    notes = [quartile.note for quartile in quartiles if quartile.note is not None]
    if exposures.size == 1:
        notes.append("one canary has no standard error; insert more")
    if mean.note is not None:
        notes.append(mean.note)
    if caps.any():
        notes.append(
            f"{int(caps.sum())} of {caps.size} exposures are lower bounds: so is the mean, and so "
            f"is every number here from {exposures[caps].min():.2f} bits upwards"
        )
    return tuple(notes)
