"""Exposure from weighted draws: the rank in a space that is too large to count.

Draws go where the model puts its probability, so a few thousand of them reach ranks that uniform
references never meet; weights undo the preference. How far the estimate may be off is bounded by
the largest weight that a fill as cheap as the canary can have, which is known beforehand.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics._rows import column, plain_list, row
from lmexposure.statistics.weighted_count import (
    ROUNDING,
    WHOLE,
    WeightedCount,
    WeightedCounts,
    WeightedDraws,
    log2,
)

_SLACK = 0.5  # bits by which rounding may lift a weight above its bound; a wrong unit lifts further
_ASSUMPTIONS = (
    "draws are independent within each component of the mixture, and their weights are one over "
    "the mixture's probability of the fill",
    "canary and draws are scored in the same way, behind a token prefix that all fills share",
    "the interval (gamma, with the largest weight possible) holds for one canary, not for all of "
    "them jointly; its coverage was measured, not proven",
)
_CERTIFIED = "no fill begins another, so that at most 2^bits fills cost that many bits or less"


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportanceExposure:
    """Exposures from weighted draws, in bits; higher = more memorised; columns of shape (n,).

    `value` = log2(space_size) - log2(rank). Where `capped`, no draw came as low as the canary:
    `rank` is then the most that the interval leaves open, and `value` = `low` is to be shown with
    ">=". `place` counts the excluded fills too. `effective_draws` is (sum w)^2 / sum w^2 over the
    draws that count for a canary: so many draws of equal weight would say as much.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rank: tuple[int, ...]
    place: tuple[int, ...]
    capped: NDArray[np.bool_]
    effective_draws: NDArray[np.float64]
    draws: int
    level: float
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    method: str = "importance"

    def row(self, i: int) -> dict[str, Any]:
        """The i-th canary alone, in plain Python values."""
        value, capped = float(self.value[i]), bool(self.capped[i])
        bounds = (float(self.low[i]), float(self.high[i]), self.level)
        warnings = [_cap_warning(self.draws)] if capped else []
        rank = self.rank[i]
        return row(value, bounds, rank, capped, self.method, self.assumptions, warnings) | {
            "place": self.place[i],
            "draws": self.draws,
            "effective_draws": float(self.effective_draws[i]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, columns as lists; ranks as decimal strings, for they may be huge."""
        return {
            "method": self.method,
            "value": plain_list(self.value),
            "low": plain_list(self.low),
            "high": plain_list(self.high),
            "level": self.level,
            "rank": [str(rank) for rank in self.rank],
            "place": [str(place) for place in self.place],
            "capped": self.capped.tolist(),
            "effective_draws": plain_list(self.effective_draws),
            "draws": self.draws,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def importance_exposure(
    canary_bits: ArrayLike,
    draws: WeightedDraws,
    *,
    space_size: int,
    inserted: ArrayLike = False,
    own: ArrayLike = -1,
    excluded_bits: ArrayLike = (),
    level: float = 0.95,
) -> ImportanceExposure:
    """Exposure of each canary by its rank among all never-inserted fills, estimated from draws.

    The number of fills that cost no more than the canary is summed over the distinct fills drawn,
    each over its probability of being drawn at all. A fill that is drawn almost surely then adds
    no uncertainty; where few fills are drawn twice, it is the mean of the weights.

    Args:
        canary_bits: cost of each canary, of the same kind as `draws.bits`, one or shape (n,);
            lower = more memorised.
        draws: weighted draws from the same space under the same model.
        space_size: |R|, exact, at least 2, of any size.
        inserted: which canaries stood in the corpus, one or shape (n,): they are not part of each
            other's null. The others are controls.
        own: label of each canary among `draws.fills`, one or shape (n,), -1 where it was not
            drawn: no canary is counted against itself.
        excluded_bits: costs of further fills that are not part of the null, shape (P,): of inserted
            canaries that are not among those asked for, and of fills set aside.
        level: two-sided coverage of each canary's interval.

    Returns:
        Columns of shape (n,) in the order given; one canary gives shape (1,). Where a limit is
        finite, no bound lies below the certificate log2|R| - bits.

    Raises:
        InputError: no numbers, a NaN or an infinity, columns of different length, a weight that
            the space does not allow.
        SettingsError: `space_size` or `level` out of range.

    Source: Horvitz and Thompson 1952 (the estimator; on distinct units: Basu 1958); Veach and
    Guibas 1995 (balance heuristic); Fay and Feuer 1997 (gamma interval for weighted counts).
    """
    bits = bits_array("canary_bits", canary_bits)
    size = integer("space_size", space_size, low=2)
    level = fraction("level", level)
    labels = _per_canary("own", own, bits.size)
    is_inserted = _per_canary("inserted", inserted, bits.size).astype(bool)
    _refuse_weights(draws, size)
    beside, apart = _excluded(bits, is_inserted, excluded_bits)
    bounds, most = draws.log2_bound(bits), draws.log2_most(bits)
    sums = WeightedCounts(draws, level)
    counts = [
        sums.count(
            float(bits[i]),
            int(labels[i]),
            float(bounds[i]),
            _log2_most(float(most[i]), beside[i], size - 1 - apart[i]),
        )
        for i in range(bits.size)
    ]
    return _result(counts, beside, draws, size, level)


def _excluded(
    bits: NDArray[np.float64], inserted: NDArray[np.bool_], further: ArrayLike
) -> tuple[list[int], list[int]]:
    """Other fills outside the null, for each canary: those that cost no more, and all of them."""
    more = np.asarray(further, np.float64)
    more = bits_array("excluded_bits", more) if more.size else more.reshape(-1)
    ordered = np.sort(np.concatenate([more, bits[inserted]]))
    beside = np.searchsorted(ordered, bits, side="right") - inserted
    return beside.tolist(), (ordered.size - inserted).tolist()


def _log2_most(log2_fills: float, beside: int, null: int) -> float:
    """log2 of the most never-inserted fills that can cost as little, the canary apart.

    At most 2^log2_fills fills do, among them the canary and `beside` excluded ones; a whole number,
    if rounding leaves no doubt which; and never more than there are.
    """
    most = log2(null)
    if log2_fills > WHOLE:
        return min(most, log2_fills)
    fills = min(2**log2_fills, math.floor(2 ** (log2_fills + ROUNDING)))
    return min(most, log2(fills - 1 - beside))


def _result(
    counts: list[WeightedCount], beside: list[int], draws: WeightedDraws, size: int, level: float
) -> ImportanceExposure:
    """Counts of other fills to ranks and exposures."""
    space_bits = math.log2(size)
    capped = [count.hits == 0 and count.high > -math.inf for count in counts]
    found = [c.high if cap else c.value for c, cap in zip(counts, capped, strict=True)]
    values, low, high = (
        np.maximum(space_bits - np.logaddexp2(0.0, np.array(logs)), 0.0) + 0.0  # no -0.0
        for logs in (found, [c.high for c in counts], [c.low for c in counts])
    )
    rank = tuple(min(1 + _round(log), size) for log in found)
    told = sum(capped)
    warnings = (f"{told} of {len(counts)} canaries: {_cap_warning(len(draws))}",) if told else ()
    return ImportanceExposure(
        value=column(values, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        rank=rank,
        place=tuple(r + others for r, others in zip(rank, beside, strict=True)),
        capped=column(capped, np.bool_),
        effective_draws=column([count.effective for count in counts], np.float64),
        draws=len(draws),
        level=level,
        assumptions=(*_ASSUMPTIONS, _CERTIFIED) if draws.prefix_free else _ASSUMPTIONS,
        warnings=warnings,
    )


def _round(log2_count: float) -> int:
    """2^x as a whole number, also beyond what float64 can hold."""
    if log2_count == -math.inf:
        return 0
    shift = max(0, math.floor(log2_count) - 52)
    return round(2 ** (log2_count - shift)) << shift


def _cap_warning(draws: int) -> str:
    return (
        f"none of {draws} draws costs as little as the canary: the exposure is at least the value "
        "shown, the lower end of its interval; more draws, or an exact search, could show more"
    )


def _per_canary(name: str, values: ArrayLike, n: int) -> NDArray[Any]:
    """One entry for each canary, shape (n,); a single one stands for all."""
    array = np.asarray(values)
    if array.shape not in ((), (1,), (n,)):
        raise InputError(f"{name} has shape {array.shape}; give one entry for each of {n} canaries")
    return np.broadcast_to(array, (n,))


def _refuse_weights(draws: WeightedDraws, size: int) -> None:
    """Weights or totals that the space does not allow would make every interval too narrow."""
    uniform, size_bits = np.isinf(draws.limits), math.log2(size)
    off = np.where(uniform, np.abs(draws.log2_totals - size_bits), draws.log2_totals - size_bits)
    if (off > ROUNDING).any():
        raise InputError(
            f"log2_totals={draws.log2_totals.tolist()} do not fit space_size, of {size_bits:.3f} "
            "bits: that of an infinite limit is log2 of it, and none is above; give the size of "
            "the space that was drawn from"
        )
    over = draws.log2_weights - draws.log2_bound(draws.bits)
    worst = int(np.argmax(over))
    if over[worst] > _SLACK:
        raise InputError(
            f"log2_weights[{worst}]={draws.log2_weights[worst]:.3f} is {over[worst]:.3f} bits "
            "above what its bits, the shares and the limits allow; give log2 of one over the "
            "mixture's probability, bits behind the prefix that all fills share, and the shares "
            "and limits that were drawn with"
        )
