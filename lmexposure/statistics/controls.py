"""Canaries beside controls: fills that were never inserted, and so the null as it was measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from lmexposure._quantiles import ExposureEstimate
from lmexposure._validate import bits_array, fraction, integer
from lmexposure.statistics._rows import midranks
from lmexposure.statistics.intervals import (
    QuantileInterval,
    estimated_quantile,
    quantile_interval,
)

_ASSUMPTIONS = (
    "without memorisation canaries and controls are exchangeable: drawn alike, and ranked among "
    "the same references",
)
_MOST = 500  # of the smaller sample; beyond it the normal approximation is as good
_CHUNK = 1024


@dataclass(frozen=True, kw_only=True)
class ControlsComparison:
    """What controls show, and how much higher canaries lie.

    `mean` and `median` are the controls' exposures in bits; `exceeds` is the share of pairs in
    which the canary's exposure is above the control's, ties counted half: 0.5 without
    memorisation, 1 at most. `p_value` says how often chance alone puts canaries so high: exact
    where it comes from permutations, and then at least 1 / (1 + permutations).
    """

    n: int
    mean: float
    median: QuantileInterval
    exceeds: float
    p_value: float
    method: Literal["permutation", "normal approximation"]
    permutations: int
    seed: int
    assumptions: tuple[str, ...] = _ASSUMPTIONS

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"assumptions": list(self.assumptions)}


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

    All canaries share one set of references, so that their exposures are dependent; under
    exchangeability permuting them with the controls stays exact all the same.

    Args:
        exposures_bits: exposures of canaries in bits, one or shape (n,); higher = more memorised.
        controls_bits: exposures of controls in bits, one or shape (m,).
        level: coverage of the interval of the controls' median.
        permutations: at least 1; not used where both samples are larger than 500.
        seed: of the permutations.
        control_estimates: of the controls, where they rest on references or draws, for the
            interval of their median; None takes their exposures for known.

    Returns:
        The comparison.

    Raises:
        InputError: no exposures, or one that is not finite.
        SettingsError: a setting out of range.

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
    )


def _wins(ranks: NDArray[np.int64], n: int) -> float:
    """Mann and Whitney's U: pairs in which one of the first n is the higher one."""
    return float(ranks[:n].sum() - n * (n + 1)) / 2


def _by_permutation(ranks: NDArray[np.int64], n: int, permutations: int, seed: int) -> float:
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


def _by_normal(ranks: NDArray[np.int64], n: int) -> float:
    """Normal approximation; the variance is the one with these ties, half a pair is continuity."""
    total, m = ranks.size, ranks.size - n
    spread = np.var(ranks / 2) * total / (total - 1)
    deviation = float(np.sqrt(n * m * spread / total))
    if deviation == 0:
        return 1.0
    return float(ndtr(-(_wins(ranks, n) - n * m / 2 - 0.5) / deviation))
