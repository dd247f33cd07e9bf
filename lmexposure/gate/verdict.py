"""The gate: every check of a result, and the one verdict that they come to.

A new check is a function next to its like (of a class: exposure.py; of the whole run: epsilon.py),
with a `CheckKind` before it. Here it has a line in `CHECK_KINDS`, and one where it is made: in
`_CLASS_TESTS` for a check of a class that has a share of the significance, in `check` for one of
the whole run. Without a threshold that was given it returns None.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lmexposure._style import bits, sentence, times
from lmexposure._text import visible
from lmexposure._validate import of_type
from lmexposure.core import Check, CheckKind, Outcome, Thresholds, Verdict, judged, verdict_of
from lmexposure.gate.checks import CanaryClass, classes_of
from lmexposure.gate.epsilon import CLAIM, EPSILON, check_claim, check_epsilon, check_inside
from lmexposure.gate.exposure import (
    LARGEST,
    MEDIAN,
    P_VALUE,
    QUANTILE,
    check_largest,
    check_median,
    check_p_value,
    check_quantile,
)
from lmexposure.gate.extraction import GUESSES, check_extraction
from lmexposure.gate.kinds import check_kind, kinds_of
from lmexposure.gate.preconditions import (
    CONTROLS,
    ENOUGH,
    LEARNED,
    QUICK,
    SCORES,
    check_class,
    check_controls,
    check_full,
    check_learned,
)
from lmexposure.gate.seen import SEEN, check_seen
from lmexposure.gate.thresholds import refuse_other_thresholds
from lmexposure.studies import (
    VERBATIM_CHECKS,
    Measured,
    Result,
    run_of,
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
CHECK_KINDS: dict[str, CheckKind] = {
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


def check(measured: Measured, thresholds: Thresholds | None = None) -> Verdict:
    """Check a measurement.

    A secret that is found by guessing is a leak whatever else is wrong. Where the controls of a
    format are not at chance, its other leaks are inconclusive. Any leak left makes the verdict a
    leak; else anything inconclusive makes it inconclusive; a pass needs at least one check of
    every class of canaries, none of which failed. Where a run has a look at memorised text, its
    checks are made too (`RunFiles.look`).

    Args:
        measured: a result in memory, what `open_run` gave, or the path of a run directory or a
            result.json.
        thresholds: what the model may show; None: the defaults.

    Returns:
        The verdict, from which every output is made.

    Raises:
        ResultError, ManifestError: no measurement, or one that cannot be read; see `open_run`.
        SettingsError: thresholds that are no `Thresholds`, or one that belongs to something else.
    """
    thresholds = Thresholds() if thresholds is None else thresholds
    of_type(
        "thresholds", thresholds, Thresholds, "Thresholds(...), such as Thresholds(max_guesses=100)"
    )
    run = run_of(measured)
    of_look, thresholds = (None, thresholds) if run.look is None else _parted(thresholds)
    refuse_other_thresholds(thresholds)
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
    doubt = _doubt_of_quick(checks, classes) if result.settings.quick else ""
    if doubt:
        leaks = any(check.outcome is Outcome.LEAK for check in checks)
        checks.append(check_full(doubt, thresholds, leaks=leaks))
    verdict = verdict_of(checks, untested, CHECK_KINDS)
    verdict = _of_accepted_quick(verdict, doubt) if thresholds.accept_quick else verdict
    return _of_unknown_rows(verdict) if rows_unknown(result) else verdict


def _parted(thresholds: Thresholds) -> tuple[Thresholds, Thresholds]:
    """Those of memorised text, and those of canaries; where both rest on chance, each has half."""
    asked = thresholds.max_verbatim_run, thresholds.max_extractable
    level = thresholds.significance / (2 if asked == (None, None) else 1)
    of_looks = Thresholds(max_verbatim_run=asked[0], max_extractable=asked[1], significance=level)
    own = replace(thresholds, max_verbatim_run=None, max_extractable=None, significance=level)
    return of_looks, own


def rows_unknown(result: Result) -> bool:
    """Whether nothing is known of the rows that the canaries were trained in."""
    return result.context is not None and result.context.source == "assumed"


def _of_unknown_rows(verdict: Verdict) -> Verdict:
    """A pass says that it may have looked in the wrong place; a leak is one all the same."""
    if verdict.outcome is not Outcome.PASS:
        return verdict
    doubt = (
        "The rows of the training are not known: behind other text than they were scored behind, "
        "the same secrets may leak far more; say what it was (--left-context), or let lmexposure "
        "verify --rows look."
    )
    return replace(verdict, sentence=f"{verdict.sentence} {doubt}")


def _of_accepted_quick(verdict: Verdict, doubt: str) -> Verdict:
    """A pass after a first look says how far off its numbers may be."""
    if verdict.outcome is not Outcome.PASS or not doubt:
        return verdict
    said = sentence(f"a quick look was accepted: {doubt}")
    return replace(verdict, sentence=f"{verdict.sentence} {said}")


def _doubt_of_quick(checks: Sequence[Check], classes: list[CanaryClass]) -> str:
    """How far off the numbers of a first look may be."""
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
        made = [_not_passed(check) for check in made]
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


def _not_passed(check: Check) -> Check:
    """Too few canaries, or canaries without a score, make no pass."""
    if check.outcome is not Outcome.PASS:
        return check
    doubt = " But the canaries are too few or not all scored, so this is no pass."
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + doubt)


def _no_test(group: CanaryClass) -> Check:
    """A class that no test against chance was made of is not passed, found by guessing or not."""
    reason = (
        f"no test against chance could be made of {group.secrets}; judge fewer classes, insert "
        "more canaries, or measure with more references or permutations"
    )
    return _unjudged(group.scope, reason)


def _no_class(thresholds: Thresholds) -> Check:
    most = thresholds.repetitions
    which = "" if most is None else f" inserted {times(most)} or fewer"
    return _unjudged("", f"there are no canaries{which}, so there is nothing to judge")


def _unjudged(scope: str, reason: str) -> Check:
    return Check(
        name="tested against chance",
        key="classes",
        scope=scope,
        outcome=Outcome.INCONCLUSIVE,
        reason=sentence(reason),
    )


def _untested(
    result: Result, thresholds: Thresholds, without_controls: Sequence[str]
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
