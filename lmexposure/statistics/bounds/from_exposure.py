"""From exposure to epsilon: the point value of a quantile, and the bound that stands beside it."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from lmexposure._settings import takes_old_names
from lmexposure._validate import bits_array, delta_of_dp, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.beta_mean import beta_nodes, beta_quantiles
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.coins import CoinRule
from lmexposure.statistics.bounds.groups import per_document
from lmexposure.statistics.bounds.tossed import refuse_unlikely_coins

_POINT = (
    "a point value, not a bound: it says nothing about what another sample would give",
    "pure differential privacy (delta = 0)",
    "canary and reference scores are continuous, and alike but for the insertion",
)
_COINS = (
    "every fill went in by an independent coin of the probability given, tossed after fills and "
    "places were drawn",
    "canaries and references given are all the fills that a coin was tossed for",
)
_ALIKE = ("log-perplexities are independent given the model, and alike but for the insertion",)


@dataclass(frozen=True, kw_only=True)
class EpsilonPoint:
    """An epsilon without a confidence statement, in nats; higher = less private.

    `median_exposure` is the exposure in bits that `quantile` of the canaries reach or exceed;
    the name is that of the usual quantile, 0.5.
    """

    value: float
    median_exposure: float
    repetitions: int
    quantile: float = 0.5
    validity: str = "point"
    unit: str = "nats"
    adjacency: str = "add or remove one document"
    assumptions: tuple[str, ...] = _POINT

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"assumptions": list(self.assumptions)}


@dataclass(frozen=True, kw_only=True)
class ExposureEpsilon:
    """What exposures say of epsilon: a lower bound, and beside it the point value."""

    bound: EpsilonBound
    point: EpsilonPoint

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {"bound": self.bound.to_dict(), "point": self.point.to_dict()}


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
    return _point(float(median_exposure), 0.5, repetitions)


@takes_old_names({"coins": "inclusion_probability"})
def epsilon_from_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    quantile: float = 0.5,
    inclusion_probability: float | None = None,
    repetitions: int = 1,
    significance: float = 0.05,
    delta: float = 0.0,
) -> ExposureEpsilon:
    """Lower bound on epsilon from the references that stand before a quantile of the canaries.

    With n references, let x of them have a log-perplexity as low as the k-th lowest canary's, ties
    against the bound. Where every fill went in by an independent coin of probability p, the bound
    holds for every training (class "any-dp"; proof in `coins.py`): with delta = 0 it is
    logit(BetaInv(significance; k, x + 1)) - logit(p). Where a fixed number was inserted it holds
    if log-perplexities are independent (class "iid-scores"): the chance of epsilon is the mean of
    BinCDF(x; n, (V - delta)_+ e^-epsilon) over V ~ Beta(k, m - k + 1).

    Args:
        canary_bits: log-perplexities in bits of the m inserted fills, lower = more memorised.
        reference_bits: log-perplexities in bits of n fills of the format never inserted; with
            `inclusion_probability`, of exactly those whose coin said so.
        quantile: in (0, 1], fixed beforehand: k is this part of the canaries, rounded up; with
            `inclusion_probability`, of the p (m + n) expected, because their number is chance.
            Small: the most memorised ones; 0.5: the median exposure.
        inclusion_probability: p, each fill's chance to go in, in (0, 1); None: a fixed number did.
        repetitions: copies of each canary, the same for all.
        significance: in (0, 1).
        delta: of one document, in [0, 1).

    Returns:
        The bound, and the point value of the exposure at that quantile.

    Raises:
        SettingsError: a setting out of range.
        InputError: no numbers, a NaN or an infinity; coins that could hardly have fallen so.

    Source: Jagielski 2023 (arXiv 2306.00133) for the point value; Steinke, Nasr, Jagielski 2023
    (arXiv 2305.08846) for coins of one half.

    >>> found = epsilon_from_exposure([1.0] * 10, range(2, 10002), quantile=1.0)
    >>> round(found.point.value, 2), round(found.bound.value, 2)
    (9.21, 8.0)
    """
    canaries = np.sort(bits_array("canary_bits", canary_bits))
    references = bits_array("reference_bits", reference_bits)
    if quantile != 1:
        quantile = fraction("quantile", quantile)
    repetitions = integer("repetitions", repetitions, low=1)
    significance, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    m, n = canaries.size, references.size
    own = _rank(quantile, m)
    epsilon_at, rank = _alike(own, m, n, significance, delta, repetitions), own
    if inclusion_probability is not None:
        coin = fraction("inclusion_probability", inclusion_probability)
        refuse_unlikely_coins(m, m + n, coin)
        rank = _rank(quantile, coin * (m + n))
        epsilon_at = CoinRule(
            fills=m + n,
            coin=coin,
            rank=rank,
            significance=significance,
            delta=delta,
            repetitions=repetitions,
        ).epsilon
    before = int((references <= canaries[rank - 1]).sum()) if rank <= m else n
    value, ceiling = epsilon_at(before) if rank <= m else 0.0, epsilon_at(0)
    bound = EpsilonBound(
        method="epsilon_from_exposure",
        value=value,
        significance=significance,
        delta=delta,
        validity="iid-scores" if inclusion_probability is None else "any-dp",
        counts={"canaries": m, "references": n, "rank": rank, "references_before": before},
        threshold=-float(canaries[rank - 1]) if rank <= m else None,
        threshold_choice=f"canary {rank} from the lowest log-perplexity, fixed beforehand",
        max_attainable=ceiling,
        repetitions=repetitions,
        adjacency=adjacency(repetitions),
        assumptions=_ALIKE if inclusion_probability is None else _COINS,
        notes=_notes(value, rank, m, ceiling),
    )
    passed = int((references <= canaries[own - 1]).sum())
    exposure = math.log2(n) - math.log2(1 + passed)
    return ExposureEpsilon(bound=bound, point=_point(exposure, quantile, repetitions))


def _rank(quantile: float, canaries: float) -> int:
    """The part of them, rounded up; 0.1 of 30 is 3 although 0.1 * 30 is above 3 in floats."""
    return max(1, math.ceil(quantile * canaries * (1 - 1e-12)))


def _point(exposure: float, quantile: float, repetitions: int) -> EpsilonPoint:
    """ln(quantile / 2^-exposure) / repetitions: ln 2 (exposure - 1) at the median."""
    value = max(0.0, math.log(2) * (exposure + math.log2(quantile)) / repetitions)
    return EpsilonPoint(
        value=value, median_exposure=exposure, repetitions=repetitions, quantile=quantile
    )


def _alike(
    k: int, m: int, n: int, significance: float, delta: float, repetitions: int
) -> Callable[[int], float]:
    """The bound for independent log-perplexities, by how many references stand before."""

    def epsilon(before: int) -> float:
        return per_document(
            lambda group: _beta_binomial_epsilon(before, k, m, n, significance, group),
            delta=delta,
            repetitions=repetitions,
        )

    return epsilon


def _beta_binomial_epsilon(
    x: int, k: int, m: int, n: int, significance: float, delta: float
) -> float:
    """Where the mean of BinCDF(x; n, (V - delta)_+ e^-epsilon) is the significance."""
    steps = beta_quantiles(x + 1, n - x) if x < n else np.empty(0)  # where BinCDF falls

    def excess(epsilon: float) -> float:
        v = beta_nodes(k, m - k + 1, np.append(delta + steps * math.exp(epsilon), delta))
        rate = np.maximum(v.value - delta, 0.0) * math.exp(-epsilon)
        return float(v.weight @ special.bdtr(x, n, rate)) - significance

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


def _notes(value: float, rank: int, canaries: int, ceiling: float) -> tuple[str, ...]:
    if ceiling == 0:
        return (
            "nothing could have been shown: too few canaries before the quantile for this "
            "significance and delta, so that the bound is 0",
        )
    if rank > canaries:
        return (
            f"{canaries} canaries went in, fewer than the rank {rank} fixed beforehand, so that "
            "the bound is 0; a smaller quantile is safer",
        )
    if value == 0:
        return ("no signal that so few canaries can tell from chance: the bound is 0",)
    return ()
