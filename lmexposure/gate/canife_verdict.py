"""The gate of a federated training: what canaries saw of its rounds against claim and threshold."""

from lmexposure._style import MISSING, nats, number, sentence, short
from lmexposure._validate import of_type
from lmexposure.core import Check, Outcome, Thresholds, Verdict, verdict_of
from lmexposure.gate.epsilon import attainable_outcome
from lmexposure.gate.thresholds import refuse_other_thresholds
from lmexposure.gate.verdict import CHECK_KINDS
from lmexposure.records import CanifeFiles, CanifeRecord, MeasuredRounds, rounds_of

_LEAST_HEALTH = 0.5
_LOSS = "nats a token"
_NAMES = {
    "claimed_epsilon": "claimed epsilon, round by round",
    "max_epsilon": "lower bound on epsilon",
}


def check_canife(measured: MeasuredRounds, thresholds: Thresholds | None = None) -> Verdict:
    """Check a federated training against its claim, and against `max_epsilon`."""
    thresholds = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", thresholds, Thresholds, "Thresholds(max_epsilon=8)")
    refuse_other_thresholds(thresholds, kind="rounds")
    opened: CanifeFiles = rounds_of(measured)
    record = opened.result
    checks = [_health(record), _learned(record)]
    untested = []
    most, claimed = thresholds.max_epsilon, record.claimed
    if most is None:
        untested.append("epsilon: no threshold was given")
    else:
        checks.append(_epsilon(record, float(most)))
    if claimed is not None:
        checks.append(_claim(record, claimed))
    else:
        untested.append("a claim: the training had no noise")
        checks += [_no_noise(record)] if most is None else []
    return verdict_of(checks, untested, CHECK_KINDS)


def _health(record: CanifeRecord) -> Check:
    worst = min(row.health for row in record.attacked)
    healthy = worst >= _LEAST_HEALTH
    return Check(
        name="health of the canaries",
        key="health",
        outcome=Outcome.PASS if healthy else Outcome.INCONCLUSIVE,
        value=worst,
        threshold=_LEAST_HEALTH,
        reason=sentence(
            f"the least healthy canary has {short(worst)}, "
            f"{'at least' if healthy else 'below'} {short(_LEAST_HEALTH)}"
        ),
    )


def _learned(record: CanifeRecord) -> Check:
    before, after = record.losses[0], record.losses[-1]
    loss = f"the loss on mock clients went from {number(before, 3)} to {number(after, 3)} {_LOSS}"
    return Check(
        name="model learned",
        key="validation",
        outcome=Outcome.PASS if record.learned else Outcome.INCONCLUSIVE,
        value=after,
        threshold=before,
        unit=_LOSS,
        reason=sentence(
            f"the model learned: {loss}"
            if record.learned
            else f"the model did not learn, so this is no training to judge: {loss}; give more "
            "rounds, another learning rate or less noise"
        ),
    )


def _claim(record: CanifeRecord, claimed: float) -> Check:
    outcome = attainable_outcome(record.refuted, record.could_refute)
    seen = f"{_seen(record)}, {nats(claimed)} claimed"
    if (worst := record.refuting) is not None and worst.noise_at_most is not None:
        seen = (
            f"round {worst.round} leaves room for a noise multiplier of at most "
            f"{short(worst.noise_at_most)}, {short(record.noise_multiplier)} claimed, and shows an "
            f"epsilon of at least {nats(worst.epsilon_round)} nats, {_nats(worst.claimed_round)} "
            f"claimed; {seen}"
        )
    return _of_epsilon("claimed_epsilon", outcome, record, claimed, seen)


def _epsilon(record: CanifeRecord, most: float) -> Check:
    """Without noise no epsilon holds, whatever canaries could show of it."""
    still = not record.noise_multiplier
    beyond = record.largest > most
    seen = f"{_seen(record)}, {'above' if beyond else 'not above'} the {nats(most)} allowed"
    if still:
        seen = f"the training added no noise, so that no epsilon holds for it; {seen}"
    outcome = attainable_outcome(beyond or still, record.attainable > most)
    return _of_epsilon("max_epsilon", outcome, record, most, seen)


def _no_noise(record: CanifeRecord) -> Check:
    """Nothing is claimed and nothing allowed: what was seen is no pass."""
    seen = (
        f"the training added no noise, and claims nothing: {_seen(record)}; say how much is "
        "allowed (--max-epsilon)"
    )
    return _of_epsilon("claimed_epsilon", Outcome.INCONCLUSIVE, record, None, seen)


def _seen(record: CanifeRecord) -> str:
    return f"epsilon is at least {nats(record.largest)} nats (delta {short(record.delta)})"


def _nats(value: float | None) -> str:
    return MISSING if value is None else nats(value)


def _of_epsilon(
    key: str, outcome: Outcome, record: CanifeRecord, most: float | None, seen: str
) -> Check:
    if outcome is Outcome.INCONCLUSIVE and most is not None:
        seen += (
            f"; max attainable with these mock rounds is {nats(record.attainable)}: attack fewer "
            "rounds (--every), or play more mock rounds (--mock-rounds)"
        )
    return Check(
        name=_NAMES[key],
        key=key,
        outcome=outcome,
        value=record.largest,
        threshold=most,
        unit="nats",
        reason=sentence(seen),
        asked=True,
    )
