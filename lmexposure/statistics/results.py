"""What the statistics find, as a result holds it; without numpy, so that a gate answers fast.

Exposures and log-perplexities are in bits, epsilon in nats. Of an exposure and of an epsilon,
higher = more leaks; of a log-perplexity, lower = more memorised.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from lmexposure._quantiles import ExposureEstimate
from lmexposure._style import bound_name, claim_word, nats, short
from lmexposure._types import (
    ROUNDING,
    BigInteger,
    Count,
    Delta,
    Found,
    Level,
    Nats,
    NotNegative,
    Number,
    Positive,
    PValue,
    Rate,
    Rows,
    Share,
)
from lmexposure._validate import LEAST_LEVEL, integer

Method = Literal[
    "exact",
    "exact up to an empirical margin",
    "bounded",
    "importance",
    "sampled",
    "skew_normal",
    "certificate",
    "calibrated",
]
Validity = Literal["any-dp", "iid-scores", "gaussian", "asymptotic", "bayesian"]
Verdict = Literal["contradicted", "consistent", "cannot tell"]

_P_VALUE_EACH = 0.025  # two tests share a false alarm rate of 5 % (Bonferroni)
_POINT = (
    "a point value, not a bound: it says nothing about what another sample would give",
    "pure differential privacy (delta = 0)",
    "canary and reference scores are continuous, and alike but for the insertion",
)


@dataclass(frozen=True, kw_only=True)
class Estimate(Found):
    """One estimate of one canary's exposure."""

    method: Method  # how it was made
    value: Number | None  # bits; None where it is not finite
    # low, high: its interval; None where it has no end on that side
    low: Number | None
    high: Number | None
    level: Level  # two-sided coverage; 1: it is proven
    # 1 + fills never inserted that cost no more; None where no rank was counted
    rank: Annotated[BigInteger, Ge(1)] | None
    capped: bool  # the value is a lower bound
    # the rank among all of R, inserted ones too; None where it is not known
    place: Annotated[BigInteger, Ge(1)] | None = None
    # draws, effective_draws: behind an "importance" estimate, and what they are worth
    draws: Count | None = None
    effective_draws: NotNegative | None = None
    steps: Count | None = None  # model steps that it took; None where it took none of its own
    assumptions: Rows[str]  # what it rests on
    warnings: Rows[str]  # what is not as it should be, and why a number is missing

    def __post_init__(self) -> None:
        if None in (self.value, self.low, self.high) and not self.warnings:
            raise ValueError(
                f"an exposure by {self.method!r} lacks its value or an end, and no warning says why"
            )
        value = self.value
        if value is None:
            return
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low - ROUNDING <= value <= high + ROUNDING:
            raise ValueError(f"exposure {value:g} lies outside its interval {low:g} .. {high:g}")
        if self.method == "sampled" and self.level > 1 - LEAST_LEVEL:
            raise ValueError("an interval of a sample that never misses would have no end")

    def with_error(
        self, bits: float | None, *, references: int, space_bits: float
    ) -> ExposureEstimate | None:
        """The same with what its error comes from, for a quantile of a class."""
        if self.value is None or bits is None:
            return None
        least = self.value if self.capped else 0.0
        return ExposureEstimate(
            method=self.method,
            value=self.value,
            low=least if self.low is None else self.low,
            high=space_bits if self.high is None else min(self.high, space_bits),
            capped=self.capped,
            level=self.level,
            bits=bits,
            references=references,
            space_bits=space_bits,
        )


