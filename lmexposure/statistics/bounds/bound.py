"""What every lower bound on epsilon says of itself, whichever rule gave it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Validity = Literal["any-dp", "iid-scores", "gaussian", "asymptotic", "bayesian"]


def adjacency(repetitions: int) -> str:
    """The neighbouring data sets whose epsilon is bounded."""
    if repetitions == 1:
        return "add or remove one document"
    return f"add or remove one document (by group privacy from one canary of {repetitions} copies)"


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """A lower bound on epsilon in nats; higher = less private. At no signal it is 0.

    Attributes:
        method: the function that gave it.
        value: epsilon is at least this with confidence 1 - significance; never below 0.
        significance: how often, at most, `value` may lie above the true epsilon.
        delta: the delta beside which epsilon stands, for one document.
        validity: for which mechanisms this holds. "any-dp": every (epsilon, delta)-DP training,
            from one trained model; "iid-scores": canary scores independent and alike given the
            model; "gaussian": a Gaussian trade-off; "asymptotic": only for large counts;
            "bayesian": a credible bound, not a confidence bound.
        counts: what was counted, by name.
        threshold: the score above which a canary was guessed to be in; None where there is no
            single one.
        threshold_choice: how the threshold, or what stands for it, was chosen.
        max_attainable: the most that `value` could have been with so many canaries, had the attack
            been perfect; None where the rule has no such end.
        repetitions: copies of each canary.
        adjacency: the neighbouring data sets meant.
        assumptions: what must hold beside the class of validity.
        notes: what is not as it should be, and what became of it.
    """

    method: str
    value: float
    significance: float
    delta: float
    validity: Validity
    counts: dict[str, int]
    threshold: float | None
    threshold_choice: str
    max_attainable: float | None
    repetitions: int = 1
    unit: str = "nats"
    adjacency: str = adjacency(1)
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values; "mu" is None where the rule bounds none."""
        values = {"mu": None} | asdict(self)
        return values | {"assumptions": list(self.assumptions), "notes": list(self.notes)}
