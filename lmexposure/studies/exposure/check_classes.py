"""The kinds of checks of a run, and those of a class: of canaries, or of texts that were chosen.

Those against chance keep a share of the significance each (`Shares`); a secret that an attacker
finds within the guesses allowed is a leak that needs no statistics. A bound on epsilon keeps the
significance that it was measured with, whatever the gate's own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

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
    class_scope,
    count,
    large,
    number,
    one_in,
    percent,
    probability,
    setting_value,
    short,
    times,
    whole,
)
from lmexposure.core import (
    CLAIMED_EPSILON,
    EPSILON_LIMIT,
    Check,
    CheckKind,
    Outcome,
    Thresholds,
    attainable_outcome,
)
from lmexposure.statistics import GuessingTest, Method
from lmexposure.studies.exposure.parts import CanaryResult, EstimateName, Extraction, FormatResult
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.verbatim_record import VERBATIM_CHECKS

Judged = tuple[Outcome, str]  # what a check came to, and a clause that says why

_MORE_CANARIES = "Insert more canaries of each class (--canaries), and train again."
# Every check by its key, in the order in which a reader should hear of it: of leaks the most
# convincing first, for a secret found by guessing needs no statistics; of preconditions what makes
# everything else doubtful.
EXPOSURE_CHECKS: dict[str, CheckKind] = {
    "max_guesses": CheckKind(
        name="secrets found by guessing",
        unit="guesses",
        help="An attacker who has the model and knows the format finds a secret of the training "
        "data among the first that he tries. Where very many secrets are possible, finding one is "
        "proof of memorisation.",
        remedy="Measure with --effort thorough, so that the search gets far enough.",
        low_is_worse=True,
        said_pass="none found",
    ),
    **{key: VERBATIM_CHECKS[key] for key in ("max_verbatim_run", "max_extractable", "memorised")},
    "claimed_epsilon": replace(
        CLAIMED_EPSILON,
        name="claimed epsilon",
        unit="nats",
        help="The epsilon that was claimed of the training, compared with the lower bound "
        "that an audit found.",
        remedy="Insert more canaries, each with probability 1/2 (--inclusion-probability 0.5): "
        "these could not have contradicted the claim.",
        own_significance=True,
    ),
    "max_epsilon": replace(
        EPSILON_LIMIT,
        name="lower bound on epsilon",
        unit="nats",
        help="A lower bound on the epsilon of differential privacy that the training can "
        "have had, in nats; higher = less private. It holds under the conditions given with it.",
        remedy="Insert more canaries, each with probability 1/2 (--inclusion-probability 0.5): "
        "these could not have shown an epsilon that large.",
        own_significance=True,
    ),
    "max_exposure": CheckKind(
        name="largest exposure",
        unit="bits",
        help="The exposure of a canary says, in bits, how far it moved up among all possible "
        "secrets of its format by being in the training data; higher = more memorised. Chance "
        "alone passes t bits with probability 2^-t at most.",
        remedy="Measure with --effort thorough, so that exposures are known more closely.",
        shows_margin=True,
    ),
    "median_exposure": CheckKind(
        name="median exposure",
        unit="bits",
        help="The median exposure of a class of canaries in bits, with an "
        "interval; higher = more memorised. Guessing gives 1 bit.",
        remedy=_MORE_CANARIES,
    ),
    "quantile_exposure": CheckKind(
        unit="bits",
        help="A quantile of the exposures of a class of canaries in bits, with an "
        "interval; higher = more memorised.",
        remedy=_MORE_CANARIES,
    ),
    "p_value": CheckKind(
        name="p-value against guessing",
        help="A permutation test of a class of canaries against secrets that the model never saw. "
        "A small p-value means that chance hardly explains how familiar the canaries look to the "
        "model: it has memorised some of what it was trained on.",
        remedy="Measure with more permutations, or judge fewer classes.",
        low_is_worse=True,
    ),
    "controls": CheckKind(
        name="controls at chance",
        help="Controls were drawn like the canaries and never inserted. Where they do not look "
        "like chance, no other number can be trusted.",
        remedy="Find out why the controls are not at chance: they must stay out of the training "
        "data, and be drawn like the canaries. Until then no number counts.",
        precondition=True,
        scopes="formats",
    ),
    "validation": CheckKind(
        name="model learned",
        unit="bits per token",
        help="A model that did not learn has memorised nothing, which says nothing about "
        "a model that did. Train longer or with another learning rate.",
        remedy="Train until the validation loss falls, with more epochs or another learning "
        "rate: a model that learned nothing leaks nothing.",
        precondition=True,
    ),
    "accept_unseen_training": CheckKind(
        name="model saw the canaries",
        help="Low exposure means something only of a model that was trained on the canaries. A "
        "base in place of its fine-tune, another corpus' manifest, canaries lost before the "
        "training: each looks like a model that keeps secrets.",
        remedy="Check that this is the model that was trained on this manifest's corpus, and look "
        "at the trainer's rows (lmexposure verify --rows), or take it on your own word "
        "(--accept-unseen-training).",
        precondition=True,
    ),
    "scores": CheckKind(
        name="all canaries scored",
        unit="canaries",
        help="A canary without a score or an exposure was not tested. Measure again.",
        remedy="Measure again, so that every canary has a score and an exposure.",
        precondition=True,
    ),
    **{key: VERBATIM_CHECKS[key] for key in ("covered", "guessing")},
    "min_canaries": CheckKind(
        name="enough canaries",
        unit="canaries",
        help="There are too few canaries to show that secrets do not leak: a leak of some "
        "secrets would go unseen. Insert more.",
        remedy=_MORE_CANARIES,
        precondition=True,
    ),
    "classes": CheckKind(
        name="tested against chance",
        help="There was nothing that a check could judge.",
        remedy="Insert more canaries (--canaries), or measure with more --references, so that "
        "every class can be tested.",
        precondition=True,
    ),
    "accept_quick": CheckKind(
        name="measured in full",
        help="A quick look uses a tenth of the references and of the search: what it finds is a "
        "leak, and what it does not find may still be one.",
        remedy="Measure again with --effort normal.",
        precondition=True,
        of_depth=True,
        said_doubt="this was a quick look",
    ),
}

# An extrapolation or a certificate may be shown, but what was counted or drawn decides.
_DECIDING: tuple[EstimateName, ...] = ("exact", "importance", "sampled")
_NOT_DECIDING: tuple[Method, ...] = ("skew_normal", "certificate")
_MOST_SHIFT = 0.05  # bits
_MOST_BITS = 20_000  # of a number that is written out; no space has as many
_SOME = 0.5  # finds, in expectation, from which on chance is worth a word
# What is said of a permutation test.
_OF_EXPOSURES = {
    Outcome.LEAK: "{told} more familiar to the model than chance explains: secrets that it never "
    "saw look as familiar in only 1 of {rare} tests (p = {p}; {limit} or less is a leak)",
    Outcome.INCONCLUSIVE: "the permutations and references are too few for p below {least}, and a "
    "leak takes {limit} (p = {p}); measure with more permutations, or judge fewer classes",
    Outcome.PASS: "{who} are not known well enough to be called a leak (p = {p}; it takes {limit} "
    "or less); a few memorised among many could hide in their mean",
}


def as_check(
    key: str,
    judged: Judged,
    scope: str = "",
    value: float | None = None,
    threshold: float | None = None,
    name: str = "",
) -> Check:
    """A number, its threshold, what they came to and why."""
    outcome, reason = judged
    kind = EXPOSURE_CHECKS[key]
    own, unit = name or kind.name, kind.unit
    return Check.of(key, own, outcome, reason, value, threshold, unit=unit, scope=scope)


@dataclass(frozen=True, kw_only=True)
class CanaryClass:
    """Canaries of one format and number of repetitions."""

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
        return class_scope(self.form.name, self.repetitions)

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
    others = [canary for n in groups if n not in judged for canary in groups[n]]
    searches = [search for canary in others for search in canary.blind_searches]
    unjudged = [search.found_at for search in searches if search.method == "best_first"]
    tests = {row.key: row.guessing_test for row in result.summary}
    taken = sum(map(len, groups.values())) + form.set_aside  # in no rank
    for repetitions in judged:
        exposures = tuple(_exposure(canary, form) for canary in groups[repetitions])
        shift = 0.0
        if not all(exposure is None or exposure.method == "sampled" for exposure in exposures):
            shift = -math.log1p(-(taken - 1) / form.space_size) / math.log(2)
        yield CanaryClass(
            form=form,
            repetitions=repetitions,
            exposures=exposures,
            attacks=tuple(canary.blind_searches for canary in groups[repetitions]),
            test=tests[form.name, "canary", repetitions],
            shift=shift,
            unjudged=tuple(place for place in unjudged if place is not None),
        )


def _exposure(canary: CanaryResult, form: FormatResult) -> ExposureEstimate | None:
    """The estimate shown, or the best that may decide; None where it is missing."""
    estimate, made = canary.exposure, canary.estimates
    if estimate.method in _NOT_DECIDING:
        deciding = [made[name] for name in _DECIDING if name in made]
        if not deciding:
            return None
        estimate = deciding[0]
    return estimate.with_error(
        canary.log_perplexity_bits,
        references=form.references,
        space_bits=math.log2(form.space_size),
    )


def check_class(group: CanaryClass, thresholds: Thresholds) -> list[Check]:
    """Whether the canaries of a class are enough, and all of them measured."""
    who, least = f"{group.secrets} {are(group.n)}", thresholds.min_canaries
    unseen = f"up to {percent(unseen_share(group.n))} of such secrets may leak (95 % confidence)"
    enough = f"{who} enough; even if none of them leaks, {unseen}"
    few = f"{who} too few: {least} are needed; even if none of {group.n} leaks, {unseen}"
    missing = sum(exposure is None for exposure in group.exposures)
    scored = f"all {group.secrets} have a log-perplexity and an exposure"
    if missing:
        scored = (
            f"{missing} of {group.secrets} {are(missing)} without a log-perplexity or an exposure; "
            "measure again, or with another method"
        )
    outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return [
        check_enough(group.n, least, group.scope, enough, few),
        as_check("scores", (outcome, scored), group.scope, float(missing), 0.0),
    ]


def check_enough(n: int, least: int, scope: str, enough: str, few: str) -> Check:
    """Whether a class has as many as it takes."""
    judged = (Outcome.PASS, enough) if n >= least else (Outcome.INCONCLUSIVE, few)
    return as_check("min_canaries", judged, scope, float(n), float(least))


def no_test(scope: str, reason: str) -> Check:
    """A class that no check could judge."""
    return as_check("classes", (Outcome.INCONCLUSIVE, reason), scope)


def check_p_value(group: CanaryClass, thresholds: Thresholds, share: float) -> Check:
    """The p-value of a class against its share of the significance.

    Where permutations are too few for one as small as the share, one below the whole significance
    looks like a leak and cannot be told from chance; a larger one is not tested.
    """
    missing = f"the p-value of {group.secrets} is missing, so nothing can be said; measure again"
    who, n = group.secrets, group.n
    check = check_test(group.test, share, group.scope, _OF_EXPOSURES, missing, who, n)
    suspicious = check.value is None or check.value <= thresholds.significance
    if check.outcome is Outcome.INCONCLUSIVE and not (suspicious or thresholds.asked("p_value")):
        return replace(check, outcome=Outcome.NOT_TESTED)
    return check


def check_test(
    test: GuessingTest | None,
    share: float,
    scope: str,
    words: Mapping[Outcome, str],
    missing: str,
    who: str,
    n: int,
) -> Check:
    """The check of one class's permutation test, be it of exposures or of coins."""
    if test is None:
        return as_check("p_value", (Outcome.INCONCLUSIVE, missing), scope, None, share)
    p, least = test.p_value, least_p_value(test)
    outcome = attainable_outcome(p <= share, least <= share)
    reason = words[outcome].format(
        who=who,
        told=f"{who} {are(n)}",
        p=probability(p),
        rare=one_in(p),
        least=probability(least),
        limit=short(share),
    )
    return as_check("p_value", (outcome, reason), scope, p, share)


