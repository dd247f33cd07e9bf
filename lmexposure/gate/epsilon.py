"""Privacy against a threshold or a claim: a bound on epsilon, and what it could have shown.

One rule for both: the bound keeps the significance that it was measured with (`measure
--significance`, of which the largest primary bound has half), and the gate's own significance is
shared out among the other checks alone. The reason of each check says the level.
"""

from collections.abc import Mapping
from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.fields import finite, table
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.gate.wording import percent, sentence, visible
from lmexposure.records import Result

__all__ = ["check_claim", "check_epsilon"]

_CLAIMS = {
    "contradicted": Outcome.LEAK,
    "consistent": Outcome.PASS,
    "cannot tell": Outcome.INCONCLUSIVE,
}


def check_epsilon(result: Result, thresholds: Thresholds) -> Check | None:
    """Hold the primary lower bound on epsilon against the threshold that was asked for.

    A bound at or below it passes only where a perfect attack would have put it above: else the
    canaries were too few to show so much.

    Args:
        result: its section "privacy".
        thresholds: the epsilon.

    Returns:
        The check; None where none was asked for.

    Raises:
        ResultError: a bound that is no number, or its significance or delta out of range.
    """
    if thresholds.max_epsilon is None:
        return None
    section = result.privacy or {}
    primary = table(section.get("primary"), where="privacy, primary")
    value = finite(primary, "value", where=_PRIMARY, low=0)
    attainable = finite(section, "attainable", where="privacy", low=0)
    outcome, reason = _judge(value, attainable, thresholds.max_epsilon, _told(primary))
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        scope="",
        outcome=outcome,
        value=value,
        threshold=float(thresholds.max_epsilon),
        unit="nats",
        reason=sentence([reason]),
        asked=True,
    )


def check_claim(result: Result) -> Check | None:
    """What the measurement said of the epsilon that was claimed.

    A claim that was to be tested and of which the result says nothing is inconclusive.

    Returns:
        The check; None where nothing was claimed.

    Raises:
        ResultError: numbers that are missing or out of range, or a verdict that does not follow
            from them.
    """
    section = result.privacy or {}
    wanted = finite(result.settings, "claimed_epsilon", where="settings", low=0)
    if section.get("claim") is None:
        return None if wanted is None else _about_claim(*_UNSAID, None, wanted)
    claim = table(section["claim"], where="privacy, claim")
    claimed = finite(claim, "claimed_epsilon", where=_CLAIM, low=0)
    delta = finite(claim, "claimed_delta", where=_CLAIM, low=0, high=1)
    bound = finite(claim, "bound", where=_CLAIM, low=0)
    if claimed is None or delta is None or wanted not in (None, claimed):
        raise ResultError(
            f"{_CLAIM}: the result holds a claim of epsilon {_shown(claimed)} at delta "
            f"{_shown(delta)}, and {_shown(wanted)} was to be tested; measure again"
        )
    verdict = _follows(claim, claimed, bound, section)
    reason = f"the claim of epsilon {claimed:g} at delta {delta:g} is {_SAID[verdict]}"
    said = f"{reason}: {_reason(claim)}{_level(claim, verdict)}"
    return _about_claim(_CLAIMS[verdict], said, bound, claimed)


_CLAIM, _PRIMARY = "claimed epsilon", "primary bound on epsilon"
_SAID = {
    "contradicted": "contradicted",
    "consistent": "not contradicted",
    "cannot tell": "neither contradicted nor tested",
}
_UNSAID = (
    Outcome.INCONCLUSIVE,
    "an epsilon was claimed, and the result says nothing of it; measure again with this version",
)


def _about_claim(outcome: Outcome, reason: str, bound: float | None, claimed: float) -> Check:
    return Check(
        name=_CLAIM,
        key="claimed_epsilon",
        scope="",
        outcome=outcome,
        value=bound,
        threshold=claimed,
        unit="nats",
        reason=sentence([reason]),
        asked=True,
    )


def _follows(
    claim: Mapping[str, Any], claimed: float, bound: float | None, section: Mapping[str, Any]
) -> str:
    """The verdict that stands there, if it is the one that the numbers give."""
    stored = claim.get("verdict")
    if not isinstance(stored, str) or stored not in _CLAIMS:
        raise ResultError(
            f"privacy: claim has the verdict {visible(repr(stored))[:60]}, which is none of "
            f"{', '.join(_CLAIMS)}; measure again"
        )
    attainable = finite(section, "attainable", where="privacy", low=0)
    verdict = "cannot tell"
    if bound is not None and bound > claimed:
        verdict = "contradicted"
    elif bound is not None and attainable is not None and attainable > claimed:
        verdict = "consistent"
    if stored != verdict:
        raise ResultError(
            f"privacy: the claim of epsilon {claimed:g} is said to be {stored!r}, but with a bound "
            f"of {_shown(bound)}, and {_shown(attainable)} within reach, it is {verdict!r}; "
            "measure again"
        )
    return verdict


def _level(claim: Mapping[str, Any], verdict: str) -> str:
    """How often a true claim is contradicted: the measurement decided it, not the gate."""
    level = finite(claim, "significance", where=_CLAIM, low=0, high=1)
    if verdict != "contradicted" or level is None:
        return ""
    often = f"{percent(level)} of measurements"
    return f"; a true claim would be contradicted in at most {often}, whatever the gate's own level"


def _reason(claim: Mapping[str, Any]) -> str:
    return visible(claim.get("reason") or "no reason given")


def _told(primary: Mapping[str, Any]) -> str:
    """What stands behind the bound."""
    delta = finite(primary, "delta", where=_PRIMARY, low=0, high=1)
    significance = finite(primary, "significance", where=_PRIMARY, low=0, high=1)
    if primary.get("value") is not None and (delta is None or significance in (None, 0, 1)):
        raise ResultError(
            f"{_PRIMARY}: it needs a delta, which is {_shown(delta)}, and a significance strictly "
            f"between 0 and 1, which is {_shown(significance)}; measure again"
        )
    return (
        f"delta {_shown(delta)}, significance {_shown(significance)}, holds for "
        f"{visible(primary.get('validity'))}"
    )


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _judge(
    value: float | None, attainable: float | None, most: float, told: str
) -> tuple[Outcome, str]:
    if value is None:
        reason = "the result holds no bound on epsilon; measure again with this version"
        return Outcome.INCONCLUSIVE, reason
    bound = f"epsilon is at least {value:.3g} nats ({told})"
    if value > most:
        return Outcome.LEAK, f"{bound}, above the {most:g} allowed"
    if attainable is None or attainable <= most:
        could = "nothing that is known" if attainable is None else f"{attainable:.3g}"
        return Outcome.INCONCLUSIVE, (
            f"{bound}, and a perfect attack on these canaries would have shown {could}, not above "
            f"the {most:g} allowed; insert more canaries, or toss coins for them"
        )
    return Outcome.PASS, (
        f"{bound}, not above the {most:g} allowed; a perfect attack would have shown "
        f"{attainable:.3g}, and a stronger attack than this one may show more"
    )
