"""Privacy against a threshold or a claim: a bound on epsilon, and what it could have shown.

One rule for both: the bound keeps the significance that it was measured with (`measure
--significance`, of which the largest primary bound has half), and the gate's own significance is
shared out among the other checks alone. The reason of each check says the level.
"""

from lmexposure._style import (
    claim_word,
    nats,
    percent,
    sentence,
    setting_value,
    short,
    validity,
    visible,
)
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.statistics import ClaimCheck, Privacy
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
    outcome, reason = _judge(privacy, most)
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        outcome=outcome,
        value=None if primary is None else primary.value,
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
    bound = (
        f"epsilon is at least {nats(primary.value)} nats (delta {short(primary.delta)}, "
        f"significance {short(primary.significance)}, holds for {validity(primary.validity)})"
    )
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
