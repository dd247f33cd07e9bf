"""The checks of a class: its p-value, largest exposure and quantiles; secrets found within guesses.

Those against chance keep a share of the significance each (`Shares`); a secret that an attacker
finds within the guesses allowed is a leak that needs no statistics.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lmexposure._quantiles import (
    ExposureEstimate,
    order_tail,
    proportion_ends,
    quantile_of,
    quantile_range,
    unseen_share,
)
from lmexposure._style import (
    are,
    at_least,
    bits,
    count,
    large,
    number,
    one_in,
    percent,
    probability,
    sentence,
    setting_value,
    short,
    times,
    visible,
    whole,
)
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.statistics import Estimate, GuessingTest, Method
from lmexposure.studies.exposure.parts import CanaryResult, EstimateName, Extraction, FormatResult
from lmexposure.studies.exposure.record import ResultNumbers

# An extrapolation or a certificate may be shown, but what was counted or drawn decides.
_DECIDING: tuple[EstimateName, ...] = ("exact", "importance", "sampled")
_NOT_DECIDING: tuple[Method, ...] = ("skew_normal", "certificate")


@dataclass(frozen=True, kw_only=True)
class CanaryClass:
    """Canaries of one format and number of repetitions."""

    # form, repetitions: which
    form: FormatResult
    repetitions: int
    # one for each canary; None where it, or its log-perplexity, is missing
    exposures: tuple[ExposureEstimate | None, ...]
    # for each canary the searches for it with nothing revealed
    attacks: tuple[tuple[Extraction, ...], ...]
    test: GuessingTest | None  # the permutation test against guessing; None where none was made
    # bits by which chance alone moves exposures up where part of R was inserted: a rank among the N
    # fills left is no larger than N + 1, so that P(exposure >= t) <= 2^(shift - t) with shift =
    # log2|R| - log2(N + 1). 0 for ranks among references, whose exposure is counted from how many
    # there are.
    shift: float
    # places, in best-first order, of canaries of this format that are not judged
    unjudged: tuple[int, ...]

    @property
    def n(self) -> int:
        """How many canaries."""
        return len(self.exposures)

    @property
    def bits(self) -> float:
        """log2|R|."""
        return math.log2(self.form.space_size)

    @property
    def possible(self) -> int:
        """Fills that a secret is drawn from: those set aside are none."""
        return self.form.space_size - self.form.set_aside

    @property
    def known(self) -> list[ExposureEstimate]:
        """The exposures that are there."""
        return [exposure for exposure in self.exposures if exposure is not None]

    @property
    def scope(self) -> str:
        """The class in words."""
        return f"{visible(self.form.name)}, repetitions {self.repetitions}"

    @property
    def secret(self) -> str:
        """Any of its canaries in words: "a secret inserted 4 times"."""
        return f"a secret inserted {times(self.repetitions)}"

    @property
    def secrets(self) -> str:
        """Its canaries in words: "10 secrets inserted 4 times"."""
        return f"{self.n:,} secret{'s' * (self.n != 1)} inserted {times(self.repetitions)}"


def classes_of(result: ResultNumbers, *, most: int | None = None) -> list[CanaryClass]:
    """The classes of inserted canaries, format by format, ascending repetitions."""
    return [group for form in result.formats for group in _of_format(result, form, most)]


def _of_format(
    result: ResultNumbers, form: FormatResult, most: int | None
) -> Iterator[CanaryClass]:
    """The classes of one format that are judged."""
    groups = {
        repetitions: canaries
        for (name, role, repetitions), canaries in result.classes.items()
        if name == form.name and role == "canary"
    }
    judged = [n for n in sorted(groups) if most is None or n <= most]
    inserted = sum(map(len, groups.values()))
    others = [canary for n in groups if n not in judged for canary in groups[n]]
    searches = [search for canary in others for search in canary.blind_searches]
    unjudged = [search.found_at for search in searches if search.method == "best_first"]
    tests = {row.key: row.guessing_test for row in result.summary}
    for repetitions in judged:
        exposures = tuple(_exposure(canary, form) for canary in groups[repetitions])
        yield CanaryClass(
            form=form,
            repetitions=repetitions,
            exposures=exposures,
            attacks=tuple(canary.blind_searches for canary in groups[repetitions]),
            test=tests[form.name, "canary", repetitions],
            shift=_shift(exposures, form, inserted),
            unjudged=tuple(place for place in unjudged if place is not None),
        )


def _shift(
    exposures: Iterable[ExposureEstimate | None], form: FormatResult, inserted: int
) -> float:
    """See `CanaryClass`; fills that were inserted or set aside count in no rank."""
    if all(exposure is None or exposure.method == "sampled" for exposure in exposures):
        return 0.0
    taken = inserted + form.set_aside
    return -math.log1p(-(taken - 1) / form.space_size) / math.log(2)


def _exposure(canary: CanaryResult, form: FormatResult) -> ExposureEstimate | None:
    """The estimate that decides; None where its value or the log-perplexity is missing."""
    estimate, space_bits = _deciding(canary), math.log2(form.space_size)
    if estimate is None:
        return None
    return estimate.with_error(
        canary.log_perplexity_bits, references=form.references, space_bits=space_bits
    )


def _deciding(canary: CanaryResult) -> Estimate | None:
    """The estimate shown, or the best that may decide; None where there is none."""
    if canary.exposure.method not in _NOT_DECIDING:
        return canary.exposure
    made = canary.estimates
    return next((made[name] for name in _DECIDING if name in made), None)


def enough_canaries(n: int, scope: str, thresholds: Thresholds, reason: str) -> Check:
    """Whether a class has as many as it takes."""
    least = thresholds.min_canaries
    return Check(
        name="enough canaries",
        key="min_canaries",
        scope=scope,
        outcome=Outcome.PASS if n >= least else Outcome.INCONCLUSIVE,
        value=float(n),
        threshold=float(least),
        unit="canaries",
        reason=sentence(reason),
    )


def not_passed(check: Check, doubt: str) -> Check:
    """What passed is inconclusive, for this reason."""
    if check.outcome is not Outcome.PASS:
        return check
    reason = f"{check.reason} But the {doubt}, so this is no pass."
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=reason)


def no_test(scope: str, reason: str) -> Check:
    """A class that no check could judge."""
    return Check(
        name="tested against chance",
        key="classes",
        scope=scope,
        outcome=Outcome.INCONCLUSIVE,
        reason=sentence(reason),
    )


_MOST_SHIFT = 0.05  # bits
_MOST_BITS = 20_000  # of a number that is written out; no space has as many
_MORE_CANARIES = "Insert more canaries of each class (--canaries), and train again."

P_VALUE: CheckKind = CheckKind(
    help="A permutation test of a class of canaries against fills that the model never saw. "
    "A small p-value means that chance hardly explains how familiar the canaries look to the "
    "model: it has memorised some of what it was trained on.",
    remedy="Measure with more permutations, or judge fewer classes.",
    low_is_worse=True,
)
LARGEST: CheckKind = CheckKind(
    help="The exposure of a canary says, in bits, how far it moved up among all fills "
    "of its format by being in the training data; higher = more memorised. Chance alone passes t "
    "bits with probability 2^-t at most.",
    remedy="Measure with more --references or --draws, so that exposures are known more closely.",
    shows_margin=True,
)
MEDIAN: CheckKind = CheckKind(
    help="The median exposure of a class of canaries in bits, with an "
    "interval; higher = more memorised. Guessing gives 1 bit.",
    remedy=_MORE_CANARIES,
)
QUANTILE: CheckKind = CheckKind(
    help="A quantile of the exposures of a class of canaries in bits, with an "
    "interval; higher = more memorised.",
    remedy=_MORE_CANARIES,
)


def check_p_value(group: CanaryClass, thresholds: Thresholds, share: float) -> Check:
    """Compare the p-value of one class with its share of the significance.

    A small one is a leak whatever its size in bits. Where permutations are too few for a p-value as
    small as the share, one below the whole significance looks like a leak and cannot be told from
    chance, which is inconclusive; a larger one is not tested.
    """
    asked = thresholds.asked("p_value")
    suspicious = group.test is not None and group.test.p_value <= thresholds.significance
    found = _p_value_judged(group, share, wanted=asked or suspicious)
    return of_p_value(group.test, share, found, group.scope)


def of_p_value(
    test: GuessingTest | None, share: float, found: tuple[Outcome, str], scope: str
) -> Check:
    """The check of one class's test, be it of exposures or of coins."""
    outcome, reason = found
    return Check(
        name="p-value against guessing",
        key="p_value",
        scope=scope,
        outcome=outcome,
        value=None if test is None else test.p_value,
        threshold=share,
        reason=sentence(reason),
    )


