"""What result.json holds of privacy: bounds on epsilon, membership, and the verdict on a claim.

Epsilon is in nats, higher = less private.
"""

from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    ROUNDING,
    Count,
    Delta,
    Nats,
    NotNegative,
    Positive,
    Rate,
    Record,
    Rows,
    Share,
)
from lmexposure._style import bound_name, claim_word, nats, short

Validity = Literal["any-dp", "iid-scores", "gaussian", "asymptotic", "bayesian"]


class Bound(Record):
    """A lower bound on epsilon in nats; higher = less private. At no signal it is 0."""

    method: str  # the rule that gave it
    value: Nats  # epsilon is at least this with confidence 1 - significance
    significance: Rate  # how often, at most, `value` may lie above the true epsilon
    delta: Delta  # of the pair (epsilon, delta) that `value` bounds, for one document
    # for which trainings it holds: "any-dp" for every one; the others are in the glossary
    validity: Validity
    counts: dict[str, Count]  # what was counted, by name
    # the score above which a canary was guessed to be in; None: no single one
    threshold: float | None
    threshold_choice: str  # how it, or what takes its place, was chosen
    # the most that `value` could have been, had the attack been perfect; None where the rule has no
    # such end
    max_attainable: Nats | None
    mu: NotNegative | None  # of a Gaussian mechanism with as much leakage; None for other rules
    repetitions: Positive  # copies of each canary
    unit: Literal["nats"]  # of `value`
    adjacency: str  # which data sets count as neighbours
    assumptions: Rows[str]  # what must hold in addition to the class of validity
    notes: Rows[str]  # what is not as it should be, and what became of it

    @property
    def name(self) -> str:
        """Two kinds of bounds from exposure have one method; coins tell them apart."""
        coined = self.method == "epsilon_from_exposure" and self.validity == "any-dp"
        return f"{self.method} with coins" if coined else self.method

    @model_validator(mode="after")
    def _no_more_than_attainable(self) -> Self:
        most = self.max_attainable
        if most is not None and self.value > most + ROUNDING:
            raise ValueError(f"value={self.value:g}, but at most {most:g} is attainable")
        return self


class PrimaryBound(Bound):
    """The largest of the classes' primary bounds; its other fields are as in `Bound`."""

    formats: Rows[str]  # of the class that it is from


class RefusedBound(Record):
    """A bound that these data do not support."""

    method: str  # the rule that would have given it
    reason: str  # why it was not computed


class ClassBounds(Record):
    """Bounds on epsilon of one class, which hold together."""

    primary: Bound  # named beforehand, with half of the significance
    others: Rows[Bound]  # what else the data supports
    refused: Rows[RefusedBound]  # what it does not
    significance: Rate  # of all of them together
    # with which each candidate went in; None where a fixed number did
    inclusion_probability: Rate | None


class AreaUnderCurve(Record):
    """P(score in > score out) + P(equal) / 2, in [0, 1]; 0.5 = guessing, higher = more leaks."""

    value: Share  # of these scores
    # low, high: its two-sided interval
    low: Share
    high: Share
    level: Rate  # coverage wanted
    method: str  # of the interval: "effective", "newcombe" or "hoeffding"
    validity: str  # of the interval: "iid-scores" (for every number of scores) or "asymptotic"
    positives: Count  # scores of candidates that went in
    negatives: Count  # scores of candidates that did not
    assumptions: Rows[str]  # what the interval rests on
    notes: Rows[str]  # what is unusual about these scores


class TruePositiveRate(Record):
    """The true-positive rate at a false-positive rate, in [0, 1]; higher = more leaks."""

    fpr: Rate  # the false-positive rate that is allowed
    # of these scores; None, as the four below, where the negatives are too few for `fpr`
    value: Share | None
    # low, high: its interval
    low: Share | None
    high: Share | None
    level: Rate  # coverage of the interval
    # the score from which on the attack takes a candidate for one that went in
    threshold: float | None
    false_positives: Count | None  # how many that did not go in it takes for ones that did
    positives: Count  # scores of candidates that went in
    negatives: Count  # scores of candidates that did not
    note: str | None  # why there is no number
    validity: str  # what the interval assumes

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.value, self.low, self.high) and self.note is None:
            raise ValueError(f"the TPR at FPR {self.fpr:g} is missing, and no note says why")
        return self


class Membership(Record):
    """How well scores tell candidates that went in from those that did not."""

    area_under_curve: AreaUnderCurve  # over all thresholds
    # how many that went in are found, at few false positives; a row for each false-positive rate
    tpr_at_fpr: Rows[TruePositiveRate]


