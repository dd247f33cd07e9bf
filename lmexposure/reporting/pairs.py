"""The same canaries under two models: each canary's exposure in one less that in the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from lmexposure._quantiles import ExposureEstimate
from lmexposure.records import CanaryResult, Result
from lmexposure.records.result import ClassKey, Role
from lmexposure.statistics import quantile_interval

_ASSUMES = "canaries of a class are drawn alike; the interval is over such, for these models"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much more of the same canaries one model gives away than another, in bits.

    Attributes:
        base, other: names of the runs.
        format, role, repetitions: the class.
        n: canaries that both runs measured.
        median: of exposure under `other` less exposure under `base`; above 0 = `other` memorised
            more. With lower bounds taken for exposures: where there are many, look at the interval.
        low, high: interval of that median by order statistics, wide enough for whatever lower
            bounds, references and draws leave open; None where so few canaries give no bound on
            that side.
        level: two-sided coverage wanted.
        higher, lower: canaries whose exposure is surely higher, or lower, under `other`.
        open: canaries of which lower bounds leave open which is higher.
        p_value: two-sided exact sign test of as many higher as lower; ties are left out, and open
            ones counted so that it is largest.
        capped: canaries of which either exposure is only a lower bound.
        assumes: what the interval rests on.
    """

    base: str
    other: str
    format: str
    role: Role
    repetitions: int
    n: int
    median: float
    low: float | None
    high: float | None
    level: float
    higher: int
    lower: int
    open: int
    p_value: float
    capped: int
    assumes: str = _ASSUMES


def differences(
    results: Sequence[Result], names: Sequence[str], *, level: float = 0.95
) -> Iterator[Difference]:
    """Every later run that measured the first one's manifest, held against it, class by class.

    Args:
        results: in order; the first is the base.
        names: one for each.
        level: coverage of each interval, in (0, 1).

    Source: the interval, David and Nagaraja 2003, section 7.1; the sign test, Dixon and Mood 1946.
    """
    base = results[0]
    for result, name in zip(results[1:], names[1:], strict=True):
        if result.manifest_sha256 != base.manifest_sha256:
            continue
        pairs = _pairs(base, result)
        for key in sorted(pairs, key=lambda key: (key[0], key[1] != "control", key[2])):
            yield _difference((base, result), (names[0], name), key, pairs[key], level)


Pair = tuple[CanaryResult, CanaryResult]


def _pairs(base: Result, other: Result) -> dict[ClassKey, list[Pair]]:
    """Canaries that both measured, by format, role and repetitions."""
    there = {canary.id: canary for canary in other.canaries}
    pairs: dict[ClassKey, list[Pair]] = {}
    for canary in base.canaries:
        twin = there.get(canary.id)
        if twin is None or not (_is_measured(canary) and _is_measured(twin)):
            continue
        key = canary.format, canary.role, canary.repetitions
        pairs.setdefault(key, []).append((canary, twin))
    return pairs


def _is_measured(canary: CanaryResult) -> bool:
    return None not in (canary.exposure.value, canary.log_perplexity_bits)


def _difference(
    results: tuple[Result, Result],
    names: tuple[str, str],
    key: ClassKey,
    pairs: Sequence[Pair],
    level: float,
) -> Difference:
    """The numbers of a class, from the least to the most that each difference may be."""
    bits = results[0].format_named[key[0]].bits
    references = [result.format_named[key[0]].references for result in results]
    base, other = ([_range(canary, bits) for canary in side] for side in zip(*pairs, strict=True))
    least = np.array([b[0] - a[1] for a, b in zip(base, other, strict=True)])
    most = np.array([b[1] - a[0] for a, b in zip(base, other, strict=True)])
    shown = [b[0] - a[0] for a, b in zip(base, other, strict=True)]
    higher, lower = int((least > 0).sum()), int((most < 0).sum())
    low, high = _interval(pairs, bits, references, level)
    left_open = int(((least < most) & (least <= 0) & (most >= 0)).sum())
    return Difference(
        base=names[0],
        other=names[1],
        format=key[0],
        role=key[1],
        repetitions=key[2],
        n=len(pairs),
        median=float(np.median(shown)),
        low=low,
        high=high,
        level=level,
        higher=higher,
        lower=lower,
        open=left_open,
        p_value=_sign_test(higher, lower, left_open),
        capped=int((least < most).sum()),
    )


def _interval(
    pairs: Sequence[Pair], bits: float, references: Sequence[int], level: float
) -> tuple[float | None, float | None]:
    """From the least to the most that the median of the differences can be.

    No single canary bounds a median of differences, as one does a median (`quantile_range`): the
    ends of all exposures in both runs must hold at once, and share half of what the interval may
    miss. Where all are counted, order statistics have the whole of it.
    """
    sides = [
        [_estimate(one, bits, count) for one in side]
        for side, count in zip(zip(*pairs, strict=True), references, strict=True)
    ]
    if any(one.drawn for side in sides for one in side):
        level = (1 + level) / 2
    tail = (1 - level) / 2 / (2 * len(pairs))
    (base_low, base_high), (other_low, other_high) = (
        np.array([one.ends(tail) for one in side]).T for side in sides
    )
    least = quantile_interval(other_low - base_high, 0.5, level=level).low
    return least, quantile_interval(other_high - base_low, 0.5, level=level).high


def _estimate(canary: CanaryResult, bits: float, references: int) -> ExposureEstimate:
    shown = canary.exposure
    low, high = _range(canary, bits)
    return ExposureEstimate(
        method=shown.method,
        value=low,
        low=low if shown.capped or shown.low is None else shown.low,
        high=high if shown.capped or shown.high is None else shown.high,
        capped=shown.capped,
        level=shown.level,
        bits=canary.log_perplexity_bits or 0.0,
        references=references,
        space_bits=bits,
    )


def _range(canary: CanaryResult, bits: float) -> tuple[float, float]:
    """A lower bound may be as much as the whole secret."""
    value = canary.exposure.value or 0.0
    return value, max(value, bits) if canary.exposure.capped else value


def _sign_test(higher: int, lower: int, left_open: int) -> float:
    """Twice the smaller tail of fair coins, with the open ones on the side that has fewer."""
    fewer = min(higher, lower) + left_open
    n = higher + lower + left_open
    return min(1.0, 2 * float(bdtr(min(fewer, n // 2), n, 0.5))) if n else 1.0
