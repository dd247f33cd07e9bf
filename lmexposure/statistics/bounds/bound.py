"""What a lower bound on epsilon says, what it says of a claim, and what the bounds share.

What they share: group privacy (`group_delta`, `Terms.per_document`), the bound that a p-value gives
(`largest_rejected`), the refusal of coins that can hardly have been tossed
(`refuse_unlikely_coins`), averages over a beta-distributed rate (`beta_nodes`), and the notes
of a bound of 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from lmexposure._style import validity
from lmexposure._validate import bits_array, delta_of_dp, fraction, integer, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Counts as Counts
from lmexposure.statistics.arrays import Flags as Flags
from lmexposure.statistics.arrays import Floats as Floats
from lmexposure.statistics.results import ClaimCheck, EpsilonBound, Verdict

SCORES_ALIKE = "scores are independent given the model, and alike but for the insertion"
_NOTHING_TO_SHOW = (
    "these canaries and references are too few to show any epsilon, even by a perfect attack, at "
    "this significance, delta and number of repetitions"
)
_FIRST_STEP = 0.05
_ROOT_WIDTH = 1e-10
_UNLIKELY_COINS = 1e-6  # an honest audit is refused once in a million
_MARKS = np.array([1e-12, 1e-6, 1e-3, 0.03, 0.2, 0.5])
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim that a training is (epsilon, delta)-differentially private for one document.

    Source: Dwork and Roth 2014, The algorithmic foundations of differential privacy, definition
    2.4; neighbours differ in one document that is added or removed.

    Raises:
        SettingsError: a number out of range, or no delta.

    >>> Claim(epsilon=8.0, delta=1e-5).epsilon
    8.0
    """

    epsilon: float
    """In nats, finite, at least 0."""
    delta: float | None = None
    """In [0, 1); 0 claims pure differential privacy. An epsilon without it claims nothing: any
    training is (epsilon, delta)-private for a large enough delta.
    """

    def __post_init__(self) -> None:
        if self.delta is None:
            raise SettingsError(
                f"a claim of epsilon={self.epsilon!r} says nothing without its delta; give "
                "delta=0 for pure differential privacy"
            )
        object.__setattr__(self, "delta", delta_of_dp("delta", self.delta))
        object.__setattr__(self, "epsilon", at_least_zero("claimed_epsilon", self.epsilon))

    def against(self, bound: EpsilonBound) -> ClaimCheck:
        """Compare the claim with a lower bound.

        (epsilon, delta) implies (epsilon, delta') for every larger delta', never for a smaller
        one: a bound at a larger delta may contradict the claim, one at a smaller may not. What a
        bound at a larger delta does not contradict, the bound at the claim's delta still might.
        """
        claimed_delta = float(self.delta or 0.0)
        if bound.delta < claimed_delta:
            raise InputError(
                f"the bound is for delta={bound.delta:g}, below the claim's "
                f"{claimed_delta:g}, and a claim says nothing about smaller deltas; compute the "
                f"bound at delta={claimed_delta:g}"
            )
        verdict: Verdict = "cannot tell"
        if bound.value > self.epsilon:
            verdict = "contradicted"
        # Without it nothing shows that the audit could have reached the claim.
        elif bound.max_attainable is not None and bound.max_attainable > self.epsilon:
            verdict = "consistent"
        return ClaimCheck(
            verdict=verdict,
            reason=self._reason(verdict, bound, claimed_delta),
            claimed_epsilon=self.epsilon,
            claimed_delta=claimed_delta,
            bound=bound.value,
            max_attainable=bound.max_attainable,
            significance=bound.significance,
            validity=bound.validity,
            method=bound.method,
        )

    def untested(self, reason: str) -> ClaimCheck:
        """The verdict where there is no bound to compare the claim with."""
        return ClaimCheck(
            verdict="cannot tell",
            reason=reason,
            claimed_epsilon=self.epsilon,
            claimed_delta=float(self.delta or 0.0),
        )

    def _reason(self, verdict: Verdict, bound: EpsilonBound, claimed_delta: float) -> str:
        if verdict == "contradicted":
            return (
                f"epsilon is at least {bound.value:.3g} ({validity(bound.validity)}, significance "
                f"{bound.significance:g}), and {self.epsilon:.3g} is claimed"
            )
        at_larger = (
            ""
            if bound.delta == claimed_delta
            else f"; the bound is for delta={bound.delta:g}, and at the claim's "
            f"{claimed_delta:g} it may be higher: compute it there"
        )
        if bound.max_attainable is None:
            return (
                f"{bound.method} has no max attainable value to compare with the claim{at_larger}"
            )
        if verdict == "consistent":
            return (
                f"the bound is {bound.value:.3g}; a perfect attack would have shown "
                f"{bound.max_attainable:.3g}, above the {self.epsilon:.3g} claimed; this attack "
                f"did not, and a stronger one may{at_larger}"
            )
        return (
            "even a perfect attack on these canaries would have shown "
            f"{bound.max_attainable:.3g} only, and {self.epsilon:.3g} is claimed; insert more "
            f"canaries{at_larger}"
        )


