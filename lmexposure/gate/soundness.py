"""Whether a low number may be believed: enough canaries, no score missing, a null that holds."""

from lmexposure.errors import ResultError
from lmexposure.gate.chance import unseen
from lmexposure.gate.fields import finite, table
from lmexposure.gate.p_value import read_p_value
from lmexposure.gate.reading import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome
from lmexposure.gate.wording import are, number, percent, sentence, visible
from lmexposure.records import Result

__all__ = ["CONTROLS_LEVEL", "check_class", "check_controls", "check_learned"]

# A sound run is called into question by its controls once in a hundred, as by the leak checks: more
# often and people stop reading it, more rarely and a broken null goes unseen. Formats share it.
CONTROLS_LEVEL = 0.01


def check_class(one: CanaryClass, thresholds: Thresholds) -> list[Check]:
    """Whether the canaries of a class are enough, and all of them measured."""
    return [_enough(one, thresholds), _whole(one)]


def check_controls(result: Result, formats: list[str]) -> list[Check]:
    """Whether controls, which the model never saw, look like chance; one check a format.

    Their own permutation test, in either direction. Where it fails, canaries and references differ
    in more than what was inserted, and no p-value or exposure means what it says.

    Args:
        result: its summary rows of role "control".
        formats: whose; a format without controls has no check.

    Raises:
        ResultError: a p-value that is none.
    """
    rows = {str(row.get("format")): row for row in result.summary if row.get("role") == "control"}
    chosen = [name for name in formats if name in rows]
    level = CONTROLS_LEVEL / max(1, len(chosen))
    return [_controls(name, rows[name].get("guessing_test"), level) for name in chosen]


def check_learned(result: Result) -> Check | None:
    """Whether the model learned at all; None where its validation loss is not known.

    Raises:
        ResultError: a record of validation that does not say.
    """
    if result.model.get("validation") is None:
        return None
    validation = table(result.model["validation"], where="model, validation")
    improved = validation.get("improved")
    if not isinstance(improved, bool):
        raise ResultError("model: validation does not say whether the loss improved; measure again")
    after, before = (
        finite(validation, key, where="validation", low=0)
        for key in ("validation_bits", "initial_validation_bits")
    )
    if improved and (after is None or before is None or after >= before):
        raise ResultError(
            f"model: validation is said to have improved, from {before} to {after} bits per token; "
            "measure again"
        )
    shown = [f"{value:.3f}" if value is not None else "unknown" for value in (after, before)]
    loss = f"validation loss {shown[0]} bits per token, {shown[1]} before training"
    return Check(
        name="model learned",
        key="validation",
        scope="",
        outcome=Outcome.PASS if improved else Outcome.INCONCLUSIVE,
        value=after,
        threshold=before,
        unit="bits per token",
        reason=sentence(
            [f"the model learned: {loss}"]
            if improved
            else [f"the model did not learn ({loss}), so that low exposure says nothing"]
        ),
        asked=False,
    )


def _enough(one: CanaryClass, thresholds: Thresholds) -> Check:
    enough = one.n >= thresholds.min_canaries
    if enough:
        reason = (
            f"{one.secrets} {are(one.n)} enough; with none of them leaking, up to "
            f"{percent(unseen(one.n))} of such secrets may leak all the same (95 %)"
        )
    else:
        reason = (
            f"{one.secrets} {are(one.n)} too few: {thresholds.min_canaries} are "
            f"needed; with none of {one.n} leaking, up to {percent(unseen(one.n))} of such secrets "
            "may leak all the same (95 %)"
        )
    return Check(
        name="enough canaries",
        key="min_canaries",
        scope=one.scope,
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=float(one.n),
        threshold=float(thresholds.min_canaries),
        unit="canaries",
        reason=sentence([reason]),
        asked=False,
    )


def _whole(one: CanaryClass) -> Check:
    """Every canary has its score and exposure."""
    missing = sum(exposure is None for exposure in one.exposures)
    if missing:
        reason = (
            f"{missing} of {one.secrets} lack a log-perplexity or an exposure; measure again, or "
            "with another method"
        )
    else:
        reason = f"all {one.secrets} have a log-perplexity and an exposure"
    return Check(
        name="all scores there",
        key="scores",
        scope=one.scope,
        outcome=Outcome.INCONCLUSIVE if missing else Outcome.PASS,
        value=float(missing),
        threshold=0.0,
        unit="canaries",
        reason=sentence([reason]),
        asked=False,
    )


def _controls(name: str, test: object, level: float) -> Check:
    scope = f"{visible(name)}, controls"
    p, _ = read_p_value(test, where=f"guessing test of {scope}")
    if p is None:
        reason = "the p-value of the controls is missing, so nothing shows that the null holds"
    elif p <= level:
        reason = (
            f"the controls, which the model never saw, are not at chance (p = {number(p)}, at or "
            f"below {number(level)}), so that no other number can be trusted: were they in the "
            "training data, or drawn in another way?"
        )
    else:
        reason = f"the controls are at chance (p = {number(p)}, above {number(level)})"
    return Check(
        name="controls at chance",
        key="controls",
        scope=scope,
        outcome=Outcome.INCONCLUSIVE if p is None or p <= level else Outcome.PASS,
        value=p,
        threshold=level,
        unit="",
        reason=sentence([reason]),
        asked=False,
    )
