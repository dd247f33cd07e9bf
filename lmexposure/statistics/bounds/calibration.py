"""From right guesses in a fixed order to the largest epsilon at which they are too rare: exact.

Outcomes are ordered by the largest lower Clopper-Pearson bound over the looks of all rays; the
bound is the epsilon at which so large a value, or a larger one, just has the significance as its
probability on a walk of independent guesses, each right with 1 / (1 + e^-epsilon). A delta adds
right guesses to that walk, at most Delta = canaries * delta / (1 + e^epsilon) in expectation: k of
them are forgiven, and Delta / (k + 1), Markov's bound on more than k, is added to the probability.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lmexposure.statistics.bounds.groups import group_delta
from lmexposure.statistics.bounds.rays import Ray, critical_counts, fixed_rays
from lmexposure.statistics.bounds.rejected import largest_rejected
from lmexposure.statistics.bounds.walks import crossing_probability, log_odds_low

# Where k may change, in nats of the group's epsilon. Delta falls as epsilon rises, so that one k
# for all of them would be too dear for the large or vacuous for the small.
_STAGES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Share of the canaries guessed that k is fixed for: between a shift of all, which shows where most
# are guessed and can afford more, and a few that are memorised.
_GUESSED = 0.5
_TINY = 1e-300  # has a logarithm, which 0 has not


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A bound on the epsilon of one document in nats, and the right guesses it forgave."""

    epsilon: float
    forgiven: int


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What is fixed before the scores are seen."""

    canaries: int
    significance: float
    delta: float
    repetitions: int

    @property
    def rays(self) -> tuple[Ray, ...]:
        """The looks."""
        return fixed_rays(self.canaries, self.significance)

    def decide(self, right: NDArray[np.bool_]) -> Decision:
        """The bound for guesses right or wrong in the order of `reveal`, shape (m,).

        With a delta, epsilons are tested upwards in stages that each have their own k. The first
        stage not rejected to its end stops the audit: going on is what would make it invalid.
        """
        if self.delta == 0:
            return Decision(epsilon=self._reach(right, 0), forgiven=0)
        found = Decision(epsilon=0.0, forgiven=self._cheapest(0.0))
        for stage in zip(_STAGES, (*_STAGES[1:], np.inf), strict=True):
            start, end = stage[0] / self.repetitions, stage[1] / self.repetitions
            forgiven = self._cheapest(start)
            reach = self._reach(right, forgiven, end)
            if reach > start:
                found = Decision(epsilon=min(reach, end), forgiven=forgiven)
            if reach < end:
                break
        return found

    def ceiling(self) -> float:
        """The bound had every guess been right."""
        return _ceiling(self)

    def strongest(self, right: NDArray[np.bool_], forgiven: int) -> dict[str, tuple[int, int]]:
        """Guesses and right ones at each ray's strongest look; the ray that decided comes first."""
        found = []
        for ray in self.rays:
            odds = _odds(ray, right, forgiven)
            best = int(np.argmax(odds))
            seen = int(ray.looks[best]), int(ray.right(right)[best])
            found.append((float(odds[best]), ray.name, seen))
        return {name: seen for _, name, seen in sorted(found, key=lambda row: -row[0])}

    def _reach(self, right: NDArray[np.bool_], forgiven: int, enough: float = math.inf) -> float:
        """The largest epsilon of one document at which this outcome, less k, is too rare.

        Not looked for beyond `enough`: if it is too rare there, that is the answer.
        """
        rays = self.rays
        reached = max(float(_odds(ray, right, forgiven).max()) for ray in rays)
        if reached == -np.inf:
            return 0.0
        # What is left of the right guesses when k are forgiven stays below the independent ones.
        critical = [critical_counts(ray, reached) for ray in rays]

        def excess(epsilon: float) -> float:
            odds = self.repetitions * epsilon
            # The rays share coins; the sum of their chances is at least the chance of any.
            chances = (
                crossing_probability(ray.looks, counts, odds)
                for ray, counts in zip(rays, critical, strict=True)
            )
            chance = sum(chances) + self.extra(epsilon) / (forgiven + 1)
            # As logs the two differ almost in a straight line, and few steps find the root.
            return math.log(max(chance, _TINY) / self.significance)

        if enough < math.inf and excess(enough) <= 0:
            return enough
        return largest_rejected(excess, max(0.0, reached / self.repetitions))

    def extra(self, epsilon: float) -> float:
        """Right guesses that a delta adds, in expectation at most."""
        if self.delta == 0:
            return 0.0
        grouped = group_delta(epsilon, self.delta, self.repetitions)
        return self.canaries * grouped * float(special.expit(-self.repetitions * epsilon))

    def _cheapest(self, epsilon: float) -> int:
        """The k that costs the fewest right guesses where half are guessed and epsilon is this."""
        return _cheapest(self, epsilon)


@lru_cache(maxsize=64)
def _ceiling(audit: Audit) -> float:
    return audit.decide(np.ones(audit.canaries, dtype=np.bool_)).epsilon


@lru_cache(maxsize=256)
def _cheapest(audit: Audit, epsilon: float) -> int:
    k = np.union1d(
        np.arange(min(audit.canaries, 1000) + 1),
        np.geomspace(1, audit.canaries, 2000).astype(np.int64),
    )
    left = audit.significance - audit.extra(epsilon) / (k + 1)
    if not np.any(left > 0):
        return audit.canaries
    k, left = k[left > 0], left[left > 0]
    q = special.expit(audit.repetitions * epsilon)
    cost = k - special.ndtri(left) * np.sqrt(_GUESSED * audit.canaries * q * (1 - q))
    return int(k[np.argmin(cost)])


def _odds(ray: Ray, right: NDArray[np.bool_], forgiven: int) -> NDArray[np.float64]:
    """What each look by itself says of the log-odds of a right guess, shape (J,)."""
    return log_odds_low(ray.looks, ray.right(right) - forgiven, ray.levels)