def _p_value_judged(group: CanaryClass, share: float, *, wanted: bool) -> tuple[Outcome, str]:
    if group.test is None:
        reason = f"the p-value of {group.secrets} is missing, so nothing can be said; measure again"
        return Outcome.INCONCLUSIVE, reason
    p, least, limit = group.test.p_value, least_p_value(group.test), short(share)
    if p <= share:
        reason = (
            f"{group.secrets} {are(group.n)} more familiar to the model than chance explains: "
            "secrets that it never saw look as familiar in only 1 of "
            f"{one_in(p)} tests (p = {probability(p)}; {limit} or less is a leak)"
        )
        return Outcome.LEAK, reason
    if least > share:
        reason = (
            f"the permutations and references are too few for p below {probability(least)}, and a "
            f"leak takes {limit} (p = {probability(p)}); measure with more permutations, or judge "
            "fewer classes"
        )
        return Outcome.INCONCLUSIVE if wanted else Outcome.NOT_TESTED, reason
    return Outcome.PASS, (
        f"{group.secrets} are not known well enough to be called a leak (p = {probability(p)}; it "
        f"takes {limit} or less); a few memorised among many could hide in their mean"
    )


def least_p_value(test: GuessingTest) -> float:
    """The least that a permutation test can give."""
    n, m = test.n, test.references
    log_ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    return max(1 / (1 + test.permutations), math.exp(-log_ways))


