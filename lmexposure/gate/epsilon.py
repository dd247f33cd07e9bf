"""Privacy against a threshold or a claim: a bound on epsilon, and what it could have shown."""

from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.reading import finite
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.gate.wording import sentence, visible
from lmexposure.results import Result

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
        ResultError: a bound that is no number.
    """
    if thresholds.max_epsilon is None:
        return None
    section = result.privacy or {}
    primary = section.get("primary") or {}
    if not isinstance(primary, dict):
        raise ResultError("privacy: primary is no bound; measure again")
    value = finite(primary, "value", where="primary bound on epsilon")
    attainable = finite(section, "attainable", where="privacy")
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

    Returns:
        The check; None where nothing was claimed.

    Raises:
        ResultError: a verdict that this version does not know.
    """
    claim = (result.privacy or {}).get("claim")
    if claim is None:
        return None
    verdict = claim.get("verdict") if isinstance(claim, dict) else claim
    if not isinstance(verdict, str) or verdict not in _CLAIMS:
        raise ResultError(
            f"privacy: claim has the verdict {visible(repr(verdict))[:60]}, which is none of "
            f"{', '.join(_CLAIMS)}; measure again"
        )
    where = "claimed epsilon"
    claimed = finite(claim, "claimed_epsilon", where=where)
    delta = finite(claim, "claimed_delta", where=where)
    return Check(
        name="claimed epsilon",
        key="claimed_epsilon",
        scope="",
        outcome=_CLAIMS[verdict],
        value=finite(claim, "bound", where=where),
        threshold=claimed,
        unit="nats",
        reason=sentence([f"{_claim(claimed, delta)} is {_SAID[verdict]}: {_reason(claim)}"]),
        asked=True,
    )


_SAID = {
    "contradicted": "contradicted",
    "consistent": "not contradicted",
    "cannot tell": "neither contradicted nor tested",
}


def _claim(epsilon: float | None, delta: float | None) -> str:
    shown = ["unknown" if value is None else f"{value:g}" for value in (epsilon, delta)]
    return f"the claim of epsilon {shown[0]} at delta {shown[1]}"


def _reason(claim: dict[str, Any]) -> str:
    return visible(claim.get("reason") or "no reason given")


def _told(primary: dict[str, Any]) -> str:
    """What stands behind the bound."""
    delta, significance = (
        finite(primary, key, where="primary bound on epsilon") for key in ("delta", "significance")
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
