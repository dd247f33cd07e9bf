"""Exposure without a sample: from counted ranks, or proven from the secret's own bits.

A search over all fills gives exact ranks where it was finished. One that its budget ended early
still proves that the rank is at least what it counted, and at most what it left open.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lmexposure._validate import bits_array, integer, positive
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Flags, Floats, column
from lmexposure.statistics.results import Estimate, Method

_RANKS, _PLACES = ("rank_low", "rank_high"), ("place_low", "place_high")
# A lower bound is at most its upper one, and a rank at most its place: else a count is wrong.
_ORDERED = (_RANKS, _PLACES, *zip(_RANKS, _PLACES, strict=True))
_CERTIFIED = (
    "every possible secret shares the token prefix before the scored part",
    "secret_bits is the model's own probability of all tokens after that prefix",
)
_COUNTED = (
    "every possible secret was counted once, or left open, by its bits under the model; the "
    "canary's is one of them",
    "ties count against the canary; excluded secrets (inserted or set aside) count for `place`, "
    "not for `rank`",
)
_PROVEN = (
    "the search's margin covers the error of its arithmetic: what lies within it was scored again "
    "in float64"
)
_EMPIRICAL = (
    "the search's margin was measured on a sample of secrets, so that it covers the error of its "
    "arithmetic as far as the sample shows"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedExposure:
    """Proven lower bounds of exposure in bits, which rest on no sample; higher = more memorised."""

    low: Floats
    secret_bits: Floats
    space_bits: float

    def canary(self, i: int) -> Estimate:
        """The i-th canary alone; `capped`, for it is a lower bound."""
        low = float(self.low[i])
        return Estimate(
            method="certificate",
            value=low,
            low=low,
            high=self.space_bits,
            level=1.0,
            rank=None,
            capped=True,
            assumptions=_CERTIFIED,
            warnings=(),
        )


def certified_exposure(space_bits: float, secret_bits: ArrayLike) -> CertifiedExposure:
    """Exposure is at least log2|R| - tau, where tau is what the secret costs the model.

    The fills' token paths after the prefix that they share are disjoint events, so at most
    2^tau of them cost tau bits or less: rank <= 2^tau. It holds for every tokenizer.

    Source: Kraft's inequality (Cover and Thomas 2006, theorem 5.2.1) on the fills' token paths.

    >>> certified_exposure(29.9, [10.0, 35.0]).low.round(1).tolist()
    [19.9, 0.0]
    """
    space_bits = positive("space_bits", space_bits)
    tau = bits_array("secret_bits", secret_bits)
    bad = np.flatnonzero(tau < 0)
    if bad.size:
        raise InputError(
            f"secret_bits[{bad[0]}]={tau[bad[0]]} must be at least 0: it is -log2 of a "
            "probability; give log-perplexity in bits"
        )
    return CertifiedExposure(
        low=column(np.maximum(space_bits - tau, 0.0), np.float64),
        secret_bits=column(tau, np.float64),
        space_bits=space_bits,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactExposure:
    """Exposures from proven counts, in bits; higher = more memorised; columns of shape (n,)."""

    value: Floats  # log2(space_size) - log2(rank)
    # low, high: the point itself where the count was finished, else what is open, at level 1
    low: Floats
    high: Floats
    # rank, place: where the count was not finished, the most that is still possible
    rank_low: tuple[int, ...]
    rank: tuple[int, ...]
    place_low: tuple[int, ...]
    place: tuple[int, ...]
    capped: Flags  # `value` = `low` is a lower bound, to be shown with ">="
    methods: tuple[Method, ...]  # "exact", "exact up to an empirical margin" or "bounded"
    empirical: Flags
    steps: int | None
    warnings: tuple[str, ...]

    def canary(self, i: int) -> Estimate:
        """The i-th canary alone."""
        capped = bool(self.capped[i])
        warning = (
            f"the search ended early: the rank lies between {self.rank_low[i]} and {self.rank[i]}, "
            "and the value is a proven lower bound; a larger budget could show more"
        )
        return Estimate(
            method=self.methods[i],
            value=float(self.value[i]),
            low=float(self.low[i]),
            high=float(self.high[i]),
            level=1.0,
            rank=self.rank[i],
            capped=capped,
            place=self.place[i],
            steps=self.steps,
            assumptions=(*_COUNTED, _EMPIRICAL if self.empirical[i] else _PROVEN),
            warnings=(warning,) if capped else (),
        )


def exact_exposure(
    rank_low: Sequence[int],
    rank_high: Sequence[int],
    *,
    space_size: int,
    place_low: Sequence[int],
    place_high: Sequence[int],
    empirical: ArrayLike = False,
    steps: int | None = None,
) -> ExactExposure:
    """Exposure of each canary from the bounds that a search proved for its rank.

    Source: Carlini et al. 2019, The Secret Sharer, Definitions 2 and 4.

    >>> exact_exposure([4], [4], space_size=1024, place_low=[5], place_high=[5]).value.tolist()
    [8.0]
    """
    size = integer("space_size", space_size, low=2)
    if steps is not None:
        steps = integer("steps", steps, low=0)
    n = len(rank_low)
    given = rank_low, rank_high, place_low, place_high
    columns = dict(zip(_RANKS + _PLACES, given, strict=True))
    if n == 0 or any(len(values) != n for values in columns.values()):
        lengths = ", ".join(f"{name} {len(values)}" for name, values in columns.items())
        raise InputError(f"{lengths}: give each as many bounds as there are canaries, at least one")
    counts = {
        name: tuple(
            integer(f"{name}[{i}]", value, low=1, high=size, error=InputError)
            for i, value in enumerate(values)
        )
        for name, values in columns.items()
    }
    for below, above in _ORDERED:
        for i, (a, b) in enumerate(zip(counts[below], counts[above], strict=True)):
            if a > b:
                raise InputError(
                    f"{below}[{i}]={a} must be at most {above}[{i}]={b}: count the secrets again"
                )
    measured = np.asarray(empirical, dtype=bool)
    if measured.shape not in ((), (n,)):
        raise InputError(f"empirical has shape {measured.shape}; give one, or one for each of {n}")
    measured = np.broadcast_to(measured, (n,))
    least, most = counts["rank_low"], counts["rank_high"]
    capped = [a < b for a, b in zip(least, most, strict=True)]
    low, high = ([math.log2(size) - math.log2(rank) for rank in ranks] for ranks in (most, least))
    methods: tuple[Method, ...] = tuple(
        "bounded" if is_open else "exact up to an empirical margin" if by_sample else "exact"
        for is_open, by_sample in zip(capped, measured, strict=True)
    )
    warning = (
        f"{sum(capped)} of {len(most)} canaries: the search ended before their rank was counted"
    )
    return ExactExposure(
        value=column(low, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        rank_low=least,
        rank=most,
        place_low=counts["place_low"],
        place=counts["place_high"],
        capped=column(capped, np.bool_),
        methods=methods,
        empirical=column(measured, np.bool_),
        steps=steps,
        warnings=(warning,) if any(capped) else (),
    )