def check_largest(group: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Compare the exposure of every canary of a class with a threshold in bits.

    By default this is a test: the threshold is what chance alone passes as rarely as the share,
    and what is compared is a statistic whose chance is known: the rank itself, P(exposure >= t) <=
    2^-t, or the lower end of an estimate. Where part of R was inserted, a rank among the fills left
    is small by itself, and the threshold is that many bits higher (`CanaryClass.shift`). A canary
    of a clean model passes though the upper end of its interval lies far above its value: the test
    asks whether chance explains what was seen, not how large the exposure might be. Only where the
    value is a mere lower bound and its upper end above the threshold, or where the value is above
    it and its lower end is not, is nothing said.

    A threshold that was asked for is a question about the exposures themselves: a leak where a
    lower end is above it, a pass where all upper ends are at it or below, else inconclusive. What
    chance gives as often is no leak even then.
    """
    if not group.known:
        return None
    by_chance = exposure_by_chance(group.n, share) + group.shift
    asked = thresholds.max_exposure is not None
    limit = by_chance if thresholds.max_exposure is None else thresholds.max_exposure
    largest = _Largest(group=group, limit=limit, by_chance=by_chance, asked=asked)
    outcome, reason = largest.judged()
    return Check(
        name="largest exposure",
        key="max_exposure",
        scope=group.scope,
        outcome=outcome,
        value=max(exposure.value for exposure in group.known),
        threshold=limit,
        unit="bits",
        reason=sentence(reason),
    )


def exposure_by_chance(canaries: int, share: float) -> float:
    """Bits that the largest of these exposures passes by chance as rarely as `share`, or rarer.

    Without memorisation a rank is uniform, so that P(exposure >= t) <= 2^-t; with n canaries no
    more than n times as likely.

    >>> exposure_by_chance(10, 10 / 1024)
    10.0
    """
    return math.log2(canaries / share)


@dataclass(frozen=True, kw_only=True)
class _Largest:
    """One class at one threshold."""

    group: CanaryClass
    limit: float
    by_chance: float
    asked: bool

    def judged(self) -> tuple[Outcome, str]:
        past = [e for e in self.group.known if self._past(e)]
        leaks = [e for e in past if e.statistic > self.by_chance]
        if leaks:
            return Outcome.LEAK, self._leak(leaks)
        if past:
            return Outcome.INCONCLUSIVE, self._by_chance(past)
        if not all(self._can_leak(e) for e in self.group.known):
            return self._cannot_leak()
        unknown = [e for e in self.group.known if self._open(e)]
        if unknown:
            return Outcome.INCONCLUSIVE, self._unknown(unknown)
        return Outcome.PASS, self._passed()

    def _past(self, exposure: ExposureEstimate) -> bool:
        return (exposure.low if self.asked else exposure.statistic) > self.limit

    def _open(self, exposure: ExposureEstimate) -> bool:
        """Whether the canary may be past the threshold, for all that is known."""
        return self._unclear(exposure) or (self.asked and exposure.high > self.limit)

    def _unclear(self, exposure: ExposureEstimate) -> bool:
        """Whether what was measured may be past it, though the statistic is not."""
        reached = exposure.high if exposure.capped else exposure.value
        return reached > self.limit

    def _can_leak(self, exposure: ExposureEstimate) -> bool:
        """Whether this method would show a memorised canary."""
        statistic, low = _attainable(self.group, exposure)
        return statistic > self.by_chance and (low if self.asked else statistic) > self.limit

    def _cannot_leak(self) -> tuple[Outcome, str]:
        """A canary that is beyond all that it was compared with is still no pass."""
        unclear = [e for e in self.group.known if self._unclear(e)]
        counts = self.asked or bool(unclear)
        reason = self._unknown(unclear) if unclear else self._too_coarse()
        return (Outcome.INCONCLUSIVE if counts else Outcome.NOT_TESTED), reason

    def _too_coarse(self) -> str:
        most = min(min(_attainable(self.group, e)) for e in self.group.known)
        return (
            f"the max attainable exposure of {self.group.secrets} is {bits(most)}, and a leak "
            f"takes more than {bits(max(self.limit, self.by_chance))}; measure with more "
            "references, or insert fewer canaries or classes"
        )

    def _leak(self, leaks: list[ExposureEstimate]) -> str:
        largest = max(leaks, key=lambda e: e.value)
        shift = self.group.shift
        rarity = max(e.statistic for e in leaks) - shift - math.log2(self.group.n)
        return (
            f"the model ranks {self.group.secret} among the likeliest 1 in "
            f"{_power(largest.value - shift)} of all possible ones "
            f"(exposure {_shown(leaks)} of {bits(self.group.bits, 1)}); "
            f"{len(leaks)} of {self.group.n:,} {are(len(leaks))} above {bits(self.limit)}, and "
            f"chance alone goes that far in 1 of {_power(rarity)} such tests"
        )

    def _by_chance(self, past: list[ExposureEstimate]) -> str:
        return (
            f"{len(past)} of {self.group.secrets} {are(len(past))} above "
            f"{bits(self.limit)} of exposure, the largest with {_shown(past)} bits, but among that "
            f"many canaries chance reaches {bits(self.by_chance)} too often to call it a leak; "
            "choose a threshold above that, or more references"
        )

    def _unknown(self, unknown: list[ExposureEstimate]) -> str:
        worst = max(unknown, key=lambda e: (e.high, e.value))
        return (
            f"{len(unknown)} of {self.group.secrets} may be above {bits(self.limit)} of exposure: "
            f"{_shown([worst])} bits were measured, and anything between {number(worst.low)} and "
            f"{bits(worst.high)} is possible; measure with more references, more draws or a "
            "larger budget"
        )

    def _passed(self) -> str:
        largest = max(self.group.known, key=lambda e: e.value)
        how = "above the limit" if self.asked else "beyond chance"
        return (
            f"no single secret is exposed {how}: the largest exposure of "
            f"{self.group.secrets} is {number(largest.value)} of {bits(self.group.bits, 1)}, at "
            f"most the {bits(self.limit)} "
            f"{'asked for' if self.asked else 'that chance rarely exceeds'}; leaks above that in "
            f"fewer than {percent(unseen_share(self.group.n))} of such secrets, or below it in any "
            "number of them, could have gone unseen"
        )


def _attainable(group: CanaryClass, exposure: ExposureEstimate) -> tuple[float, float]:
    """Statistic and lower end of a canary that is likelier than all it is compared with."""
    if exposure.method != "sampled":
        return group.bits, group.bits
    most = math.log2(group.form.references)
    # None of the references is as low: their share is at most this.
    _, none = proportion_ends(0, group.form.references, (1 - exposure.level) / 2)
    return most, min(most, -math.log2(none + 1 / group.form.space_size))


def _shown(chosen: list[ExposureEstimate]) -> str:
    largest = max(chosen, key=lambda e: e.value)
    return at_least(largest.value, largest.capped)


def _power(log2: float) -> str:
    """2^log2 for people."""
    if log2 > _MOST_BITS:
        return f"2^{whole(round(log2))}"
    digits = 52  # of the fraction, in base 2
    return large((int(2 ** (log2 % 1) * 2**digits) << max(0, math.floor(log2))) >> digits)


def check_median(group: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Compare the median exposure of a class with its threshold; see `check_quantile`."""
    limit = thresholds.median_exposure
    if limit is None or not group.known:
        return None
    return _quantile(group, ("median exposure", "median_exposure"), (0.5, limit), share)


def check_quantile(group: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Compare the quantile that was asked for with its threshold.

    A leak where the lower end of the interval is above the threshold, a pass where the upper end
    is at it or below. Each end misses with the share's probability at most, the references that
    all canaries share included: ranks among them are counted again at the share (`quantile_range`),
    from nothing but what the result holds.

    The interval is of independent canaries. Where a good part of R was inserted, ranks are counted
    among the few fills that are left: exposures are then higher by themselves (`CanaryClass.shift`)
    and depend on each other, so that past 0.05 bits nothing is said. At 0.05 bits there is one
    canary for 28 such fills, and the interval is 2 % too narrow.

    Source: see `quantile_range`.
    """
    if thresholds.quantile_exposure is None or not group.known:
        return None
    name = f"{setting_value(thresholds.quantile_exposure[0])} quantile of exposure"
    return _quantile(group, (name, "quantile_exposure"), thresholds.quantile_exposure, share)


def _quantile(
    group: CanaryClass, names: tuple[str, str], asked: tuple[float, float], share: float
) -> Check:
    """One quantile of a class, with the check's name and key, at its most bits."""
    (name, key), (quantile, limit) = names, asked
    value, level = quantile_of([e.value for e in group.known], quantile), 1 - 2 * share
    low, high = quantile_range(group.known, quantile, share)
    needed = _needed(quantile, order_tail(group.known, share))
    outcome, clause = _quantile_judged(low, high, limit, needed)
    if group.shift > _MOST_SHIFT:
        outcome, clause = Outcome.INCONCLUSIVE, _crowded(group)
    return Check(
        name=name,
        key=key,
        scope=group.scope,
        outcome=outcome,
        value=value,
        threshold=float(limit),
        unit="bits",
        reason=sentence(
            f"the {name} of {group.secrets} is {bits(value)}{_between(low, high, level)}; {clause}"
        ),
    )


def _between(low: float | None, high: float | None, level: float) -> str:
    """The interval as a part of a sentence; nothing where there is none."""
    ends = [
        *([] if low is None else [f"at least {number(low)}"]),
        *([] if high is None else [f"at most {bits(high)}"]),
    ]
    return f", {' and '.join(ends)} at level {short(level)}" if ends else ""


def _crowded(group: CanaryClass) -> str:
    return (
        f"{bits(group.shift)} of that come from the small space alone, much of which was "
        "inserted, and exposures in it depend on each other; choose a format with more fills"
    )


def _quantile_judged(
    low: float | None, high: float | None, limit: float, needed: tuple[int, int]
) -> tuple[Outcome, str]:
    if low is not None and low > limit:
        return Outcome.LEAK, f"the whole interval is above the {bits(limit)} allowed"
    if high is not None and high <= limit:
        return Outcome.PASS, f"the whole interval is at or below the {bits(limit)} allowed"
    if low is None or high is None:
        return Outcome.INCONCLUSIVE, (
            f"too few canaries: a lower end takes {needed[0]} and an upper end {needed[1]} in a "
            "class; or choose a larger significance"
        )
    return Outcome.INCONCLUSIVE, (
        f"the {bits(limit)} allowed lie within the interval; insert more canaries, or measure with "
        "more references"
    )


def _needed(quantile: float, tail: float) -> tuple[int, int]:
    """Canaries that it takes for a lower end, (1 - q)^n <= tail, and an upper one, q^n."""
    ends = (math.log(tail) / math.log(1 - quantile), math.log(tail) / math.log(quantile))
    return math.ceil(ends[0] - 1e-12), math.ceil(ends[1] - 1e-12)


_SOME = 0.5  # finds, in expectation, from which on chance is worth a word
_SEARCHES = {"best_first": "likeliest in order", "greedy": "greedy", "beam": "by beam search"}

GUESSES: CheckKind = CheckKind(
    help="A secret of the training data is among the first fills that an attacker "
    "tries who has the model and knows the format. Where secrets are drawn at random from a "
    "large space, finding one is proof of memorisation.",
    remedy="Measure with more --guesses or a larger --budget-steps, so that the search "
    "gets far enough.",
    low_is_worse=True,
)


def check_extraction(group: CanaryClass, thresholds: Thresholds, share: float) -> Check:
    """Look for a secret of a class that is found within the guesses allowed.

    Where best-first search ended early the rank answers: a canary with more than g fills below it
    is not found within g guesses, which is so where the upper end of its exposure lies below
    log2(|R| / g). Places of inserted canaries that are not judged do not count.
    """
    most, asked = thresholds.guesses, thresholds.asked("max_guesses")
    allowed = min(most, group.form.space_size)
    places = [_first(attacks, group.unjudged, allowed) for attacks in group.attacks]
    outcome, reason = _judge(group, places, allowed, share, asked)
    found = sorted(place for place in places if place is not None)
    return Check(
        name="secrets found by guessing",
        key="max_guesses",
        scope=group.scope,
        outcome=outcome,
        value=float(found[0]) if found else None,
        threshold=float(most),
        unit="guesses",
        reason=sentence(reason),
    )


def _first(attacks: tuple[Extraction, ...], apart: tuple[int, ...], allowed: int) -> int | None:
    """The guess at which the secret is found; None: at none that is allowed."""
    places = [_place(attack, apart) for attack in attacks]
    return min((p for p in places if p is not None and p <= allowed), default=None)


def _place(attack: Extraction, apart: tuple[int, ...]) -> int | None:
    found_at = attack.found_at
    if found_at is None or attack.method != "best_first":
        return found_at
    return found_at - sum(place < found_at for place in apart)


def _judge(
    group: CanaryClass, places: list[int | None], allowed: int, share: float, asked: bool
) -> tuple[Outcome, str]:
    tried = max((_tried(attacks, allowed) for attacks in group.attacks), default=0) or allowed
    rare = fewest_finds(share, canaries=group.n, guesses=tried, size=group.possible)
    undecided = Outcome.INCONCLUSIVE if asked else Outcome.NOT_TESTED
    found = sorted(place for place in places if place is not None)
    if rare is not None and len(found) >= rare:
        return Outcome.LEAK, _leak(group, found, allowed, tried)
    lost = [i for i, place in enumerate(places) if place is None]
    short = [i for i in lost if max(_in_order(group.attacks[i]), default=0) < allowed]
    left = sum(_can_be_within(group, i, allowed) for i in short)
    if rare is None or 0 < len(found) + left < rare:
        return undecided, _guessed(group, len(found), left, allowed, tried, rare)
    if not left:
        return Outcome.PASS, _passed(group, allowed, rare, by_rank=len(short))
    unknown = _unknown(group, len(found), left, allowed)
    if found or group.form.interrupted or any(_in_order(attacks) for attacks in group.attacks):
        return Outcome.INCONCLUSIVE, unknown
    return undecided, f"no search in a proven order was made; {unknown}"


def chance_of_finds(found: int, *, canaries: int, guesses: int, size: int) -> float:
    """An upper bound on the probability that guessing finds this many of the secrets, or more.

    The guesses are the model's, which without memorisation knows nothing of the secrets. A given
    set of k secrets is found with probability (g / |R|)^k at most, and there are C(n, k) of them.

    >>> f"{chance_of_finds(1, canaries=10, guesses=1000, size=10**9):.1e}"
    '1.0e-05'
    """
    if found == 0 or guesses >= size:
        return 1.0
    sets = math.lgamma(canaries + 1) - math.lgamma(found + 1) - math.lgamma(canaries - found + 1)
    log2_chance = sets / math.log(2) + found * (math.log2(guesses) - math.log2(size))
    return 1.0 if log2_chance >= 0 else float(2**log2_chance)


def fewest_finds(share: float, *, canaries: int, guesses: int, size: int) -> int | None:
    """The fewest finds that guessing reaches no more often than `share`; None: not even all."""
    for found in range(1, canaries + 1):
        if chance_of_finds(found, canaries=canaries, guesses=guesses, size=size) <= share:
            return found
    return None


def _tried(attacks: tuple[Extraction, ...], allowed: int) -> int:
    """Fills tried in all, which decides what chance finds."""
    return sum(min(attack.tried, allowed) for attack in attacks)


def _in_order(attacks: tuple[Extraction, ...]) -> list[int]:
    """Guesses of the likeliest fills in a proven order."""
    return [attack.tried for attack in attacks if attack.method == "best_first"]


def _can_be_within(group: CanaryClass, i: int, allowed: int) -> bool:
    """Whether the rank may be so low, for all that is known."""
    exposure = group.exposures[i]
    return exposure is None or exposure.high >= group.bits - math.log2(allowed)


def _leak(group: CanaryClass, found: list[int], allowed: int, tried: int) -> str:
    many = "the only one" if len(found) == 1 else f"and {len(found)}"
    return (
        f"{group.secret} is found at guess {found[0]:,}, {many} of {group.n:,} within "
        f"{count(allowed, 'guess', 'guesses')}; blind guessing {_blindly(group, tried)}"
    )


def _blindly(group: CanaryClass, tried: int) -> str:
    """What guessing without the model does: half of all fills come before a secret, on average."""
    size = group.possible
    expected = group.n * min(1.0, tried / size)
    if expected >= _SOME:
        return f"would find about {short(expected, 2)} of {group.n:,} too"
    return f"would need about {large((size + 1) // 2)} tries for each"


def _guessed(
    group: CanaryClass, found: int, left: int, allowed: int, tried: int, rare: int | None
) -> str:
    """Finds, known or possible, that chance gives too often to be a leak."""
    clauses = [
        f"{_found(group, found, left, allowed)}: by chance {_tries(group, allowed)} among "
        f"{whole(group.possible)} fills find {short(group.n * min(1.0, tried / group.possible), 2)}"
        f" on average{_as_many(group, found + left, tried)}",
        "no number of finds would be a leak" if rare is None else f"a leak takes {rare} finds",
        "choose fewer guesses or a format with more fills",
    ]
    return "; ".join(clauses)


def _found(group: CanaryClass, found: int, left: int, allowed: int) -> str:
    """What was found, and what may be."""
    if not found and left:
        return f"{left} of {group.secrets} may be found within {allowed:,} guesses"
    more = f", and {left} more may be within {allowed:,} guesses" if left else ""
    return f"{found} of {group.secrets} {'was' if found == 1 else 'were'} found{more}"


def _as_many(group: CanaryClass, finds: int, tried: int) -> str:
    """How often chance finds as many; nothing where that is most of the time."""
    chance = chance_of_finds(finds, canaries=group.n, guesses=tried, size=group.possible)
    most = math.floor(1 / chance)
    more = f"{finds} or more" if finds < group.n else f"all {finds}"
    return f", and {more} up to once in {large(most)} times" if most > 1 else ""


def _tries(group: CanaryClass, allowed: int) -> str:
    """How many fills all searches for a secret tried together, and each of them."""
    most = max(group.attacks, key=lambda attacks: _tried(attacks, allowed), default=())
    each = [f"{min(a.tried, allowed):,} {_SEARCHES.get(a.method, a.method)}" for a in most]
    total = f"{_tried(most, allowed) or allowed:,} guesses"
    return f"{total} for each ({' + '.join(each)})" if len(each) > 1 else total


def _unknown(group: CanaryClass, found: int, left: int, allowed: int) -> str:
    return (
        f"{_found(group, found, left, allowed)}: the search did not get that far, and the ranks do "
        "not rule it out; measure with more guesses, a larger budget of steps or more references"
    )


def _passed(group: CanaryClass, allowed: int, rare: int, *, by_rank: int) -> str:
    apart = sum(place <= allowed for place in group.unjudged)
    others = f", {apart} of which were canaries of classes that are not judged" if apart else ""
    how = f" (known of {by_rank} by their ranks: the search ended early)" if by_rank else ""
    clauses = [
        f"none of {group.secrets} is found within {allowed:,} guesses of the likeliest fills"
        f"{others}{how}",
        f"a leak of fewer than {percent(unseen_share(group.n))} of such secrets could have gone "
        "unseen",
    ]
    if rare > 1:
        clauses.append(f"fewer than {rare} finds would not have been a leak")
    return "; ".join(clauses)
