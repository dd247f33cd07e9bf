"""The gate: every check of a result, and the one verdict that they come to.

A new check is a function next to its like (of a class: check_exposure.py; of the whole run:
check_epsilon.py), with a `CheckKind` before it. Here it has a line in `EXPOSURE_CHECKS`, and one
where it is made: in `_CLASS_TESTS` for a check of a class that has a share of the significance, in
`exposure_checks` for one of the whole run. Without a threshold that was given it returns None.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lmexposure._style import bits, sentence, times, visible
from lmexposure.core import Check, CheckKind, Outcome, Thresholds, Verdict, judged
from lmexposure.errors import SettingsError
from lmexposure.studies.exposure.check_epsilon import (
    CLAIM,
    EPSILON,
    check_claim,
    check_epsilon,
    check_inside,
)
from lmexposure.studies.exposure.check_exposure import (
    LARGEST,
    MEDIAN,
    P_VALUE,
    QUANTILE,
    check_largest,
    check_median,
    check_p_value,
    check_quantile,
)
from lmexposure.studies.exposure.check_extraction import GUESSES, check_extraction
from lmexposure.studies.exposure.check_kinds import check_kind, kinds_of
from lmexposure.studies.exposure.check_seen import SEEN, check_seen
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.judged import CanaryClass, classes_of
from lmexposure.studies.exposure.preconditions import (
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
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.verbatim_record import VERBATIM_CHECKS

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

    A secret that is found by guessing is a leak whatever else is wrong. Where the controls of a
    format are not at chance, its other leaks are inconclusive.

    Raises:
        SettingsError: a threshold of memorised text, and there is no look.
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
