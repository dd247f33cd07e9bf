"""The gate: every check of a result, the one verdict that they come to, and what it rests on.

A new check is a line of `EXPOSURE_CHECKS` (check_classes.py), a function next to its like (of a
class there, of the whole run here), and a line where it is made: in `_CLASS_TESTS` for a check of a
class that has a share of the significance, in `exposure_checks` for one of the whole run. Without a
threshold that was given it returns None.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lmexposure._quantiles import unseen_share
from lmexposure._style import (
    MISSING,
    bits,
    claim_word,
    class_scope,
    count,
    nats,
    number,
    one_in,
    percent,
    probability,
    reading,
    sentence,
    setting_value,
    short,
    times,
    validity,
    visible,
)
from lmexposure.core import (
    Check,
    Outcome,
    Thresholds,
    Verdict,
    attainable_outcome,
    doubted,
    judged,
)
from lmexposure.errors import SettingsError
from lmexposure.statistics import EpsilonBound, GuessingTest
from lmexposure.studies.exposure.check_classes import (
    EXPOSURE_CHECKS,
    CanaryClass,
    Judged,
    as_check,
    check_class,
    check_enough,
    check_extraction,
    check_largest,
    check_median,
    check_p_value,
    check_quantile,
    check_test,
    classes_of,
    no_test,
)
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.parts import KindMembership
from lmexposure.studies.exposure.record import LEAST_GAIN, ResultNumbers, Validation
from lmexposure.studies.white_box import inside_checks

# A sound run is called into question by its controls once in a hundred, as by the leak checks: more
# often and people stop reading it, more rarely and a broken null goes unseen. Formats share it.
CONTROLS_LEVEL = 0.01
# How often, at most, a model that never read the canaries counts as one that did.
SEEN_LEVEL = 0.001
_SHARE = SEEN_LEVEL / 2  # Witnesses and classes of canaries share it.
# How the check of each verdict on a claim comes out.
_CLAIMS = {
    "contradicted": Outcome.LEAK,
    "consistent": Outcome.PASS,
    "cannot tell": Outcome.INCONCLUSIVE,
}
# What is said of a permutation test of coins.
_OF_COINS = {
    Outcome.LEAK: "{told} told from those that their coins left out better than chance explains: "
    "shuffled coins give as much in only 1 of {rare} tests (p = {p}; {limit} or less is a leak)",
    Outcome.INCONCLUSIVE: "the candidates or permutations are too few for p below {least}, and a "
    "leak takes {limit} (p = {p}); plan more candidates, or measure with more permutations",
    Outcome.PASS: "{told} not told from those that their coins left out (p = {p}; {limit} or less "
    "would be a leak); a few memorised among many could hide in their mean",
}
# What a bound is from, what is said where no attack is known, and what would show more.
_OF_CANARIES = (
    "canaries",
    "unknown",
    "insert more canaries, or each with probability 1/2 (--inclusion-probability 0.5)",
)
_OF_TEXTS = ("candidates", MISSING, "plan more candidates")


def check_controls(result: ResultNumbers, formats: list[str]) -> dict[str, Check]:
    """Whether controls, which the model never saw, look like chance; a check a format."""
    tests = {row.format: row.guessing_test for row in result.summary if row.role == "control"}
    chosen = [name for name in formats if name in tests]
    level = CONTROLS_LEVEL / max(1, len(chosen))
    return {name: _controls(name, tests[name], level) for name in chosen}


def _controls(name: str, test: GuessingTest | None, level: float) -> Check:
    p, outcome = None if test is None else test.p_value, Outcome.INCONCLUSIVE
    if p is None:
        reason = "the p-value of the controls is missing, so nothing shows that they are at chance"
    elif p <= level:
        reason = (
            f"the controls, which the model never saw, are not at chance (p = {probability(p)}, "
            f"at or below {short(level)}), so that no other number can be trusted: were they "
            "in the training data, or drawn in another way?"
        )
    else:
        reason = f"the controls are at chance (p = {probability(p)}, above {short(level)})"
        outcome = Outcome.PASS
    return as_check("controls", (outcome, reason), f"{visible(name)}, controls", p, level)


def check_learned(result: ResultNumbers) -> Check | None:
    """Whether the model learned at all; None where its validation loss is not known."""
    validation = result.model.validation
    if validation is None or not validation.has_loss:
        return None
    after, before = validation.validation_bits, validation.initial_validation_bits
    key = "validation"
    told = reading(after, EXPOSURE_CHECKS[key].unit)
    loss = f"validation loss {told}, {number(before, 3)} before training"
    found = Outcome.INCONCLUSIVE, f"the model did not learn ({loss}), so low exposure says nothing"
    if validation.improved:
        found = Outcome.PASS, f"the model learned: {loss}"
    return as_check(key, found, "", after, before)


def check_full(doubt: str, thresholds: Thresholds, *, leaks: bool) -> Check:
    """A quick look lets nothing pass unless the user takes its doubt; a leak stays a leak."""
    outcome = Outcome.NOT_TESTED
    if thresholds.accept_quick:
        reason = "a quick look was accepted"
    elif leaks:
        reason = "this was a quick look, so other leaks may have gone unseen"
    else:
        reason = (
            f"a quick look is too coarse for a pass: {doubt}; measure with --effort normal, or "
            "give --accept-quick"
        )
        outcome = Outcome.INCONCLUSIVE
    return as_check("accept_quick", (outcome, reason))


def check_epsilon(result: ResultNumbers, thresholds: Thresholds) -> Check | None:
    """Compare the primary lower bound on epsilon with the threshold that was asked for."""
    if thresholds.max_epsilon is None:
        return None
    privacy = result.privacy
    primary, attainable = (
        (None, None) if privacy is None else (privacy.primary, privacy.max_attainable)
    )
    missing = "the result holds no bound on epsilon; measure again with this version"
    return check_bound(primary, attainable, thresholds.max_epsilon, _OF_CANARIES, missing)


def check_claim(result: ResultNumbers) -> Check | None:
    """What the measurement said about the epsilon that was claimed."""
    wanted = result.settings.claimed_epsilon
    if wanted is None:
        return None
    claim, outcome = None if result.privacy is None else result.privacy.claim, Outcome.INCONCLUSIVE
    if claim is None:
        reason = (
            "an epsilon was claimed, and the result says nothing about it; measure again with this "
            "version"
        )
    else:
        outcome = _CLAIMS[claim.verdict]
        reason = (
            f"the claim of epsilon {setting_value(wanted)} at delta "
            f"{setting_value(claim.claimed_delta)} is {claim_word(claim.verdict)}: "
            f"{visible(claim.reason)}"
        )
        # The measurement decided how often a true claim is contradicted, not the gate.
        if claim.verdict == "contradicted" and claim.significance is not None:
            reason += (
                f"; a true claim would be contradicted in at most {percent(claim.significance)} of "
                "measurements, whatever the gate's own level"
            )
    bound = None if claim is None else claim.bound
    check = as_check("claimed_epsilon", (outcome, reason), "", bound, wanted)
    return replace(check, asked=True)


def check_inside(result: ResultNumbers, thresholds: Thresholds) -> Iterable[Check]:
    """What canaries in the gradients of a private training say of its claim, and of a threshold."""
    learned = result.model.validation
    claim = None if learned is None else learned.claim
    if claim is None or claim.white_box is None:
        return ()
    return inside_checks(claim.white_box, claim.promise, thresholds)


def check_bound(
    bound: EpsilonBound | None,
    attainable: float | None,
    most: float,
    words: tuple[str, str, str],
    missing: str,
    scope: str = "",
) -> Check:
    """A lower bound on epsilon against the threshold that was asked for."""
    if bound is None:
        return as_check("max_epsilon", (Outcome.INCONCLUSIVE, missing), scope, None, float(most))
    (texts, unknown, more), allowed = words, setting_value(most)
    said = (
        f"epsilon is at least {nats(bound.value)} nats (delta {short(bound.delta)}, significance "
        f"{short(bound.significance)}, holds for {validity(bound.validity)})"
    )
    shown = unknown if attainable is None else nats(attainable)
    outcome = attainable_outcome(bound.value > most, attainable is not None and attainable > most)
    reason = {
        Outcome.LEAK: f"the training is less private than the {allowed} allowed: {said}",
        Outcome.INCONCLUSIVE: f"{said}, and max attainable on these {texts} is {shown}, not above "
        f"the {allowed} allowed; {more}",
        Outcome.PASS: f"{said}, not above the {allowed} allowed; max attainable on these {texts} "
        f"is {shown}, and a stronger attack than this one may show more",
    }[outcome]
    return as_check("max_epsilon", (outcome, reason), scope, bound.value, float(most))


def check_kind(row: KindMembership, thresholds: Thresholds, share: float) -> list[Check]:
    """What is said of one class of chosen texts, which have no rank and no test but of coins."""
    scope, least = class_scope(row.format, row.repetitions), thresholds.min_canaries
    who = f"{row.canaries:,} chosen text{'s' * (row.canaries != 1)}"
    who, note = f"{who} inserted {times(row.repetitions)}", visible(row.note or "")
    there = f"{who} and {row.held_out:,} held out are"
    unseen = f"up to {percent(unseen_share(row.canaries))} of such texts may leak (95 % confidence)"
    enough = check_enough(
        min(row.canaries, row.held_out),
        least,
        scope,
        f"{there} enough; even if none of them leaks, {unseen}",
        f"{there} too few: {least} of each are needed; plan more candidates",
    )
    tests = []
    if thresholds.p_value is not False:
        missing = f"there is no p-value: {note}"
        tests.append(check_test(row.test, share, scope, _OF_COINS, missing, who, row.canaries))
    if thresholds.max_epsilon is not None:
        missing, bound = f"there is no bound on epsilon: {note}", row.bound
        most = None if bound is None else bound.max_attainable
        limit = thresholds.max_epsilon
        tests.append(check_bound(bound, most, limit, _OF_TEXTS, missing, scope))
    if enough.outcome is not Outcome.PASS:
        doubt = "the candidates are too few, so this is no pass"
        tests = [doubted(check, doubt, Outcome.PASS) for check in tests]
    untested = (
        f"no test was made of {who}: the p-value is switched off, and no epsilon was given; ask "
        "for one of them"
    )
    return [enough, *(tests or [no_test(scope, untested)])]


def check_seen(result: ResultNumbers, thresholds: Thresholds) -> Check:
    """Whether it is shown that the model read the canaries.

    A loss that fell shows it of no model: any text of the kind lowers it. Witnesses or a class of
    canaries do, known as an independent model knows them once in 1,000 times at most; or the record
    of a training (`_recorded`), for a private one, whose witnesses need not show. Where canaries
    are known to be unread none of this counts: witnesses, which are many, are known sooner.
    """
    lost = _lost(result)
    shown = None if lost else (_witnessed(result) or _class_known(result) or _recorded(result))
    if shown is not None:
        found: Judged = Outcome.PASS, shown
    elif thresholds.accept_unseen_training:
        found = (
            Outcome.NOT_TESTED,
            "whether the model saw the canaries was taken on the user's word",
        )
    else:
        found = Outcome.INCONCLUSIVE, lost or _not_shown(result)
    witness, key = result.witness, "accept_unseen_training"
    # Evidence of another kind is no number to be held against this level.
    if witness is None or (shown is not None and not _witnessed(result)):
        return as_check(key, found)
    return as_check(key, found, "", witness.chance, _SHARE)


def _witnessed(result: ResultNumbers) -> str | None:
    chance = None if result.witness is None else result.witness.chance
    if chance is None or chance > _SHARE:
        return None
    return (
        "the model read this corpus: it knows the witnesses as a model that never read them does "
        f"once in {one_in(chance)} times"
    )


def _class_known(result: ResultNumbers) -> str | None:
    """A class that the model knows, judged or not; not where its tokenizer may know them."""
    if result.witness is not None and result.witness.in_tokenizer:
        return None
    rows = [row for row in result.summary if row.role == "canary" and row.guessing_test]
    tests = [(row.guessing_test.p_value, row) for row in rows if row.guessing_test is not None]
    p, row = min(tests, key=lambda test: test[0], default=(1.0, None))
    if row is None or p * len(tests) > _SHARE:
        return None
    return (
        f"the model saw the canaries: it knows those that were inserted {times(row.repetitions)} "
        f"(p = {probability(p)})"
    )


def _recorded(result: ResultNumbers) -> str | None:
    """The record of a training, where it read every canary and learned."""
    validation = result.model.validation
    if validation is None or validation.delivered is None or not _learned(validation):
        return None
    witness = result.witness
    planned = sum(c.repetitions for c in result.canaries if c.role == "canary")
    planned += 0 if witness is None else witness.witnesses * witness.copies
    if validation.delivered < planned:
        return None
    copies = f"all {validation.delivered:,} copies that went in"
    read = (
        f"read {copies}"
        if validation.claim is None and not validation.foreign
        else f"drew from {copies} for {number(validation.best_epoch, 1)} epochs"
    )
    return (
        f"the model saw the canaries: its training {read}, and brought the validation loss to "
        f"{number(validation.validation_bits, 3)} bits per token"
    )


def _learned(validation: Validation) -> bool:
    known = validation.validation_bits, validation.initial_validation_bits, validation.unigram_bits
    after, before, unigram = known
    if after is None or before is None or unigram is None:
        return False
    return after < min(before, unigram) - LEAST_GAIN


def _lost(result: ResultNumbers) -> str | None:
    """What is known of canaries that the model did not read, whatever else it knows."""
    lacking = None if result.context is None else result.context.lacking
    if lacking:
        return (
            f"the rows of the training lack {count(lacking, 'planned copy', 'planned copies')} of "
            "canaries, or cut them, or gave them no loss. Let lmexposure verify --rows say which; "
            "where this does not matter, give --accept-unseen-training"
        )
    validation = result.model.validation
    if validation is not None and validation.best_epoch < 1:
        return (
            f"the checkpoint that was kept is of epoch {number(validation.best_epoch)}, before all "
            "canaries were read. Train for an epoch at least, or give --accept-unseen-training"
        )
    return None


def _not_shown(result: ResultNumbers) -> str:
    """What the witnesses say, what that may mean, and the way out."""
    witness = result.witness
    if witness is None:
        said = "its manifest has no witnesses, and it knows no class of canaries"
    elif witness.chance is None:
        said = f"its witnesses could not be scored ({witness.note or 'no tokens of their own'})"
    else:
        said = (
            f"it knows the witnesses no better than texts that it never saw (p = "
            f"{probability(witness.chance)}, {probability(_SHARE)} or less would show it)"
        )
    scored = result.model.type == "scores"
    beside = scored or (witness is not None and witness.beside_base)
    which = "which checkpoint was scored" if scored else "the model's path"
    return (
        f"nothing shows that this model saw the canaries: {said}. It may be another model, the "
        f"canaries may have been lost before the training, or its privacy works. Check {which}, "
        "let lmexposure verify --rows look at the training's rows, "
        + "measure with --base, " * (not beside)
        + "or give --accept-unseen-training"
    )


_ClassTest = Callable[[CanaryClass, Thresholds, float], Check | None]
# The tests of a class against chance, and whether thresholds ask for each: those that are made
# share the significance.
_CLASS_TESTS: tuple[tuple[_ClassTest, Callable[[Thresholds], bool]], ...] = (
    (check_p_value, lambda thresholds: thresholds.p_value is not False),
    (check_largest, lambda thresholds: True),
    (check_median, lambda thresholds: thresholds.median_exposure is not None),
    (check_quantile, lambda thresholds: thresholds.quantile_exposure is not None),
)
# Guessing finds a secret so rarely, in a space worth searching, that a tenth is more than enough;
# the tests that need every bit of it have the rest.
_FOR_EXTRACTION = 0.1
# What passed after a first look, by its check, and more references may bring past its threshold.
_CLOSER = {
    "p_value": "a smaller p-value",
    "max_epsilon": "a larger epsilon",
    "claimed_epsilon": "a larger epsilon",
}


_UNKNOWN_ROWS = (
    "The rows of the training are not known: behind other text than they were scored behind, the "
    "same secrets may leak far more; say what it was (--left-context), or let lmexposure verify "
    "--rows look."
)


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The significance of each check of each class, so that all together have it all."""

    extraction: float  # of the search in one class
    test: float  # of each other check in one class

    @classmethod
    def of(cls, thresholds: Thresholds, classes: int) -> "Shares":
        """The shares of each of several classes.

        Source: Bonferroni; no check needs to be independent of another.

        >>> shares = Shares.of(Thresholds(), 2)
        >>> round(shares.extraction, 6), round(shares.test, 6)
        (0.0005, 0.00225)
        """
        tests = _tests_of(thresholds)
        whole, count = thresholds.significance, max(1, classes)
        return cls(
            extraction=whole * _FOR_EXTRACTION / count,
            test=whole * (1 - _FOR_EXTRACTION) / (len(tests) * count),
        )


