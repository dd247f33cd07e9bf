"""Gaussian differential privacy: what a shift of mu standard deviations costs, and how to bound it.

mu-GDP says that telling a neighbour apart is no easier than telling N(0, 1) from N(mu, 1)
(`epsilon_of_mu`). The shape of the trade-off carries a bound from the error rates that a sample can
resolve to a small delta that it cannot: more is assumed, and more is said.

`gaussian_dp_epsilon` bounds mu from two samples of independent scores, by thresholds at ranks fixed
beforehand. `one_run_fdp_epsilon` bounds it from a fixed number of guesses against fair coins, which
needs no independent scores. `one_run_gaussian_audit` fixes a few numbers of guesses, since none is
best for every training and the best one on the data is no bound: each is judged at its own part of
the significance, and the largest bound on mu counts. The chance that any of them lies above the
truth is at most the sum of their parts, which is the significance.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from lmexposure._types import NotNegative
from lmexposure._validate import delta_of_dp, fraction, positive
from lmexposure.errors import SettingsError
from lmexposure.statistics.arrays import Flags, two_samples
from lmexposure.statistics.bounds.bound import (
    Terms,
    at_least_zero,
    beta_nodes,
    beta_quantiles,
    guess_notes,
    largest_rejected,
    two_sample_notes,
    zero_notes,
)
from lmexposure.statistics.bounds.one_run import FAIR_COINS, right_guesses
from lmexposure.statistics.bounds.one_run_guesses import FIXED_GUESSES, check_guesses
from lmexposure.statistics.results import EpsilonBound

_MU_GDP = (
    "the training is mu-GDP: no test tells the neighbours apart better than N(0, 1) from N(mu, 1)"
)
_TWO_SAMPLES = (
    _MU_GDP,
    "scores are independent, and alike within each sample, given the model",
    "the two samples differ by the insertion only",
)
# Share of the out-scores above the threshold, and its share of the significance. Where the shift
# is the same for all canaries the middle tells most; a few that are memorised show in the corners.
_LOOKS = (
    (0.5, 0.5),
    (0.2, 0.1),
    (0.8, 0.1),
    (0.05, 0.1),
    (0.95, 0.05),
    (0.01, 0.075),
    (0.99, 0.025),
    (0.0, 0.05),
)
_GAUSSIAN_GUESSES = (
    *FIXED_GUESSES,
    "the training's trade-off between false positives and false negatives is a Gaussian one",
)

# Of Python's own: for one number at a time they are ten times as fast as scipy's.
_NORMAL, _ROOT_2 = NormalDist(), math.sqrt(2)
_GAUSSIAN_COINS = (*FAIR_COINS, _MU_GDP)
# Guesses as shares of the canaries. A shift of all canaries shows best where few of the clearest
# are guessed, from both ends; the memorisation of a part shows at the top alone. What the top
# costs the former is .1 of epsilon; without it the latter loses 3 (1,000 canaries, 30 % of them).
_BOTH, _TOP = (0.06, 0.15, 0.4), (0.015, 0.04, 0.12)
_WEIGHTS = {"both": 1.0, "top": 0.5}
_FEWEST = 8  # guesses; fewer show nothing at a part of the significance


def epsilon_of_mu(*, mu: float, delta: float) -> float:
    """The epsilon, in nats, of a mu-GDP mechanism at a delta; infinite at delta 0 unless mu is 0.

    Source: Dong, Roth and Su 2019, Corollary 2.13; Balle and Wang 2018, Theorem 8.

    >>> round(epsilon_of_mu(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    mu, delta = at_least_zero("mu", mu), delta_of_dp("delta", delta)
    if delta >= _delta(mu, 0.0):
        return 0.0
    if delta == 0:
        return math.inf
    # delta(epsilon) < P(N(0, 1) < mu / 2 - epsilon / mu), which is delta at this epsilon.
    most = mu * (mu / 2 - float(special.ndtri(delta)))
    return float(brentq(lambda epsilon: _delta(mu, epsilon) - delta, 0.0, most, xtol=1e-13))


def sampled_epsilon(*, mu: float, rate: float, delta: float) -> float:
    """Lower bound on the epsilon of a training that takes a unit into a step by a coin.

    Let P be the law of what the step shows with the unit in it, Q without. With the unit in the
    corpus the step shows (1 - q) Q + q P, and for every event S and e' = log(1 + q (exp(e) - 1))
    (1 - q) Q(S) + q P(S) - exp(e') Q(S) = q (P(S) - exp(e) Q(S)). So where no smaller epsilon than
    e holds for the step at d, none smaller than e' holds for the sampled step at q d; nor for the
    training, whose output includes that step's. Here e is at d = delta / q.

    Args:
        mu: lower bound on that of the step with the unit in it, of a Gaussian trade-off.
        rate: q, probability of the unit to be in the step, in (0, 1]; a lower bound on it will do.
            Where nothing is known of it, a step says nothing of the training.
        delta: of the training, in [0, 1).

    Returns:
        epsilon in nats, at least 0; 0 also where delta is at least the rate.

    Raises:
        SettingsError: a number out of range.

    Source: Balle, Barthe and Gaboardi 2018 (arXiv 1807.01647), Theorem 2, of which the above is the
        case of one Q; the unit may show in this step alone, as the promise of composed steps, whose
        gradients are anyone's choice, allows.

    >>> round(sampled_epsilon(mu=3.08, rate=0.5, delta=1e-5), 2)
    16.07
    """
    if not 0 < positive("rate", rate) <= 1:
        raise SettingsError(f"rate={rate!r} must be above 0 and at most 1")
    at = delta_of_dp("delta", delta) / rate
    if at >= 1:
        return 0.0
    epsilon = epsilon_of_mu(mu=mu, delta=at)
    if epsilon == math.inf:
        return epsilon
    return max(0.0, epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon)))


