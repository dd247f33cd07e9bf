"""Bounds on epsilon against a threshold or a claim, and the coins of kinds whose texts were chosen.

One rule for both: a bound keeps the significance that it was measured with (`measure
--significance`, of which the largest primary bound has half, and all kinds together as much), and
the gate's own significance is shared out among the other checks alone. A class of a kind is one
class more, whose test has the share that each test of a class has. The reason of each check says
the level.
"""

from lmexposure._quantiles import unseen_share
from lmexposure._style import (
    are,
    claim_word,
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
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.statistics import ClaimCheck, EpsilonBound, Privacy
from lmexposure.studies.exposure.check_classes import (
    enough_canaries,
    least_p_value,
    no_test,
    not_passed,
    of_p_value,
)
from lmexposure.studies.exposure.parts import KindMembership
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.white_box import inside_checks

# How the check of each verdict on a claim comes out.
_CLAIMS = {
    "contradicted": Outcome.LEAK,
    "consistent": Outcome.PASS,
    "cannot tell": Outcome.INCONCLUSIVE,
}
_UNSAID = (
    "an epsilon was claimed, and the result says nothing about it; measure again with this version"
)

EPSILON: CheckKind = CheckKind(
    help="A lower bound on the epsilon of differential privacy that the training can "
    "have had, in nats; higher = less private. It holds under the conditions given with it.",
    remedy="Insert more canaries, each with probability 1/2 (--inclusion-probability 0.5): "
    "these could not have shown an epsilon that large.",
    own_significance=True,
    said_leak="above the limit",
    said_pass="not above the limit",
    after_leak="Do not release this model under this limit on epsilon: it is less private.",
)
CLAIM: CheckKind = CheckKind(
    help="The epsilon that was claimed of the training, compared with the lower bound "
    "that an audit found.",
    remedy="Insert more canaries, each with probability 1/2 (--inclusion-probability 0.5): "
    "these could not have contradicted the claim.",
    own_significance=True,
    said_leak="contradicted",
    said_pass="not contradicted",
    after_leak="Do not publish the claim of privacy: the training is less private.",
)


def check_epsilon(result: ResultNumbers, thresholds: Thresholds) -> Check | None:
    """Compare the primary lower bound on epsilon with the threshold that was asked for."""
    most = thresholds.max_epsilon
    if most is None:
        return None
    privacy = result.privacy
    primary = None if privacy is None else privacy.primary
    return _of_epsilon(primary, most, _judge(privacy, most))


def _of_epsilon(
    bound: EpsilonBound | None, most: float, found: tuple[Outcome, str], scope: str = ""
) -> Check:
    outcome, reason = found
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        scope=scope,
        outcome=outcome,
        value=None if bound is None else bound.value,
        threshold=float(most),
        unit="nats",
        reason=sentence(reason),
    )


def check_claim(result: ResultNumbers) -> Check | None:
    """What the measurement said about the epsilon that was claimed."""
    wanted = result.settings.claimed_epsilon
    if wanted is None:
        return None
    claim = None if result.privacy is None else result.privacy.claim
    outcome, reason = Outcome.INCONCLUSIVE, _UNSAID
    if claim is not None:
        outcome = _CLAIMS[claim.verdict]
        reason = (
            f"the claim of epsilon {setting_value(wanted)} at delta "
            f"{setting_value(claim.claimed_delta)} is "
            f"{claim_word(claim.verdict)}: {visible(claim.reason)}{_level(claim)}"
        )
    return Check(
        name="claimed epsilon",
        key="claimed_epsilon",
        outcome=outcome,
        value=None if claim is None else claim.bound,
        threshold=wanted,
        unit="nats",
        reason=sentence(reason),
        asked=True,
    )


def check_inside(result: ResultNumbers, thresholds: Thresholds) -> list[Check]:
    """What canaries in the gradients of a private training say of its claim, and of a threshold."""
    learned = result.model.validation
    claim = None if learned is None else learned.claim
    if claim is None or claim.white_box is None:
        return []
    return list(inside_checks(claim.white_box, claim.promise, thresholds))


def _level(claim: ClaimCheck) -> str:
    """How often a true claim is contradicted: the measurement decided it, not the gate."""
    if claim.verdict != "contradicted" or claim.significance is None:
        return ""
    often = f"{percent(claim.significance)} of measurements"
    return f"; a true claim would be contradicted in at most {often}, whatever the gate's own level"


def _judge(privacy: Privacy | None, most: float) -> tuple[Outcome, str]:
    if privacy is None or privacy.primary is None:
        reason = "the result holds no bound on epsilon; measure again with this version"
        return Outcome.INCONCLUSIVE, reason
    primary, attainable = privacy.primary, privacy.max_attainable
    bound = _said(primary)
    if primary.value > most:
        allowed = setting_value(most)
        return Outcome.LEAK, f"the training is less private than the {allowed} allowed: {bound}"
    if attainable is None or attainable <= most:
        most_attainable = "unknown" if attainable is None else nats(attainable)
        return Outcome.INCONCLUSIVE, (
            f"{bound}, and max attainable on these canaries is {most_attainable}, not above the "
            f"{setting_value(most)} allowed; insert more canaries, or each with probability 1/2 "
            "(--inclusion-probability 0.5)"
        )
    return Outcome.PASS, (
        f"{bound}, not above the {setting_value(most)} allowed; max attainable on these canaries "
        f"is {nats(attainable)}, and a stronger attack than this one may show more"
    )


def kinds_of(result: ResultNumbers, *, most: int | None = None) -> list[KindMembership]:
    """The classes of chosen texts that are judged."""
    return [row for row in result.kinds if most is None or row.repetitions <= most]


def check_kind(row: KindMembership, thresholds: Thresholds, share: float) -> list[Check]:
    """What is said of one class of chosen texts."""
    enough, scope, most = _enough(row, thresholds), _scope(row), thresholds.max_epsilon
    tests = list[Check]()
    if thresholds.p_value is not False:
        # The permutation test of the coins: chosen texts have no rank, and no other test.
        tests.append(of_p_value(row.test, share, _p_value_judged(row, share), scope))
    if most is not None:
        tests.append(_of_epsilon(row.bound, most, _bound_judged(row, most), scope))
    if enough.outcome is not Outcome.PASS:
        tests = [not_passed(check, "candidates are too few") for check in tests]
    untested = (
        f"no test was made of {_inside(row)}: the p-value is switched off, and no epsilon was "
        "given; ask for one of them"
    )
    return [enough, *(tests or [no_test(scope, untested)])]


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
    return enough_canaries(fewer, _scope(row), thresholds, reason)


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