def exposure_checks(run: RunFiles, thresholds: Thresholds) -> Iterator[Check | str]:
    """Every check of a run, and of its look at memorised text where it has one.

    A secret found by guessing is a leak whatever else is wrong; where the controls of a format are
    not at chance, its other leaks are inconclusive.
    """
    of_look, thresholds = _parted(thresholds, run)
    result, most = run.result, thresholds.repetitions
    classes = classes_of(result, most=most)
    formats = list(dict.fromkeys(group.form.name for group in classes))
    controls = check_controls(result, formats)
    broken = {name for name, check in controls.items() if check.outcome is not Outcome.PASS}
    kinds = [row for row in result.kinds if most is None or row.repetitions <= most]
    shares = Shares.of(thresholds, len(classes) + len(kinds))
    checks = [
        *controls.values(),
        *_present([check_learned(result), check_seen(result, thresholds)]),
        *(
            made
            for group in classes
            for made in _checks_of(group, thresholds, shares, group.form.name in broken)
        ),
        *_doubted(_present([check_epsilon(result, thresholds), check_claim(result)]), bool(broken)),
        *check_inside(result, thresholds),
        *(made for row in kinds for made in check_kind(row, thresholds, shares.test)),
    ]
    checks = checks if classes else [_no_class(thresholds), *checks]
    untested = [*_untested(result, thresholds, [f for f in formats if f not in controls])]
    if run.look is not None:
        text = judged(run.look, of_look)
        checks, untested = [*checks, *text.checks], [*untested, *text.untested]
    elif run.look_left_out:
        untested.append(f"memorised text: {run.look_left_out}")
    if doubt := _doubt_of_quick(result, checks, classes):
        leaks = any(check.outcome is Outcome.LEAK for check in checks)
        checks.append(check_full(doubt, thresholds, leaks=leaks))
    yield from checks
    yield from untested