def delta_of_epsilon(*, sigma: float, epsilon: float) -> float:
    """The delta of the Gaussian mechanism with sensitivity 1 at an epsilon; higher = less private.

    Source: Balle and Wang 2018, Theorem 8.

    >>> round(delta_of_epsilon(sigma=1.0, epsilon=1.0), 9)
    0.126936738
    """
    return _delta(1 / positive("sigma", sigma), at_least_zero("epsilon", epsilon))


def _delta(mu: float, epsilon: float) -> float:
    """Phi(-t) - e^epsilon Phi(-t - mu), where t = epsilon / mu - mu / 2.

    e^epsilon phi(t + mu) = phi(t), so that with Mills' ratio the second term is phi(t) M(t + mu):
    nothing overflows, and t + mu >= mu / 2 keeps the ratio finite.
    """
    if mu == 0:
        return 0.0
    t = epsilon / mu - mu / 2
    density = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    if t <= 0:
        return float(special.ndtr(-t)) - density * _mills(t + mu)
    return density * (_mills(t) - _mills(t + mu))


def _mills(t: float) -> float:
    """Phi(-t) / phi(t) for t >= 0."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(t / math.sqrt(2)))


@dataclass(frozen=True, kw_only=True)
class GaussianEpsilon(EpsilonBound):
    """A lower bound on epsilon under a Gaussian trade-off."""

    mu: NotNegative  # at least, of one document; higher = less private; 0 without signal


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One threshold: the `rank`-th highest out-score, priced with `level`."""

    rank: int
    level: float