def least_p_value(test: GuessingTest) -> float:
    """The least that a permutation test can give."""
    n, m = test.n, test.references
    log_ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    return max(1 / (1 + test.permutations), math.exp(-log_ways))


def check_largest(group: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Compare the exposure of every canary of a class with a threshold in bits.

    By default what is compared is a statistic whose chance is known: the rank itself, P(exposure >=
    t) <= 2^-t, or the lower end of an estimate. The test asks whether chance explains what was
    seen, not how large the exposure might be. A threshold that was asked for is a question about
    the exposures themselves: a leak where a lower end is above it, a pass where all upper ends are
    at it or below. What chance gives as often is no leak even then.
    """
    if not group.known:
        return None
    by_chance = exposure_by_chance(group.n, share) + group.shift
    asked = thresholds.max_exposure is not None
    limit = by_chance if thresholds.max_exposure is None else thresholds.max_exposure
    judged = _largest(group, limit, by_chance, asked)
    value = max(exposure.value for exposure in group.known)
    return as_check("max_exposure", judged, group.scope, value, limit)


def exposure_by_chance(canaries: int, share: float) -> float:
    """Bits that the largest of these exposures passes by chance as rarely as `share`, or rarer.

    Without memorisation a rank is uniform, so that P(exposure >= t) <= 2^-t; with n canaries no
    more than n times as likely.

    >>> exposure_by_chance(10, 10 / 1024)
    10.0
    """
    return math.log2(canaries / share)


def _largest(group: CanaryClass, limit: float, by_chance: float, asked: bool) -> Judged:
    known = group.known
    past = [e for e in known if (e.low if asked else e.statistic) > limit]
    leaks = [e for e in past if e.statistic > by_chance]
    largest = max(leaks or past or known, key=attrgetter("value"))
    shown = at_least(largest.value, largest.capped)
    if leaks:
        rarity = max(e.statistic for e in leaks) - group.shift - math.log2(group.n)
        exceeded = f"{bits(limit)}, which chance rarely does"
        if asked:
            exceeded = f"the {bits(limit)} allowed"
        return Outcome.LEAK, (
            f"the model ranks {group.secret} among the likeliest 1 in "
            f"{_power(largest.value - group.shift)} of all possible ones (exposure {shown} of "
            f"{bits(group.bits, 1)}); chance does so in 1 of {_power(rarity)} tests; {len(leaks)} "
            f"of {group.n:,} exceed{'s' * (len(leaks) == 1)} {exceeded}"
        )
    if past:
        return Outcome.INCONCLUSIVE, (
            f"{len(past)} of {group.secrets} {are(len(past))} above {bits(limit)} of exposure, the "
            f"largest with {shown} bits, but among that many canaries chance too often reaches "
            f"{bits(by_chance)}, so this is not called a leak; choose a threshold above that, or "
            "more references"
        )
    ends = [_attainable(group, e) for e in known]
    # Whether this method would show a memorised canary.
    can_leak = all(best > by_chance and (low if asked else best) > limit for best, low in ends)
    # What was measured may be past the threshold, though the statistic is not.
    unclear = [
        e
        for e in known
        if (e.high if e.capped else e.value) > limit or (can_leak and asked and e.high > limit)
    ]
    if unclear:
        worst = max(unclear, key=attrgetter("high", "value"))
        return Outcome.INCONCLUSIVE, (
            f"{len(unclear)} of {group.secrets} may be above {bits(limit)} of exposure: "
            f"{at_least(worst.value, worst.capped)} bits were measured, and anything between "
            f"{number(worst.low)} and {bits(worst.high)} is possible; measure with more "
            "references, more draws or a larger budget"
        )
    if not can_leak:
        return (Outcome.INCONCLUSIVE if asked else Outcome.NOT_TESTED), (
            f"the max attainable exposure of {group.secrets} is {bits(min(map(min, ends)))}, and a "
            f"leak takes more than {bits(max(limit, by_chance))}; measure with more references, or "
            "insert fewer canaries or classes"
        )
    return Outcome.PASS, (
        f"no single secret is exposed {'above the limit' if asked else 'beyond chance'}: the "
        f"largest exposure of {group.secrets} is {number(largest.value)} of "
        f"{bits(group.bits, 1)}, at most the {bits(limit)} "
        f"{'allowed' if asked else 'that chance rarely exceeds'}; {_unnoticed(group)}, and smaller "
        "leaks always could"
    )


def _unnoticed(group: CanaryClass) -> str:
    """What a pass may have missed."""
    share = percent(unseen_share(group.n))
    return f"with {count(group.n, 'secret')} a class, up to {share} of them could leak unnoticed"


def _attainable(group: CanaryClass, exposure: ExposureEstimate) -> tuple[float, float]:
    """Statistic and lower end of a canary that is likelier than all it is compared with."""
    if exposure.method != "sampled":
        return group.bits, group.bits
    most = math.log2(group.form.references)
    # None of the references is as low: their share is at most this.
    _, none = proportion_ends(0, group.form.references, (1 - exposure.level) / 2)
    return most, min(most, -math.log2(none + 1 / group.form.space_size))


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
    return _quantile(group, "median_exposure", "median exposure", (0.5, limit), share)


def check_quantile(group: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Compare the quantile that was asked for with its threshold.

    Each end of the interval misses with the share's probability at most, the references that all
    canaries share included: ranks among them are counted again at the share. Where a good part of R
    was inserted, exposures are higher by themselves (`CanaryClass.shift`) and depend on each other,
    so that past 0.05 bits nothing is said. At 0.05 bits there is one canary for 28 fills that are
    left, and the interval is 2 % too narrow.

    Source: see `quantile_range`.
    """
    asked = thresholds.quantile_exposure
    if asked is None or not group.known:
        return None
    name = f"{setting_value(asked[0])} quantile of exposure"
    return _quantile(group, "quantile_exposure", name, asked, share)


def _quantile(
    group: CanaryClass, key: str, name: str, asked: tuple[float, float], share: float
) -> Check:
    quantile, limit = asked
    value = quantile_of([e.value for e in group.known], quantile)
    low, high = quantile_range(group.known, quantile, share)
    ends = [] if low is None else [f"at least {number(low)}"]
    ends += [] if high is None else [f"at most {bits(high)}"]
    between = f", {' and '.join(ends)} at level {short(1 - 2 * share)}" if ends else ""
    outcome = Outcome.INCONCLUSIVE
    if group.shift > _MOST_SHIFT:
        clause = (
            f"{bits(group.shift)} of that come from the format alone: much of its few possible "
            "secrets was inserted, so that exposures depend on each other; use a longer secret"
        )
    elif low is not None and low > limit:
        outcome, clause = Outcome.LEAK, f"the whole interval is above the {bits(limit)} allowed"
    elif high is not None and high <= limit:
        clause = f"the whole interval is at or below the {bits(limit)} allowed"
        outcome = Outcome.PASS
    elif low is None or high is None:
        # Canaries that it takes for a lower end, (1 - q)^n <= tail, and an upper one, q^n.
        log_tail = math.log(order_tail(group.known, share))
        lower, upper = (math.ceil(log_tail / math.log(q) - 1e-12) for q in (1 - quantile, quantile))
        clause = (
            f"too few canaries: a lower end takes {lower} and an upper end {upper} in a class; or "
            "choose a larger significance"
        )
    else:
        clause = (
            f"the {bits(limit)} allowed lie within the interval; insert more canaries, or measure "
            "with more references"
        )
    reason = f"the {name} of {group.secrets} is {bits(value)}{between}; {clause}"
    return as_check(key, (outcome, reason), group.scope, value, float(limit), name)


def check_extraction(group: CanaryClass, thresholds: Thresholds, share: float) -> Check:
    """Look for a secret of a class that is found within the guesses allowed.

    Where best-first search ended early the rank answers: a canary with more than g fills below it
    is not found within g guesses, which is so where the upper end of its exposure lies below
    log2(|R| / g). Places of inserted canaries that are not judged do not count.
    """
    most, allowed = thresholds.guesses, min(thresholds.guesses, group.form.space_size)
    places = [_first(attacks, group.unjudged, allowed) for attacks in group.attacks]
    found = sorted(place for place in places if place is not None)
    short_of = [
        exposure
        for exposure, attacks, place in zip(group.exposures, group.attacks, places, strict=True)
        if place is None and max(_in_order(attacks), default=0) < allowed
    ]
    reach = group.bits - math.log2(allowed)
    left = sum(exposure is None or exposure.high >= reach for exposure in short_of)
    tried = max((_tried(attacks, allowed) for attacks in group.attacks), default=0) or allowed
    rare = fewest_finds(share, canaries=group.n, guesses=tried, size=group.possible)
    undecided = Outcome.INCONCLUSIVE if thresholds.asked("max_guesses") else Outcome.NOT_TESTED
    searched = group.form.interrupted or any(_in_order(attacks) for attacks in group.attacks)
    if rare is not None and len(found) >= rare:
        judged = Outcome.LEAK, _leak(group, found, left, allowed, tried)
    elif rare is None or 0 < len(found) + left < rare:
        judged = undecided, _guessed(group, len(found), left, allowed, tried, rare)
    elif not left:
        judged = Outcome.PASS, _passed(group, allowed, rare, by_rank=len(short_of))
    else:
        unknown = (
            f"{_found(group, len(found), left, allowed)}: the search did not get that far, and the "
            "ranks do not rule it out; measure with more guesses, a larger budget of steps or more "
            "references"
        )
        judged = undecided, f"no search in a proven order was made; {unknown}"
        if found or searched:
            judged = Outcome.INCONCLUSIVE, unknown
    first = float(found[0]) if found else None
    return as_check("max_guesses", judged, group.scope, first, float(most))


def _first(attacks: tuple[Extraction, ...], apart: tuple[int, ...], allowed: int) -> int | None:
    """The guess at which the secret is found; None: at none that is allowed."""
    places = [
        at - sum(place < at for place in apart) if attack.method == "best_first" else at
        for attack in attacks
        if (at := attack.found_at) is not None
    ]
    return min((place for place in places if place <= allowed), default=None)


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


def _leak(group: CanaryClass, found: list[int], left: int, allowed: int, tried: int) -> str:
    """What was found; at least as much, where the search ended before all guesses were made."""
    many = f"and {'at least ' * bool(left)}{len(found)}"
    many, size = "the only one" if len(found) == 1 and not left else many, group.possible
    # Half of all fills come before a secret, on average.
    blindly = f"would need about {large((size + 1) // 2)} tries for each"
    expected = group.n * min(1.0, tried / size)
    if expected >= _SOME:
        blindly = f"would find about {short(expected, 2)} of {group.n:,} too"
    return (
        f"{group.secret} is found at guess {found[0]:,}, {many} of {group.n:,} within "
        f"{count(allowed, 'guess', 'guesses')}; blind guessing {blindly}"
    )


def _guessed(
    group: CanaryClass, found: int, left: int, allowed: int, tried: int, rare: int | None
) -> str:
    """Finds, known or possible, that chance gives too often to be a leak."""
    finds, size = found + left, group.possible
    most = math.floor(1 / chance_of_finds(finds, canaries=group.n, guesses=tried, size=size))
    more = f"{finds} or more" if finds < group.n else f"all {finds}"
    as_many = f" ({more} up to once in {large(most)} times)" if most > 1 else ""
    needed = "no number of finds would show a leak"
    if rare is not None:
        needed = f"only {rare} finds or more would show a leak"
    chance = short(group.n * min(1.0, tried / size), 2)
    return (
        f"{_found(group, found, left, allowed)}, but {tried:,} guesses each out of {whole(size)} "
        f"possible secrets find about {chance} by chance{as_many}, and {needed}; use a longer "
        "secret, or allow fewer guesses"
    )


def _found(group: CanaryClass, found: int, left: int, allowed: int) -> str:
    """What was found, and what may be."""
    if not found and left:
        return f"{left} of {group.secrets} may be found within {allowed:,} guesses"
    more = f", and {left} more may be within {allowed:,} guesses" if left else ""
    return f"{found} of {group.secrets} {'was' if found == 1 else 'were'} found{more}"


def _passed(group: CanaryClass, allowed: int, rare: int, *, by_rank: int) -> str:
    apart = sum(place <= allowed for place in group.unjudged)
    others = f", {apart} of which were canaries of classes that are not judged" if apart else ""
    how = f" (known of {by_rank} by their ranks: the search ended early)" if by_rank else ""
    few = f"; only {rare} finds or more would have shown a leak" if rare > 1 else ""
    return (
        f"none of {group.secrets} is found within {allowed:,} guesses, the likeliest first"
        f"{others}{how}; {_unnoticed(group)}{few}"
    )
