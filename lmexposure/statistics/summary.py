"""The exposures of many canaries in a few numbers, next to what guessing and controls give.

Controls are fills that were never inserted, and so the null as it was measured.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from lmexposure._quantiles import ExposureEstimate
from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Counts, Flags, Floats, midranks
from lmexposure.statistics.exposures import SampledExposure
from lmexposure.statistics.intervals import estimated_quantile, mean_interval, quantile_interval
from lmexposure.statistics.results import (
    GUESSING,
    ControlsComparison,
    ExposureSummary,
    GuessingBaseline,
    MeanInterval,
    QuantileInterval,
)

_ASSUMPTIONS = (
    "without memorisation canaries and controls are exchangeable: drawn alike, and ranked among "
    "the same references",
)
_MOST = 500  # of the smaller sample; beyond it the normal approximation is as good
_CHUNK = 1024


def compare_with_controls(
    exposures_bits: ArrayLike,
    controls_bits: ArrayLike,
    *,
    level: float = 0.95,
    permutations: int = 9999,
    seed: int = 0,
    control_estimates: Sequence[ExposureEstimate] | None = None,
) -> ControlsComparison:
    """Summary of the controls, and the one-sided Mann-Whitney test of canaries against them.

    Source: Mann and Whitney 1947; Phipson and Smyth 2010, p = (1 + as extreme) /
    (1 + permutations).

    >>> compare_with_controls([5.0, 6.0, 7.0], [1.0, 2.0, 0.5]).exceeds
    1.0
    """
    own = bits_array("exposures_bits", exposures_bits)
    controls = bits_array("controls_bits", controls_bits)
    level, seed = fraction("level", level), integer("seed", seed, low=0)
    permutations = integer("permutations", permutations, low=1)
    # Twice the midranks, which are whole: sums of them are exact.
    ranks = np.rint(2 * midranks(np.concatenate([own, controls]))).astype(np.int64)
    small = min(own.size, controls.size) <= _MOST
    return ControlsComparison(
        n=controls.size,
        mean=float(controls.mean()),
        median=quantile_interval(controls, level=level)
        if control_estimates is None
        else estimated_quantile(control_estimates, level=level),
        exceeds=_wins(ranks, own.size) / (own.size * controls.size),
        p_value=(
            _by_permutation(ranks, own.size, permutations, seed)
            if small
            else _by_normal(ranks, own.size)
        ),
        method="permutation" if small else "normal approximation",
        permutations=permutations if small else 0,
        seed=seed,
        assumptions=_ASSUMPTIONS,
    )


def _wins(ranks: Counts, n: int) -> float:
    """Mann and Whitney's U: pairs in which one of the first n is the higher one."""
    return float(ranks[:n].sum() - n * (n + 1)) / 2


def _by_permutation(ranks: Counts, n: int, permutations: int, seed: int) -> float:
    """Share of permutations with the first n as high or higher, by drawing the smaller sample."""
    generator, rest = np.random.default_rng(seed), ranks.size - n
    few = min(n, rest)
    # All ranks add up to a constant: canaries are high exactly where controls are low.
    ordered, sign = (ranks, 1) if n <= rest else (ranks[::-1], -1)
    observed, extreme = sign * int(ordered[:few].sum()), 0
    for start in range(0, permutations, _CHUNK):
        places = [
            generator.choice(ranks.size, few, replace=False, shuffle=False)
            for _ in range(min(_CHUNK, permutations - start))
        ]
        extreme += int(np.sum(sign * ranks[np.stack(places)].sum(axis=1) >= observed))
    return (1 + extreme) / (1 + permutations)


def _by_normal(ranks: Counts, n: int) -> float:
    """Normal approximation; the variance is the one with these ties, half a pair is continuity."""
    total, m = ranks.size, ranks.size - n
    spread = np.var(ranks / 2) * total / (total - 1)
    deviation = float(np.sqrt(n * m * spread / total))
    if deviation == 0:
        return 1.0
    return float(ndtr(-(_wins(ranks, n) - n * m / 2 - 0.5) / deviation))


def exposure_summary(  # noqa: PLR0913 - a public door: its parameters are its options
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
    exposures: Floats, estimates: Sequence[ExposureEstimate] | None, quantile: float, level: float
) -> QuantileInterval:
    if estimates is None:
        return quantile_interval(exposures, quantile, level=level)
    if len(estimates) != exposures.size:
        raise InputError(
            f"estimates holds {len(estimates)} for {exposures.size} exposures; give one for each"
        )
    return estimated_quantile(estimates, quantile, level=level)


def _notes(
    exposures: Floats, caps: Flags, quartiles: list[QuantileInterval], mean: MeanInterval
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