def _parted(thresholds: Thresholds, run: RunFiles) -> tuple[Thresholds, Thresholds]:
    """Those of memorised text, and those of canaries; where both rest on chance, each has half."""
    asked = {name: getattr(thresholds, name) for name in ("max_verbatim_run", "max_extractable")}
    given = [f"{name}={value!r}" for name, value in asked.items() if value is not None]
    if run.look is None:
        if given and run.look_left_out:
            raise SettingsError(f"{given[0]} cannot be tested: {run.look_left_out}")
        if given:
            raise SettingsError(
                f"{given[0]} is a threshold of a look at memorised text, and this is a run without "
                "one; leave it out, or look at memorised text first, into verbatim/ of the run"
            )
        return thresholds, thresholds
    level = thresholds.significance / (1 if given else 2)
    of_look = Thresholds(**asked, significance=level)
    own = replace(thresholds, max_verbatim_run=None, max_extractable=None, significance=level)
    return of_look, own


def rows_unknown(result: ResultNumbers) -> bool:
    """Whether nothing is known of the rows that the canaries were trained in."""
    return result.context is not None and result.context.source == "assumed"


def qualified(result: ResultNumbers, verdict: Verdict, thresholds: Thresholds) -> Verdict:
    """A pass says how far off a first look may be, and where it may have looked in vain."""
    if verdict.outcome is not Outcome.PASS:
        return verdict
    said = [verdict.sentence]
    classes = classes_of(result, most=thresholds.repetitions)
    doubt = _doubt_of_quick(result, verdict.checks, classes)
    if doubt and thresholds.accept_quick:
        said.append(sentence(f"a quick look was accepted: {doubt}"))
    if rows_unknown(result):
        said.append(_UNKNOWN_ROWS)
    return replace(verdict, sentence=" ".join(said))


