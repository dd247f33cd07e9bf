"""Exact ranks of an LSTM's canaries: how long they take, and how that grows with the rank.

The share of the peak is 2 x parameters x steps / time / the best matrix product of the same
rounds; parameters are those that multiply: the LSTM's and the output layer's weights.
"""

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matmul_peak import matmul_peak
from scoring_draws import Drawn, draw_claims
from scoring_growth import Counted, references_against_number, steps_against_exposure
from scoring_models import ALNUM, BILLION, CARD, LIVE_STATES, Bench, benches, trained

from lmexposure.cli.console import print_table, say
from lmexposure.scoring import Budget, ProvenRank, likeliest_fills

__all__ = ["main"]

Claims = list[tuple[str, bool]]
LEAST_EXPOSURE = 13.0  # bits from which on a rank is to be counted
LONG_WALK = 50_000  # steps; shorter walks are no measure of speed
GUESSES = 100  # a canary among so many likeliest fills is extracted
GIVE_UP = Budget(seconds=120)


def main(arguments: argparse.Namespace) -> Claims:
    """Print the tables, write the plot; say what was reached."""
    begun = time.perf_counter()
    place = trained(arguments.corpus, arguments.out)
    say(f"run directory {place}: {time.perf_counter() - begun:.0f} s")
    stages = benches(place, BILLION, arguments.device, early=True)
    drawn = [Drawn.of(bench, arguments.rounds) for bench in stages]
    counted, speeds = count(stages, drawn, arguments.rounds)
    claims = exact_claims(counted, speeds)
    exact = {(one.checkpoint, one.id): one.exposure for one in counted}
    claims += draw_claims(stages, drawn, exact)
    for name in (CARD, ALNUM):
        (final,) = benches(place, name, arguments.device)
        claims.append(huge_claim(final, arguments.rounds))
    steps_against_exposure(counted, drawn, arguments.out)
    references_against_number(stages[-1], arguments.out)
    return claims


# Ranks in 10^9


@dataclass(frozen=True)
class Speeds:
    """By round: the machine's peak (flop a second), and that of the long walks (steps a second)."""

    flop_a_step: float
    peaks: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        shares: list[float] = [
            self.flop_a_step * s / p for s, p in zip(self.steps, self.peaks, strict=True)
        ]
        return float(statistics.median(shares))


def count(
    stages: Sequence[Bench], drawn: Sequence[Drawn], rounds: int
) -> tuple[list[Counted], Speeds]:
    """Count the rank of every canary that may have the least exposure, in rounds."""
    places = [best_first(bench) for bench in stages]
    counted: dict[tuple[str, str], Counted] = {}
    speeds = Speeds(flop_a_step(stages[0]))
    for turn in range(rounds):
        peak, long_steps, long_seconds = 0.0, 0, 0.0
        for bench, estimates, found in zip(stages, drawn, places, strict=True):
            peak = max(peak, matmul_peak(bench.loaded.model.device.type))
            for i in np.flatnonzero(bench.inserted & (estimates.high[0] >= LEAST_EXPOSURE)):
                one = bench.canaries[i]
                rank, steps, seconds = walk(bench, one.index)
                key = (bench.checkpoint, one.id)
                expected = estimates.expected_steps[i]
                first = Counted(*key, bench.space.size, rank, steps, expected, found[i])
                counted.setdefault(key, first).seconds.append(seconds)
                if steps >= LONG_WALK:
                    long_steps, long_seconds = long_steps + steps, long_seconds + seconds
        speeds.peaks.append(peak)
        speeds.steps.append(long_steps / long_seconds if long_seconds else math.nan)
        say(
            f"ranks, round {turn + 1}: {speeds.steps[-1]:,.0f} steps/s in walks of {LONG_WALK:,} "
            f"steps and more, peak {peak / 1e9:,.0f} Gflop/s"
        )
    return [one for one in counted.values() if one.exposure >= LEAST_EXPOSURE], speeds


def walk(bench: Bench, index: int) -> tuple[ProvenRank, int, float]:
    """One canary's rank by a walk of its own, its steps and seconds."""
    before, begun = bench.search.spent, time.perf_counter()
    (rank,) = bench.search.ranks([index], budget=GIVE_UP)
    return rank, bench.search.spent - before, time.perf_counter() - begun