def gaussian_dp_epsilon(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float,
    repetitions: int = 1,
) -> GaussianEpsilon:
    """Lower confidence bound on mu, then epsilon at `delta`.

    Under mu-GDP an in-score passes a threshold that out-scores pass with probability u with
    probability Phi(Phi^-1(u) + mu) at most. With the threshold at the r-th highest of n
    out-scores, u is Beta(r, n - r + 1) and the count of in-scores above it is binomial given u:
    an exact test of every mu. Eight thresholds at ranks fixed beforehand share the significance.

    Args:
        in_scores: scores of inserted canaries, shape (m,); higher = more likely in.
        out_scores: scores of canaries left out, shape (n,).
        significance: how often, at most, the bound may lie above the truth.
        delta: of the claim, strictly between 0 and 1: at delta 0 no Gaussian trade-off has an
            epsilon.
        repetitions: copies of each canary; mu of one document is the r-th part.

    Returns:
        The bound on epsilon in nats, and the bound on mu that it comes from.

    Raises:
        InputError: an empty sample, or a score that is not finite.
        SettingsError: a setting out of range.

    Source: Dong, Roth and Su 2019, Corollary 2.13 and Theorem 2.14 (groups); order statistics as
    in David and Nagaraja 2003, section 2.1. Ties count against the bound.
    """
    inside, outside = two_samples(in_scores, out_scores)
    terms = Terms(
        significance=significance, delta=fraction("delta", delta), repetitions=repetitions
    )
    looks = _fixed_looks(outside.size, terms.significance)
    thresholds = outside[[outside.size - look.rank for look in looks]]
    above = inside.size - np.searchsorted(inside, thresholds, side="right")  # (looks,)
    bounds = [
        _least_mu(int(count), inside.size, outside.size, look)
        for count, look in zip(above, looks, strict=True)
    ]
    best = int(np.argmax(bounds))
    most = max(_least_mu(inside.size, inside.size, outside.size, look) for look in looks)
    mu = bounds[best] / terms.repetitions
    value = epsilon_of_mu(mu=mu, delta=delta)
    attainable = epsilon_of_mu(mu=most / terms.repetitions, delta=delta)
    return GaussianEpsilon(
        method="gaussian_dp_epsilon",
        value=value,
        mu=mu,
        **vars(terms),
        validity="gaussian",
        counts={
            "in": inside.size,
            "out": outside.size,
            "in_above": int(above[best]),
            "out_rank": looks[best].rank,
        },
        threshold=float(thresholds[best]),
        threshold_choice=f"best of {len(looks)} ranks of the out-scores fixed beforehand",
        max_attainable=attainable,
        assumptions=_TWO_SAMPLES,
        notes=_paid_by_delta(mu, value, attainable)
        or two_sample_notes(value, attainable, 0.0, inside, outside),
    )


def _paid_by_delta(mu: float, value: float, attainable: float) -> tuple[str, ...]:
    """What the reader must know where mu is above 0 and the bound on epsilon is 0; else nothing."""
    if mu == 0:  # chance alone explains the scores: the notes are those of delta 0
        return ()
    why = f"no epsilon above 0 could be shown: mu is at least {mu:.3g}, and this delta allows that"
    return zero_notes(value, attainable, 0.0, why)


def _fixed_looks(n: int, significance: float) -> list[_Look]:
    """The ranks for n out-scores; those that fall together add up their shares."""
    levels: dict[int, float] = {}
    for share, price in _LOOKS:
        rank = min(max(round(share * (n + 1)), 1), n)
        levels[rank] = levels.get(rank, 0.0) + price * significance
    return [_Look(rank=rank, level=level) for rank, level in levels.items()]


@lru_cache(maxsize=4096)
def _least_mu(count: int, m: int, n: int, look: _Look) -> float:
    """The smallest mu under which `count` of m or more above the rank is no rarer than `level`."""
    if count == 0 or _tail(0.0, count, m, n, look.rank) > look.level:
        return 0.0
    high = 1.0
    while _tail(high, count, m, n, look.rank) <= look.level:
        high *= 2
    low = 0.0 if high == 1 else high / 2
    return float(
        brentq(lambda mu: _tail(mu, count, m, n, look.rank) - look.level, low, high, xtol=1e-10)
    )