def _doubt_of_quick(
    result: ResultNumbers, checks: Sequence[Check], classes: list[CanaryClass]
) -> str:
    """How far off the numbers of a first look may be; "" of a full one."""
    if not result.settings.quick:
        return ""
    gaps = [exposure.high - exposure.value for group in classes for exposure in group.known]
    passed = {check.key for check in checks if check.outcome is Outcome.PASS}
    closer = dict.fromkeys(found for key, found in _CLOSER.items() if key in passed)
    widest = max(gaps, default=0.0)
    if round(widest, 2) <= 0:
        found = " or ".join(closer) or "a leak that this one missed"
        return f"the full measurement may find {found}"
    return f"true exposures may be up to {bits(widest)} higher"


def _tests_of(thresholds: Thresholds) -> list[_ClassTest]:
    """The tests against chance that are made of each class."""
    return [test for test, is_made in _CLASS_TESTS if is_made(thresholds)]


def _checks_of(
    group: CanaryClass, thresholds: Thresholds, shares: Shares, broken: bool
) -> list[Check]:
    """What is said of one class."""
    preconditions = check_class(group, thresholds)
    tests = _present(test(group, thresholds, shares.test) for test in _tests_of(thresholds))
    made = [check_extraction(group, thresholds, shares.extraction), *_doubted(tests, broken)]
    if any(check.outcome is not Outcome.PASS for check in preconditions):
        doubt = "the canaries are too few or not all scored, so this is no pass"
        made = [doubted(check, doubt, Outcome.PASS) for check in made]
    elif all(check.outcome is Outcome.NOT_TESTED for check in tests):
        # Found by guessing or not, it is not passed.
        reason = (
            f"no test against chance could be made of {group.secrets}; judge fewer classes, insert "
            "more canaries, or measure with more references or permutations"
        )
        preconditions.append(no_test(group.scope, reason))
    return [*preconditions, *made]


