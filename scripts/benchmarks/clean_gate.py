"""The gate's promise: a model that memorised nothing is called leaking at most once in a hundred.

Simulated runs of each design, judged by the gate itself, with the share of false alarms and its
Clopper-Pearson interval. Every promise stands as a line "reached" or "MISSED" at the end, and the
exit code counts the missed. With a look at documents and a claim beside the canaries, canaries and
look have the significance together, and the claim its own 2.5 % on top. One line has the same
permutations in all runs, as measurements had until 2026-11: its share is that of this one draw of
them.
"""

import argparse
import sys
import time

from gate.clean_runs import OF_CLAIM, Design, false_alarms, leaks_passed
from scipy.stats import binomtest

from lmexposure.cli.console import say
from lmexposure.gate import Thresholds
from lmexposure.statistics import binomial_interval

_PROMISE, _UNSEEN = 0.01, 0.05
_MEDIAN = Thresholds(median_exposure=1.0)
_DESIGNS = {
    "3 classes of 10, 10,000 references": Design(),
    "3 classes of 10, 1,000 references": Design(references=1000),
    "3 classes of 10, 100 references": Design(references=100),
    "3 classes of 10, exact ranks": Design(exact=True),
    "4 classes of 10, 10,000 references": Design(classes=4),
    "3 formats of 3 classes of 10, 10,000 references": Design(formats=3),
    "20 classes of 20, 10,000 references": Design(classes=20, canaries=20),
    "median of 200 at 1 bit, 100 references": Design(
        classes=1, canaries=200, references=100, thresholds=_MEDIAN
    ),
    "20 classes of 20, one seed for all runs": Design(classes=20, canaries=20, seeds=False),
}
_LOOK = "a look and a claim beside them"
_BESIDE = {0.05: 2_000, 0.01: 20_000}
_LEAKING = (
    Design(),
    Design(canaries=30, exact=True),
    Design(canaries=100, exact=True),
    Design(beside=True),
)


def main() -> int:
    arguments = parse()
    missed = 0
    for name, design in _DESIGNS.items():
        if arguments.only in name:
            missed += not _held(name, design, arguments.runs, arguments.seed)
    for level, runs in _BESIDE.items():
        if arguments.only in _LOOK:
            missed += not _held_beside(level, min(runs, arguments.runs), arguments.seed)
    for design in _LEAKING:
        passed = leaks_passed(design, runs=200, seed=arguments.seed)
        kept = binomtest(passed, 200, _UNSEEN, alternative="greater").pvalue >= 0.01
        missed += not kept
        beside = f", {_LOOK}" if design.beside else ""
        say(
            f"{'reached' if kept else 'MISSED':8} {design.canaries} canaries{beside}, leaks at the "
            f"printed limit: {passed} of 200 pass, {_UNSEEN:.0%} printed"
        )
    return missed


def _held(name: str, design: Design, runs: int, seed: int) -> bool:
    """Whether the design keeps the promise; the one with one seed for all is only shown."""
    start = time.perf_counter()
    if design.thresholds.median_exposure is not None:  # each is judged: a tenth of the runs
        runs = max(1, runs // 10)
    found = false_alarms(design, runs=runs, seed=seed)
    count = found.total()
    ends = binomial_interval(count, runs)
    kept = count <= _PROMISE * runs
    promised = ("reached" if kept else "MISSED") if design.seeds else "shown"
    kinds = ", ".join(f"{key} {n}" for key, n in sorted(found.items()))
    say(
        f"{promised:8} {name}: {count} of {runs:,} = {count / runs:.4f} "
        f"({ends.low[0]:.4f} .. {ends.high[0]:.4f}) [{kinds}] {time.perf_counter() - start:.0f} s"
    )
    return kept or not design.seeds


def _held_beside(level: float, runs: int, seed: int) -> bool:
    """Whether canaries and a look keep the significance, and all of them with the claim theirs."""
    start = time.process_time()
    design = Design(beside=True, thresholds=Thresholds(significance=level))
    found = false_alarms(design, runs=runs, seed=seed)
    total = found.total()
    own = total - found["claimed_epsilon"]
    pairs = ((own, level), (total, level + OF_CLAIM))
    p = [binomtest(count, runs, most, alternative="greater").pvalue for count, most in pairs]
    kept = min(p) >= 0.01
    kinds = ", ".join(f"{key} {n}" for key, n in sorted(found.items()))
    say(
        f"{'reached' if kept else 'MISSED':8} {_LOOK}, {level:.0%}: {own} of {runs:,} without the "
        f"claim (p {p[0]:.2g}), {total} with it at {OF_CLAIM:.1%} more (p {p[1]:.2g}) [{kinds}] "
        f"{time.process_time() - start:.0f} s"
    )
    return kept


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="designs with this text in their name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
