"""What a gate says: one outcome, the check that decided it, and what was and was not tested."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["EXIT_CODES", "Check", "Outcome", "Verdict"]


class Outcome(StrEnum):
    """What one check, or the gate as a whole, came to."""

    PASS = "pass"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"
    # Of a check only: it was not asked for, or says nothing here, and holds nothing up.
    NOT_TESTED = "not tested"


EXIT_CODES = {Outcome.PASS: 0, Outcome.LEAK: 1, Outcome.INCONCLUSIVE: 2}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One threshold against one number.

    Attributes:
        name: what was compared, as people know it: "p-value against guessing".
        key: the setting that decides it: "p_value"; for machines.
        scope: of what: "random_number, repetitions 16"; "" for the whole run.
        outcome: a leak where the number is past the threshold.
        value: the number; None where there is none.
        threshold: what it was held against; None where there is none.
        unit: "bits", "guesses", "nats", "" for a probability.
        reason: one sentence with the numbers in it.
        asked: whether somebody set this threshold; False: it is a default.
    """

    name: str
    key: str
    scope: str
    outcome: Outcome
    value: float | None
    threshold: float | None
    unit: str
    reason: str
    asked: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of all checks.

    Attributes:
        outcome: never NOT_TESTED: a gate that tested nothing is inconclusive.
        sentence: the verdict in one sentence, with the number that decides it.
        deciding: the check that the sentence is about; None where no check could be made.
        checks: all of them; the deciding one is among them.
        tested: what was tested, one short phrase each.
        untested: what was not, and why, one short phrase each.
    """

    outcome: Outcome
    sentence: str
    deciding: Check | None
    checks: tuple[Check, ...]
    tested: tuple[str, ...]
    untested: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 pass, 1 leak, 2 inconclusive."""
        return EXIT_CODES[self.outcome]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "outcome": str(self.outcome),
            "exit_code": self.exit_code,
            **{key: value for key, value in asdict(self).items() if key != "outcome"},
        }
