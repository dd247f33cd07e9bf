"""What a result says of canaries that are no uniform fills: in and out told apart, and no rank."""

from typing import Self

from pydantic import model_validator

from lmexposure._record import Count, Nats, Positive, Rate, Record, Rows, Share


class KindRate(Record):
    """TPR at a FPR, over the candidates of a kind.

    Attributes:
        fpr: false-positive rate allowed.
        value: share of those in that score above; None where those out are too few for the rate.
        low, high: its interval; None likewise.
        note: why there is none, and how many it takes; None where there is one.
    """

    fpr: Rate
    value: Share | None
    low: Share | None
    high: Share | None
    note: str | None


class KindMembership(Record):
    """Candidates of one kind and number of repetitions, judged by their coins.

    Attributes:
        group: "new_token/x1".
        kind: of `canaries.KINDS`.
        repetitions: of those that are in.
        inside, outside: candidates that their coins put in, and kept out.
        area: under the ROC curve by the bits of the secret's tokens, 0.5 = guessing; None where
            coins left a side empty.
        area_low, area_high: its interval.
        rates: TPR at low FPRs; none where a side is empty.
        p: how often chance gives so large an area; None where a side is empty.
        epsilon: lower bound by these coins alone, nats; None where coins were not fair, or none.
        max_attainable: the most that it could be; None likewise.
        significance: of the bound: that of all bounds, over the number of classes.
        note: why something is missing; None where nothing is.
    """

    group: str
    kind: str
    repetitions: Positive
    inside: Count
    outside: Count
    area: Share | None
    area_low: Share | None
    area_high: Share | None
    rates: Rows[KindRate]
    p: Share | None
    epsilon: Nats | None
    max_attainable: Nats | None
    significance: Rate
    note: str | None

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.area, self.epsilon) and self.note is None:
            raise ValueError(f"{self.group}: a number is missing, and no note says why")
        return self
