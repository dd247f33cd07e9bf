"""The gate: every check of a result, the one verdict that they come to, and what it rests on.

A new check is a function next to its like (of a class: check_classes.py; of the whole run:
check_privacy.py), with a `CheckKind` before it. Here it has a line in `EXPOSURE_CHECKS`, and one
where it is made: in `_CLASS_TESTS` for a check of a class that has a share of the significance, in
`exposure_checks` for one of the whole run. Without a threshold that was given it returns None.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lmexposure._quantiles import unseen_share
from lmexposure._style import (
    are,
    bits,
    count,
    number,
    one_in,
    percent,
    probability,
    reading,
    sentence,
    short,
    times,
    visible,
)
from lmexposure.core import Check, CheckKind, Outcome, Thresholds, Verdict, judged
from lmexposure.errors import SettingsError
from lmexposure.statistics import GuessingTest
from lmexposure.studies.exposure.check_classes import (
    GUESSES,
    LARGEST,
    MEDIAN,
    P_VALUE,
    QUANTILE,
    CanaryClass,
    check_extraction,
    check_largest,
    check_median,
    check_p_value,
    check_quantile,
    classes_of,
    enough_canaries,
    no_test,
    not_passed,
)
from lmexposure.studies.exposure.check_privacy import (
    CLAIM,
    EPSILON,
    check_claim,
    check_epsilon,
    check_inside,
    check_kind,
    kinds_of,
)
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.record import LEAST_GAIN, ResultNumbers, Validation
from lmexposure.studies.verbatim_record import VERBATIM_CHECKS

# A sound run is called into question by its controls once in a hundred, as by the leak checks: more
# often and people stop reading it, more rarely and a broken null goes unseen. Formats share it.
CONTROLS_LEVEL = 0.01

_LOSS = "bits per token"

CONTROLS = CheckKind(
    help="Controls were drawn like the canaries and never inserted. Where they do not look "
    "like chance, no other number can be trusted.",
    remedy="Find out why the controls are not at chance: they must stay out of the training "
    "data, and be drawn like the canaries. Until then no number counts.",
    precondition=True,
    scopes="formats",
)
LEARNED = CheckKind(
    help="A model that did not learn has memorised nothing, which says nothing about "
    "a model that did. Train longer or with another learning rate.",
    remedy="Train until the validation loss falls, with more epochs or another learning "
    "rate: a model that learned nothing leaks nothing.",
    precondition=True,
)
SCORES = CheckKind(
    help="A canary without a score or an exposure was not tested. Measure again.",
    remedy="Measure again, so that every canary has a score and an exposure.",
    precondition=True,
)
QUICK = CheckKind(
    help="A quick look makes a tenth of the references and of the search, so that what it finds "
    "is a leak, and what it does not find may be one.",
    remedy="Measure in full, without --quick.",
    precondition=True,
    of_depth=True,
    said_doubt="this was a quick look",
)
ENOUGH = CheckKind(
    help="There are too few canaries to show that secrets do not leak: a leak of some "
    "secrets would go unseen. Insert more.",
    remedy="Insert more canaries of each class (--canaries), and train again.",
    precondition=True,
)


def check_class(group: CanaryClass, thresholds: Thresholds) -> list[Check]:
    """Whether the canaries of a class are enough, and all of them measured."""
    return [_enough(group, thresholds), _whole(group)]


def check_controls(result: ResultNumbers, formats: list[str]) -> dict[str, Check]:
    """Whether controls, which the model never saw, look like chance; a check a format."""
    tests = {row.format: row.guessing_test for row in result.summary if row.role == "control"}
    chosen = [name for name in formats if name in tests]
    level = CONTROLS_LEVEL / max(1, len(chosen))
    return {name: _controls(name, tests[name], level) for name in chosen}


def check_learned(result: ResultNumbers) -> Check | None:
    """Whether the model learned at all; None where its validation loss is not known."""
    validation = result.model.validation
    if validation is None or not validation.has_loss:
        return None
    after, before = validation.validation_bits, validation.initial_validation_bits
    loss = f"validation loss {reading(after, _LOSS)}, {number(before, 3)} before training"
    return Check(
        name="model learned",
        key="validation",
        outcome=Outcome.PASS if validation.improved else Outcome.INCONCLUSIVE,
        value=after,
        threshold=before,
        unit=_LOSS,
        reason=sentence(
            f"the model learned: {loss}"
            if validation.improved
            else f"the model did not learn ({loss}), so low exposure says nothing"
        ),
    )


def check_full(doubt: str, thresholds: Thresholds, *, leaks: bool) -> Check:
    """A quick look lets nothing pass unless the user takes its doubt; a leak stays a leak."""
    reason = f"a quick look is no pass: {doubt}; measure in full, or give --accept-quick"
    if thresholds.accept_quick:
        reason = "--quick was accepted"
    elif leaks:
        reason = "this was a quick look, so other leaks may have gone unseen"
    return Check(
        name="measured in full",
        key="accept_quick",
        outcome=(Outcome.NOT_TESTED if leaks or thresholds.accept_quick else Outcome.INCONCLUSIVE),
        reason=sentence(reason),
    )


def _enough(group: CanaryClass, thresholds: Thresholds) -> Check:
    enough = group.n >= thresholds.min_canaries
    if enough:
        reason = (
            f"{group.secrets} {are(group.n)} enough; even if none of them leaks, up to "
            f"{percent(unseen_share(group.n))} of such secrets may leak (95 % confidence)"
        )
    else:
        reason = (
            f"{group.secrets} {are(group.n)} too few: {thresholds.min_canaries} are "
            f"needed; even if none of {group.n} leaks, up to {percent(unseen_share(group.n))} "
            "of such secrets may leak (95 % confidence)"
        )
    return enough_canaries(group.n, group.scope, thresholds, reason)


def _whole(group: CanaryClass) -> Check:
    """Every canary has its score and exposure."""
    missing = sum(exposure is None for exposure in group.exposures)
    if missing:
        reason = (
            f"{missing} of {group.secrets} {are(missing)} without a log-perplexity or an exposure; "
            "measure again, or with another method"
        )
    else:
        reason = f"all {group.secrets} have a log-perplexity and an exposure"
    return Check(
        name="all canaries scored",
        key="scores",
        scope=group.scope,
        outcome=Outcome.INCONCLUSIVE if missing else Outcome.PASS,
        value=float(missing),
        threshold=0.0,
        unit="canaries",
        reason=sentence(reason),
    )


def _controls(name: str, test: GuessingTest | None, level: float) -> Check:
    p = None if test is None else test.p_value
    if p is None:
        reason = "the p-value of the controls is missing, so nothing shows that the null holds"
    elif p <= level:
        reason = (
            f"the controls, which the model never saw, are not at chance (p = {probability(p)}, "
            f"at or below {short(level)}), so that no other number can be trusted: were they "
            "in the training data, or drawn in another way?"
        )
    else:
        reason = f"the controls are at chance (p = {probability(p)}, above {short(level)})"
    return Check(
        name="controls at chance",
        key="controls",
        scope=f"{visible(name)}, controls",
        outcome=Outcome.INCONCLUSIVE if p is None or p <= level else Outcome.PASS,
        value=p,
        threshold=level,
        reason=sentence(reason),
    )


# How often, at most, a model that never read the canaries counts as one that did.
SEEN_LEVEL = 0.001
# Witnesses and classes of canaries share it.
_SHARE = SEEN_LEVEL / 2

SEEN: CheckKind = CheckKind(
    help="Low exposure means something only of a model that was trained on the canaries. A base in "
    "place of its fine-tune, another corpus' manifest, canaries lost before the training: each "
    "looks like a model that keeps secrets.",
    remedy="Check that this is the model that was trained on this manifest's corpus, and look at "
    "the trainer's rows (lmexposure verify --rows); measure with --base, which shows smaller "
    "traces; or take it on your own word (--accept-unseen-training).",
    precondition=True,
)


def check_seen(result: ResultNumbers, thresholds: Thresholds) -> Check:
    """Whether it is shown that the model read the canaries.

    A loss that fell shows it of no model: any text of the kind lowers it. Witnesses or a class of
    canaries do, known as an independent model knows them once in 1,000 times at most; or the record
    of a training (`_recorded`), for a private one, whose witnesses need not show. Where canaries
    are known to be unread none of this counts: witnesses, which are many, are known sooner.
    """
    lost = _lost(result)
    shown = None if lost else (_witnessed(result) or _class_known(result) or _recorded(result))
    outcome, reason = Outcome.PASS, shown
    if shown is None and thresholds.accept_unseen_training:
        outcome = Outcome.NOT_TESTED
        reason = "whether the model saw the canaries was taken on the user's word"
    elif shown is None:
        outcome = Outcome.INCONCLUSIVE
        reason = lost or _not_shown(result)
    witness = result.witness
    # Evidence of another kind is no number to be held against this level.
    compared = witness is not None and (outcome is not Outcome.PASS or bool(_witnessed(result)))
    return Check(
        name="model saw the canaries",
        key="accept_unseen_training",
        outcome=outcome,
        value=witness.chance if witness is not None and compared else None,
        threshold=_SHARE if compared else None,
        reason=sentence(reason or ""),
    )


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
    """The record of a training, where it read every canary and learned.

    It must have come below its own beginning, by which a pretrained model is measured, and below
    the frequencies of tokens alone, with a whole epoch behind the checkpoint that was kept.
    """
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
    return (
        f"nothing shows that this model saw the canaries: {said}. It may be another model, the "
        "canaries may have been lost before the training, or its privacy works. Check the model's "
        "path, let lmexposure verify --rows look at the training's rows, measure with --base, or "
        "give --accept-unseen-training"
    )


_CLASSES = CheckKind(
    help="There was nothing that a check could judge.",
    remedy="Insert more canaries (--canaries), or measure with more --references, so that "
    "every class can be tested.",
    precondition=True,
)
# Every check by its key, in the order in which a reader should hear of it: of leaks the most
# convincing first, for a secret found by guessing needs no statistics; of preconditions what makes
# everything else doubtful.
EXPOSURE_CHECKS: dict[str, CheckKind] = {
    "max_guesses": GUESSES,
    **{key: VERBATIM_CHECKS[key] for key in ("max_verbatim_run", "max_extractable", "memorised")},
    "claimed_epsilon": CLAIM,
    "max_epsilon": EPSILON,
    "max_exposure": LARGEST,
    "median_exposure": MEDIAN,
    "quantile_exposure": QUANTILE,
    "p_value": P_VALUE,
    "controls": CONTROLS,
    "validation": LEARNED,
    "accept_unseen_training": SEEN,
    "scores": SCORES,
    **{key: VERBATIM_CHECKS[key] for key in ("covered", "guessing")},
    "min_canaries": ENOUGH,
    "classes": _CLASSES,
    "accept_quick": QUICK,
}

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
    result = run.result
    classes = classes_of(result, most=thresholds.repetitions)
    formats = list(dict.fromkeys(group.form.name for group in classes))
    controls = check_controls(result, formats)
    broken = {name for name, check in controls.items() if check.outcome is not Outcome.PASS}
    kinds = kinds_of(result, most=thresholds.repetitions)
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
    also = f", or find {' or '.join(closer)}" if closer else ""
    return (
        f"an exposure may be up to {bits(widest)} above the one shown, and the full measurement "
        f"may call a leak what lies that far below a threshold{also}"
    )


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
        doubt = "canaries are too few or not all scored"
        made = [not_passed(check, doubt) for check in made]
    elif all(check.outcome is Outcome.NOT_TESTED for check in tests):
        preconditions.append(_no_test(group))
    return [*preconditions, *made]


def _present(checks: Iterable[Check | None]) -> list[Check]:
    return [check for check in checks if check is not None]


def _doubted(checks: list[Check], broken: bool) -> list[Check]:
    """Where the null does not hold, what rests on it is no leak and no pass."""
    doubt = " But the controls are not at chance, so nothing follows."
    return [
        replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + doubt)
        if broken and check.outcome in (Outcome.LEAK, Outcome.PASS)
        else check
        for check in checks
    ]


def _no_test(group: CanaryClass) -> Check:
    """A class that no test against chance was made of is not passed, found by guessing or not."""
    reason = (
        f"no test against chance could be made of {group.secrets}; judge fewer classes, insert "
        "more canaries, or measure with more references or permutations"
    )
    return no_test(group.scope, reason)


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
