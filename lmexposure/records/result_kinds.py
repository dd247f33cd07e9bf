"""What result.json holds of canaries whose texts were chosen: who is in, by their coins alone.

They have neither rank nor exposure. Bits are base-2 logarithms, lower = more memorised; epsilon is
in nats, higher = less private.
"""

from typing import Self

from pydantic import model_validator

from lmexposure._record import Bits, Count, Positive, Rate, Record, Rows
from lmexposure.records.result_classes import GuessingTest
from lmexposure.records.result_privacy import AreaUnderCurve, Bound, TruePositiveRate


class KindCandidate(Record):
    """One candidate of a chosen text.

    Attributes:
        id: as in the manifest.
        included: whether its coin put it in.
        secret_bits: log-perplexity of the tokens of its secret alone; lower = more memorised.
    """

    id: str
    included: bool
    secret_bits: Bits


class KindMembership(Record):
    """How well a model tells the candidates of one kind that went in from those that did not.

    Attributes:
        group: the class, such as "new_token/x1".
        kind: of `canaries.KINDS`.
        format: of its texts.
        repetitions: copies of each candidate that went in.
        canaries: how many went in.
        held_out: how many did not.
        inclusion_probability: of each candidate's own coin.
        area_under_curve: of -bits; None, as the four below, where one side is empty.
        tpr_at_fpr: a row for each false-positive rate; empty where one side is.
        test: of the coins, which are shuffled; higher exposure among those that are out = harder to
            explain by chance.
        bound: on epsilon, by these coins alone.
        significance: of this bound; those of all kinds together are at most that of the settings.
        note: why something is missing; None where nothing is.
        candidates: in the manifest's order.
    """

    group: str
    kind: str
    format: str
    repetitions: Positive
    canaries: Count
    held_out: Count
    inclusion_probability: Rate
    area_under_curve: AreaUnderCurve | None
    tpr_at_fpr: Rows[TruePositiveRate]
    test: GuessingTest | None
    bound: Bound | None
    significance: Rate
    note: str | None
    candidates: Rows[KindCandidate]

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.area_under_curve, self.test, self.bound) and self.note is None:
            raise ValueError(f"{self.group}: a number is missing, and no note says why")
        return self
