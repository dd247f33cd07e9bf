"""From exposure to epsilon: the point value that a median exposure stands for."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from lmexposure._validate import integer
from lmexposure.errors import InputError

__all__ = ["EpsilonPoint", "epsilon_from_median_exposure"]

_ASSUMPTIONS = (
    "a point value, not a bound: it says nothing about what another sample would give",
    "pure differential privacy (delta = 0)",
    "canary and reference scores are continuous, and alike but for the insertion",
)


@dataclass(frozen=True, kw_only=True)
class EpsilonPoint:
    """An epsilon without a confidence statement, in nats; higher = less private."""

    value: float
    median_exposure: float
    repetitions: int
    validity: str = "point"
    unit: str = "nats"
    adjacency: str = "add or remove one document"
    assumptions: tuple[str, ...] = _ASSUMPTIONS

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"assumptions": list(self.assumptions)}


def epsilon_from_median_exposure(median_exposure: float, *, repetitions: int = 1) -> EpsilonPoint:
    """The epsilon that a median exposure points to: ln 2 (median - 1) / repetitions, at least 0.

    Half of the canaries rank within the lowest 2^-median of the references, where chance puts
    2^-median of them: the ratio is 2^(median - 1) <= e^epsilon.

    Args:
        median_exposure: in bits, finite; 1 is what guessing gives.
        repetitions: copies of each canary; r copies cost r times epsilon by group privacy, so
            that the value for one document is the r-th part.

    Returns:
        The value in nats, never below 0, with what it assumes.

    Raises:
        InputError: the median is not finite.
        SettingsError: `repetitions` is no whole number from 1.

    Source: Jagielski 2023, A note on interpreting canary exposure (arXiv 2306.00133).

    >>> round(epsilon_from_median_exposure(11.0, repetitions=10).value, 6)
    0.693147
    """
    repetitions = integer("repetitions", repetitions, low=1)
    if not math.isfinite(median_exposure):
        raise InputError(
            f"median_exposure={median_exposure} must be a finite number of bits; "
            "where it is capped, give the cap: the value is then a lower one"
        )
    value = max(0.0, math.log(2) * (median_exposure - 1) / repetitions)
    return EpsilonPoint(
        value=value, median_exposure=float(median_exposure), repetitions=repetitions
    )
