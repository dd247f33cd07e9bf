"""The coverage benchmark: how often each bound lies above the true epsilon, and how tight it is.

Every claim stands as a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import multiprocessing
import sys
import time
from collections import defaultdict
from pathlib import Path

import coverage_speed
import coverage_table
import numpy as np
from coverage_cells import Cell, cells
from coverage_mechanisms import MECHANISMS
from coverage_rules import RULES, bounded, draw

from lmexposure.cli.console import say

_CHUNK = 125  # repetitions at a time: few enough that no process is left waiting for long


def main() -> int:
    arguments = parse()
    claims: list[tuple[str, bool]] = []
    if arguments.only != "speed":
        grid = cells(arguments.only, arguments.quick, arguments.rules)
        start = time.perf_counter()
        found = run(grid, arguments.repetitions, arguments.processes)
        minutes = (time.perf_counter() - start) / 60
        say(f"{len(grid)} cells of {arguments.repetitions} runs, {minutes:.1f} minutes")
        for mechanism in MECHANISMS.values():
            say(f"  {mechanism.name}: {mechanism.proof}")
        claims += coverage_table.report(found, arguments.out)
    if arguments.only in (None, "speed"):
        claims += coverage_speed.main()
    for claim, holds in claims:
        say(f"{'reached' if holds else 'MISSED '}  {claim}")
    return sum(not holds for _, holds in claims)


def run(grid: list[Cell], repetitions: int, processes: int) -> list[coverage_table.Outcome]:
    """Every cell's values, computed in chunks side by side."""
    chunks = [
        (cell, start, min(start + _CHUNK, repetitions))
        for cell in grid
        for start in range(0, repetitions, _CHUNK)
    ]
    values: dict[tuple[Cell, str], list[np.ndarray]] = defaultdict(list)
    seconds: dict[tuple[Cell, str], float] = defaultdict(float)
    with multiprocessing.Pool(processes) as pool:
        for done, (cell, found, spent) in enumerate(pool.imap(measure, chunks), start=1):
            for rule, column in found.items():
                values[cell, rule].append(column)
                seconds[cell, rule] += spent[rule]
            if done % 200 == 0:
                print(f"{done} of {len(chunks)} chunks", file=sys.stderr, flush=True)
    return [
        coverage_table.Outcome(
            cell=cell,
            rule=RULES[rule],
            values=np.concatenate(columns),
            milliseconds=1e3 * seconds[cell, rule] / repetitions,
        )
        for (cell, rule), columns in values.items()
    ]


def measure(
    chunk: tuple[Cell, int, int],
) -> tuple[Cell, dict[str, np.ndarray], dict[str, float]]:
    """The values of a cell's bounds on some of its repetitions, and the seconds they took."""
    cell, start, stop = chunk
    values = {rule: np.empty(stop - start) for rule in cell.rules}
    seconds = dict.fromkeys(cell.rules, 0.0)
    for repetition in range(start, stop):
        mechanism, seed = MECHANISMS[cell.mechanism], cell.seed(repetition)
        seen = draw(mechanism, cell.design, cell.m, cell.epsilon, cell.delta, seed)
        for rule in cell.rules:
            began = time.perf_counter()
            values[rule][repetition - start] = bounded(RULES[rule], seen)
            seconds[rule] += time.perf_counter() - began
    return cell, values, seconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, help="runs of a cell; 1000, or 200 with --quick")
    parser.add_argument("--quick", action="store_true", help="fewer cells, for a look")
    parser.add_argument(
        "--only", choices=["any-dp", "iid-scores", "gaussian", "tightness", "speed"]
    )
    parser.add_argument(
        "--rules",
        nargs="+",
        choices=RULES,
        default=list(RULES),
        metavar="NAME",
        help="only these bounds, by their names in the table",
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_coverage"))
    arguments = parser.parse_args()
    arguments.repetitions = arguments.repetitions or (200 if arguments.quick else 1000)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
