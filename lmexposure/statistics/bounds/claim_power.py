"""What an audit with coins could have shown of a claim, had the training leaked.

An ideal attack on a mechanism that leaks as much as it may is simulated with the audit's own
numbers: a Gaussian mechanism at the claim's delta, and randomised response at delta 0, where no
Gaussian mechanism has an epsilon. Random numbers are shared by all leaks, so that only the leak
differs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from lmexposure._validate import fraction, integer
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.from_exposure import epsilon_from_exposure
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu
from lmexposure.statistics.bounds.one_run import Audit, one_run_audit, right_guesses

_STEPS = 10
_PERFECT = 64.0  # standard deviations, or log-odds, between those in and the others: no overlap
_BY_PLACE = 1e-6  # orders equal answers of randomised response


@dataclass(frozen=True, kw_only=True)
class ClaimPower:
    """What an audit could have shown; epsilon in nats, higher = less private."""

    could_show: float  # what a perfect attack shows at least, with probability `power`
    # the smallest true epsilon at which an ideal attack contradicts the claim with probability
    # `power`; None where none does, however large the leak
    refutable_from: float | None
    power: float  # in (0, 1)


def claim_power(
    claimed: float,
    terms: Terms,
    *,
    candidates: int,
    inclusion_probability: float = 0.5,
    power: float = 0.8,
    simulations: int = 200,
    seed: int = 0,
) -> ClaimPower:
    """Simulate the primary bound of an audit with coins on trainings that leak.

    Source: simulation; `epsilon_of_mu` for the Gaussian mechanism, Kairouz, Oh and Viswanath 2015
    (arXiv 1311.0776), Theorem 3.3, for randomised response.

    >>> terms = Terms(significance=0.025, delta=0.0, repetitions=1)
    >>> claim_power(9.0, terms, candidates=50, simulations=20).refutable_from is None
    True
    """
    power = fraction("power", power)
    made = _Simulated(
        terms=terms,
        coin=fraction("inclusion_probability", inclusion_probability),
        uniforms=np.random.default_rng(integer("seed", seed, low=0)).random(
            (
                integer("simulations", simulations, low=1),
                2,
                integer("candidates", candidates, low=1),
            )
        ),
    )
    could_show = made.shown(_PERFECT, power)
    if could_show <= claimed:
        return ClaimPower(could_show=could_show, refutable_from=None, power=power)
    leak = _least(lambda leak: made.shown(leak, power) > claimed)
    refutable = made.epsilon(leak)
    return ClaimPower(could_show=could_show, refutable_from=refutable, power=power)


def _least(enough: Callable[[float], bool]) -> float:
    """The smallest leak that is enough, from above; `_PERFECT` is."""
    low, high = 0.0, 1.0
    while high < _PERFECT and not enough(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True, eq=False)
class _Simulated:
    """Audits with shared random numbers."""

    terms: Terms
    coin: float
    uniforms: Floats  # (simulations, 2, candidates)

    # A leak is that of all copies together: a shift in deviations, or log-odds at delta 0.
    def epsilon(self, leak: float) -> float:
        """Of one document, in nats."""
        each = leak / self.terms.repetitions
        return epsilon_of_mu(mu=each, delta=self.terms.delta) if self.terms.delta else each

    def scores(self, leak: float, place: int) -> tuple[Floats, Flags]:
        """Of an ideal attack, and who was in."""
        coins, noise = self.uniforms[place]
        included = coins < self.coin
        if self.terms.delta:
            return special.ndtri(noise) + leak * included, included
        # The answer, turned with the chance of a lie; noise only orders equal answers.
        lies = noise < special.expit(-leak)
        return (included ^ lies) + _BY_PLACE * np.modf(noise * 1e6)[0], included

    def shown(self, leak: float, power: float) -> float:
        """What is shown at least, with this probability: one bound, at the right strength."""
        audits = [self.scores(leak, place) for place in range(len(self.uniforms))]
        rank = math.floor((1 - power) * len(audits) + 1e-9)
        order = np.argsort([self._strength(*audit) for audit in audits], kind="stable")
        return self._bound(*audits[int(order[rank])])

    def _strength(self, scores: Floats, included: Flags) -> float:
        """Orders audits as their bounds do, and is cheap."""
        if self.coin != 0.5:
            return self._bound(scores, included)
        audit = Audit(canaries=scores.size, **vars(self.terms))
        return audit.strength(right_guesses(scores, included, seed=0)[1])

    def _bound(self, scores: Floats, included: Flags) -> float:
        if self.coin == 0.5:
            return one_run_audit(scores, included, seed=0, **vars(self.terms)).value
        if included.all() or not included.any():
            return 0.0
        found = epsilon_from_exposure(
            -scores[included],
            -scores[~included],
            inclusion_probability=self.coin,
            **vars(self.terms),
        )
        return found.bound.value
