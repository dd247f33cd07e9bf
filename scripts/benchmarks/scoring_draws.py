"""Drawn ranks: how narrow the intervals of importance sampling are, and whether they cover."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scoring_models import DRAWS, Bench

from lmexposure.cli.console import print_table, say

__all__ = ["Drawn", "draw_claims"]

Columns = NDArray[np.float64]
BANDS = range(5, 29, 3)  # bits of exposure
MOST_HALF_WIDTH = 0.3  # bits


@dataclass(frozen=True)
class Drawn:
    """One checkpoint's estimates: intervals from each round's draws, shape (rounds, n).

    `expected_steps`, shape (n,), is what a walk to each secret should take, from the first draws.
    """

    value: Columns
    low: Columns
    high: Columns
    expected_steps: list[float]
    seconds: float

    @classmethod
    def of(cls, bench: Bench, rounds: int) -> "Drawn":
        found, seconds = [], []
        expected: list[float] = []
        for seed in range(rounds):
            begun = time.perf_counter()
            draws = bench.draws(seed)
            found.append(bench.importance(draws))
            seconds.append(time.perf_counter() - begun)
            if not expected:
                margin = bench.search.margin.bits
                expected = [draws.expected_steps(bits + margin) for bits in bench.bits.tolist()]
        value, low, high = (
            np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high")
        )
        return cls(value, low, high, expected, statistics.median(seconds))

    @property
    def half_widths(self) -> Columns:
        return np.asarray((self.high - self.low) / 2)


def draw_claims(
    stages: Sequence[Bench], drawn: Sequence[Drawn], exact: Mapping[tuple[str, str], float]
) -> list[tuple[str, bool]]:
    """Half-widths by exposure; coverage where the exact exposure is known.

    Args:
        stages: the checkpoints.
        drawn: their estimates.
        exact: exposure in bits by checkpoint and canary, where it was counted.
    """
    points = [
        Estimate(
            exact=exact.get((bench.checkpoint, one.id)),
            value=float(np.median(estimates.value[:, i])),
            half_widths=estimates.half_widths[:, i],
            low=estimates.low[:, i],
            high=estimates.high[:, i],
        )
        for bench, estimates in zip(stages, drawn, strict=True)
        for i, one in enumerate(bench.canaries)
    ]
    seconds = max(one.seconds for one in drawn)
    say(f"\nexposure from {DRAWS:,} draws, 95 % intervals, bits; at most {seconds:.2f} s a model")
    rows = []
    for low in BANDS:
        band = [p for p in points if low <= p.exposure < low + BANDS.step]
        rows.append([f"{low} to {low + BANDS.step}", *band_cells(band)])
    header = ["exposure", "secrets", "median half-width", "worst", "worst draw", "exact known"]
    print_table([*header, "intervals", "covering"], rows, right=range(1, 8))
    asked = [p for p in points if BANDS.start <= p.exposure <= BANDS.stop]
    worst = max(asked, key=lambda p: p.half_width)
    wide = sum(p.half_width > MOST_HALF_WIDTH for p in asked)
    return [
        (
            f"{DRAWS:,} draws: half-width at most {worst.half_width:.2f} bits (at exposure "
            f"{worst.exposure:.1f}), {wide} of {len(asked)} above {MOST_HALF_WIDTH}",
            worst.half_width <= MOST_HALF_WIDTH,
        )
    ]


@dataclass(frozen=True)
class Estimate:
    """One secret under one checkpoint; arrays have one entry a round."""

    exact: float | None
    value: float
    half_widths: Columns
    low: Columns
    high: Columns

    @property
    def exposure(self) -> float:
        return self.value if self.exact is None else self.exact

    @property
    def half_width(self) -> float:
        return float(np.median(self.half_widths))

    @property
    def covering(self) -> int:
        """In how many rounds the interval held the exact exposure."""
        assert self.exact is not None
        slack = 1e-9
        return int(((self.low - slack <= self.exact) & (self.exact <= self.high + slack)).sum())


def band_cells(band: Sequence[Estimate]) -> list[str]:
    if not band:
        return ["0", *[""] * 6]
    half = [p.half_width for p in band]
    known = [p for p in band if p.exact is not None]
    intervals = sum(p.low.size for p in known)
    return [
        f"{len(band)}",
        f"{np.median(half):.3f}",
        f"{max(half):.3f}",
        f"{max(p.half_widths.max() for p in band):.3f}",
        f"{len(known)}",
        f"{intervals}" if known else "",
        f"{sum(p.covering for p in known) / intervals:.1%}" if known else "",
    ]
