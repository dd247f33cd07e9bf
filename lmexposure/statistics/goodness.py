"""Does a skew-normal curve fit the references, as a whole and in the low tail that is used?"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics.skew_normal_curve import SkewNormal, refit

# Two looks share a false alarm rate of 5 % (Bonferroni).
_P_VALUE_EACH = 0.025


@dataclass(frozen=True, kw_only=True)
class GoodnessOfFit:
    """How the curve fits; both p-values by parametric bootstrap; lower = worse fit.

    `ks_statistic` is the largest distance between the curve's cdf and the sample's. `tail_bits`
    says by how many bits, on average over the lowest hundredth of the references, the curve
    overstates their exposure (below 0: understates).
    """

    ks_statistic: float
    ks_p_value: float
    tail_bits: float
    tail_p_value: float
    bootstraps: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each look that fails; empty where the curve fits."""
        lines = []
        if self.ks_p_value <= _P_VALUE_EACH:
            lines.append(
                "DO NOT RELY ON THIS: the references do not follow a skew-normal curve "
                f"(Kolmogorov-Smirnov distance {self.ks_statistic:.4f}, bootstrap "
                f"p = {self.ks_p_value:.3g}); use the sampled exposure"
            )
        if self.tail_p_value <= _P_VALUE_EACH:
            side = "overstates" if self.tail_bits > 0 else "understates"
            lines.append(
                f"DO NOT RELY ON THIS: the curve {side} exposure by {abs(self.tail_bits):.2f} bits "
                "already among the lowest references, more beyond them (bootstrap "
                f"p = {self.tail_p_value:.3g}); use the sampled exposure"
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"warnings": list(self.warnings)}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A curve with the two looks at the sample it was fitted to."""

    curve: SkewNormal
    ks_statistic: float
    tail_bits: float


def look_at(ordered: NDArray[np.float64], curve: SkewNormal) -> Fit:
    """Both looks at a curve; `ordered` are the references from lowest to highest, shape (n,)."""
    n = ordered.size
    cdf, steps = np.exp(curve.log_cdf(ordered)), np.arange(n + 1) / n
    tail = max(10, math.ceil(n / 100))
    expected = -np.log2((np.arange(tail) + 0.5) / n)  # (tail,) bits of the plotting positions
    return Fit(
        curve=curve,
        ks_statistic=float(np.maximum(steps[1:] - cdf, cdf - steps[:-1]).max()),
        tail_bits=float(np.mean(curve.exposure(ordered[:tail]) - expected)),
    )


def bootstrap_fits(curve: SkewNormal, n: int, *, bootstraps: int, seed: int) -> list[Fit]:
    """Fits to samples of n that follow the curve, each fitted anew.

    A p-value that takes the fitted curve for the true one is wrong (Lilliefors 1967).
    """
    generator = np.random.default_rng(seed)
    fits = []
    for _ in range(bootstraps):
        ordered = np.sort(curve.sample(n, generator))
        fits.append(look_at(ordered, refit(ordered, curve)))
    return fits


def goodness_of_fit(observed: Fit, bootstrapped: list[Fit]) -> GoodnessOfFit:
    """Where the two looks stand among those of samples that do follow the curve.

    Source: Stute, Gonzalez Manteiga, Presedo Quindimil 1993, Bootstrap based goodness-of-fit
    tests; p = (1 + as large) / (1 + bootstraps), Davison and Hinkley 1997, chapter 4.
    """
    most = 1 + len(bootstrapped)
    distant = sum(fit.ks_statistic >= observed.ks_statistic for fit in bootstrapped)
    tilted = sum(abs(fit.tail_bits) >= abs(observed.tail_bits) for fit in bootstrapped)
    return GoodnessOfFit(
        ks_statistic=observed.ks_statistic,
        ks_p_value=(1 + distant) / most,
        tail_bits=observed.tail_bits,
        tail_p_value=(1 + tilted) / most,
        bootstraps=len(bootstrapped),
    )
