"""How often bounds on pooled formats lie above the truth, where formats differ in their numbers.

OMP_NUM_THREADS=1 .venv/bin/python scripts/benchmarks/pooled_formats.py [--runs 400]
"""

import argparse
import sys
import time

import numpy as np
from coverage_mechanisms import MECHANISMS
from coverage_table import limit

from lmexposure.cli.console import say
from lmexposure.statistics import (
    ScoreClass,
    area_under_curve,
    epsilon_from_exposure,
    epsilon_from_scores,
    gaussian_dp_epsilon,
    one_run_audit,
    score_classes,
)

# (candidates, references) of each format.
_DESIGNS = {
    "3 x (100, 10000)": [(100, 10_000)] * 3,
    "(100, 10000) + 8 x (50, 20)": [(100, 10_000)] + [(50, 20)] * 8,
    "(100, 10000) + 4 x (100, 0)": [(100, 10_000)] + [(100, 0)] * 4,
    "2 x (20, 1000) + 10 x (20, 0)": [(20, 1000)] * 2 + [(20, 0)] * 10,
    "3 x (10, 10000) + (10, 9938)": [(10, 10_000)] * 3 + [(10, 9_938)],
    "20 x (30, 300) + 20 x (10, 100)": [(30, 300)] * 20 + [(10, 100)] * 20,
    "60 x (1, 29)": [(1, 29)] * 60,
    "60 x (3, 3)": [(3, 3)] * 60,
}
_DELTA = 1e-5
# Mechanism, epsilon, delta: without a leak, and where the truth is known.
_LEAKS = (
    ("Laplace shift", 0.0, 0.0),
    ("Laplace shift", 1.0, 0.0),
    ("extremal pair", 1.0, 0.0),
    ("30 % memorised", 2.0, 0.0),
    ("Gaussian shift", 3.0, _DELTA),
)
_RULES = ("from_scores", "exposure", "gaussian", "p-coins", "one_run", "AUC")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    missed = 0
    say(f"share of {runs} runs above the truth (AUC: whose interval leaves .5 out), median")
    for leak in _LEAKS:
        for name, design in _DESIGNS.items():
            start = time.perf_counter()
            found = np.array([_run(design, leak, seed) for seed in range(runs)])  # (runs, rules)
            truth = MECHANISMS[leak[0]].truth(leak[1], leak[2])
            above = (found > truth + 1e-9).sum(axis=0)
            missed += int((above[:-1] > limit(runs)).sum())
            columns = zip(_RULES, above / runs, np.median(found, axis=0), strict=True)
            line = "  ".join(
                f"{rule} {share:.3f} {middle:.2f}"
                for rule, share, middle in columns
                if np.isfinite(middle)
            )
            say(f"{leak[0]} {leak[1]:g}, {name:32} {line}  {time.perf_counter() - start:.0f} s")
    say(f"{'MISSED ' if missed else 'reached'}  at most {limit(runs)} of {runs} in each cell")
    return missed


def _run(design: list[tuple[int, int]], leak: tuple[str, float, float], seed: int) -> list[float]:
    """What each bound says of one run, NaN where it does not claim to hold."""
    name, epsilon, delta = leak
    one = _pooled(design, leak, np.random.default_rng([seed, len(design)]))
    inside, outside = one.scores[one.included], one.outside
    left_out = one.scores[~one.included]
    area = area_under_curve(inside, outside)
    gaussian = name == "Gaussian shift" or epsilon == 0
    return [
        epsilon_from_scores(inside, outside, delta=delta).value,
        epsilon_from_exposure(-inside, -outside, delta=delta).bound.value,
        gaussian_dp_epsilon(inside, outside, delta=_DELTA).value if gaussian else np.nan,
        epsilon_from_exposure(
            -inside, -left_out, inclusion_probability=0.5, delta=delta
        ).bound.value,
        one_run_audit(one.scores, one.included, delta=delta, seed=seed).value,
        float(not area.low <= 0.5 <= area.high),
    ]


def _pooled(
    design: list[tuple[int, int]], leak: tuple[str, float, float], rng: np.random.Generator
) -> ScoreClass:
    mechanism = MECHANISMS[leak[0]]
    scores, roles = [], []
    for m, n in design:
        coins = np.append(rng.random(m) < 0.5, np.zeros(n, bool))
        scores.append(mechanism.draw(coins, leak[1], leak[2], rng))
        roles += [*np.where(coins[:m], "canary", "held_out").tolist(), *["reference"] * n]
    names = np.repeat(np.arange(len(design)).astype(str), [m + n for m, n in design])
    (one,) = score_classes(np.concatenate(scores), roles, np.ones(len(roles)), names, pooled=True)
    return one


if __name__ == "__main__":
    sys.exit(main())
