"""From exposure to epsilon: the point value of a quantile, and a lower bound next to it.

Proof for coins of probability p, with q = p e^eps / (1 - p + p e^eps). Let r_i be the chance that
fill i is in, given the model and all other coins. By Bayes' rule r_i <= q under eps-DP; in general
E[(r_i - q)_+] = p (1 - q) H, where H = integral of (P - e^eps Q)_+ <= delta for the models P with
and Q without the fill. Reveal the coins in the order of scores. Given what is revealed, the next
fill is in with chance at most q plus the mean of (r_i - q)_+, so that the canaries among the first
t are at most Bin(t, q) plus extra ones, of which there are N p (1 - q) delta in the mean, and more
than j with chance at most N p (1 - q) delta / (j + 1) (Markov). At most x fills that were left out
come before the k-th canary only if the first k + x fills hold k canaries: chance at most P(Bin(k +
x, q) >= k - j) + N p (1 - q) delta / (j + 1), for k and j fixed before the coins.

Without coins, a share V of the canaries' law lies before the k-th of m independent canaries, with V
~ Beta(k, m - k + 1). By (eps, delta)-DP at least (V - delta)_+ e^-eps of the references' law lies
there too, so that at most x of n references come before that canary with a chance of at most
E[BinCDF(x; n, (V - delta)_+ e^-eps)].
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import (
    Terms,
    beta_nodes,
    beta_quantiles,
    group_delta,
    refuse_unlikely_coins,
    zero_notes,
)
from lmexposure.statistics.results import EpsilonBound, EpsilonPoint

_COINS = (
    "every secret went in by an independent coin of the probability given, tossed after secrets "
    "and places were drawn",
    "canaries and references given are all the secrets that a coin was tossed for",
)
_ALIKE = ("log-perplexities are independent given the model, and alike but for the insertion",)
# Only j, the number of canaries given up for delta, is fixed with this epsilon in mind.
_DESIGN_EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class ExposureEpsilon:
    """What exposures say of epsilon: a lower bound, and the point value."""

    bound: EpsilonBound
    point: EpsilonPoint


def epsilon_from_median_exposure(median_exposure: float, *, repetitions: int = 1) -> EpsilonPoint:
    """The epsilon that a median exposure points to: ln 2 (median - 1) / repetitions, at least 0.

    Half of the canaries rank within the lowest 2^-median of the references, where chance puts
    2^-median of them: the ratio is 2^(median - 1) <= e^epsilon.

    Source: Jagielski 2023, A note on interpreting canary exposure (arXiv 2306.00133).

    >>> round(epsilon_from_median_exposure(11.0, repetitions=10).value, 6)
    0.693147
    """
    repetitions = integer("repetitions", repetitions, low=1)
    if not math.isfinite(median_exposure):
        raise InputError(
            f"median_exposure={median_exposure} must be a finite number of bits; "
            "where it is capped, give the cap: the value is then a lower one"
        )
    return _point(float(median_exposure), 0.5, repetitions)


def epsilon_from_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    quantile: float = 0.5,
    inclusion_probability: float | None = None,
    repetitions: int = 1,
    significance: float = 0.05,
    delta: float = 0.0,
) -> ExposureEpsilon:
    """Lower bound on epsilon from the references that come before a quantile of the canaries.

    With n references, let x of them have a log-perplexity as low as the k-th lowest canary's, ties
    against the bound. Where every fill went in by an independent coin of probability p, the bound
    holds for every training (class "any-dp"; proof at the top of this module): with delta = 0 it is
    logit(BetaInv(significance; k, x + 1)) - logit(p). Where a fixed number was inserted it holds
    if log-perplexities are independent (class "iid-scores"): the chance of epsilon is the mean of
    BinCDF(x; n, (V - delta)_+ e^-epsilon) over V ~ Beta(k, m - k + 1).

    Args:
        canary_bits: log-perplexities in bits of the m inserted fills, lower = more memorised.
        reference_bits: log-perplexities in bits of n fills of the format never inserted; with
            `inclusion_probability`, of exactly those whose coin said so.
        quantile: in (0, 1], fixed beforehand: k is this part of the canaries, rounded up; with
            `inclusion_probability`, of the p (m + n) expected, because their number is chance.
            Small: the most memorised ones; 0.5: the median exposure.
        inclusion_probability: p, each fill's chance to go in, in (0, 1); None: a fixed number did.
        repetitions: copies of each canary, the same for all.
        significance: in (0, 1).
        delta: of one document, in [0, 1).

    Returns:
        The bound, and the point value of the exposure at that quantile.

    Raises:
        SettingsError: a setting out of range.
        InputError: no numbers, a NaN or an infinity; coins that could hardly have fallen so.

    Source: Jagielski 2023 (arXiv 2306.00133) for the point value; Steinke, Nasr, Jagielski 2023
    (arXiv 2305.08846) for coins of one half; for others, proof at the top of this module.

    >>> found = epsilon_from_exposure([1.0] * 10, range(2, 10002), quantile=1.0)
    >>> round(found.point.value, 2), round(found.bound.value, 2)
    (9.21, 8.0)
    """
    canaries = np.sort(bits_array("canary_bits", canary_bits))
    references = bits_array("reference_bits", reference_bits)
    if quantile != 1:
        quantile = fraction("quantile", quantile)
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    m, n = canaries.size, references.size
    own = _rank(quantile, m)

    def alike(before: int) -> float:
        return terms.per_document(
            lambda group: _beta_binomial_epsilon(before, own, m, n, terms.significance, group)
        )

    epsilon_at, rank = alike, own
    if inclusion_probability is not None:
        coin = fraction("inclusion_probability", inclusion_probability)
        refuse_unlikely_coins(m, m + n, coin)
        rank = _rank(quantile, coin * (m + n))
        epsilon_at = CoinRule(fills=m + n, coin=coin, rank=rank, **vars(terms)).epsilon
    before = int((references <= canaries[rank - 1]).sum()) if rank <= m else n
    value, most = epsilon_at(before) if rank <= m else 0.0, epsilon_at(0)
    fewer = (
        f"{m} canaries went in, fewer than the rank {rank} fixed beforehand, so that the bound is "
        "0; a smaller quantile is safer"
    )
    bound = EpsilonBound(
        method="epsilon_from_exposure",
        value=value,
        **vars(terms),
        validity="iid-scores" if inclusion_probability is None else "any-dp",
        counts={"canaries": m, "references": n, "rank": rank, "references_before": before},
        threshold=-float(canaries[rank - 1]) if rank <= m else None,
        threshold_choice=f"canary {rank} from the lowest log-perplexity, fixed beforehand",
        max_attainable=most,
        assumptions=_ALIKE if inclusion_probability is None else _COINS,
        notes=zero_notes(value, most, terms.delta, fewer if rank > m else None),
    )
    passed = int((references <= canaries[own - 1]).sum())
    exposure = math.log2(n) - math.log2(1 + passed)
    return ExposureEpsilon(bound=bound, point=_point(exposure, quantile, terms.repetitions))


def _rank(quantile: float, canaries: float) -> int:
    """The part of them, rounded up; 0.1 of 30 is 3 although 0.1 * 30 is above 3 in floats."""
    return max(1, math.ceil(quantile * canaries * (1 - 1e-12)))


def _point(exposure: float, quantile: float, repetitions: int) -> EpsilonPoint:
    """ln(quantile / 2^-exposure) / repetitions: ln 2 (exposure - 1) at the median."""
    value = max(0.0, math.log(2) * (exposure + math.log2(quantile)) / repetitions)
    return EpsilonPoint(
        value=value, median_exposure=exposure, repetitions=repetitions, quantile=quantile
    )


def _beta_binomial_epsilon(
    x: int, k: int, m: int, n: int, significance: float, delta: float
) -> float:
    """Where the mean of BinCDF(x; n, (V - delta)_+ e^-epsilon) is the significance."""
    steps = beta_quantiles(x + 1, n - x) if x < n else np.empty(0)  # where BinCDF falls

    def excess(epsilon: float) -> float:
        v = beta_nodes(k, m - k + 1, np.append(delta + steps * math.exp(epsilon), delta))
        rate = np.maximum(v.value - delta, 0.0) * math.exp(-epsilon)
        return float(v.weight @ special.bdtr(x, n, rate)) - significance

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


@dataclass(frozen=True, kw_only=True)
class CoinRule(Terms):
    """What is fixed before the coins are tossed."""

    fills: int  # N, all fills that a coin is tossed for
    coin: float  # p, the chance of each to go in, in (0, 1)
    rank: int  # k, of the canary whose place is counted, from the lowest log-perplexity

    @property
    def given_up(self) -> int:
        """j: canaries left out of the count for delta, best at the design epsilon."""
        return _given_up(self)

    def epsilon(self, before: int) -> float:
        """Lower bound for one document when `before` fills left out come before the canary."""
        given_up = self.given_up
        return self.per_document(
            lambda group: max(0.0, self.group_epsilon(before, given_up, group))
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
