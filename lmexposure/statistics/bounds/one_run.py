"""A bound on epsilon from one trained model, whose canaries went in by fair independent coins.

Proof. Given the model and the coins seen so far, (epsilon, 0)-DP lets the next guess be right with
at most q = 1 / (1 + e^-epsilon). So the right guesses, in whatever order the scores put them, stay
below a walk of independent guesses that are right with q, and every statistic that rises with them
can be calibrated on that walk, exactly.

The statistic. All canaries are guessed in one order, the highest score first ("in"), then the
lowest ("out"), then the second highest, and so on. Three rays, fixed before any score is seen,
count the right guesses along that order, or along the highest or the lowest scores alone, at a few
numbers of guesses (`fixed_rays`). Outcomes are ordered by the largest lower Clopper-Pearson bound
over the looks of all rays; the bound is the epsilon at which so large a value, or a larger one,
just has the significance as its probability (`crossing_probability`, exact).

With a delta, let P and Q be the laws of the model with and without a canary. Given the other coins,
the model has the law (P + Q) / 2, and a guess is right with P / (P + Q) or Q / (P + Q). The mean
excess of either over q is (1 - q) / 2 times the integral of (P - e^epsilon Q)_+, or that of (Q -
e^epsilon P)_+; each integral is at most delta, and so the larger of the two has a mean excess of at
most (1 - q) delta. The right guesses are therefore those of the walk and some more, at most
canaries * delta / (1 + e^epsilon) = Delta in expectation: k of them are forgiven, and Delta / (k +
1), Markov's bound on more than k, is added to the probability.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._validate import integer
from lmexposure.statistics.bounds.bound import (
    Counts,
    Flags,
    Floats,
    Terms,
    fair_coins,
    group_delta,
    guess_notes,
    largest_rejected,
)
from lmexposure.statistics.results import EpsilonBound

# Ties need a stream of their own: coins tossed with the same seed must not order them.
_TIES = (0x7469_6573,)

FAIR_COINS = (
    "each canary went in by its own fair coin, tossed independently (not exactly half of them), "
    "after all candidates, positions and contexts were drawn",
    "a score depends on the coins through the trained model alone, and none is missing",
)
# Where k may change, in nats of the group's epsilon. Delta falls as epsilon rises, so that one k
# for all of them would be too dear for the large or vacuous for the small.
_STAGES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Share of the canaries guessed that k is fixed for: between a shift of all, which shows where most
# are guessed and can afford more, and a few that are memorised.
_GUESSED = 0.5
_TINY = 1e-300  # has a logarithm, which 0 has not
# Most mechanisms are seen best where about two thirds of the canaries are guessed.
_SHARES = (0.06, 0.125, 0.25, 0.35, 0.5, 0.59, 0.7, 0.84, 1.0)
_FIRST_LOOK = 8
# The top alone is where the memorisation of a part shows, at a number of guesses that is not
# known beforehand: many looks, the early ones at the highest levels. Beyond three fifths of the
# top half the ray over both ends sees as much.
_TOP_LOOKS, _TOP_END = 32, 0.6
_BOTTOM_LOOKS = 11
# Levels in parts of the significance: of a look of both ends at all canaries (in proportion to
# the guesses at fewer), from the first to the last look of the top, and of each of the bottom.
_BOTH, _TOP, _BOTTOM = 0.5, (0.3, 0.05), 0.02
# A binomial count is further than the window's half-width from its mean with at most e^-40.
_LOG_TAIL = 40.0
# Below this size a plain convolution is faster than three Fourier transforms.
_SHORT = 400


def one_run_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    seed: int,
) -> EpsilonBound:
    """Bound epsilon from below with one trained model and canaries included by fair coins.

    Args:
        scores: one per canary, shape (m,), finite; higher = more likely in the training data
            (the negative log-perplexity, for one).
        included: whether the canary went in, shape (m,), booleans or 0 and 1.
        significance: how often, at most, the bound may lie above the truth; in (0, 1).
        delta: the claim's delta for one document, in [0, 1).
        repetitions: copies of every canary; canaries of other repetitions need their own call.
        seed: of the order of equal scores, independent of the coins even if they used it too.

    Returns:
        The bound, of class "any-dp": it holds however the canaries act on each other.

    Raises:
        InputError: scores or coins that cannot be used, or coins that were not fair.
        SettingsError: a setting out of range.

    Source: proof at the top of this module, after Steinke, Nasr, Jagielski 2023 (arXiv
    2305.08846); Buehler 1957 for the bound that an order of outcomes gives; `group_delta` for
    groups. Related: arXiv 2602.06518 on sequential auditing.

    >>> coins = np.random.default_rng(1).random(400) < 0.5
    >>> round(one_run_audit(4 * coins, coins, seed=1).value, 1)
    4.7
    """
    coins, right = right_guesses(scores, included, seed=seed)
    terms = Terms(significance=significance, delta=delta, repetitions=repetitions)
    audit = Audit(canaries=coins.size, **vars(terms))
    found, most = audit.decide(right), _max_attainable(audit)
    looks = audit.strongest(right, found.forgiven)
    decided, (guesses, correct) = next(iter(looks.items()))
    counts = {"canaries": coins.size, "included": int(coins.sum()), "forgiven": found.forgiven}
    for name in sorted(looks):
        counts[f"{name}_guesses"], counts[f"{name}_correct"] = looks[name]
    return EpsilonBound(
        method="one_run_audit",
        value=found.epsilon,
        **vars(terms),
        validity="any-dp",
        counts=counts,
        threshold=None,
        threshold_choice=(
            "best of the numbers of guesses on three rays, fixed beforehand and corrected for; the "
            f"ray '{decided}' decided, with {correct} of {guesses} guesses right"
        ),
        max_attainable=most,
        assumptions=FAIR_COINS,
        notes=guess_notes(found.epsilon, most, terms.delta, right.size, int(right.sum())),
    )


def right_guesses(scores: ArrayLike, included: ArrayLike, *, seed: int) -> tuple[Flags, Flags]:
    """The fair coins, and which guesses are right in the order of `reveal`; both of shape (m,)."""
    values, coins = fair_coins(scores, included)
    stream = np.random.SeedSequence(integer("seed", seed, low=0), spawn_key=_TIES)
    return coins, reveal(values, coins, np.random.default_rng(stream))


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """A bound on the epsilon of one document in nats, and the right guesses it forgave."""

    epsilon: float
    forgiven: int


@dataclass(frozen=True, kw_only=True)
class Audit(Terms):
    """What is fixed before the scores are seen."""

    canaries: int

    @property
    def rays(self) -> "tuple[Ray, ...]":
        """The looks."""
        return fixed_rays(self.canaries, self.significance)

    def decide(self, right: Flags) -> _Decision:
        """The bound for guesses right or wrong in the order of `reveal`, shape (m,).

        With a delta, epsilons are tested upwards in stages that each have their own k. The first
        stage not rejected to its end stops the audit: going on is what would make it invalid.
        """
        if self.delta == 0:
            return _Decision(epsilon=self._reach(right, 0), forgiven=0)
        found = _Decision(epsilon=0.0, forgiven=_cheapest(self, 0.0))
        for stage in zip(_STAGES, (*_STAGES[1:], np.inf), strict=True):
            start, end = stage[0] / self.repetitions, stage[1] / self.repetitions
            forgiven = _cheapest(self, start)
            reach = self._reach(right, forgiven, end)
            if reach > start:
                found = _Decision(epsilon=min(reach, end), forgiven=forgiven)
            if reach < end:
                break
        return found

    def strongest(self, right: Flags, forgiven: int) -> dict[str, tuple[int, int]]:
        """Guesses and right ones at each ray's strongest look; the ray that decided comes first."""
        found = []
        for ray in self.rays:
            odds = ray.odds(right, forgiven)
            best = int(np.argmax(odds))
            seen = int(ray.looks[best]), int(ray.right(right)[best])
            found.append((float(odds[best]), ray.name, seen))
        return {name: seen for _, name, seen in sorted(found, key=lambda row: -row[0])}

    def strength(self, right: Flags, forgiven: int = 0) -> float:
        """The largest log-odds that a look speaks for: without a delta all that decides."""
        return max(float(ray.odds(right, forgiven).max()) for ray in self.rays)

    def _reach(self, right: Flags, forgiven: int, enough: float = math.inf) -> float:
        """The largest epsilon of a document, up to `enough`, at which this outcome is too rare."""
        rays = self.rays
        reached = self.strength(right, forgiven)
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
        """Delta: right guesses that a delta adds to the walk, in expectation at most."""
        if self.delta == 0:
            return 0.0
        grouped = group_delta(epsilon, self.delta, self.repetitions)
        return self.canaries * grouped * float(special.expit(-self.repetitions * epsilon))