def at_least_zero(name: str, value: float) -> float:
    """Return `value` if it is finite and at least 0."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    try:
        return positive(name, value)
    except SettingsError:
        raise SettingsError(f"{name}={value!r} must be a finite number, at least 0") from None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is asked of a bound, checked."""

    significance: float  # how often, at most, the bound may lie above the truth; in (0, 1)
    delta: float  # the claim's for one document, in [0, 1)
    repetitions: int  # copies of every canary

    def __post_init__(self) -> None:
        object.__setattr__(self, "significance", fraction("significance", self.significance))
        object.__setattr__(self, "delta", delta_of_dp("delta", self.delta))
        object.__setattr__(self, "repetitions", integer("repetitions", self.repetitions, low=1))

    def per_document(self, bound_at: Callable[[float], float]) -> float:
        """The smallest epsilon of one document that a group's bound does not contradict, nats."""
        if self.repetitions == 1 or self.delta == 0:
            return max(0.0, bound_at(self.delta)) / self.repetitions

        def short(epsilon: float) -> float:
            grouped = group_delta(epsilon, self.delta, self.repetitions)
            return (bound_at(grouped) if grouped < 1 else 0.0) - self.repetitions * epsilon

        if short(0.0) <= 0:
            return 0.0
        # What the bound is at the smallest delta of all can only be too much.
        most = bound_at(self.delta) / self.repetitions
        if short(most) >= 0:
            return most
        return float(brentq(short, 0.0, most, xtol=1e-12))


def two_sample_notes(
    value: float, max_attainable: float, delta: float, inside: Floats, outside: Floats
) -> tuple[str, ...]:
    """What the reader of a bound of 0 must know; both samples ascending."""
    below, up_to = (
        np.searchsorted(outside, inside, side=side).mean() for side in ("left", "right")
    )
    worse = (
        "no epsilon above 0 could be shown: canaries that were in score lower than those that were "
        "not; higher scores must mean in"
    )
    # The area under the curve, ties as halves.
    reversed_ = below + up_to < outside.size
    return zero_notes(value, max_attainable, delta, worse if reversed_ else None)


def rate_notes(
    value: float, max_attainable: float, delta: float, true_positives: float, false_positives: float
) -> tuple[str, ...]:
    """What the reader of a bound of 0 must know; both rates in [0, 1]."""
    worse = (
        f"no epsilon above 0 could be shown: {true_positives:.3g} of the canaries that were in are "
        f"guessed in, and {false_positives:.3g} of the others; higher scores must mean in"
    )
    reversed_ = true_positives < false_positives
    return zero_notes(value, max_attainable, delta, worse if reversed_ else None)


def guess_notes(
    value: float, max_attainable: float, delta: float, guesses: int, correct: int
) -> tuple[str, ...]:
    """What the reader of a bound of 0 must know, of guesses against fair coins."""
    worse = (
        f"no epsilon above 0 could be shown: {correct} of {guesses} guesses are right, fewer than "
        "by chance; higher scores must mean in"
    )
    return zero_notes(value, max_attainable, delta, worse if 2 * correct < guesses else None)


def zero_notes(
    value: float, max_attainable: float, delta: float, why: str | None
) -> tuple[str, ...]:
    """What the reader of a bound of 0 must know."""
    if value > 0:
        return ()
    if max_attainable == 0:
        return (_NOTHING_TO_SHOW,)
    explained = "chance" if delta == 0 else "chance and this delta"
    return (why or f"no epsilon above 0 could be shown: {explained} would give as much",)


def group_delta(epsilon: float, delta: float, repetitions: int) -> float:
    """The delta of a group of documents whose epsilon is `repetitions * epsilon`; at most 1.

    An (epsilon, delta)-DP mechanism changes by at most (r epsilon, delta_r) when r documents
    change, with delta_r = delta (e^(r epsilon) - 1) / (e^epsilon - 1).

    Source: Dwork and Roth 2014, Theorem 2.2 (delta 0); Vadhan 2017, Lemma 2.2, with the geometric
    sum of its proof kept.

    >>> group_delta(0.0, 1e-5, 4) == 4e-5
    True
    """
    if delta == 0 or repetitions == 1:
        return delta
    if epsilon == 0:
        return min(1.0, repetitions * delta)
    # (e^(r epsilon) - 1) / (e^epsilon - 1) without overflow.
    log_ratio = (repetitions - 1) * epsilon + math.log(
        math.expm1(-repetitions * epsilon) / math.expm1(-epsilon)
    )
    return math.exp(min(0.0, math.log(delta) + log_ratio))


