"""The gate of a sweep: whether its models may be believed, its checks, and what they come to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lmexposure._quantiles import unseen_share
from lmexposure._style import count, number, percent, reading, sentence, short, visible
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.sweep_coins import (
    EPSILON,
    GUESSED_COINS,
    check_guessed_coins,
    check_sweep_epsilon,
)
from lmexposure.studies.sweep_result import MOST_LOST, SweepNumbers
from lmexposure.studies.sweep_worst import (
    WORST_CANARY,
    WORST_DOCUMENT,
    WORST_TPR,
    check_worst_canary,
    check_worst_document,
)

_LOSS = "bits per token"
_DOUBT = " But too many models are missing, so nothing follows."
_NO_PASS = " But models that learned, or canaries that can be judged, are too few for a pass."


# Each by its key: of leaks the most convincing first, then whether the models may be believed.
SWEEP_CHECKS: Mapping[str, CheckKind] = {
    "max_epsilon": EPSILON,
    "max_worst_tpr": WORST_TPR,
    "worst_canary": WORST_CANARY,
    "worst_document": WORST_DOCUMENT,
    "guessed_coins": GUESSED_COINS,
    "failed_models": CheckKind(
        help="Models of the sweep that have no scores. Where they are many, those that are left "
        "may differ from them, and nothing follows.",
        remedy="Find out why these models failed (failed/ in the sweep's directory, sweep.json), "
        "remove their records there, and give the command of the sweep again.",
        precondition=True,
    ),
    "validation": CheckKind(
        help="Models that did not learn have memorised nothing, which says nothing about models "
        "that did.",
        remedy="Train until the validation loss falls, with more epochs or another learning "
        "rate: a model that learned nothing leaks nothing.",
        precondition=True,
    ),
    "scores": CheckKind(
        help="A canary that was in all models, or in none, cannot be compared with itself.",
        remedy="Train more models (--models), so that every canary is in some and not in others.",
        precondition=True,
    ),
    "min_canaries": CheckKind(
        help="There are too few canaries to show that secrets do not leak: a leak of some secrets "
        "would go unseen.",
        remedy="Insert more canaries of each class (--canaries), and train again.",
        precondition=True,
    ),
}


def sweep_checks(result: SweepNumbers, thresholds: Thresholds) -> Iterator[Check | str]:
    """What many models show against thresholds.

    Where nothing is asked for, three tests against chance share the significance: the worst canary,
    the worst ordinary document, and the coins of all canaries together. `max_worst_tpr` takes the
    place of the first two, `max_epsilon` that of the last.
    """
    there = _all_there(result)
    power = [_learned(result), _enough(result, thresholds), _judged(result)]
    made = list(_checks_by_chance(result, thresholds))
    if any(check.outcome is not Outcome.PASS for check in power):
        made = [_no_pass(check) for check in made]
    if there.outcome is not Outcome.PASS:
        made = [_doubted(check) for check in made]
    yield from [there, *power, *made]
    yield from _untested(result, thresholds)


def _checks_by_chance(result: SweepNumbers, thresholds: Thresholds) -> Sequence[Check]:
    """The checks that share the significance, or keep to what was asked for."""
    wanted = [result.texts, result.worst_of_population]
    judged = sum(bool(part) for part in wanted)
    judged += thresholds.max_epsilon is None and result.epsilon.primary is not None
    share = thresholds.significance / max(1, judged)
    made = [
        check_worst_canary(result, thresholds, share),
        check_worst_document(result, thresholds, share),
        check_guessed_coins(result, share) if thresholds.max_epsilon is None else None,
        check_sweep_epsilon(result, thresholds),
    ]
    return [check for check in made if check is not None]


def _doubted(check: Check) -> Check:
    if check.outcome not in (Outcome.LEAK, Outcome.PASS):
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + _DOUBT)


def _no_pass(check: Check) -> Check:
    if check.outcome is not Outcome.PASS:
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + _NO_PASS)


def _all_there(result: SweepNumbers) -> Check:
    models, lost = result.settings.models, result.lost
    most = int(MOST_LOST * models)
    if lost <= most:
        reason = f"{result.models:,} of {count(models, 'model')} have scores"
    else:
        first = result.failed[0]
        reason = (
            f"{lost:,} of {count(models, 'model')} have no scores, and at most {most:,} may lack "
            "them: those that are left may not be like the others (model "
            f"{first.number}: {visible(first.reason)})"
        )
    return Check(
        name="models trained",
        key="failed_models",
        outcome=Outcome.PASS if lost <= most else Outcome.INCONCLUSIVE,
        value=float(lost),
        threshold=float(most),
        unit="models",
        reason=sentence(reason),
    )


def _learned(result: SweepNumbers) -> Check:
    utility, models = result.utility, result.models
    loss = (
        f"mean validation loss {reading(utility.mean, _LOSS)}, {number(utility.initial, 3)} "
        "before training"
    )
    enough = models > 0 and utility.learned >= (1 - MOST_LOST) * models
    learned = f"{utility.learned:,} of {count(models, 'model')} learned"
    return Check(
        name="models learned",
        key="validation",
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=utility.mean,
        threshold=utility.initial,
        unit=_LOSS,
        reason=sentence(
            f"{learned}: {loss}"
            if enough
            else f"only {learned} ({loss}), and one that learned nothing leaks nothing"
        ),
    )


def _enough(result: SweepNumbers, thresholds: Thresholds) -> Check:
    canaries, least = result.canaries, thresholds.min_canaries
    named = count(canaries, "canary", "canaries")
    may = (
        ""
        if canaries == 0
        else (
            f"; even if none of them leaks, up to {percent(unseen_share(canaries))} of such "
            "secrets may leak (95 % confidence)"
        )
    )
    enough = canaries >= least
    return Check(
        name="enough canaries",
        key="min_canaries",
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=float(canaries),
        threshold=float(least),
        unit="canaries",
        reason=sentence(
            f"{named} {'are enough' if enough else f'are too few: {least} are needed'}{may}"
        ),
    )


def _judged(result: SweepNumbers) -> Check:
    missing = sum(text.tpr is None for text in result.texts)
    reason = f"all {count(result.canaries, 'canary', 'canaries')} were in some models and not all"
    if missing:
        reason = (
            f"{missing:,} of {count(result.canaries, 'canary', 'canaries')} were in all models or "
            f"in none, so that nothing is known of them; train more than {result.models:,} models"
        )
    return Check(
        name="all canaries judged",
        key="scores",
        outcome=Outcome.INCONCLUSIVE if missing else Outcome.PASS,
        value=float(missing),
        threshold=0.0,
        unit="canaries",
        reason=sentence(reason),
    )


def _untested(result: SweepNumbers, thresholds: Thresholds) -> Iterator[str]:
    """What was not asked for, and what these coins allow no check of."""
    if thresholds.max_epsilon is None:
        yield "epsilon: no threshold was given"
        if result.epsilon.primary is None:
            why = "; ".join(map(visible, result.epsilon.refused)) or "no canary was audited"
            yield f"the coins of all canaries together: {why}"
    if result.worst_of_population is None:
        yield "ordinary documents: none had coins (--population)"
    for row in result.scores:
        if row.primary and row.group == "canaries":
            for rate in row.rates:
                if rate.value is None:
                    yield f"TPR at FPR {short(rate.fpr)}: {visible(rate.note)}"