@lru_cache(maxsize=64)
def _max_attainable(audit: Audit) -> float:
    """The bound had every guess been right."""
    return audit.decide(np.ones(audit.canaries, dtype=np.bool_)).epsilon


@lru_cache(maxsize=256)
def _cheapest(audit: Audit, epsilon: float) -> int:
    """The k that costs the fewest right guesses where half are guessed and epsilon is this."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Ray:
    """Numbers of guesses to look at, with the nominal level of each look; shapes (J,)."""

    name: str
    looks: Counts
    # They only compare looks, and need not sum to the significance: what a bound may claim is
    # calibrated on the whole walk afterwards, so that no level makes it invalid. Most power comes
    # from levels near those that are left after that calibration.
    levels: Floats

    def right(self, reveals: Flags) -> Counts:
        """Right guesses at each look, shape (J,), of canaries in the order of `reveal`."""
        along = {"both": reveals, "top": reveals[::2], "bottom": reveals[1::2]}[self.name]
        # Every look is at 1 guess at least.
        return np.cumsum(along, dtype=np.int64)[self.looks - 1]

    def odds(self, reveals: Flags, forgiven: int) -> Floats:
        """What each look by itself says of the log-odds of a right guess, shape (J,)."""
        return log_odds_low(self.looks, self.right(reveals) - forgiven, self.levels)


@lru_cache(maxsize=64)
def fixed_rays(canaries: int, significance: float) -> tuple[Ray, ...]:
    """The rays of an audit; a single canary has no bottom."""
    whole = np.unique(np.ceil(np.array(_SHARES) * canaries).astype(np.int64))
    rays = [Ray(name="both", looks=whole, levels=significance * _BOTH * whole / canaries)]
    top = _spaced((canaries + 1) // 2, _TOP_LOOKS, _TOP_END)
    levels = significance * np.geomspace(*_TOP, top.size)
    rays.append(Ray(name="top", looks=top, levels=levels))
    if canaries > 1:
        bottom = _spaced(canaries // 2, _BOTTOM_LOOKS, 1.0)
        levels = np.full(bottom.size, significance * _BOTTOM)
        rays.append(Ray(name="bottom", looks=bottom, levels=levels))
    return tuple(rays)


def _spaced(size: int, looks: int, end: float) -> Counts:
    """Numbers of guesses in equal ratios, from the first look to a share of the ray."""
    first = min(_FIRST_LOOK, size)
    spaced = np.geomspace(first, max(first, end * size), looks)
    return np.unique(np.round(spaced).astype(np.int64))


def reveal(scores: Floats, included: Flags, generator: np.random.Generator) -> Flags:
    """Whether each guess is right, from the most extreme canary to the least, shape (m,)."""
    # Equal scores are put in an order that must be independent of the coins.
    falling = np.lexsort((generator.random(scores.size), -scores))
    top = (scores.size + 1) // 2
    right = np.empty(scores.size, dtype=np.bool_)
    right[::2] = included[falling[:top]]
    right[1::2] = ~included[falling[: top - 1 : -1]]
    return right


def critical_counts(ray: Ray, log_odds: float) -> Counts:
    """The smallest counts that put the log-odds above `log_odds` at their look's level, (J,).

    One more than the guesses of a look where no count does. Falling `log_odds` gives counts that
    nowhere rise: the outcomes that reach them are nested.
    """
    chance = special.expit(log_odds)
    low, high = np.zeros_like(ray.looks), ray.looks + 1
    while np.any(high - low > 1):
        middle = np.clip((low + high) // 2, 1, ray.looks)
        rare = special.betainc(middle, ray.looks - middle + 1, chance) <= ray.levels
        open_ = high - low > 1
        low, high = np.where(open_ & ~rare, middle, low), np.where(open_ & rare, middle, high)
    # The same question asked backwards: where rounding decides, `log_odds_low` has the last word.
    below = (high > 1) & (log_odds_low(ray.looks, high - 1, ray.levels) >= log_odds)
    high = np.where(below, high - 1, high)
    enough = (high > ray.looks) | (log_odds_low(ray.looks, high, ray.levels) >= log_odds)
    return np.where(enough, high, high + 1)


def binomial_window(trials: int, log_odds: float) -> tuple[int, Floats]:
    """The binomial probabilities that matter: the first count, and the probabilities from there.

    Source: Boucheron, Lugosi, Massart 2013, Theorem 2.10 (Bernstein).

    >>> binomial_window(2, 0.0)[1].tolist()
    [0.25, 0.5, 0.25]
    """
    return _windows(np.array([trials]), log_odds)[0]


def _windows(trials: Counts, log_odds: float) -> list[tuple[int, Floats]]:
    """`binomial_window` for several numbers of trials, side by side in one array."""
    mean = trials * float(special.expit(log_odds))
    half = np.sqrt(2 * mean * float(special.expit(-log_odds)) * _LOG_TAIL) + _LOG_TAIL / 3
    first = np.maximum(np.floor(mean - half), 0).astype(np.int64)
    last = np.minimum(np.ceil(mean + half), trials).astype(np.int64)
    sizes = last - first + 1
    ends = np.cumsum(sizes)
    starts = ends - sizes
    counts = np.arange(ends[-1]) + np.repeat(first - starts, sizes)
    # From the count before, which the first of a window has not; it may be 0.
    steps = np.log((np.repeat(trials, sizes) - counts + 1) / np.maximum(counts, 1)) + log_odds
    steps[starts] = 0.0
    logs = np.cumsum(steps)
    weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, starts), sizes))
    weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
    places = zip(first.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [(count, weights[start:end]) for count, start, end in places]


def crossing_probability(looks: Counts, critical: Counts, log_odds: float) -> float:
    """P(at one look at least, the right guesses so far are `critical` or more).

    >>> crossing_probability(np.array([1, 2]), np.array([1, 2]), 0.0)
    0.5
    """
    crossed = 0.0
    first, alive = 0, np.ones(1)  # alive[i] = P(count = first + i, no crossing yet)
    windows = _windows(np.diff(looks, prepend=0), log_odds)
    for count, (start, step) in zip(critical.tolist(), windows, strict=True):
        first, alive = first + start, _convolve(alive, step)
        stays = max(0, count - first)
        crossed += float(alive[stays:].sum())
        if stays == 0:
            break
        alive = alive[:stays]
    return min(1.0, crossed)


def log_odds_low(looks: Counts, counts: Counts, levels: Floats) -> Floats:
    """The log-odds at which a binomial count is reached with just the given probability."""
    counts = np.clip(counts, 0, looks)
    seen = np.maximum(counts, 1)
    low = special.betaincinv(seen, looks - seen + 1, levels)
    # 1 - low from the other side: near 1 the difference would lose its digits.
    wrong = special.betainccinv(looks - seen + 1, seen, levels)
    with np.errstate(divide="ignore"):
        odds = np.log(low) - np.log(wrong)
    return np.where(counts == 0, -np.inf, odds)


def _convolve(first: Floats, second: Floats) -> Floats:
    """The full convolution; by Fourier transform where both are long."""
    if min(first.size, second.size) < _SHORT:
        return np.convolve(first, second)
    size = first.size + second.size - 1
    padded = 1 << (size - 1).bit_length()
    product = np.fft.rfft(first, padded) * np.fft.rfft(second, padded)
    # Rounding leaves numbers of 1e-17 below 0; as 0 they can only raise what crosses.
    return np.maximum(np.fft.irfft(product, padded)[:size], 0.0)
