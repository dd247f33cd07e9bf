"""What result.json holds of canaries whose texts were chosen: who is in, by their coins alone.

They have neither rank nor exposure. Bits are base-2 logarithms, lower = more memorised; epsilon is
in nats, higher = less private.
"""

from typing import Self

from pydantic import model_validator

from lmexposure._record import Bits, Count, Positive, Rate, Record, Rows
from lmexposure.statistics import AreaUnderCurve, EpsilonBound, GuessingTest, TprAtFpr


class KindCandidate(Record):
    """One candidate of a chosen text."""

    id: str  # as in the manifest
    included: bool  # whether its coin put it in
    secret_bits: Bits  # log-perplexity of the tokens of its secret alone; lower = more memorised


class KindMembership(Record):
    """How well a model tells the candidates of one kind that went in from those that did not."""

    group: str  # the class, such as "new_token/x1"
    kind: str  # of `canaries.KINDS`
    format: str  # of its texts
    repetitions: Positive  # copies of each candidate that went in
    canaries: Count  # how many went in
    held_out: Count  # how many did not
    inclusion_probability: Rate  # of each candidate's own coin
    # of -bits; None, as the four below, where one side is empty
    area_under_curve: AreaUnderCurve | None
    # a row for each false-positive rate; empty where one side is
    tpr_at_fpr: Rows[TprAtFpr]
    # of the coins, which are shuffled; higher exposure among those that are out = harder to explain
    # by chance
    test: GuessingTest | None
    bound: EpsilonBound | None  # on epsilon, by these coins alone
    # of this bound; those of all kinds together are at most that of the settings
    significance: Rate
    note: str | None  # why something is missing; None where nothing is
    candidates: Rows[KindCandidate]  # in the manifest's order

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.area_under_curve, self.test, self.bound) and self.note is None:
            raise ValueError(f"{self.group}: a number is missing, and no note says why")
        return self
