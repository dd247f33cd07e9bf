"""Epsilon from the first canaries in order, where every fill went in by its own coin.

Proof, for coins of probability p and q = p e^eps / (1 - p + p e^eps). Let r_i be the chance that
fill i is in, given the model and all other coins. By Bayes' rule r_i <= q under eps-DP; in general
E[(r_i - q)_+] = p (1 - q) H, where H = integral of (P - e^eps Q)_+ <= delta for the models P with
and Q without the fill. Reveal the coins in the order of scores. Given what is revealed, the next
fill is in with chance at most q plus the mean of (r_i - q)_+, so that the canaries among the first
t are at most Bin(t, q) plus extra ones, of which there are N p (1 - q) delta in the mean, and more
than j with chance at most N p (1 - q) delta / (j + 1) (Markov). The k-th canary stands behind at
most x others only if the first k + x fills hold k canaries: chance at most
P(Bin(k + x, q) >= k - j) + N p (1 - q) delta / (j + 1), for k and j fixed before the coins.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special
from scipy.optimize import brentq

from lmexposure.statistics.bounds.groups import group_delta, per_document

# Only j, the number of canaries given up for delta, is fixed with this epsilon in mind.
_DESIGN_EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class CoinRule:
    """What is fixed before the coins are tossed.

    Attributes:
        fills: N, all fills that a coin is tossed for.
        coin: p, the chance of each to go in, in (0, 1).
        rank: k, of the canary that is looked at, counted from the lowest log-perplexity.
        significance: in (0, 1).
        delta: of one document.
        repetitions: copies of each canary.
    """

    fills: int
    coin: float
    rank: int
    significance: float
    delta: float
    repetitions: int

    @property
    def given_up(self) -> int:
        """j: canaries left out of the count for delta, best at the design epsilon."""
        return _given_up(self)

    def epsilon(self, before: int) -> float:
        """Lower bound for one document when `before` fills left out stand before the canary."""
        given_up = self.given_up
        return per_document(
            lambda group: max(0.0, self.group_epsilon(before, given_up, group)),
            delta=self.delta,
            repetitions=self.repetitions,
        )

    def group_epsilon(self, before: int, given_up: int, delta: float) -> float:
        """The smallest epsilon whose chance exceeds the significance; below 0 if 0's does."""
        k, x = self.rank - given_up, before + 1 + given_up
        shortfall = self.fills * self.coin * delta / (given_up + 1)

        def excess(q: float) -> float:
            return float(special.betainc(k, x, q)) + shortfall * (1 - q) - self.significance

        start = excess(self.coin)
        if start >= 0:
            return -start
        if delta == 0:
            q = float(special.betaincinv(k, x, self.significance))
        else:
            # Convex up to the peak of the beta density, and positive beyond: one crossing.
            q = float(brentq(excess, self.coin, 1.0, xtol=1e-15, rtol=1e-13))
        return float(special.logit(min(q, 1 - 1e-16)) - special.logit(self.coin))


@lru_cache(maxsize=256)
def _given_up(rule: CoinRule) -> int:
    if rule.delta == 0:
        return 0
    group = group_delta(_DESIGN_EPSILON / rule.repetitions, rule.delta, rule.repetitions)
    odds = rule.coin / (1 - rule.coin) * math.exp(_DESIGN_EPSILON)
    before = math.floor(rule.rank / odds)
    tries = np.unique(np.geomspace(1, rule.rank, 60).astype(int)) - 1
    return int(max(tries, key=lambda j: rule.group_epsilon(before, int(j), group)))