def _tail(mu: float, count: int, m: int, n: int, rank: int) -> float:
    """P(count or more in-scores above the rank-th highest out-score) under the Gaussian pair."""
    steps = special.ndtr(special.ndtri(beta_quantiles(count, m - count + 1)) - mu)
    u = beta_nodes(rank, n - rank + 1, steps)
    chance = special.ndtr(special.ndtri(u.value) + mu)
    return float(u.weight @ special.betainc(count, m - count + 1, chance))


def one_run_fdp_epsilon(
    *,
    canaries: int,
    guesses: int,
    correct: int,
    delta: float,
    significance: float = 0.05,
    repetitions: int = 1,
) -> EpsilonBound:
    """Bound epsilon from below with right guesses, within the family of Gaussian trade-offs.

    Args:
        canaries: included by fair independent coins, at least 1.
        guesses: from 1 to `canaries`, their number fixed beforehand.
        correct: right guesses, from 0 to `guesses`.
        delta: at which epsilon is read off the trade-off, for one document; in (0, 1): a Gaussian
            trade-off has no finite epsilon at 0.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        repetitions: copies of every canary.

    Returns:
        The bound, of class "gaussian".

    Raises:
        InputError: counts that do not fit each other.
        SettingsError: a setting out of range.

    Source: Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), the audit of a fixed number of
    guesses under f-DP, with two choices per canary and the Gaussian trade-off; Dong, Roth and Su
    2019, Corollary 2.13 and Theorem 2.14 (groups).

    >>> bound = one_run_fdp_epsilon(canaries=100, guesses=80, correct=70, delta=1e-6)
    >>> round(bound.value, 4)
    3.2956
    """
    check_guesses(canaries, guesses, correct)
    terms = Terms(
        significance=significance, delta=fraction("delta", delta), repetitions=repetitions
    )

    # A group of r documents of a mu-GDP training is r mu-GDP (Dong, Roth and Su, Theorem 2.14).
    mu, most = (
        _largest_excluded_mu(canaries, guesses, right, terms.significance) / terms.repetitions
        for right in (correct, guesses)
    )
    value, attainable = epsilon_of_mu(mu=mu, delta=delta), epsilon_of_mu(mu=most, delta=delta)
    return EpsilonBound(
        method="one_run_fdp_epsilon",
        value=value,
        **vars(terms),
        validity="gaussian",
        counts={"canaries": canaries, "guesses": guesses, "correct": correct},
        threshold=None,
        threshold_choice="a number of guesses fixed beforehand",
        max_attainable=attainable,
        assumptions=_GAUSSIAN_GUESSES,
        notes=_paid_by_delta(mu, value, attainable)
        or guess_notes(value, attainable, 0.0, guesses, correct),
    )


@lru_cache(maxsize=1024)
def _largest_excluded_mu(canaries: int, guesses: int, correct: int, significance: float) -> float:
    """The largest mu whose trade-off cannot give `correct` right guesses that often; 0 if none."""
    if correct == 0:
        return 0.0
    return largest_rejected(
        lambda mu: -_overflow(canaries, guesses, correct, significance, mu), 0.0
    )


def _overflow(canaries: int, guesses: int, correct: int, significance: float, mu: float) -> float:
    """By how much the guesses would exceed all there are; above 0, mu is rejected.

    Suppose that `correct` guesses or more are right with probability `significance`. Of a canary
    drawn at random, `right` and `wrong` are the chances that its guess is right, or wrong, while
    the count of right guesses is at least `count`. The trade-off says how much `wrong` there must
    be at one count less, for the `right` there is; and at one count, wrong brings right with it in
    the ratio count to guesses - count. A canary is guessed with `guesses / canaries` in all.
    """
    whole = guesses / canaries
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    for count in range(correct - 1, -1, -1):
        needed = math.erfc((mu - _NORMAL.inv_cdf(right)) / _ROOT_2) / 2
        if needed <= wrong:  # now and at every count below: `right` stays as it is
            break
        right += count / (guesses - count) * (needed - wrong)
        wrong = needed
        if right + wrong > whole:
            break
    return right + wrong - whole


