"""The search of a method's settings: those by which its validation loss comes to the target."""

from collections.abc import Callable
from dataclasses import dataclass

_EDGE = 0.1  # of an interval, that the next strength keeps away from its ends
_WEAKEST = (
    "even its weakest setting costs more utility than the target allows; give a higher target, or "
    "more epochs"
)
_STRONGEST = "even its strongest setting is more useful than the target; give a target nearer to 1"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A strength, and the validation loss that it gave."""

    strength: float  # in [0, 1]
    ratio: float  # of the loss to that without a defence; infinite where the training diverged


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to."""

    # that is chosen: the trained one whose loss is at the target; without one, where the line
    # between the nearest on both sides meets it; without these, the nearest
    strength: float
    ratio: float  # of the nearest that was trained
    tried: tuple[Tried, ...]  # all of them, in order
    why: str | None  # it is not within the tolerance; None where it is
    useless: bool  # whether every strength costs more than the target allows


def search(
    ratio_of: Callable[[float], float],
    *,
    target: float,
    tolerance: float,
    tries: int,
) -> Found:
    """Find the strength at which a loss that rises with it is at the target."""
    tried: list[Tried] = []
    low = high = None  # the nearest below the target, and above
    strength, weights = 0.5, (1.0, 1.0)
    while True:
        last = Tried(strength=strength, ratio=ratio_of(strength))
        tried.append(last)
        if abs(last.ratio / target - 1) <= tolerance:
            return _found(tried, last.strength, target, None)
        # The end that stays counts less each time, so that a bent curve is not crept along.
        if last.ratio < target:
            low, weights = last, (1.0, weights[1] / 2 if low and high else 1.0)
        else:
            high, weights = last, (weights[0] / 2 if low and high else 1.0, 1.0)
        if low is None and strength == 0.0:
            return _found(tried, 0.0, target, _WEAKEST)
        if high is None and strength == 1.0:
            return _found(tried, 1.0, target, _STRONGEST)
        strength = _next(low, high, target, weights)
        if len(tried) == tries:
            why = f"no setting was at the target within {tries} trainings; this one is in between"
            return _found(tried, strength, target, why)


def _next(
    low: Tried | None, high: Tried | None, target: float, weights: tuple[float, float]
) -> float:
    if low is None:
        return 0.0
    if high is None:
        return 1.0
    width = high.strength - low.strength
    share = 0.5
    if high.ratio < float("inf"):
        below, above = (target - low.ratio) * weights[0], (high.ratio - target) * weights[1]
        share = below / (below + above)
    return low.strength + width * min(max(share, _EDGE), 1 - _EDGE)


def _found(tried: list[Tried], strength: float, target: float, why: str | None) -> Found:
    nearest = min(tried, key=lambda trained: abs(trained.ratio / target - 1))
    return Found(
        strength=strength,
        ratio=nearest.ratio,
        tried=tuple(tried),
        why=why,
        useless=why == _WEAKEST,
    )