def flop_a_step(bench: Bench) -> float:
    """2 x the weights that multiply."""
    model = bench.loaded.model
    weights = [*model.lstm.parameters(), *model.lm_head.parameters()]
    return float(2 * sum(w.numel() for w in weights if w.ndim == 2))


def best_first(bench: Bench) -> list[int | None]:
    """Each canary's proven place among the likeliest fills of all of R."""
    begun = time.perf_counter()
    found = likeliest_fills(
        bench.space,
        bench.steps,
        bench.search.rescorer,
        guesses=GUESSES,
        margin=bench.search.margin.bits,
        budget=GIVE_UP,
        live_states=LIVE_STATES,
    )
    seconds = time.perf_counter() - begun
    places = [found.place(one.index) for one in bench.canaries]
    hits = sum(place is not None for place in places)
    say(
        f"{bench.checkpoint}: the {found.proven} likeliest of all fills in {found.steps:,} steps, "
        f"{seconds:.2f} s; {hits} canaries among them"
    )
    return places


def exact_claims(counted: Sequence[Counted], speeds: Speeds) -> Claims:
    """Print the counts by checkpoint; the claims about them."""
    rows = []
    for checkpoint in dict.fromkeys(one.checkpoint for one in counted):
        mine = [one for one in counted if one.checkpoint == checkpoint]
        slowest = max(mine, key=lambda one: one.time)
        rows.append(
            [
                checkpoint,
                f"{len(mine)}",
                f"{sum(one.place is not None for one in mine)}",
                f"{statistics.median(one.exposure for one in mine):.2f}",
                f"{slowest.rank.high:,}",
                f"{slowest.steps:,}",
                f"{slowest.time:.2f}",
            ]
        )
    say(f"\nexact ranks in 10^9 of canaries with {LEAST_EXPOSURE:.0f} bits of exposure or more")
    header = ["checkpoint", "canaries", "extracted", "median exposure", "slowest: rank", "steps"]
    print_table([*header, "seconds"], rows, right=range(1, 7))
    extracted = [one for one in counted if one.place is not None]
    longest, found = (max((one.time for one in g), default=math.nan) for g in (counted, extracted))
    exact = sum(one.rank.exact for one in counted)
    agree = sum(one.place == one.rank.place_high for one in extracted)
    return [
        (f"{exact} of {len(counted)} ranks counted exactly, all", exact == len(counted)),
        (f"exact ranks: {longest:.2f} s each, at most 12", longest <= 12),
        (f"of {len(extracted)} extracted: {found:.3f} s, at most 1", found <= 1),
        (f"{agree} places as best-first search found them, all", agree == len(extracted)),
        (
            f"walks: {speeds.share:.2f} of the float32 peak at {speeds.flop_a_step / 1e6:.2f} "
            "Mflop a step, at least 0.5",
            speeds.share >= 0.5,
        ),
    ]


# Ranks in larger spaces


def huge_claim(bench: Bench, rounds: int) -> tuple[str, bool]:
    """Exact ranks of the canaries inserted most often, in a space too large to enumerate."""
    name, size = bench.space.format.name, bench.space.size
    often = max(one.repetitions for one in bench.canaries)
    rows, slowest, exact = [], 0.0, True
    for one in (c for c in bench.canaries if c.repetitions == often):
        walks = [walk(bench, one.index) for _ in range(rounds)]
        rank, steps, _ = walks[0]
        seconds = statistics.median(each[2] for each in walks)
        slowest, exact = max(slowest, seconds), exact and rank.exact
        exposure = math.log2(size) - math.log2(rank.high)
        cells = [f"{rank.bits:.2f}", f"{rank.high:,}", f"{rank.place_high:,}", f"{exposure:.2f}"]
        rows.append([one.id, *cells, f"{steps:,}", f"{seconds:.3f}"])
    say(f"\n{name}: |R| = {size:.3g} ({math.log2(size):.1f} bits), inserted {often} times")
    header = ["canary", "bits", "rank", "place", "exposure", "steps", "seconds"]
    print_table(header, rows, right=range(1, 7))
    live = bench.search.most_live
    return (
        f"{name}: {slowest:.2f} s each, below 10; {live:,} live states, at most {LIVE_STATES:,}",
        exact and slowest < 10 and live <= LIVE_STATES,
    )