@dataclass(frozen=True, kw_only=True)
class _Rung:
    """A number of guesses, from both ends in turn or from the top alone, and its significance."""

    end: str
    guesses: int
    level: float

    def correct(self, right: Flags) -> int:
        """Right guesses, of all in the order of `reveal`, shape (m,)."""
        along = right if self.end == "both" else right[::2]
        return int(along[: self.guesses].sum())

    def mu(self, canaries: int, correct: int) -> float:
        """The largest mu that this number of right guesses excludes; 0 where none."""
        return _largest_excluded_mu(canaries, self.guesses, correct, self.level)


def one_run_gaussian_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float,
    repetitions: int = 1,
    seed: int,
) -> GaussianEpsilon:
    """Bound mu, then epsilon at `delta`, with one trained model and fair independent coins.

    Unlike `one_run_audit` it needs a Gaussian trade-off; unlike `gaussian_dp_epsilon` it needs no
    scores that are independent or alike.

    Args:
        scores: one per canary, shape (m,), finite; higher = more likely in the training data.
        included: whether the canary went in, shape (m,), booleans or 0 and 1.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        delta: at which epsilon is read off the trade-off, for one document; strictly between 0
            and 1: at delta 0 no Gaussian trade-off has an epsilon.
        repetitions: copies of every canary; mu of one document is the r-th part.
        seed: of the order of equal scores, independent of the coins even if they used it too.

    Returns:
        The bound on epsilon in nats, class "gaussian", and the bound on mu that it comes from.

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), the audit of a fixed number of
    guesses under f-DP, here at several numbers with the significance shared out; Dong, Roth and
    Su 2019, Corollary 2.13 and Theorem 2.14 (groups).

    >>> coins = np.random.default_rng(1).random(400) < 0.5
    >>> bound = one_run_gaussian_audit(4 * coins, coins, delta=1e-5, seed=1)
    >>> round(bound.mu, 2), round(bound.value, 2)
    (1.35, 6.24)
    """
    coins, right = right_guesses(scores, included, seed=seed)
    terms = Terms(
        significance=significance, delta=fraction("delta", delta), repetitions=repetitions
    )
    rungs = _ladder(coins.size, terms.significance)
    found = [rung.mu(coins.size, rung.correct(right)) for rung in rungs]
    best = rungs[int(np.argmax(found))]
    most = max(rung.mu(coins.size, rung.guesses) for rung in rungs)
    mu = max(found) / terms.repetitions
    value = epsilon_of_mu(mu=mu, delta=delta)
    attainable = epsilon_of_mu(mu=most / terms.repetitions, delta=delta)
    return GaussianEpsilon(
        method="one_run_gaussian_audit",
        value=value,
        mu=mu,
        **vars(terms),
        validity="gaussian",
        counts={
            "canaries": coins.size,
            "included": int(coins.sum()),
            "guesses": best.guesses,
            "correct": best.correct(right),
        },
        threshold=None,
        threshold_choice=(
            f"best of {len(rungs)} numbers of guesses, fixed beforehand and corrected for; "
            f"{best.guesses} from {'both ends' if best.end == 'both' else 'the top'} decided"
        ),
        max_attainable=attainable,
        assumptions=_GAUSSIAN_COINS,
        notes=_paid_by_delta(mu, value, attainable)
        or guess_notes(value, attainable, 0.0, right.size, int(right.sum())),
    )


@lru_cache(maxsize=64)
def _ladder(canaries: int, significance: float) -> tuple[_Rung, ...]:
    """The rungs of an audit; all canaries are guessed where every rung would be too short."""
    wanted = [
        (end, round(share * canaries))
        for end, shares in (("both", _BOTH), ("top", _TOP))
        for share in shares
    ]
    long = [rung for rung in wanted if rung[1] >= _FEWEST] or [("both", canaries)]
    whole = sum(_WEIGHTS[end] for end, _ in long)
    return tuple(
        _Rung(end=end, guesses=guesses, level=significance * _WEIGHTS[end] / whole)
        for end, guesses in long
    )
