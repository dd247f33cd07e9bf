"""Kinds of canaries whose texts were chosen, against thresholds: their coins, and their bounds.

A class of such a kind is one class more. Its test has the share of the significance that each test
of a class has; its bound on epsilon keeps the significance that it was measured with, of which all
kinds together have as much as the primary bound.
"""

from dataclasses import replace

from lmexposure._quantiles import unseen_share
from lmexposure._style import (
    are,
    nats,
    one_in,
    percent,
    probability,
    sentence,
    setting_value,
    short,
    times,
    validity,
    visible,
)
from lmexposure.core import Check, Outcome, Thresholds
from lmexposure.statistics import EpsilonBound
from lmexposure.studies.exposure.check_exposure import least_p_value
from lmexposure.studies.exposure.parts import KindMembership
from lmexposure.studies.exposure.record import ResultNumbers


def kinds_of(result: ResultNumbers, *, most: int | None = None) -> list[KindMembership]:
    """The classes of chosen texts that are judged."""
    return [row for row in result.kinds if most is None or row.repetitions <= most]


def check_kind(row: KindMembership, thresholds: Thresholds, share: float) -> list[Check]:
    """What is said of one class of chosen texts."""
    enough = _enough(row, thresholds)
    tests = [_coins_told(row, share)] if thresholds.p_value is not False else []
    if thresholds.max_epsilon is not None:
        tests.append(_epsilon(row, thresholds.max_epsilon))
    if enough.outcome is not Outcome.PASS:
        tests = [_not_passed(check) for check in tests]
    return [enough, *(tests or [_no_test(row)])]


def _not_passed(check: Check) -> Check:
    if check.outcome is not Outcome.PASS:
        return check
    doubt = " But the candidates are too few, so this is no pass."
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + doubt)


def _scope(row: KindMembership) -> str:
    return f"{visible(row.format)}, repetitions {row.repetitions}"


def _inside(row: KindMembership) -> str:
    texts = f"{row.canaries:,} chosen text{'s' * (row.canaries != 1)}"
    return f"{texts} inserted {times(row.repetitions)}"


def _enough(row: KindMembership, thresholds: Thresholds) -> Check:
    least, fewer = thresholds.min_canaries, min(row.canaries, row.held_out)
    there = f"{_inside(row)} and {row.held_out:,} held out"
    if fewer >= least:
        reason = (
            f"{there} are enough; even if none of them leaks, up to "
            f"{percent(unseen_share(row.canaries))} of such texts may leak (95 % confidence)"
        )
    else:
        reason = f"{there} are too few: {least} of each are needed; plan more candidates"
    return Check(
        name="enough canaries",
        key="min_canaries",
        scope=_scope(row),
        outcome=Outcome.PASS if fewer >= least else Outcome.INCONCLUSIVE,
        value=float(fewer),
        threshold=float(least),
        unit="canaries",
        reason=sentence(reason),
    )


def _coins_told(row: KindMembership, share: float) -> Check:
    """The permutation test of the coins: chosen texts have no rank, and no other test."""
    outcome, reason = _p_value_judged(row, share)
    return Check(
        name="p-value against guessing",
        key="p_value",
        scope=_scope(row),
        outcome=outcome,
        value=None if row.test is None else row.test.p_value,
        threshold=share,
        reason=sentence(reason),
    )


def _p_value_judged(row: KindMembership, share: float) -> tuple[Outcome, str]:
    if row.test is None:
        return Outcome.INCONCLUSIVE, f"there is no p-value: {visible(row.note)}"
    p, least, limit = row.test.p_value, least_p_value(row.test), short(share)
    told = f"{_inside(row)} {are(row.canaries)}"
    if p <= share:
        return Outcome.LEAK, (
            f"{told} told from those that their coins left out better than chance explains: "
            f"shuffled coins give as much in only 1 of {one_in(p)} tests (p = "
            f"{probability(p)}; {limit} or less is a leak)"
        )
    if least > share:
        return Outcome.INCONCLUSIVE, (
            f"the candidates or permutations are too few for p below {probability(least)}, and a "
            f"leak takes {limit} (p = {probability(p)}); plan more candidates, or measure with "
            "more permutations"
        )
    return Outcome.PASS, (
        f"{told} not told from those that their coins left out (p = {probability(p)}; {limit} or "
        "less would be a leak); a few memorised among many could hide in their mean"
    )


def _epsilon(row: KindMembership, most: float) -> Check:
    outcome, reason = _bound_judged(row, most)
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        scope=_scope(row),
        outcome=outcome,
        value=None if row.bound is None else row.bound.value,
        threshold=float(most),
        unit="nats",
        reason=sentence(reason),
    )


def _bound_judged(row: KindMembership, most: float) -> tuple[Outcome, str]:
    if row.bound is None:
        return Outcome.INCONCLUSIVE, f"there is no bound on epsilon: {visible(row.note)}"
    bound, allowed = row.bound, setting_value(most)
    said = _said(bound)
    if bound.value > most:
        return Outcome.LEAK, f"the training is less private than the {allowed} allowed: {said}"
    if bound.max_attainable is None or bound.max_attainable <= most:
        return Outcome.INCONCLUSIVE, (
            f"{said}, and max attainable on these candidates is {nats(bound.max_attainable)}, not "
            f"above the {allowed} allowed; plan more candidates"
        )
    return Outcome.PASS, (
        f"{said}, not above the {allowed} allowed; max attainable on these candidates is "
        f"{nats(bound.max_attainable)}, and a stronger attack than this one may show more"
    )


def _said(bound: EpsilonBound) -> str:
    return (
        f"epsilon is at least {nats(bound.value)} nats (delta {short(bound.delta)}, significance "
        f"{short(bound.significance)}, holds for {validity(bound.validity)})"
    )


def _no_test(row: KindMembership) -> Check:
    return Check(
        name="tested against chance",
        key="classes",
        scope=_scope(row),
        outcome=Outcome.INCONCLUSIVE,
        reason=sentence(
            f"no test was made of {_inside(row)}: the p-value is switched off, and no epsilon was "
            "given; ask for one of them"
        ),
    )
