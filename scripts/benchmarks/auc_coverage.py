"""How often each interval of the area under a ROC curve holds the true area, and how wide it is.

OMP_NUM_THREADS=1 .venv/bin/python scripts/benchmarks/auc_coverage.py [--runs 1000]
"""

import argparse
import sys
from collections.abc import Callable
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lmexposure.cli.console import say
from lmexposure.statistics import area_under_curve

_METHODS = ("effective", "newcombe", "hoeffding")
_SIZES = ((10, 10), (10, 100), (100, 10), (10, 1000), (1000, 10), (30, 30), (100, 100), (100, 1000))
_SIZES = (*_SIZES, (1000, 1000))
_AREAS = (0.5, 0.6, 0.75, 0.9, 0.97, 0.99, 0.999)
_LEVEL = 0.95

Scores = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float, int, int], tuple[Scores, Scores]]


def _normal(own: float, other: float) -> Draw:
    """Normal scores in and out with these standard deviations, shifted to the area."""
    distance = sqrt(own**2 + other**2)

    def draw(rng: np.random.Generator, area: float, m: int, n: int) -> tuple[Scores, Scores]:
        return rng.normal(special.ndtri(area) * distance, own, m), rng.normal(0, other, n)

    return draw


def _exponential(rng: np.random.Generator, area: float, m: int, n: int) -> tuple[Scores, Scores]:
    return rng.exponential(area / (1 - area), m), rng.exponential(1, n)


def _memorised(rng: np.random.Generator, area: float, m: int, n: int) -> tuple[Scores, Scores]:
    """A part of those in lies above all others, the rest is like them."""
    return rng.normal(0, 1, m) + 99 * (rng.random(m) < 2 * area - 1), rng.normal(0, 1, n)


def _two_values(rng: np.random.Generator, area: float, m: int, n: int) -> tuple[Scores, Scores]:
    return rng.binomial(1, area, m).astype(float), rng.binomial(1, 1 - area, n).astype(float)


_DRAWS: dict[str, Draw] = {
    "normal": _normal(1, 1),
    "wide in": _normal(5, 1),
    "wide out": _normal(1, 5),
    "exponential": _exponential,
    "memorised": _memorised,
    "two values": _two_values,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    say(f"{'scores':12} {'method':10} {'coverage':>8} {'least':>6}  (area, in, out)  width")
    least = 1.0
    for name, draw in _DRAWS.items():
        cells = [(area, m, n) for area in _AREAS for m, n in _SIZES]
        found = np.array([_cell(draw, cell, runs) for cell in cells])  # (cells, methods, 2)
        for column, method in enumerate(_METHODS):
            share, width = found[:, column, 0], found[:, column, 1]
            worst = int(share.argmin())
            wide = float((width / found[:, -1, 1]).mean())
            least = min(least, share.min()) if method == "effective" else least
            say(
                f"{name:12} {method:10} {share.mean():8.3f} {share[worst]:6.3f}  {cells[worst]}  "
                f"{wide:.2f}"
            )
    reached = least >= 0.93
    say(f"{'reached' if reached else 'MISSED '}  effective: .93 or more in each cell; {least:.3f}")
    return int(not reached)


def _cell(draw: Draw, cell: tuple[float, int, int], runs: int) -> list[tuple[float, float]]:
    """Of each method the share of intervals that hold the area, and their mean width."""
    area, m, n = cell
    rng = np.random.default_rng([round(1e4 * area), m, n])
    held, width = np.zeros(len(_METHODS)), np.zeros(len(_METHODS))
    for _ in range(runs):
        inside, outside = draw(rng, area, m, n)
        for column, method in enumerate(_METHODS):
            found = area_under_curve(inside, outside, level=_LEVEL, method=method)
            held[column] += found.low <= area <= found.high
            width[column] += found.high - found.low
    return list(zip((held / runs).tolist(), (width / runs).tolist(), strict=True))


if __name__ == "__main__":
    sys.exit(main())
