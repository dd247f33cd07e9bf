"""The grid: which bound is held against which mechanism, at which size, epsilon and delta.

A cell is left out where it would say nothing: the mechanism has no such (epsilon, delta), or the
bound does not claim to hold for it.
"""

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from coverage_mechanisms import MECHANISMS, Mechanism
from coverage_rules import RULES, Rule

__all__ = ["Cell", "cells"]

SIZES = (100, 400, 2_000, 10_000)
EPSILONS = (0.0, 0.2, 1.0, 3.0)
DELTAS = (0.0, 1e-5, 1e-3, 1e-2)
QUICK = ((400, 2_000), (0.0, 1.0), (0.0, 1e-3, 1e-2))

# Of epsilon 1 at delta 0, whatever the part: where medians are promised.
_PROMISED = {
    ("one_run_audit", "Laplace shift", 400),
    ("one_run_audit", "Laplace shift", 2_000),
    ("one_run_audit", "30 % at +4 sd", 2_000),
    ("one_run_audit", "3 % at +4 sd", 2_000),
    ("OrderStatistics", "Laplace shift", 2_000),
    ("jax_privacy's", "Laplace shift", 2_000),
    ("p-coins, 64", "Laplace shift", 10_064),
}


# At 1e-5 fewer than one run in ten sees anything revealed: what is left is the price of delta.
# At 1e-2 what is revealed decides, so that a price too low would show most.
_ONLY = {
    1e-5: ("Laplace shift", "delta reveal", "large blocks", "Gaussian shift"),
    1e-2: ("delta reveal", "large blocks"),
}


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """A design of m candidates on a mechanism, and the bounds that read the same runs."""

    design: str
    mechanism: str
    m: int
    epsilon: float
    delta: float
    rules: tuple[str, ...]

    @property
    def truth(self) -> float:
        """The smallest epsilon of the mechanism at this delta."""
        return MECHANISMS[self.mechanism].truth(self.epsilon, self.delta)

    def seed(self, repetition: int) -> list[int]:
        """Another for each cell and repetition, the same whatever else is run."""
        place = f"{self.design} {self.mechanism} {self.m} {self.epsilon} {self.delta}"
        return [zlib.crc32(place.encode()), repetition]


def cells(part: str | None, quick: bool, names: Collection[str] = RULES) -> list[Cell]:
    """All cells of a part, or of all parts, for the bounds of these names; the dearest first."""
    found = []
    for design in dict.fromkeys(rule.design for rule in RULES.values()):
        for mechanism in MECHANISMS.values():
            for m, epsilon, delta in _grid(design, mechanism, quick):
                rules = tuple(
                    name
                    for name, rule in RULES.items()
                    if name in names
                    and rule.design == design
                    and _meant(rule, mechanism, delta)
                    and _asked(part, rule, mechanism, m, epsilon, delta)
                )
                if rules:
                    found.append(
                        Cell(
                            design=design,
                            mechanism=mechanism.name,
                            m=m,
                            epsilon=epsilon,
                            delta=delta,
                            rules=rules,
                        )
                    )
    return sorted(found, key=lambda cell: -_cost(cell))


def _grid(design: str, mechanism: Mechanism, quick: bool) -> Iterator[tuple[int, float, float]]:
    sizes, epsilons, deltas = QUICK if quick else (SIZES, EPSILONS, DELTAS)
    if design.startswith("64"):
        sizes = (10_064,)
    # They have one epsilon only; the row stands beside those of 1.
    if mechanism.name.endswith("at +4 sd"):
        epsilons = (1.0,)
    for delta in deltas:
        if mechanism.at(delta) and mechanism.name in _ONLY.get(delta, (mechanism.name,)):
            for epsilon in epsilons:
                yield from ((m, epsilon, delta) for m in sizes)


def _meant(rule: Rule, mechanism: Mechanism, delta: float) -> bool:
    """Whether the bound claims to hold for the mechanism, and the design makes sense of it."""
    if delta and rule.name == "OrderStatistics":
        # The dearest bound, where it is closest to the truth: its own least favourable pair.
        return mechanism.name in ("extremal pair", "delta reveal")
    if rule.validity == "gaussian":
        return mechanism.name == "Gaussian shift"
    if rule.name == "lidp_epsilon":
        # Of one score by itself the XOR of two tells nothing; blocks must not span models.
        return mechanism.independent or mechanism.name in ("shared noise", "one block")
    return rule.validity == "any-dp" or mechanism.independent


def _asked(
    part: str | None, rule: Rule, mechanism: Mechanism, m: int, epsilon: float, delta: float
) -> bool:
    promised = (rule.name, mechanism.name, m) in _PROMISED and (epsilon, delta) == (1.0, 0.0)
    if part == "tightness":
        return promised
    if rule.design.startswith("64"):
        # The design of the promise; the grid has its own.
        return mechanism.name == "Laplace shift" and delta == 0 and part in (None, rule.validity)
    return part in (None, rule.validity) or (part == "iid-scores" and rule.validity == "peer")


def _cost(cell: Cell) -> float:
    dear = {"one_run_audit": 20, "OrderStatistics": 20, "gaussian_dp": 10}
    return (
        sum(dear.get(rule, 1) for rule in cell.rules)
        * (1 + 3 * (cell.delta > 0))
        * (0.3 + (cell.epsilon > 0))
        + cell.m / 1e4
    )