def largest_rejected(excess: Callable[[float], float], above: float) -> float:
    """The largest epsilon >= 0 with `excess(epsilon) <= 0`; 0 where there is none.

    Any epsilon that is rejected will do, even where the p-value is not monotone in epsilon (it is
    not where a delta is paid): a mechanism that keeps to a smaller epsilon keeps to this one too,
    and the outcomes that reject some epsilon above the truth are those above one threshold of one
    statistic, which has no larger chance than the significance at the truth.

    The search goes up from `above` to the first epsilon that is not rejected, and down from there
    in growing steps to one that is. Whatever it stops at is rejected, and so is a valid bound.

    >>> round(largest_rejected(lambda epsilon: epsilon - 1.25, 0.0), 6)
    1.25
    """
    # The solver asks again for both ends of its interval.
    excess = cache(excess)
    high, step = above, _FIRST_STEP
    while excess(high) <= 0:
        high, step = high + step, 2 * step
    low, step = high, _FIRST_STEP
    while low > 0:
        low, high, step = max(0.0, low - step), low, 2 * step
        if excess(low) <= 0:
            root = float(brentq(excess, low, high, xtol=_ROOT_WIDTH))
            # The root is known to its width only: stay on the side that is rejected.
            return max(low, root - 10 * _ROOT_WIDTH)
    return 0.0


def refuse_unlikely_coins(included: int, candidates: int, probability: float) -> None:
    """Refuse a number of canaries that such coins would hardly ever give."""
    below = float(special.bdtr(included, candidates, probability))
    above = float(special.bdtrc(included - 1, candidates, probability)) if included else 1.0
    chance = 2 * min(below, above)
    if chance < _UNLIKELY_COINS:  # to refuse cannot raise the share of bounds above the truth
        raise InputError(
            f"{included} of {candidates} candidates went in, which an inclusion probability of "
            f"{probability:g} gives with probability {chance:.1g}; declare the one that was used, "
            "or none: use epsilon_from_scores, or epsilon_from_exposure without it"
        )


def true_or_false(included: ArrayLike) -> Flags:
    """Booleans of shape (m,), from booleans or from numbers that are 0 or 1."""
    given = np.atleast_1d(np.asarray(included))
    if given.ndim != 1 or given.size == 0:
        raise InputError(f"included has shape {given.shape}; give a flat list, one per canary")
    if given.dtype.kind not in "biuf" or not np.all((given == 0) | (given == 1)):
        raise InputError("included must hold True and False (or 1 and 0) only, one per canary")
    return given.astype(np.bool_)


def fair_coins(scores: ArrayLike, included: ArrayLike) -> tuple[Floats, Flags]:
    """Scores, and coins that can have been fair, one for each; shape (m,) each."""
    values, coins = bits_array("scores", scores), true_or_false(included)
    if coins.size != values.size:
        raise InputError(
            f"included has {coins.size} entries for {values.size} scores; give one for each"
        )
    refuse_unlikely_coins(int(coins.sum()), coins.size, 0.5)
    return values, coins


class BetaNodes(NamedTuple):
    """Rates, one minus them without loss of digits, and weights that sum to 1; shape (n,) each."""

    value: Floats
    complement: Floats
    weight: Floats


def beta_quantiles(a: float, b: float) -> Floats:
    """Ascending quantiles of Beta(a, b), from 1e-12 to 1 - 1e-12, that mark where it moves."""
    below = special.betaincinv(a, b, _MARKS)
    above = special.betainccinv(a, b, _MARKS[-2::-1])
    return np.concatenate([below, above])


def beta_nodes(a: float, b: float, breaks: Floats) -> BetaNodes:
    """Nodes and weights with sum(weight * h(value)) = E h(V), V ~ Beta(a, b), a and b >= 1/2."""
    ends = float(special.betaincinv(a, b, 1e-15)), float(special.betainccinv(a, b, 1e-15))
    cuts = np.concatenate([beta_quantiles(a, b), breaks])
    cuts = np.unique(np.concatenate([ends, cuts[(cuts > ends[0]) & (cuts < ends[1])]]))
    angles = np.arcsin(np.sqrt(cuts))
    half = np.diff(angles)[:, None] / 2  # (panels, 1)
    x = (angles[:-1, None] + half * (1 + _GAUSS_NODES)).ravel()
    sine, cosine = np.sin(x), np.cos(x)
    log_density = (2 * a - 1) * np.log(sine) + (2 * b - 1) * np.log(cosine)
    # Scaled by its own largest value: the constant would cost digits where a and b are large.
    weight = (half * _GAUSS_WEIGHTS).ravel() * np.exp(log_density - log_density.max())
    return BetaNodes(sine**2, cosine**2, weight / weight.sum())