@dataclass(frozen=True, kw_only=True)
class GoodnessOfFit(Found):
    """How well the skew-normal curve fits its references; lower p-values = worse.

    Source: Stute, Gonzalez Manteiga, Presedo Quindimil 1993, Bootstrap based goodness-of-fit tests.
    """

    ks_statistic: Share  # Kolmogorov-Smirnov distance between curve and references
    ks_p_value: Share  # of that, by bootstrap; small = a bad fit
    tail_bits: float  # by how much the curve overstates exposure among the lowest references
    tail_p_value: Share  # of that, by the same bootstrap
    bootstraps: Count  # how many refits
    warnings: Rows[str] = ()  # what does not fit

    def __post_init__(self) -> None:
        lines = list[str]()
        if self.ks_p_value <= _P_VALUE_EACH:
            lines.append(
                "DO NOT RELY ON THIS: the references do not follow a skew-normal curve "
                f"(Kolmogorov-Smirnov distance {self.ks_statistic:.4f}, bootstrap "
                f"p = {self.ks_p_value:.3g}); use the sampled exposure"
            )
        if self.tail_p_value <= _P_VALUE_EACH:
            side = "overstates" if self.tail_bits > 0 else "understates"
            lines.append(
                f"DO NOT RELY ON THIS: the curve {side} exposure by {abs(self.tail_bits):.2f} bits "
                "already among the lowest references, more beyond them (bootstrap "
                f"p = {self.tail_p_value:.3g}); use the sampled exposure"
            )
        object.__setattr__(self, "warnings", self.warnings or tuple(lines))


@dataclass(frozen=True, kw_only=True)
class QuantileInterval(Found):
    """A quantile of exposures, with an interval by order statistics."""

    value: float  # of these canaries, bits
    # low, high: its interval, bits; None where too few canaries give no end on that side
    low: Number | None
    high: Number | None
    quantile: Rate  # which, in (0, 1)
    level: Rate  # coverage wanted
    attained: Share | None  # coverage reached; None where an end is missing
    note: str | None  # what is to be known of it; None where it is as wanted

    def __post_init__(self) -> None:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError(f"the {self.quantile:g} quantile lacks an end, and no note says why")


@dataclass(frozen=True, kw_only=True)
class MeanInterval(Found):
    """A mean of exposures with an approximate interval, over canaries drawn like these."""

    value: float  # of these canaries, bits
    # low, high: the interval, bits; None where there is none
    low: Number | None
    high: Number | None
    level: Rate  # coverage wanted
    method: Literal["bca", "normal", "none"]  # "none" where there is no interval
    # resamples, seed: of the bootstrap; 0 resamples where none were drawn
    resamples: Count
    seed: BigInteger
    note: str | None  # what is to be known of it; None where it is as wanted

    def __post_init__(self) -> None:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError("the mean lacks an end of its interval, and no note says why")


@dataclass(frozen=True, kw_only=True)
class ControlsComparison(Found):
    """How much higher the canaries of a class lie than the controls of their format."""

    n: Positive  # how many controls
    # mean, median: of the controls' exposures, bits
    mean: float
    median: QuantileInterval
    exceeds: Share  # share of pairs in which the canary lies higher, ties as half; .5 = chance
    p_value: Share  # how often chance puts canaries so high
    method: Literal["permutation", "normal approximation"]  # of the p-value
    # permutations, seed: behind it
    permutations: Count
    seed: BigInteger
    assumptions: Rows[str]  # what the p-value rests on


@dataclass(frozen=True, kw_only=True)
class GuessingBaseline(Found):
    """The exposures of canaries under a model that knows nothing of the secrets.

    Among references without end the exposure is -log2 of a uniform number, exponential with mean
    1 / ln 2; among few it is lower, since no rank is below 1.

    Source: Jagielski 2023, A note on interpreting canary exposure (arXiv 2306.00133).
    """

    mean: float = 1 / math.log(2)  # bits; 1.44 among many references, less among few
    median: float = 1.0  # bits; about 1
    upper_quartile: float = 2.0  # bits, which one canary in four passes by luck; about 2

    @classmethod
    def among(cls, references: int, *, space_size: int | None = None) -> "GuessingBaseline":
        """The baseline among n references: the rank is uniform on 1 .. n + 1.

        >>> round(GuessingBaseline.among(20).mean, 3)
        1.204
        """
        n = integer("references", references, low=1)
        most = math.log2(n if space_size is None else space_size)
        # The mean of log2 of 1 .. n + 1.
        mean = most - math.lgamma(n + 2) / math.log(2) / (n + 1)
        return cls(
            mean=mean, median=most - _log_rank(n, 0.5), upper_quartile=most - _log_rank(n, 0.25)
        )