class PrivacyClass(Record):
    """What one class of candidates says of privacy."""

    formats: Rows[str]  # pooled in it; one where a fixed number of canaries went in
    repetitions: Positive  # copies of each canary
    canaries: Count  # how many went in
    held_out: Count  # how many candidates did not
    references: Count  # that they were compared with
    bounds: ClassBounds | None  # on epsilon; None where there is none
    membership: Membership | None  # how well scores tell who went in; None where there is no bound
    note: str | None  # why there is no bound

    @property
    def key(self) -> tuple[tuple[str, ...], int]:
        """Which class."""
        return tuple(self.formats), self.repetitions

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if self.bounds is None and self.note is None:
            raise ValueError(f"{', '.join(self.formats)}: there is no bound, and no note says why")
        return self


class ClaimCheck(Record):
    """What the primary bound says of the epsilon that was claimed."""

    # "contradicted": the bound is above the claim; "consistent": it is not, although a perfect
    # attack would have put it there; "cannot tell": no attack could have
    verdict: Literal["contradicted", "consistent", "cannot tell"]
    reason: str  # the same with its numbers
    claimed_epsilon: Nats  # in nats
    claimed_delta: Delta  # of the same claim
    bound: Nats | None  # the primary bound; None where there is none
    max_attainable: Nats | None  # the most that it could have been; None where there is no such end
    significance: Share | None  # how often, at most, a true claim is contradicted
    # validity, method: of the bound
    validity: Validity | None
    method: str | None
    # what a perfect attack shows at least, with probability `power`; None, as the two below, where
    # no coins were tossed
    could_show: Nats | None = None
    # the smallest true epsilon at which an ideal attack contradicts the claim with probability
    # `power`; None where no leak, however large, would
    refutable_from: Nats | None = None
    power: Rate | None = None  # with which this is so

    @model_validator(mode="after")
    def _power_is_whole(self) -> Self:
        if (self.could_show is None) != (self.power is None):
            raise ValueError(f"could_show={self.could_show}, but power={self.power}")
        return self

    @model_validator(mode="after")
    def _verdict_has_numbers(self) -> Self:
        lacks_most = self.verdict == "consistent" and self.max_attainable is None
        if lacks_most or (self.verdict != "cannot tell" and self.bound is None):
            raise ValueError(
                f"the claim of epsilon {self.claimed_epsilon:g} is said to be {self.verdict!r}, "
                f"with a bound of {self.bound}, and at most {self.max_attainable} attainable"
            )
        past = self.bound is not None and self.bound > self.claimed_epsilon
        if past != (self.verdict == "contradicted") and self.verdict != "cannot tell":
            raise ValueError(
                f"the claim of epsilon {self.claimed_epsilon:g} is said to be {self.verdict!r}, "
                f"with a bound of {self.bound}"
            )
        return self


class Privacy(Record):
    """Bounds on epsilon with their conditions, membership metrics, and a verdict on a claim."""

    # with which each candidate went in by its own coin; None where a fixed number of canaries went
    # in
    inclusion_probability: Rate | None
    significance: Rate  # of all bounds here together
    deltas: Rows[Delta]  # for which epsilon is bounded, the primary bound's first
    # the largest of the classes' primary bounds; None where no class has one
    primary: PrimaryBound | None
    max_attainable: Nats | None  # the most that a perfect attack on these classes would have shown
    classes: Rows[PrivacyClass]  # by repetitions, and by format where formats are not pooled
    claim: ClaimCheck | None  # None where nothing was claimed
    notes: Rows[str]  # what a reader must know of all this

    def __repr__(self) -> str:
        bound = self.primary
        if bound is None:
            return f"<Privacy: no bound on epsilon: {self.classes[0].note}>"
        claim = "" if self.claim is None else f"; the claim: {claim_word(self.claim.verdict)}"
        return (
            f"<Privacy: epsilon ≥ {nats(bound.value)} nats at delta {short(bound.delta)}, "
            f"significance {short(bound.significance)}, {bound_name(bound.name)}{claim}>"
        )

    __str__ = __repr__

    @model_validator(mode="after")
    def _nothing_of_the_classes_is_missing(self) -> Self:
        each = [c.bounds.primary for c in self.classes if c.bounds is not None]
        if (self.primary is None) != (not each):
            raise ValueError("a primary bound is there if, and only if, a class has one")
        if (self.max_attainable is None) != all(bound.max_attainable is None for bound in each):
            raise ValueError("max_attainable is there if, and only if, a class has one")
        return self
