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
from lmexposure._style import at_least
from lmexposure._text import visible
from lmexposure.records.result_formats import Method, Role

ClassKey = tuple[str, Role, int]


class QuantileInterval(Record):
    """A quantile of exposures, with an interval by order statistics.

    Attributes:
        value: of these canaries, bits.
        low, high: its interval, bits; None where too few canaries give no end on that side.
        quantile: which, in (0, 1).
        level: coverage wanted.
        attained: coverage reached; None where an end is missing.
        note: what is to be known of it; None where it is as wanted.
    """

    value: float
    low: Number | None
    high: Number | None
    quantile: Rate
    level: Rate
    attained: Share | None
    note: str | None

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError(f"the {self.quantile:g} quantile lacks an end, and no note says why")
        return self


class MeanInterval(Record):
    """A mean of exposures with an approximate interval, over canaries drawn like these.

    Attributes:
        value: of these canaries, bits.
        low, high: the interval, bits; None where there is none.
        level: coverage wanted.
        method: "bca", "normal", or "none" where there is no interval.
        resamples, seed: of the bootstrap; 0 resamples where none were drawn.
        note: what is to be known of it; None where it is as wanted.
    """

    value: float
    low: Number | None
    high: Number | None
    level: Rate
    method: Literal["bca", "normal", "none"]
    resamples: Count
    seed: BigInteger
    note: str | None

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.low, self.high) and self.note is None:
            raise ValueError("the mean lacks an end of its interval, and no note says why")
        return self


class ControlsComparison(Record):
    """How much higher the canaries of a class lie than the controls of their format.

    Attributes:
        n: how many controls.
        mean, median: of the controls' exposures, bits.
        exceeds: share of pairs in which the canary lies higher, ties as half; .5 = chance.
        p_value: how often chance puts canaries so high.
        method: of the p-value.
        permutations, seed: behind it.
        assumptions: what the p-value rests on.
    """

    n: Positive
    mean: float
    median: QuantileInterval
    exceeds: Share
    p_value: Share
    method: Literal["permutation", "normal approximation"]
    permutations: Count
    seed: BigInteger
    assumptions: Rows[str]


class GuessingBaseline(Record):
    """The exposures of canaries under a model that knows nothing of the secrets.

    Attributes:
        mean: bits; 1.44 among many references, less among few.
        median: bits; about 1.
        upper_quartile: bits, which one canary in four passes by luck; about 2.
    """

    mean: float
    median: float
    upper_quartile: float


class GuessingTest(Record):
    """How often chance gives a mean exposure such as this; lower p = harder to explain.

    Attributes:
        p_value: of a permutation test; at least 1 / (1 + permutations).
        statistic: mean exposure of the canaries among the references, bits.
        n: canaries of the class.
        references: that they were shuffled with.
        groups: of canaries and references that were ranked apart.
        alternative: "memorised" (one-sided), or "different" for controls.
        permutations, seed: behind it.
        assumptions: what the p-value rests on.
    """

    p_value: Annotated[float, Field(gt=0, le=1)]
    statistic: float
    n: Positive
    references: Positive
    groups: Count
    alternative: Literal["memorised", "different"]
    permutations: Positive
    seed: BigInteger
    assumptions: Rows[str]


class EpsilonPoint(Record):
    """The epsilon that a median exposure points to, in nats: a point value and no bound.

    Attributes:
        value: higher = less private.
        median_exposure: bits, from which it follows.
        repetitions: by which it is divided.
        quantile: of exposure; .5 is the median.
        validity: "point".
        unit: of the value.
        adjacency: which data sets count as neighbours.
        assumptions: what the value rests on.
        capped: the median is a lower bound, and so is this.
    """

    value: Nats
    median_exposure: float
    repetitions: Positive
    quantile: Rate
    validity: Literal["point"]
    unit: Literal["nats"]
    adjacency: str
    assumptions: Rows[str]
    capped: bool


class ExtractionCount(Record):
    """How many canaries of a class a search found, and how many guessing would have.

    Attributes:
        method: of the search, as in `Extraction`.
        revealed: characters of the secret that were given.
        found: canaries whose secret was found; more = more leaks.
        of: canaries that were searched for.
        by_chance: how many of them blind guesses, as many as the search tried, find on average.
    """

    method: Literal["greedy", "beam", "best_first"]
    revealed: Count
    found: Count
    of: Count
    by_chance: NotNegative

    @model_validator(mode="after")
    def _found_are_some_of_all(self) -> Self:
        if self.found > self.of:
            raise ValueError(f"{self.found} of {self.of} secrets are said to be found")
        return self


class GuessCount(Record):
    """How many canaries of a class an attacker finds within a number of guesses.

    Attributes:
        guesses: fills tried for each canary, the likeliest first.
        found: canaries whose secret is among them; more = more leaks.
        of: canaries of the class.
    """

    guesses: Positive
    found: Count
    of: Count

    @model_validator(mode="after")
    def _found_are_some_of_all(self) -> Self:
        if self.found > self.of:
            raise ValueError(f"{self.found} of {self.of} secrets are said to be found")
        return self


class ClassSummary(Record):
    """Canaries of one format and number of repetitions, or its controls.

    Attributes:
        format, role, repetitions: which; a control has repetitions 0.
        n: how many.
        mean: of their exposures, bits.
        standard_error: of the mean, bits; None where there is a single canary.
        lower_quartile, median, upper_quartile: with intervals.
        capped: how many exposures are lower bounds.
        level: coverage of the intervals.
        notes: where an interval is missing or rough.
        mean_interval: of the mean.
        controls: the class next to the format's controls; None for the controls themselves, and
            where there are none.
        guessing: what guessing gives.
        other_medians: medians by estimates that are never shown first; None where one is infinite.
        skew_normal_flagged: how many extrapolations reach beyond the references; None where none
            was made.
        guessing_test: of the mean against chance; None where none was made.
        median_capped: half of the exposures, or more, are lower bounds.
        epsilon: the point value; None for controls.
        methods: how many exposures were estimated in which way.
        extraction: how many secrets each search found, a row per method and characters given.
        guesses: how many are found within 1, 10, 100 ... guesses.
    """

    format: str
    role: Role
    repetitions: Count
    n: Positive
    mean: float
    standard_error: NotNegative | None
    lower_quartile: QuantileInterval
    median: QuantileInterval
    upper_quartile: QuantileInterval
    capped: Count
    level: Rate
    notes: Rows[str]
    mean_interval: MeanInterval
    controls: ControlsComparison | None
    guessing: GuessingBaseline
    other_medians: dict[Literal["certificate", "skew_normal", "calibrated"], float | None]
    skew_normal_flagged: Count | None
    guessing_test: GuessingTest | None
    median_capped: bool
    epsilon: EpsilonPoint | None
    methods: dict[Method, Count]
    extraction: Rows[ExtractionCount]
    guesses: Rows[GuessCount]

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
