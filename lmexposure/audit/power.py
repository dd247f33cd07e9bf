"""What an audit could show at best, said before a training is paid for."""

from dataclasses import dataclass

import numpy as np

from lmexposure.errors import InputError
from lmexposure.records import RunSettings

# Beyond, to find out takes longer than a person waits, and a claim that needs more is out of reach.
_MOST_CANDIDATES = 2**17
_CLOSE_ENOUGH = 1.05


@dataclass(frozen=True, kw_only=True)
class Attainable:
    """The most that the primary bound can be.

    Attributes:
        candidates: that a coin is tossed for in a class of repetitions, over all formats.
        epsilon: of a perfect attack on them, in nats, for one document.
        delta: beside it.
        claimed_epsilon: what was claimed, in nats; None where nothing was.
        needed: candidates per format and class with which a perfect attack would show more than
            was claimed, at most 5% above the fewest; None where nothing is claimed, they are there
            already, or it would take more than 131,072 in a class.
    """

    candidates: int
    epsilon: float
    delta: float
    claimed_epsilon: float | None
    needed: int | None

    @property
    def sentence(self) -> str:
        """The same for a person."""
        return (
            f"a perfect attack on {self.candidates:,} candidates shows epsilon of at most "
            f"{self.epsilon:.3g} at delta {self.delta:g}"
        )

    @property
    def warning(self) -> str | None:
        """That the claim cannot be tested, or None."""
        if self.claimed_epsilon is None or self.epsilon > self.claimed_epsilon:
            return None
        more = "" if self.needed is None else f"; it takes about {self.needed} canaries"
        return (
            f"the claim of epsilon={self.claimed_epsilon:g} cannot be tested with so few "
            f"candidates: no attack could show more than {self.epsilon:.3g}{more}"
        )


def attainable(settings: RunSettings) -> Attainable | None:
    """What a perfect attack would show, and how many candidates a claim needs.

    Args:
        settings: inclusion probability, candidates, repetitions, significance, delta and claim.

    Returns:
        The most, beside the primary bound's delta; None without coins.
    """
    if settings.inclusion_probability is None:
        return None
    claimed, most = settings.measure.claimed_epsilon, _most(settings, settings.per_class)
    short = claimed is not None and most <= claimed
    return Attainable(
        candidates=settings.per_class * len(settings.formats),
        epsilon=most,
        delta=_delta(settings),
        claimed_epsilon=claimed,
        needed=_needed(settings, claimed) if short and claimed is not None else None,
    )


def _needed(settings: RunSettings, claimed: float) -> int | None:
    """Candidates per format and class that show more than was claimed: doubled, then halved in."""
    low = settings.per_class
    while low * len(settings.formats) <= _MOST_CANDIDATES // 2:
        high = 2 * low
        if _most(settings, high) > claimed:
            break
        low = high
    else:
        return None
    while high > low * _CLOSE_ENOUGH and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _most(settings, middle) > claimed else (middle, high)
    return high


def _most(settings: RunSettings, per_class: int) -> float:
    """The ceiling of the largest primary bound: that of the class with the fewest repetitions.

    The primary bound of a class has half of its share of the significance (`joint_bounds`).
    """
    candidates, repetitions = per_class * len(settings.formats), min(settings.repetitions)
    significance = settings.measure.significance / len(settings.repetitions) / 2
    try:
        return _ceiling(
            candidates,
            settings.inclusion_probability or 0.0,
            significance=significance,
            delta=_delta(settings),
            repetitions=repetitions,
        )
    except InputError:  # coins that insert, or leave out, next to nobody
        return 0.0


def _ceiling(
    candidates: int,
    inclusion_probability: float,
    *,
    significance: float,
    delta: float,
    repetitions: int,
) -> float:
    """Of the primary rule; it depends on the number of candidates and not on how coins fell."""
    # Here, for they bring scipy: an insertion without coins asks for no ceiling.
    from lmexposure.statistics import epsilon_from_exposure, one_run_audit

    included = np.arange(candidates) < max(1, round(inclusion_probability * candidates))
    if inclusion_probability == 0.5:
        bound = one_run_audit(
            included,
            included,
            significance=significance,
            delta=delta,
            repetitions=repetitions,
            seed=0,
        )
    else:
        bound = epsilon_from_exposure(
            -included[included].astype(float),
            included[~included].astype(float),
            inclusion_probability=inclusion_probability,
            significance=significance,
            delta=delta,
            repetitions=repetitions,
        ).bound
    return bound.max_attainable or 0.0


def _delta(settings: RunSettings) -> float:
    """The primary bound stands beside the first of the deltas; no document is counted for it."""
    return settings.measure.deltas(1)[0]
