"""The table of coverage and tightness, and the claims that it bears out or not."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from coverage_cells import Cell
from coverage_rules import SIGNIFICANCE, Rule
from numpy.typing import NDArray
from scipy import stats

from lmexposure.cli.console import say

__all__ = ["Outcome", "report"]

# An exact bound breaks the limit in one cell of 50,000: 80 of 1,000.
_BY_CHANCE = 2.1e-5
_WORTH_A_LINE = 0.06

# Medians at epsilon 1, delta 0: bound, mechanism, m, what is promised.
_MEDIANS = (
    ("one_run_audit", "Laplace shift", 400, 0.70, "400 canaries"),
    ("one_run_audit", "Laplace shift", 2_000, 0.84, "2,000 canaries"),
    ("one_run_audit", "30 % at +4 sd", 2_000, 3.5, "2,000 canaries"),
    ("one_run_audit", "3 % at +4 sd", 2_000, 1.4, "2,000 canaries"),
    ("OrderStatistics", "Laplace shift", 2_000, 0.82, "1,000 a side"),
    ("p-coins, 64", "Laplace shift", 10_064, 0.66, "64 canaries and 10,000 references expected"),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a bound said on all runs of a cell, and the time of one call."""

    cell: Cell
    rule: Rule
    values: NDArray[np.float64]
    milliseconds: float

    @property
    def above(self) -> int:
        """Runs in which the bound lies above the truth, by more than rounding."""
        return int((self.values > self.cell.truth + 1e-9).sum())

    @property
    def median(self) -> float:
        return float(np.median(self.values))


def report(found: list[Outcome], folder: Path) -> list[tuple[str, bool]]:
    """Print the table, keep its cells as CSV, and return the claims."""
    found = sorted(found, key=_place)
    _print(found)
    folder.mkdir(parents=True, exist_ok=True)
    _write(found, folder / "cells.csv")
    say(f"every cell by itself: {folder / 'cells.csv'}")
    return [*_coverage(found), *_no_signal(found), *_medians(found)]


def limit(repetitions: int) -> int:
    """The most runs above the truth that chance explains."""
    return int(stats.binom.isf(_BY_CHANCE, repetitions, SIGNIFICANCE))


def _place(outcome: Outcome) -> tuple[int, str, str, float, float, int]:
    order = ("any-dp", "iid-scores", "gaussian", "peer").index(outcome.rule.validity)
    cell = outcome.cell
    return order, outcome.rule.name, cell.mechanism, cell.delta, cell.epsilon, cell.m


def _print(found: list[Outcome]) -> None:
    """A line for each bound, mechanism, delta and epsilon; a column for each size."""
    sizes = sorted({outcome.cell.m for outcome in found})
    lines: dict[tuple[object, ...], dict[int, Outcome]] = defaultdict(dict)
    for outcome in found:
        cell, rule = outcome.cell, outcome.rule
        key = rule.validity, rule.name, cell.mechanism, cell.delta, cell.epsilon, cell.truth
        lines[key][cell.m] = outcome
    say("")
    say("median of the bound in nats, runs above the truth (*: more than chance explains)")
    head = f"{'class':10} {'bound':16} {'mechanism':15} {'delta':>6} {'eps':>4} {'truth':>6}"
    say(head + "".join(f"  {f'm={m:,}':>12}" for m in sizes))
    for (validity, rule, mechanism, delta, epsilon, truth), columns in lines.items():
        far = mechanism.endswith("at +4 sd")
        line = f"{validity:10} {rule:16} {mechanism:15} {delta:6g} {'-' if far else epsilon:>4} "
        say(line + f"{truth:6.3f}" + "".join(_entry(columns.get(m)) for m in sizes))


def _entry(outcome: Outcome | None) -> str:
    if outcome is None:
        return " " * 14
    mark = "*" if outcome.above > limit(outcome.values.size) else " "
    return f"  {outcome.median:6.3f} {outcome.above:4d}{mark}"


def _write(found: list[Outcome], path: Path) -> None:
    rows = [_row(outcome) for outcome in found]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _row(outcome: Outcome) -> dict[str, object]:
    cell, rule = outcome.cell, outcome.rule
    return {
        "class": rule.validity,
        "bound": rule.name,
        "design": cell.design,
        "mechanism": cell.mechanism,
        "m": cell.m,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "truth": cell.truth,
        "repetitions": outcome.values.size,
        "median": outcome.median,
        "above": outcome.above,
        "milliseconds": round(outcome.milliseconds, 3),
    }


def _coverage(found: list[Outcome]) -> Iterator[tuple[str, bool]]:
    """A claim for each bound: its worst cell."""
    for outcomes in _by_rule(found):
        worst = max(outcomes, key=lambda outcome: outcome.above)
        runs, rule = worst.values.size, worst.rule
        close = sum(outcome.above > _WORTH_A_LINE * runs for outcome in outcomes)
        yield (
            f"{rule.validity}, {rule.name}: at most {limit(runs)} of {runs} above the truth in "
            f"each of {len(outcomes)} cells; at worst {worst.above} ({_where(worst)}), "
            f"{close} above {_WORTH_A_LINE * runs:.0f}",
            worst.above <= limit(runs),
        )


def _no_signal(found: list[Outcome]) -> Iterator[tuple[str, bool]]:
    silent = [one for one in found if one.cell.epsilon == 0 and one.rule.validity != "peer"]
    if silent:
        worst = max(silent, key=lambda outcome: outcome.above)
        middle = max(outcome.median for outcome in silent)
        yield (
            f"at no signal: median 0 in each of {len(silent)} cells (the highest is {middle:g}), "
            f"above 0 in at most {worst.above} of {worst.values.size} runs ({_where(worst)})",
            middle == 0 and worst.above <= limit(worst.values.size),
        )


def _medians(found: list[Outcome]) -> Iterator[tuple[str, bool]]:
    by_place = {
        (one.rule.name, one.cell.mechanism, one.cell.m): one
        for one in found
        if (one.cell.epsilon, one.cell.delta) == (1.0, 0.0)
    }
    for rule, mechanism, m, promised, size in _MEDIANS:
        outcome = by_place.get((rule, mechanism, m))
        if outcome is not None:
            yield (
                f"{rule}, {mechanism}, {size}: median at least {promised}; {outcome.median:.3f}",
                outcome.median >= promised,
            )
    ours, peer = (
        by_place.get((rule, "Laplace shift", 2_000))
        for rule in ("OrderStatistics", "jax_privacy's")
    )
    if ours and peer:
        yield (
            f"OrderStatistics above jax_privacy's rule with 1,000 a side: {ours.median:.3f} "
            f"against {peer.median:.3f}",
            ours.median > peer.median,
        )


def _by_rule(found: list[Outcome]) -> list[list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in found:
        # An infinite truth is never exceeded: such a cell is there for its median.
        if outcome.rule.validity != "peer" and math.isfinite(outcome.cell.truth):
            groups[outcome.rule.name].append(outcome)
    return list(groups.values())


def _where(outcome: Outcome) -> str:
    cell = outcome.cell
    return f"{cell.mechanism}, m {cell.m:,}, epsilon {cell.epsilon:g}, delta {cell.delta:g}"