def _log_rank(n: int, share: float) -> float:
    """The quantile of log2 of 1 .. n + 1, interpolated as `quantile_interval` interpolates."""
    whole = math.floor(share * n)
    low, high = math.log2(1 + whole), math.log2(2 + whole)
    return low + (share * n - whole) * (high - low)


GUESSING = GuessingBaseline()


@dataclass(frozen=True, kw_only=True)
class GuessingTest(Found):
    """How often chance gives a mean exposure such as this; lower p = harder to explain."""

    p_value: PValue  # of a permutation test; at least 1 / (1 + permutations)
    statistic: float  # mean exposure of the canaries among the references, bits
    n: Positive  # canaries of the class
    references: Positive  # that they were shuffled with
    groups: Count  # of canaries and references that were ranked apart
    alternative: Literal["memorised", "different"]  # one-sided, or two-sided for controls
    # permutations, seed: behind it
    permutations: Positive
    seed: BigInteger
    assumptions: Rows[str]  # what the p-value rests on


@dataclass(frozen=True, kw_only=True)
class ExposureSummary(Found):
    """The exposures of canaries of one kind."""

    n: Positive  # how many
    mean: float  # of their exposures, bits
    standard_error: NotNegative | None  # of the mean, bits; None where there is a single canary
    # lower_quartile, median, upper_quartile: with intervals
    lower_quartile: QuantileInterval
    median: QuantileInterval
    upper_quartile: QuantileInterval
    capped: Count  # how many exposures are lower bounds
    level: Rate  # coverage of the intervals
    notes: Rows[str]  # where an interval is missing or rough
    mean_interval: MeanInterval  # of the mean
    controls: ControlsComparison | None  # the class next to the format's controls, if it has any
    guessing: GuessingBaseline  # what guessing gives


@dataclass(frozen=True, kw_only=True)
class EpsilonPoint(Found):
    """The epsilon that a median exposure points to, in nats: a point value and no bound."""

    value: Nats  # higher = less private
    median_exposure: float  # bits, from which it follows
    repetitions: Positive  # by which it is divided
    quantile: Rate = 0.5  # of exposure; .5 is the median
    validity: Literal["point"] = "point"  # "point"
    unit: Literal["nats"] = "nats"  # of the value
    adjacency: str = "add or remove one document"  # which data sets count as neighbours
    assumptions: Rows[str] = _POINT  # what the value rests on
    capped: bool = False  # the median is a lower bound, and so is this


@dataclass(frozen=True, kw_only=True)
class EpsilonBound(Found):
    """A lower bound on epsilon in nats; higher = less private. At no signal it is 0."""

    method: str  # the rule that gave it
    value: Nats  # epsilon is at least this with confidence 1 - significance
    significance: Rate  # how often, at most, `value` may lie above the true epsilon
    delta: Delta  # of the pair (epsilon, delta) that `value` bounds, for one document
    validity: Validity  # for which trainings it holds, as in the glossary; "any-dp" for every one
    counts: dict[str, Count]  # what was counted, by name
    threshold: float | None  # the score above which a canary was guessed to be in, if it is one
    threshold_choice: str  # how it, or what takes its place, was chosen
    max_attainable: Nats | None  # what a perfect attack would have given; None: it has no end
    mu: NotNegative | None = None  # of a Gaussian mechanism with as much leakage, by some rules
    repetitions: Positive = 1  # copies of each canary
    unit: Literal["nats"] = "nats"  # of `value`
    adjacency: str = ""  # which data sets count as neighbours
    assumptions: Rows[str] = ()  # what must hold in addition to the class of validity
    notes: Rows[str] = ()  # what is not as it should be, and what became of it

    def __post_init__(self) -> None:
        group = f" (by group privacy from one canary of {self.repetitions} copies)"
        meant = "add or remove one document" + (group if self.repetitions > 1 else "")
        object.__setattr__(self, "adjacency", self.adjacency or meant)
        most = self.max_attainable
        if most is not None and self.value > most + ROUNDING:
            raise ValueError(f"value={self.value:g}, but at most {most:g} is attainable")

    @property
    def name(self) -> str:
        """Two kinds of bounds from exposure have one method; coins tell them apart."""
        coined = self.method == "epsilon_from_exposure" and self.validity == "any-dp"
        return f"{self.method} with coins" if coined else self.method