def _present(checks: Iterable[Check | None]) -> list[Check]:
    return [check for check in checks if check is not None]


def _doubted(checks: Iterable[Check], broken: bool) -> list[Check]:
    """Where the null does not hold, what rests on it is no leak and no pass."""
    doubt = "the controls are not at chance, so nothing follows"
    outcomes = (Outcome.LEAK, Outcome.PASS) if broken else ()
    return [doubted(check, doubt, *outcomes) for check in checks]


def _no_class(thresholds: Thresholds) -> Check:
    most = thresholds.repetitions
    which = "" if most is None else f" inserted {times(most)} or fewer"
    return no_test("", f"there are no canaries{which}, so there is nothing to judge")


def _untested(
    result: ResultNumbers, thresholds: Thresholds, without_controls: Sequence[str]
) -> Iterator[str]:
    """Classes that are not judged, what was not asked for, and what is not known."""
    most = thresholds.repetitions
    if most is not None:
        there = {repetitions for _, _, repetitions in result.classes}
        for count in sorted(there | {row.repetitions for row in result.kinds}):
            if count > most:
                yield f"canaries inserted {times(count)}: more than the {most} judged"
    if thresholds.p_value is False:
        yield "p-value against guessing: switched off"
    if thresholds.median_exposure is None and thresholds.quantile_exposure is None:
        yield "median and quantiles of exposure: no threshold was given"
    claimed = result.privacy is not None and result.privacy.claim is not None
    if thresholds.max_epsilon is None and not claimed:
        yield "epsilon: no threshold was given, and the result holds no claim"
    for name in without_controls:
        yield f"whether controls are at chance: {visible(name)} has no controls"
    if rows_unknown(result):
        yield "whether canaries were scored as they were trained: those rows are not known"
    validation = result.model.validation
    if validation is None or not validation.has_loss:
        yield "whether the model learned: its validation loss is not known"
