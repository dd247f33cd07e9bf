"""The gate of a federated training: what canaries saw of its rounds against claim and threshold."""

from lmexposure._style import nats, sentence, short
from lmexposure._validate import of_type
from lmexposure.gate.checks import Check, Outcome
from lmexposure.gate.thresholds import Thresholds, refuse_other_thresholds
from lmexposure.gate.verdict import Verdict, verdict_of
from lmexposure.records import CanifeFiles, CanifeRecord, MeasuredRounds, rounds_of

_LEAST_HEALTH = 0.5


def check_canife(measured: MeasuredRounds, thresholds: Thresholds | None = None) -> Verdict:
    """Check a federated training against its claim, and against `max_epsilon`.

    Args:
        measured: a record in memory, what `open_rounds` gave, or the path of its directory or
            canife.json.
        thresholds: the largest epsilon that may be shown; None: the claim alone.

    Raises:
        ResultError: no such training, or a file that cannot be read.
        SettingsError: thresholds that are no `Thresholds`, or of something else.
    """
    thresholds = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", thresholds, Thresholds, "Thresholds(max_epsilon=8)")
    refuse_other_thresholds(thresholds, kind="rounds")
    opened: CanifeFiles = rounds_of(measured)
    record = opened.result
    checks = [_health(record)]
    untested = []
    if record.claimed is None:
        untested.append("a claim: the training had no noise")
    else:
        checks.append(_claim(record, record.claimed))
    if thresholds.max_epsilon is None:
        untested.append("epsilon: no threshold was given")
    else:
        checks.append(_epsilon(record, thresholds.max_epsilon))
    return verdict_of(checks, untested)


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


def _claim(record: CanifeRecord, claimed: float) -> Check:
    worst = next((row for row in record.attacked if row.refuted), None)
    seen = (
        f"epsilon of the training is at least {nats(record.largest)} nats, {nats(claimed)} claimed"
    )
    if worst is not None:
        seen = (
            f"round {worst.round} shows an epsilon of at least {nats(worst.epsilon_round)} nats, "
            f"{nats(worst.claimed_round)} claimed; {seen}"
        )
    return Check(
        name="claimed epsilon, round by round",
        key="claimed_epsilon",
        outcome=Outcome.PASS if worst is None else Outcome.LEAK,
        value=record.largest,
        threshold=claimed,
        unit="nats",
        reason=sentence(seen),
        asked=True,
    )


def _epsilon(record: CanifeRecord, most: float) -> Check:
    beyond = record.largest > most
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        outcome=Outcome.LEAK if beyond else Outcome.PASS,
        value=record.largest,
        threshold=float(most),
        unit="nats",
        reason=sentence(
            f"epsilon is at least {nats(record.largest)} nats (delta {short(record.delta)}), "
            f"{'above' if beyond else 'not above'} the {nats(most)} allowed"
        ),
        asked=True,
    )