@dataclass(frozen=True, kw_only=True)
class PrimaryBound(EpsilonBound):
    """The largest of the classes' primary bounds."""

    formats: Rows[str]  # of the class that it is from


@dataclass(frozen=True, kw_only=True)
class RefusedBound(Found):
    """A bound that these data do not support."""

    method: str  # the rule that would have given it
    reason: str  # why it was not computed


@dataclass(frozen=True, kw_only=True)
class JointBounds(Found):
    """Bounds on epsilon of one class, which hold together, each under its own conditions."""

    primary: EpsilonBound  # named beforehand, with half of the significance
    others: Rows[EpsilonBound]  # what else the data supports
    refused: Rows[RefusedBound]  # what it does not
    significance: Rate  # of all of them together
    inclusion_probability: Rate | None  # of each candidate; None where a fixed number went in


@dataclass(frozen=True, kw_only=True)
class AreaUnderCurve(Found):
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


@dataclass(frozen=True, kw_only=True)
class TprAtFpr(Found):
    """The true-positive rate at a false-positive rate, in [0, 1]; higher = more leaks."""

    fpr: Rate  # the false-positive rate that is allowed
    value: Share | None  # None, as the four below, where the negatives are too few for `fpr`
    # low, high: its interval
    low: Share | None
    high: Share | None
    level: Rate  # coverage of the interval
    threshold: float | None  # score from which on a candidate is taken for one that went in
    false_positives: Count | None  # how many that did not go in it takes for ones that did
    positives: Count  # scores of candidates that went in
    negatives: Count  # scores of candidates that did not
    note: str | None  # why there is no number
    validity: str = "iid-scores"  # what the interval assumes

    def __post_init__(self) -> None:
        if None in (self.value, self.low, self.high) and self.note is None:
            raise ValueError(f"the TPR at FPR {self.fpr:g} is missing, and no note says why")


@dataclass(frozen=True, kw_only=True)
class CellRate(Found):
    """TPR at a FPR, over the cells (model, text) of a group."""

    fpr: Rate  # false-positive rate allowed
    value: Share | None  # the TPR; None where these cells cannot resolve the FPR
    # low, high: its interval, for which models are the units; None where there is none
    low: Share | None
    high: Share | None
    note: str | None  # why there is no number, and how many models it takes

    def __post_init__(self) -> None:
        if self.value is None and self.note is None:
            raise ValueError(f"the TPR at FPR {self.fpr:g} is missing, and no note says why")


@dataclass(frozen=True, kw_only=True)
class Membership(Found):
    """How well scores tell candidates that went in from those that did not."""

    area_under_curve: AreaUnderCurve  # over all thresholds
    tpr_at_fpr: Rows[TprAtFpr]  # how many that went in are found, for each false-positive rate


