"""Every bound that some scores support, at one joint level, with one named beforehand.

Which bound is the primary one is decided by how the data were made, never by what they show. It
takes half of the significance, the others share the other half: all of them hold together.

What an audit with coins could have shown of a claim, had the training leaked (`claim_power`): an
ideal attack on a mechanism that leaks as much as it may is simulated with the audit's own numbers,
a Gaussian mechanism at the claim's delta, and randomised response at delta 0, where no Gaussian
mechanism has an epsilon. Random numbers are shared by all leaks, so that only the leak differs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import bits_array, delta_of_dp, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.bounds.bound import Terms, true_or_false
from lmexposure.statistics.bounds.from_exposure import epsilon_from_exposure
from lmexposure.statistics.bounds.from_scores import epsilon_from_scores
from lmexposure.statistics.bounds.gaussian import (
    epsilon_of_mu,
    gaussian_dp_epsilon,
    one_run_gaussian_audit,
)
from lmexposure.statistics.bounds.one_run import Audit, one_run_audit, right_guesses
from lmexposure.statistics.results import EpsilonBound, JointBounds, RefusedBound

_MANY = 10  # never-inserted scores for each canary: from here on the canaries are few


def joint_bounds(  # noqa: PLR0913 - a public door: its parameters are its options
    scores: ArrayLike,
    included: ArrayLike,
    *,
    references: ArrayLike = (),
    inclusion_probability: float | None = None,
    significance: float = 0.05,
    deltas: Sequence[float] = (0.0,),
    repetitions: int = 1,
    seed: int = 0,
) -> JointBounds:
    """Bound epsilon by every rule that the data supports.

    Source: each bound cites its own; they hold together by Boole's inequality, since their parts
    of the significance add up to it.
    """
    data = _Data(
        scores=bits_array("scores", scores),
        included=true_or_false(included),
        references=bits_array("references", references) if np.size(references) else np.empty(0),
        inclusion_probability=None
        if inclusion_probability is None
        else fraction("inclusion_probability", inclusion_probability),
        seed=seed,
    )
    deltas = [delta_of_dp("deltas", delta) for delta in deltas]
    if not deltas or len(set(deltas)) < len(deltas):
        raise SettingsError(f"deltas={deltas} must hold at least one value, each once")
    significance = fraction("significance", significance)
    refused: list[tuple[str, str]] = []
    rules = list(_rules(data, refused))
    if not any(deltas):
        why = "at delta 0 no Gaussian trade-off has an epsilon"
        refused += [(rule.name, why) for rule in rules if not rule.pure]
    (first, at), *rest = ((rule, d) for d in deltas for rule in rules if d > 0 or rule.pure)
    share = significance / 2 / max(1, len(rest))
    return JointBounds(
        primary=first.bound(significance=significance / 2, delta=at, repetitions=repetitions),
        others=tuple(
            rule.bound(significance=share, delta=delta, repetitions=repetitions)
            for rule, delta in rest
        ),
        refused=tuple(RefusedBound(method=name, reason=why) for name, why in refused),
        significance=significance,
        inclusion_probability=data.inclusion_probability,
    )


@dataclass(frozen=True, kw_only=True)
class _Data:
    """What there is, checked."""

    scores: Floats
    included: Flags
    references: Floats
    inclusion_probability: float | None
    seed: int

    def __post_init__(self) -> None:
        if self.included.shape != self.scores.shape:
            raise InputError(
                f"included has shape {self.included.shape} for {self.scores.size} scores; give "
                "one for each"
            )
        if not self.inside.size or not self.outside.size:
            raise InputError(
                f"{self.inside.size} scores were in and {self.outside.size} were not; a bound "
                "compares both: give some of each"
            )

    @property
    def inside(self) -> Floats:
        return self.scores[self.included]

    @property
    def left_out(self) -> Floats:
        """Candidates that were not inserted."""
        return self.scores[~self.included]

    @property
    def outside(self) -> Floats:
        """All that was never inserted."""
        return np.concatenate([self.left_out, self.references])


@dataclass(frozen=True)
class _Rule:
    """A bound, ready for a significance, a delta and a number of repetitions."""

    name: str
    bound: Callable[..., EpsilonBound]
    pure: bool = True  # it has a value at delta 0


def _rules(data: _Data, refused: list[tuple[str, str]]) -> Iterator[_Rule]:
    """What the data supports, the primary rule first; says why not of the others."""
    probability, coins, seed = data.inclusion_probability, (data.scores, data.included), data.seed
    fair = probability == 0.5
    if fair:
        yield _Rule("one_run_audit", partial(one_run_audit, *coins, seed=seed))
    else:
        why = (
            "needs a declared inclusion probability of 0.5"
            if probability is None
            else f"needs fair coins; these are of {probability}"
        )
        refused += [("one_run_audit", why), ("one_run_gaussian_audit", why)]
    with_coins = "epsilon_from_exposure with coins"
    if probability is None:
        refused.append((with_coins, "needs a declared inclusion probability"))
    elif not data.left_out.size:
        refused.append((with_coins, "no coin kept a candidate out"))
    else:
        yield _Rule(with_coins, partial(_by_exposure, data.inside, data.left_out, probability))
    samples = data.inside, data.outside
    by_exposure = _Rule("epsilon_from_exposure", partial(_by_exposure, *samples, None))
    by_scores = _Rule("epsilon_from_scores", partial(epsilon_from_scores, *samples, seed=seed))
    few = data.outside.size >= _MANY * data.inside.size
    yield from (by_exposure, by_scores) if few else (by_scores, by_exposure)
    yield _Rule("gaussian_dp_epsilon", partial(gaussian_dp_epsilon, *samples), pure=False)
    if fair:
        audit = partial(one_run_gaussian_audit, *coins, seed=seed)
        yield _Rule("one_run_gaussian_audit", audit, pure=False)


def _by_exposure(inside: Floats, outside: Floats, coin: float | None, **terms: Any) -> EpsilonBound:
    return epsilon_from_exposure(-inside, -outside, inclusion_probability=coin, **terms).bound


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
    runs, size = (
        integer("simulations", simulations, low=1),
        integer("candidates", candidates, low=1),
    )
    made = _Simulated(
        terms=terms,
        coin=fraction("inclusion_probability", inclusion_probability),
        uniforms=np.random.default_rng(integer("seed", seed, low=0)).random((runs, 2, size)),
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
        sides = scores[included], scores[~included]
        return _by_exposure(*sides, self.coin, **vars(self.terms)).value
