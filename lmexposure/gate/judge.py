"""All checks of a result, and the one verdict that they come to."""

from collections.abc import Iterable
from dataclasses import replace

from lmexposure._style import bits, sentence, times
from lmexposure._text import visible
from lmexposure._validate import of_type
from lmexposure.gate.chance import Shares
from lmexposure.gate.classes import CanaryClass, classes_of
from lmexposure.gate.epsilon import check_claim, check_epsilon
from lmexposure.gate.extraction import check_extraction
from lmexposure.gate.largest import check_largest
from lmexposure.gate.p_value import check_p_value
from lmexposure.gate.preconditions import check_class, check_controls, check_learned
from lmexposure.gate.quantiles import check_quantiles
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome, Verdict, verdict_of
from lmexposure.records import (
    Measured,
    Result,
    run_of,
)

# What passed after a first look, by its check, and more references may bring past its threshold.
_CLOSER = {
    "p_value": "a smaller p-value",
    "max_epsilon": "a larger epsilon",
    "claimed_epsilon": "a larger epsilon",
}


def check(measured: Measured, thresholds: Thresholds | None = None) -> Verdict:
    """Hold a measurement against thresholds.

    A secret that is found by guessing is a leak whatever else is wrong. Where the controls of a
    format are not at chance, its other leaks are inconclusive. Any leak left makes the verdict a
    leak; else anything inconclusive makes it inconclusive; a pass needs at least one check of
    every class of canaries, none of which failed.

    Args:
        measured: a result in memory, what `open_run` gave, or the path of a run directory or a
            result.json.
        thresholds: what the model may show; None: the defaults.

    Returns:
        The verdict, from which every output is made.

    Raises:
        ResultError, ManifestError: no measurement, or one that cannot be read; see `open_run`.
        SettingsError: thresholds that are no `Thresholds`.
    """
    thresholds = Thresholds() if thresholds is None else thresholds
    of_type(
        "thresholds", thresholds, Thresholds, "Thresholds(...), such as Thresholds(max_guesses=100)"
    )
    result = run_of(measured).result
    classes = classes_of(result, most=thresholds.repetitions)
    formats = list(dict.fromkeys(one.form.name for one in classes))
    controls = check_controls(result, formats)
    broken = {name for name, check in controls.items() if check.outcome is not Outcome.PASS}
    shares = Shares.of(thresholds, len(classes))
    checks = [
        *controls.values(),
        *_present([check_learned(result)]),
        *(one for c in classes for one in _checks_of(c, thresholds, shares, c.form.name in broken)),
        *_doubted(_present([check_epsilon(result, thresholds), check_claim(result)]), bool(broken)),
    ]
    untested = [
        *_left_out(result, thresholds),
        *(
            f"whether chance looks like chance: {visible(name)} has no controls"
            for name in formats
            if name not in controls
        ),
    ]
    if result.model.validation is None:
        untested.append("whether the model learned: its validation loss is not known")
    verdict = verdict_of(checks if classes else [_nothing(thresholds), *checks], untested)
    return _looked_quickly(verdict, classes) if result.settings.quick else verdict


def _looked_quickly(verdict: Verdict, classes: list[CanaryClass]) -> Verdict:
    """A pass after a first look says how far off its numbers may be."""
    if verdict.outcome is not Outcome.PASS:
        return verdict
    gaps = [exposure.high - exposure.value for one in classes for exposure in one.known]
    passed = {check.key for check in verdict.checks if check.outcome is Outcome.PASS}
    closer = dict.fromkeys(found for key, found in _CLOSER.items() if key in passed)
    also = f", or find {' or '.join(closer)}" if closer else ""
    doubt = (
        "This was a quick look: an exposure may be up to "
        f"{bits(max(gaps))} above the one shown, and the full measurement may call a leak what "
        f"lies so far below a threshold{also}; measure in full before a release."
    )
    return replace(verdict, sentence=f"{verdict.sentence} {doubt}")


def _checks_of(
    one: CanaryClass, thresholds: Thresholds, shares: Shares, broken: bool
) -> list[Check]:
    """What is said of one class."""
    sound = check_class(one, thresholds)
    tests = _present(
        [
            check_p_value(one, thresholds, shares.test),
            check_largest(one, thresholds, shares.test),
            *check_quantiles(one, thresholds, shares.test),
        ]
    )
    made = [check_extraction(one, thresholds, shares.extraction), *_doubted(tests, broken)]
    if any(check.outcome is not Outcome.PASS for check in sound):
        made = [_not_passed(check) for check in made]
    elif all(check.outcome is Outcome.NOT_TESTED for check in tests):
        sound.append(_untold(one))
    return [*sound, *made]


def _present(checks: Iterable[Check | None]) -> list[Check]:
    return [check for check in checks if check is not None]


def _doubted(checks: list[Check], broken: bool) -> list[Check]:
    """Where the null does not hold, what rests on it is no leak and no pass."""
    doubt = " But the controls are not at chance, so that nothing follows."
    return [
        replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + doubt)
        if broken and check.outcome in (Outcome.LEAK, Outcome.PASS)
        else check
        for check in checks
    ]


def _not_passed(check: Check) -> Check:
    """Too few canaries, or canaries without a score, pass nothing."""
    if check.outcome is not Outcome.PASS:
        return check
    doubt = " But the canaries are too few or not whole, so that this is no pass."
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + doubt)


def _untold(one: CanaryClass) -> Check:
    """A class that no test against chance was made of is not passed, found by guessing or not."""
    reason = (
        f"no test against chance could be made of {one.secrets}; judge fewer classes, insert more "
        "canaries, or measure with more references or permutations"
    )
    return _about(one.scope, reason)


def _nothing(thresholds: Thresholds) -> Check:
    most = thresholds.repetitions
    which = "" if most is None else f" inserted {times(most)} or fewer"
    return _about("", f"there are no canaries{which}, so there is nothing to judge")


def _about(scope: str, reason: str) -> Check:
    return Check(
        name="tested against chance",
        key="classes",
        scope=scope,
        outcome=Outcome.INCONCLUSIVE,
        reason=sentence(reason),
    )


def _left_out(result: Result, thresholds: Thresholds) -> list[str]:
    """What nobody asked for, and classes that are not judged."""
    lines = []
    most = thresholds.repetitions
    if most is not None:
        lines += [
            f"canaries inserted {times(count)}: more than the {most} judged"
            for count in sorted({repetitions for _, _, repetitions in result.classes})
            if count > most
        ]
    if thresholds.p_value is False:
        lines.append("p-value against guessing: switched off")
    if thresholds.median_exposure is None and thresholds.quantile_exposure is None:
        lines.append("median and quantiles of exposure: no threshold was given")
    claimed = result.privacy is not None and result.privacy.claim is not None
    if thresholds.max_epsilon is None and not claimed:
        lines.append("epsilon: no threshold was given, and the result holds no claim")
    return lines