@dataclass(frozen=True, kw_only=True)
class PrivacyClass(Found):
    """What one class of candidates says of privacy."""

    formats: Rows[str]  # pooled in it; one where a fixed number of canaries went in
    repetitions: Positive  # copies of each canary
    canaries: Count  # how many went in
    held_out: Count  # how many candidates did not
    references: Count  # that they were compared with
    bounds: JointBounds | None  # on epsilon; None where there is none
    membership: Membership | None  # how well scores tell who went in; None where there is no bound
    note: str | None  # why there is no bound

    def __post_init__(self) -> None:
        if self.bounds is None and self.note is None:
            raise ValueError(f"{', '.join(self.formats)}: there is no bound, and no note says why")

    @property
    def key(self) -> tuple[tuple[str, ...], int]:
        """Which class."""
        return self.formats, self.repetitions


@dataclass(frozen=True, kw_only=True)
class ClaimCheck(Found):
    """What the primary bound says of the epsilon that was claimed."""

    # "contradicted": the bound is above the claim; "consistent": it is not, although a perfect
    # attack would have put it there; "cannot tell": no attack could have
    verdict: Verdict
    reason: str  # the same with its numbers
    claimed_epsilon: Nats  # in nats
    claimed_delta: Delta  # of the same claim
    bound: Nats | None = None  # the primary bound; None where there is none
    max_attainable: Nats | None = None  # the most that it could have been, if it has an end
    significance: Share | None = None  # how often, at most, a true claim is contradicted
    # validity, method: of the bound
    validity: Validity | None = None
    method: str | None = None
    # what a perfect attack shows at least; None, as the two below, where no coins were tossed
    could_show: Nats | None = None
    # the smallest true epsilon at which an ideal attack contradicts the claim; None where none does
    refutable_from: Nats | None = None
    power: Rate | None = None  # probability with which both are so

    def __post_init__(self) -> None:
        if (self.could_show is None) != (self.power is None):
            raise ValueError(f"could_show={self.could_show}, but power={self.power}")
        verdict, bound, most = self.verdict, self.bound, self.max_attainable
        past = bound is not None and bound > self.claimed_epsilon
        wrong = bound is None or past != (verdict == "contradicted")
        if verdict != "cannot tell" and (wrong or (verdict == "consistent" and most is None)):
            raise ValueError(
                f"the claim of epsilon {self.claimed_epsilon:g} is said to be {verdict!r}, with a "
                f"bound of {bound}, and at most {most} attainable"
            )


@dataclass(frozen=True, kw_only=True)
class Privacy(Found):
    """Bounds on epsilon with their conditions, membership metrics, and a verdict on a claim."""

    inclusion_probability: Rate | None  # of each candidate's coin; None: a fixed number went in
    significance: Rate  # of all bounds here together
    deltas: Rows[Delta]  # for which epsilon is bounded, the primary bound's first
    primary: PrimaryBound | None  # the largest of the classes' primary bounds, if any has one
    max_attainable: Nats | None  # the most that a perfect attack on these classes would have shown
    classes: Rows[PrivacyClass]  # by repetitions, and by format where formats are not pooled
    claim: ClaimCheck | None  # None where nothing was claimed
    notes: Rows[str]  # what a reader must know of all this

    def __post_init__(self) -> None:
        each = [row.bounds.primary for row in self.classes if row.bounds is not None]
        if (self.primary is None) != (not each):
            raise ValueError("a primary bound is there if, and only if, a class has one")
        if (self.max_attainable is None) != all(bound.max_attainable is None for bound in each):
            raise ValueError("max_attainable is there if, and only if, a class has one")

    def __repr__(self) -> str:
        bound = self.primary
        if bound is None:
            return f"<Privacy: no bound on epsilon: {self.classes[0].note}>"
        claim = "" if self.claim is None else f"; the claim: {claim_word(self.claim.verdict)}"
        return (
            f"<Privacy: epsilon ≥ {nats(bound.value)} nats at delta {short(bound.delta)}, "
            f"significance {short(bound.significance)}, {bound_name(bound.name)}{claim}>"
        )
