"""What result.json holds of a class of canaries, and of the controls: its summary row, and tests.

Exposures are in bits, higher = more memorised.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lmexposure._record import (
    BigInteger,
    Count,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Share,
)
from lmexposure._style import at_least, visible
from lmexposure.studies.exposure.formats import Method, Role

ClassKey = tuple[str, Role, int]


class QuantileInterval(Record):
    """A quantile of exposures, with an interval by order statistics."""

    value: float  # of these canaries, bits
    # low, high: its interval, bits; None where too few canaries give no end on that side
    low: Number | None
    high: Number | None
    quantile: Rate  # which, in (0, 1)
    level: Rate  # coverage wanted
    attained: Share | None  # coverage reached; None where an end is missing
    note: str | None  # what is to be known of it; None where it is as wanted

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError(f"the {self.quantile:g} quantile lacks an end, and no note says why")
        return self


class MeanInterval(Record):
    """A mean of exposures with an approximate interval, over canaries drawn like these."""

    value: float  # of these canaries, bits
    # low, high: the interval, bits; None where there is none
    low: Number | None
    high: Number | None
    level: Rate  # coverage wanted
    # "bca", "normal", or "none" where there is no interval
    method: Literal["bca", "normal", "none"]
    # resamples, seed: of the bootstrap; 0 resamples where none were drawn
    resamples: Count
    seed: BigInteger
    note: str | None  # what is to be known of it; None where it is as wanted

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError("the mean lacks an end of its interval, and no note says why")
        return self


class ControlsComparison(Record):
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


class GuessingBaseline(Record):
    """The exposures of canaries under a model that knows nothing of the secrets."""

    mean: float  # bits; 1.44 among many references, less among few
    median: float  # bits; about 1
    upper_quartile: float  # bits, which one canary in four passes by luck; about 2


class GuessingTest(Record):
    """How often chance gives a mean exposure such as this; lower p = harder to explain."""

    # of a permutation test; at least 1 / (1 + permutations)
    p_value: Annotated[float, Field(gt=0, le=1)]
    statistic: float  # mean exposure of the canaries among the references, bits
    n: Positive  # canaries of the class
    references: Positive  # that they were shuffled with
    groups: Count  # of canaries and references that were ranked apart
    # "memorised" (one-sided), or "different" for controls
    alternative: Literal["memorised", "different"]
    # permutations, seed: behind it
    permutations: Positive
    seed: BigInteger
    assumptions: Rows[str]  # what the p-value rests on


class EpsilonPoint(Record):
    """The epsilon that a median exposure points to, in nats: a point value and no bound."""

    value: Nats  # higher = less private
    median_exposure: float  # bits, from which it follows
    repetitions: Positive  # by which it is divided
    quantile: Rate  # of exposure; .5 is the median
    validity: Literal["point"]  # "point"
    unit: Literal["nats"]  # of the value
    adjacency: str  # which data sets count as neighbours
    assumptions: Rows[str]  # what the value rests on
    capped: bool  # the median is a lower bound, and so is this


class ExtractionCount(Record):
    """How many canaries of a class a search found, and how many guessing would have."""

    method: Literal["greedy", "beam", "best_first"]  # of the search, as in `Extraction`
    revealed: Count  # characters of the secret that were given
    found: Count  # canaries whose secret was found; more = more leaks
    of: Count  # canaries that were searched for
    # how many of them blind guesses, as many as the search tried, find on average
    by_chance: NotNegative

    @model_validator(mode="after")
    def _found_are_some_of_all(self) -> Self:
        if self.found > self.of:
            raise ValueError(f"{self.found} of {self.of} secrets are said to be found")
        return self


class GuessCount(Record):
    """How many canaries of a class an attacker finds within a number of guesses."""

    guesses: Positive  # fills tried for each canary, the likeliest first
    found: Count  # canaries whose secret is among them; more = more leaks
    of: Count  # canaries of the class

    @model_validator(mode="after")
    def _found_are_some_of_all(self) -> Self:
        if self.found > self.of:
            raise ValueError(f"{self.found} of {self.of} secrets are said to be found")
        return self


class ClassSummary(Record):
    """Canaries of one format and number of repetitions, or its controls."""

    # format, role, repetitions: which; a control has repetitions 0
    format: str
    role: Role
    repetitions: Count
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
    # the class next to the format's controls; None for the controls themselves, and where there are
    # none
    controls: ControlsComparison | None
    guessing: GuessingBaseline  # what guessing gives
    # medians by estimates that are never shown first; None where one is infinite
    other_medians: dict[Literal["certificate", "skew_normal", "calibrated"], float | None]
    # how many extrapolations reach beyond the references; None where none was made
    skew_normal_flagged: Count | None
    guessing_test: GuessingTest | None  # of the mean against chance; None where none was made
    median_capped: bool  # half of the exposures, or more, are lower bounds
    epsilon: EpsilonPoint | None  # the point value; None for controls
    methods: dict[Method, Count]  # how many exposures were estimated in which way
    # how many secrets each search found, a row per method and characters given
    extraction: Rows[ExtractionCount]
    guesses: Rows[GuessCount]  # how many are found within 1, 10, 100 ... guesses.

    @property
    def key(self) -> ClassKey:
        """Which class."""
        return self.format, self.role, self.repetitions

    @property
    def name(self) -> str:
        """The same for a message."""
        return f"{visible(self.format)}, {self.role}, repetitions {self.repetitions}"

    def __repr__(self) -> str:
        median = at_least(self.median.value, self.median_capped)
        return f"<{self.name}: n={self.n}, median exposure {median} bits>"

    __str__ = __repr__

    @property
    def counted(self) -> int:
        """Canaries whose rank was counted over all of R."""
        return sum(n for method, n in self.methods.items() if method.startswith("exact"))

    @model_validator(mode="after")
    def _canaries_have_a_point_value(self) -> Self:
        if (self.epsilon is None) != (self.role == "control"):
            raise ValueError(f"{self.name}: a point value of epsilon is of canaries, and of each")
        return self
