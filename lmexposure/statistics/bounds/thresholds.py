"""How the threshold of an attack is chosen, and so what the choice costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lmexposure._validate import bits_array, fraction, one_of
from lmexposure.errors import SettingsError

_SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@dataclass(frozen=True, kw_only=True)
class FixedThreshold:
    """One score, chosen without a look at these scores; above it a canary is guessed to be in."""

    value: float

    def __post_init__(self) -> None:
        if np.ndim(self.value) != 0:
            raise SettingsError(f"value={self.value!r} must be one number; see Bonferroni for more")
        bits_array("value", self.value)


@dataclass(frozen=True, kw_only=True)
class SplitSample:
    """The best threshold on one part of the scores, the bound from the other part.

    Attributes:
        fraction: of each sample, in (0, 1), the part that the threshold is chosen on.
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        fraction("fraction", self.fraction)


@dataclass(frozen=True, kw_only=True)
class Bonferroni:
    """Several thresholds fixed beforehand; each gets its part of the significance.

    Attributes:
        grid: the thresholds, at least one.
        by: "share": of the out-scores that lie above the threshold, each in (0, 1); "value": the
            thresholds themselves.
    """

    grid: Sequence[float] = _SHARES
    by: str = "share"

    def __post_init__(self) -> None:
        one_of("by", self.by, ("share", "value"))
        for number in bits_array("grid", self.grid).tolist():
            if self.by == "share":
                fraction("grid", number)


@dataclass(frozen=True, kw_only=True)
class OrderStatistics:
    """All ranks on a fixed ladder, from both ends, at one joint level that is computed exactly."""


Threshold = FixedThreshold | SplitSample | Bonferroni | OrderStatistics
