"""result.json: everything that one measurement found, and what must be true in it.

Read from the bottom up: `Result` is the file, the classes above it are its parts. A number that is
out of its range, or that another part contradicts, would not look wrong in a report; it would look
like a finding. So each rule is a validator here, next to the fields that it is about, and whoever
has a `Result` need look at none of it again.

Bits are base-2 logarithms. Of an exposure, higher = more memorised; of a log-perplexity, lower =
more memorised. A number that is not finite is None, and a warning or a note next to it says why.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lmexposure._quantiles import ExposureEstimate, quantile_of
from lmexposure._record import (
    BigInteger,
    Count,
    FileRecord,
    Level,
    Record,
    Rows,
    Sha256,
    Share,
    Upgrades,
)
from lmexposure._style import at_least, bound_name, claim_word, nats, short
from lmexposure._text import visible
from lmexposure._validate import LARGEST_NUMBER, LEAST_LEVEL
from lmexposure.errors import ResultError, SettingsError
from lmexposure.records.result_upgrades import from_version_1

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from lmexposure.records.result_views import FoundShare
    from lmexposure.records.scores import Scores

Method = Literal[
    "exact",
    "exact up to an empirical margin",
    "bounded",
    "importance",
    "sampled",
    "skew_normal",
    "certificate",
]
# What estimates are kept under; a rank that is exact up to a margin is an "exact" one.
EstimateName = Literal["exact", "bounded", "importance", "sampled", "skew_normal", "certificate"]
Role = Literal["canary", "control"]
Validity = Literal["any-dp", "iid-scores", "gaussian", "asymptotic", "bayesian"]

MEASURE_AGAIN = "measure again with another directory, or move the file aside before"
ROUNDING = 1e-6  # bits
_QUANTILES = 9
_HOME = "_read_from"  # of a result that was read: its file, which is no part of it

_MOST = LARGEST_NUMBER  # the axes of a chart overflow beyond
Number = Annotated[float, Field(ge=-_MOST, le=_MOST)]
Bits = Annotated[float, Field(ge=-ROUNDING, le=_MOST)]
Nats = Annotated[float, Field(ge=0, le=_MOST)]
Rate = Annotated[float, Field(gt=0, lt=1)]
Delta = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[Count, Field(ge=1)]


class Validation(Record):
    """How well the model learned, where this package trained it: utility next to exposure.

    Attributes:
        validation_bits: loss of the kept checkpoint, bits per token, lower = more useful.
        initial_validation_bits: the same before training.
        best_epoch: when the kept checkpoint was made.
        epochs: of the whole training.
        stopped: what ended the training, such as "epochs" or "patience".
        improved: whether training lowered the loss; a model that did not learn cannot leak.
    """

    validation_bits: NotNegative | None
    initial_validation_bits: NotNegative | None
    best_epoch: NotNegative
    epochs: NotNegative
    stopped: str
    improved: bool

    @model_validator(mode="after")
    def _improvement_is_lower(self) -> Self:
        after, before = self.validation_bits, self.initial_validation_bits
        if self.improved and (after is None or before is None or after >= before):
            raise ValueError(
                f"validation is said to have improved, from {before} to {after} bits per token"
            )
        return self


class Model(Record):
    """The model that was measured.

    Attributes:
        path: its directory, from the result's where it lies below it, or its name on a hub; of a
            model in memory its `name_or_path`, else its class, with the adapters in use.
        type: of its config, such as "gpt2".
        parameters: how many.
        dtype: that it was measured in, such as "float32".
        context_window: tokens; None where it has no end.
        weights_sha256: of the weights that were measured: of an adapter in float32 merged with its
            base, whether it was saved or in memory.
        validation: None for a model that was trained elsewhere.
    """

    path: str
    type: str
    parameters: Count
    dtype: str
    context_window: Count | None
    weights_sha256: Sha256
    validation: Validation | None


class MeasureOptions(Record):
    """What was asked of the measurement: every setting that decides a number.

    Attributes:
        references: fills to compare with, per format; None: 10,000, or as many as there are.
        revealed: extraction was tried with 0 to this many of the secret's characters given.
        beam_width: candidates that a beam kept; None: 100, or twice the canaries of the format.
        extraction: whether secrets were searched for at all.
        method: which estimate of exposure was asked for; "auto" takes the best that there is.
        draws: fills drawn by importance, per format.
        guesses: the likeliest fills that best-first search was to find, per format.
        budget_steps: model steps that the search of a format might take; None: by the model's size.
        budget_seconds: how long each search might take; None: no such end.
        live_states: model states that a search might hold at once.
        level: coverage of every interval.
        bootstraps: refits behind the goodness of the skew-normal curve.
        permutations: shuffles behind each p-value against guessing.
        significance: of all bounds on epsilon together.
        delta: of the pair (epsilon, delta) that is bounded; None: 0, and one that follows from the
            number of documents.
        claimed_epsilon: what was claimed of the training, in nats, with `delta`.
        quick: a first look, with a tenth of the references and of the search.
        seed: of bootstraps and, with the hashes of manifest and weights, of permutations.
        threads: of the CPU, whose number decides the last bits of a score; None in results of
            versions that did not say.
    """

    references: Count | None
    revealed: Count
    beam_width: Count | None
    extraction: bool
    method: str
    draws: Count
    guesses: Count
    budget_steps: BigInteger | None
    budget_seconds: Annotated[float, Field(gt=0)] | None
    live_states: Count | None
    level: Rate
    bootstraps: Count
    permutations: Count
    significance: Rate
    delta: Delta | None
    claimed_epsilon: Nats | None
    quick: bool
    seed: BigInteger
    threads: Count | None


class Goodness(Record):
    """How well the skew-normal curve fits its references.

    Attributes:
        ks_statistic: Kolmogorov-Smirnov distance between curve and references.
        ks_p_value: of that, by bootstrap; small = a bad fit.
        tail_bits: by how much the curve overstates exposure among the lowest references.
        tail_p_value: of that, by the same bootstrap.
        bootstraps: how many refits.
        warnings: what does not fit.
    """

    ks_statistic: Share
    ks_p_value: Share
    tail_bits: float
    tail_p_value: Share
    bootstraps: Count
    warnings: Rows[str]


class SkewNormalFit(Record):
    """The skew-normal curve through the log-perplexities of a format's references.

    Attributes:
        location: where the curve lies, in bits; its mean where the shape is 0.
        scale: how wide it is, in bits.
        shape: how lopsided it is, without unit: 0 is a normal curve, above 0 the long tail is to
            the right, towards fills that surprise the model more.
        goodness: how well it fits.
    """

    location: Number
    scale: Annotated[float, Field(gt=0, le=_MOST)]
    shape: Number
    goodness: Goodness


class TokenProof(Record):
    """How it was shown that every fill was followed as its own tokens.

    Attributes:
        rule: of the tokenizer, that was shown to hold.
        counted: fills that the walk over tokens holds.
        looked_up: texts that were encoded to show it.
    """

    rule: str
    counted: BigInteger
    looked_up: Count


class Margin(Record):
    """By how much a cost may be off, in bits, and how that is known.

    Attributes:
        bits: two fills that are further apart are in their true order.
        measured: the largest difference that was seen.
        sample: over how many fills.
        empirical: whether it is only seen, and not kept by recomputing in float64.
    """

    bits: NotNegative
    measured: NotNegative
    sample: Count
    empirical: bool


class Search(Record):
    """How a format's fills were searched; None for what was not done.

    Attributes:
        tokens: how fills were followed as tokens.
        shared_tokens: how many tokens all fills begin with.
        margin: by how much a fill's cost in bits may be off.
        budget_steps: model steps that each search might take.
        draws: fills drawn by importance.
        draw_steps: model steps that drawing took.
        walk_steps: model steps that counting ranks took.
        most_live: model states held at once.
        guesses_proven: how many of the likeliest fills are known in their order.
        guess_steps: model steps that this took.
    """

    tokens: TokenProof
    shared_tokens: Count
    margin: Margin
    budget_steps: BigInteger
    draws: Count | None
    draw_steps: Count | None
    walk_steps: Count | None
    most_live: Count | None
    guesses_proven: Count | None
    guess_steps: Count | None


class FormatResult(Record):
    """A format, and the references that its canaries were compared with.

    Attributes:
        name: as in the manifest.
        space_size: |R|, exactly.
        bits: log2|R|, the most that exposure can show.
        references: fills never inserted that were scored.
        exhaustive: they are all fills that are neither canary nor control.
        set_aside: fills that the corpus held before insertion: not drawn, and in no rank.
        shared_tokens: how many tokens all scored texts begin with.
        certifiable: fills have token paths of their own behind those, and all of it was scored.
        first_unscored: the first token of a text went unscored, for there was nothing before it.
        reference_bits_quantiles: of the references' log-perplexities: least, 1, 5, 25, 50, 75, 95,
            99 %, largest; empty in results that did not keep them.
        skew_normal: the curve through them; None where there is none.
        search: over all of R; None where the fills could not be followed as tokens, or it was
            not asked for.
        interrupted: a person ended the search or the extraction early.
    """

    name: str
    space_size: Annotated[BigInteger, Field(ge=1)]
    bits: NotNegative
    references: Positive
    exhaustive: bool
    set_aside: Count
    shared_tokens: Count
    certifiable: bool
    first_unscored: bool
    reference_bits_quantiles: Rows[Number]
    skew_normal: SkewNormalFit | None
    search: Search | None
    interrupted: bool

    @model_validator(mode="after")
    def _bits_are_of_the_size(self) -> Self:
        name, size = self.name, self.space_size
        if abs(math.log2(size) - self.bits) > ROUNDING:
            raise ValueError(
                f"format {name!r} has {self.bits:g} bits, which is not log2 of its size {size}"
            )
        if self.references >= size:
            raise ValueError(
                f"format {name!r} has {self.references:,} references among {size} fills"
            )
        return self

    @model_validator(mode="after")
    def _quantiles_ascend(self) -> Self:
        known = self.reference_bits_quantiles
        if known and (len(known) != _QUANTILES or list(known) != sorted(known)):
            raise ValueError(
                f"format {self.name!r} has reference_bits_quantiles that are not {_QUANTILES} in "
                "order"
            )
        return self


class Estimate(Record):
    """One estimate of one canary's exposure.

    Attributes:
        method: how it was made.
        value: bits; None where it is not finite.
        low, high: its interval; None where it has no end on that side.
        level: two-sided coverage; 1: it is proven.
        rank: 1 + fills never inserted that cost no more; None where no rank was counted.
        capped: the value is a lower bound.
        place: the rank among all of R, inserted ones too; None where it is not known.
        draws, effective_draws: behind an "importance" estimate, and how many independent ones they
            are worth; None for others.
        steps: model steps that it took; None where it took none of its own.
        assumptions: what it rests on.
        warnings: what is not as it should be, and why a number is missing.
    """

    method: Method
    value: Number | None
    low: Number | None
    high: Number | None
    level: Level
    rank: Annotated[BigInteger, Field(ge=1)] | None
    capped: bool
    place: Annotated[BigInteger, Field(ge=1)] | None
    draws: Count | None
    effective_draws: NotNegative | None
    steps: Count | None
    assumptions: Rows[str]
    warnings: Rows[str]

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.value, self.low, self.high) and not self.warnings:
            raise ValueError(
                f"an exposure by {self.method!r} lacks its value or an end, and no warning says why"
            )
        return self

    @model_validator(mode="after")
    def _value_lies_in_its_interval(self) -> Self:
        value = self.value
        if value is None:
            return self
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low - ROUNDING <= value <= high + ROUNDING:
            raise ValueError(f"exposure {value:g} lies outside its interval {low:g} .. {high:g}")
        if self.method == "sampled" and self.level > 1 - LEAST_LEVEL:
            raise ValueError("an interval of a sample that never misses would have no end")
        return self

    def with_error(
        self, bits: float | None, *, references: int, space_bits: float
    ) -> ExposureEstimate | None:
        """The same with what its error comes from, for a quantile of a class.

        A missing lower end is 0 bits, or the value where that is a lower bound itself; a missing
        upper end, like any that lies beyond it, is the whole secret.

        Args:
            bits: the canary's log-perplexity.
            references: fills that were drawn to compare with.
            space_bits: log2|R|.

        Returns:
            None where the value or the log-perplexity is missing.
        """
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


class Extraction(Record):
    """One search for one secret.

    Attributes:
        method: "greedy" and "beam" follow the likeliest characters, "best_first" tries fills in
            proven order.
        revealed: characters of the secret that were given.
        width: fills that were tried at most.
        found: whether the secret was among them.
        place: at which of them; None where it was not found, or the search does not say.
        steps: model steps.
        proven: guesses whose order is proven, of "best_first"; None for the others.
        fills_left: that agree with what was given.
        by_chance: how likely as many blind guesses hold the secret.
    """

    method: Literal["greedy", "beam", "best_first"]
    revealed: Count
    width: Count
    found: bool
    place: Annotated[BigInteger, Field(ge=1)] | None
    steps: Count
    proven: Count | None
    fills_left: Annotated[BigInteger, Field(ge=1)]
    by_chance: Share

    @property
    def tried(self) -> int:
        """Fills that were tried: those of a best-first search count as far as they are proven."""
        return self.proven or 0 if self.method == "best_first" else self.width

    @property
    def found_at(self) -> int | None:
        """At which guess at the latest, where its place is not known; None: at none."""
        return self.tried if self.found and self.place is None else self.place

    @model_validator(mode="after")
    def _found_is_among_those_tried(self) -> Self:
        if (self.proven is None) == (self.method == "best_first"):
            raise ValueError(f"proven={self.proven} does not go with a search by {self.method!r}")
        if self.place is not None and (not self.found or self.place > self.tried):
            raise ValueError(f"place={self.place:,} of {self.tried:,} guesses, found={self.found}")
        return self


class CanaryResult(Record):
    """What was measured of one canary or control. Its secret is not here; the manifest holds it.

    Attributes:
        id, format, role, repetitions: as in the manifest; a control has repetitions 0.
        log_perplexity_bits: lower = more memorised; None where the model gave no finite one.
        exposure: the estimate that is shown: one of `estimates`.
        estimates: every estimate that was made, by name.
        extraction: one row per method and number of revealed characters.
    """

    id: str
    format: str
    role: Role
    repetitions: Count
    log_perplexity_bits: Bits | None
    exposure: Estimate
    estimates: dict[EstimateName, Estimate]
    extraction: Rows[Extraction]

    @model_validator(mode="after")
    def _controls_were_never_inserted(self) -> Self:
        if (self.repetitions > 0) != (self.role == "canary"):
            raise ValueError(
                f"canary {self.id!r} has role {self.role!r} and repetitions {self.repetitions}"
            )
        return self

    @model_validator(mode="after")
    def _estimates_are_by_their_names(self) -> Self:
        for name, estimate in self.estimates.items():
            if not estimate.method.startswith(name):
                raise ValueError(
                    f"canary {self.id!r} has an estimate by {estimate.method!r} under {name!r}"
                )
        if self.exposure not in self.estimates.values():
            raise ValueError(
                f"canary {self.id!r} has an exposure ({self.exposure.method}, "
                f"{self.exposure.value}) that is none of its estimates"
            )
        return self


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

    @model_validator(mode="after")
    def _p_value_is_of_its_permutations(self) -> Self:
        least = 1 / (1 + self.permutations)
        if self.p_value < least * (1 - 1e-9):
            raise ValueError(
                f"p_value={self.p_value:g}, but {self.permutations:,} permutations give at least "
                f"{least:g}"
            )
        return self


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

    @model_validator(mode="after")
    def _value_follows_from_the_median(self) -> Self:
        found = max(0.0, math.log(2) * (self.median_exposure - 1) / self.repetitions)
        if abs(self.value - found) > ROUNDING:
            raise ValueError(
                f"value={self.value:g}, but a median exposure of {self.median_exposure:g} bits "
                f"gives {found:g}"
            )
        return self


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
    other_medians: dict[Literal["certificate", "skew_normal"], float | None]
    skew_normal_flagged: Count | None
    guessing_test: GuessingTest | None
    median_capped: bool
    epsilon: EpsilonPoint | None
    methods: dict[Method, Count]
    extraction: Rows[ExtractionCount]
    guesses: Rows[GuessCount]

    @property
    def key(self) -> "ClassKey":
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
    def _parts_are_of_this_class(self) -> Self:
        if (self.epsilon is None) != (self.role == "control"):
            raise ValueError(f"{self.name}: a point value of epsilon is of canaries, and of each")
        if self.epsilon is not None and self.epsilon.repetitions != self.repetitions:
            raise ValueError(f"{self.name}: epsilon is of {self.epsilon.repetitions} repetitions")
        test = self.guessing_test
        wanted = "memorised" if self.role == "canary" else "different"
        if test is not None and (test.n, test.alternative) != (self.n, wanted):
            raise ValueError(
                f"{self.name}: guessing test of n={test.n} and {test.alternative!r}, but the "
                f"class is of n={self.n} and {wanted!r}"
            )
        return self


ClassKey = tuple[str, Role, int]


class Bound(Record):
    """A lower bound on epsilon in nats; higher = less private. At no signal it is 0.

    Attributes:
        method: the rule that gave it.
        value: epsilon is at least this with confidence 1 - significance.
        significance: how often, at most, `value` may lie above the true epsilon.
        delta: of the pair (epsilon, delta) that `value` bounds, for one document.
        validity: for which trainings it holds: "any-dp" for every one; the others are in the
            glossary.
        counts: what was counted, by name.
        threshold: the score above which a canary was guessed to be in; None: no single one.
        threshold_choice: how it, or what takes its place, was chosen.
        max_attainable: the most that `value` could have been, had the attack been perfect; None
            where the rule has no such end.
        mu: of a Gaussian mechanism with as much leakage; None for other rules.
        repetitions: copies of each canary.
        unit: of `value`.
        adjacency: which data sets count as neighbours.
        assumptions: what must hold in addition to the class of validity.
        notes: what is not as it should be, and what became of it.
    """

    method: str
    value: Nats
    significance: Rate
    delta: Delta
    validity: Validity
    counts: dict[str, Count]
    threshold: float | None
    threshold_choice: str
    max_attainable: Nats | None
    mu: NotNegative | None
    repetitions: Positive
    unit: Literal["nats"]
    adjacency: str
    assumptions: Rows[str]
    notes: Rows[str]

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
    """The largest of the classes' primary bounds; its other fields are as in `Bound`.

    Attributes:
        significance: the sum of what the primary bounds of all classes have.
        formats: of the class that it is from.
    """

    formats: Rows[str]


class RefusedBound(Record):
    """A bound that these data do not support.

    Attributes:
        method: the rule that would have given it.
        reason: why it was not computed.
    """

    method: str
    reason: str


class ClassBounds(Record):
    """Bounds on epsilon of one class, which hold together.

    Attributes:
        primary: named beforehand, with half of the significance.
        others: what else the data supports.
        refused: what it does not.
        significance: of all of them together.
        inclusion_probability: with which each candidate went in; None where a fixed number did.
    """

    primary: Bound
    others: Rows[Bound]
    refused: Rows[RefusedBound]
    significance: Rate
    inclusion_probability: Rate | None


class AreaUnderCurve(Record):
    """P(score in > score out) + P(equal) / 2, in [0, 1]; 0.5 = guessing, higher = more leaks.

    Attributes:
        value: of these scores.
        low, high: its two-sided interval.
        level: coverage wanted.
        method: of the interval: "effective", "newcombe" or "hoeffding".
        validity: of the interval: "iid-scores" (for every number of scores) or "asymptotic".
        positives: scores of candidates that went in.
        negatives: scores of candidates that did not.
        assumptions: what the interval rests on.
        notes: what is unusual about these scores.
    """

    value: Share
    low: Share
    high: Share
    level: Rate
    method: str
    validity: str
    positives: Count
    negatives: Count
    assumptions: Rows[str]
    notes: Rows[str]


class TruePositiveRate(Record):
    """The true-positive rate at a false-positive rate, in [0, 1]; higher = more leaks.

    Attributes:
        fpr: the false-positive rate that is allowed.
        value: of these scores; None, as the four below, where the negatives are too few for `fpr`.
        low, high: its interval.
        threshold: the score from which on the attack takes a candidate for one that went in.
        false_positives: how many that did not go in it takes for ones that did.
        level: coverage of the interval.
        positives: scores of candidates that went in.
        negatives: scores of candidates that did not.
        note: why there is no number.
        validity: what the interval assumes.
    """

    fpr: Rate
    value: Share | None
    low: Share | None
    high: Share | None
    level: Rate
    threshold: float | None
    false_positives: Count | None
    positives: Count
    negatives: Count
    note: str | None
    validity: str

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if None in (self.value, self.low, self.high) and self.note is None:
            raise ValueError(f"the TPR at FPR {self.fpr:g} is missing, and no note says why")
        return self


class Membership(Record):
    """How well scores tell candidates that went in from those that did not.

    Attributes:
        area_under_curve: over all thresholds.
        tpr_at_fpr: how many that went in are found, at few false positives; a row for each
            false-positive rate.
    """

    area_under_curve: AreaUnderCurve
    tpr_at_fpr: Rows[TruePositiveRate]


class PrivacyClass(Record):
    """What one class of candidates says of privacy.

    Attributes:
        formats: pooled in it; one where a fixed number of canaries went in.
        repetitions: copies of each canary.
        canaries: how many went in.
        held_out: how many candidates did not.
        references: that they were compared with.
        bounds: on epsilon; None where there is none.
        membership: how well scores tell who went in; None where there is no bound.
        note: why there is no bound.
    """

    formats: Rows[str]
    repetitions: Positive
    canaries: Count
    held_out: Count
    references: Count
    bounds: ClassBounds | None
    membership: Membership | None
    note: str | None

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
    """What the primary bound says of the epsilon that was claimed.

    Attributes:
        verdict: "contradicted": the bound is above the claim; "consistent": it is not, although a
            perfect attack would have put it there; "cannot tell": no attack could have.
        reason: the same with its numbers.
        claimed_epsilon: in nats.
        claimed_delta: of the same claim.
        bound: the primary bound; None where there is none.
        max_attainable: the most that it could have been; None where there is no such end.
        significance: how often, at most, a true claim is contradicted.
        validity, method: of the bound.
    """

    verdict: Literal["contradicted", "consistent", "cannot tell"]
    reason: str
    claimed_epsilon: Nats
    claimed_delta: Delta
    bound: Nats | None
    max_attainable: Nats | None
    significance: Share | None
    validity: Validity | None
    method: str | None

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        claimed, bound, most = self.claimed_epsilon, self.bound, self.max_attainable
        follows = "cannot tell"
        if bound is not None and bound > claimed:
            follows = "contradicted"
        elif bound is not None and most is not None and most > claimed:
            follows = "consistent"
        if self.verdict != follows:
            raise ValueError(
                f"the claim of epsilon {claimed:g} is said to be {self.verdict!r}, but with a "
                f"bound of {bound}, and at most {most} attainable, it is {follows!r}"
            )
        return self


class Privacy(Record):
    """Bounds on epsilon with their conditions, membership metrics, and a verdict on a claim.

    Attributes:
        inclusion_probability: with which each candidate went in by its own coin; None where a fixed
            number of canaries went in.
        significance: of all bounds together.
        deltas: for which epsilon is bounded, the primary bound's first.
        primary: the largest of the classes' primary bounds; None where no class has one.
        max_attainable: the most that a perfect attack on these classes would have shown.
        classes: by repetitions, and by format where formats are not pooled.
        claim: None where nothing was claimed.
        notes: what a reader must know of all this.
    """

    inclusion_probability: Rate | None
    significance: Rate
    deltas: Rows[Delta]
    primary: PrimaryBound | None
    max_attainable: Nats | None
    classes: Rows[PrivacyClass]
    claim: ClaimCheck | None
    notes: Rows[str]

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
    def _primary_is_the_largest(self) -> Self:
        each = [c.bounds.primary for c in self.classes if c.bounds is not None]
        if (self.primary is None) != (not each):
            raise ValueError("a primary bound is there if, and only if, a class has one")
        if self.primary is None:
            return self
        largest = max(bound.value for bound in each)
        together = math.fsum(bound.significance for bound in each)
        if self.primary.value != largest:
            raise ValueError(
                f"the primary bound is {self.primary.value:g}, the largest of the "
                f"classes' is {largest:g}"
            )
        if not math.isclose(self.primary.significance, together, rel_tol=1e-9):
            raise ValueError(
                f"the primary bound has the significance {self.primary.significance:g}, "
                f"and those of its classes sum up to {together:g}"
            )
        said = self.primary.model_dump(exclude={"formats", "significance"})
        key = (tuple(self.primary.formats), self.primary.repetitions)
        if not any(
            c.key == key and c.bounds.primary.model_dump(exclude={"significance"}) == said
            for c in self.classes
            if c.bounds is not None
        ):
            raise ValueError("the primary bound is that of none of the classes")
        return self

    @model_validator(mode="after")
    def _classes_are_of_one_inclusion(self) -> Self:
        for part in self.classes:
            if part.bounds is not None:
                said = part.bounds.inclusion_probability
                name = f"{', '.join(part.formats)}, repetitions {part.repetitions}"
                _same(name, "inclusion_probability", said, self.inclusion_probability)
        return self

    @model_validator(mode="after")
    def _most_attainable_is_that_of_a_class(self) -> Self:
        each = [c.bounds.primary.max_attainable for c in self.classes if c.bounds is not None]
        most = max((value for value in each if value is not None), default=None)
        if self.max_attainable != most:
            raise ValueError(
                f"max_attainable={self.max_attainable}, but the most of the classes' primary "
                f"bounds is {most}"
            )
        return self

    @model_validator(mode="after")
    def _claim_is_held_against_it(self) -> Self:
        claim, primary = self.claim, self.primary
        if claim is None:
            return self
        _same("claim", "bound", claim.bound, None if primary is None else primary.value)
        _same("claim", "max_attainable", claim.max_attainable, self.max_attainable)
        if primary is None:
            return self
        _same("claim", "significance", claim.significance, primary.significance)
        _same("claim", "validity", claim.validity, primary.validity)
        _same("claim", "method", claim.method, primary.method)
        if claim.claimed_delta > primary.delta:
            raise ValueError(
                f"claim: claimed_delta={claim.claimed_delta:g} is above the primary bound's delta "
                f"of {primary.delta:g}, which says nothing of it"
            )
        return self


class Result(FileRecord):
    """Everything that one measurement found: result.json.

    Attributes:
        lmexposure: the version that measured; None in results of versions that did not say. The
            date is in run.json, so that the same measurement gives the same bytes.
        inputs_sha256: hash of all that decides the numbers: manifest, weights, settings.
        manifest_sha256: of the manifest's contents.
        scores_sha256: of the scores.parquet next to it; None where there is none, or in results of
            versions that did not say.
        model: what was measured.
        settings: what was asked of the measurement.
        formats: in the manifest's order.
        canaries: canaries and controls, in the manifest's order.
        summary: classes of canaries and the controls, format by format.
        privacy: None in results of versions that bounded nothing.
        warnings: what a reader must know before believing a number.
    """

    NAME: ClassVar[str] = "result.json"
    FAMILY: ClassVar[str] = "lmexposure.result"
    VERSION: ClassVar[int] = 2
    AGAIN: ClassVar[str] = MEASURE_AGAIN
    UPGRADES: ClassVar[Upgrades] = {1: from_version_1}

    lmexposure: str | None
    inputs_sha256: Sha256
    manifest_sha256: Sha256
    scores_sha256: Sha256 | None
    model: Model
    settings: MeasureOptions
    formats: Rows[FormatResult]
    canaries: Rows[CanaryResult]
    summary: Rows[ClassSummary]
    privacy: Privacy | None
    warnings: Rows[str]

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a result.json of this or an older version.

        Raises:
            ResultError: missing, not JSON, no result, of a newer version, edited or damaged since
                it was written, or with parts that cannot be true together.
        """
        path = Path(path)
        try:
            content = path.read_bytes()
        except FileNotFoundError as failure:
            raise ResultError(f"no result at {path}; make one: lmexposure measure") from failure
        except IsADirectoryError as failure:
            raise ResultError(f"{path} is a directory; give the result.json in it") from failure
        except OSError as failure:
            raise ResultError(
                f"{path} is not readable ({failure.strerror or failure}); {cls.AGAIN}"
            ) from failure
        found = cls.parse(content, path)
        found.__dict__[_HOME] = path
        return found

    def save(self, directory: str | Path) -> Path:
        """Write result.json and, where the scores are known, scores.parquet next to it.

        Args:
            directory: made where there is none.

        Returns:
            the path of result.json, which `Result.read` and `open_run` take.

        Raises:
            SettingsError: no path.
            ResultError: another result is there, or other scores or a run without a result are;
                not so the scores that a save of this very result left when it was killed.
            FileError: the disk refused.
        """
        from lmexposure.records.result_views import save

        if not isinstance(directory, str | Path) or not str(directory):
            raise SettingsError(f"directory={directory!r} is no path; give a directory's")
        return save(self, Path(directory))

    def exposure(
        self, format: str | None = None, *, repetitions: int | None = None
    ) -> ClassSummary:
        """The exposures of one class: its mean, its median and quartiles with their intervals.

        Args:
            format: its name; None: the only one there is.
            repetitions: 0 for the controls; None: the only class of inserted canaries.

        Raises:
            ResultError: no such class, or several; it lists those that there are.
        """
        from lmexposure.records.result_views import class_of

        return class_of(self, format, repetitions)

    def quantile(
        self, quantile: float, format: str | None = None, *, repetitions: int | None = None
    ) -> QuantileInterval:
        """Any quantile of one class's exposures, in bits, with an interval as that of its median.

        Args:
            quantile: strictly between 0 and 1; 0.9: a tenth of the canaries are more memorised.
            format: as for `exposure`.
            repetitions: as for `exposure`.

        Raises:
            SettingsError: no quantile.
            ResultError: as for `exposure`; or an exposure is missing.
        """
        from lmexposure.records.result_views import class_of, quantile_of_class

        return quantile_of_class(self, quantile, class_of(self, format, repetitions).key)

    def extraction(
        self, format: str | None = None, *, repetitions: int | None = None, guesses: int = 1000
    ) -> "FoundShare":
        """How many secrets of one class an attacker finds who knows the format alone.

        Args:
            format: as for `exposure`.
            repetitions: as for `exposure`.
            guesses: that the attacker makes for each secret, the likeliest first.

        Raises:
            SettingsError: fewer than one guess.
            ResultError: as for `exposure`; or the secrets were not searched for.
        """
        from lmexposure.records.result_views import class_of, share_found

        return share_found(self, class_of(self, format, repetitions).key, guesses)

    @property
    def epsilon(self) -> Privacy | None:
        """Lower bounds on epsilon with their conditions, and what becomes of a claim."""
        return self.privacy

    def to_frame(self) -> "pd.DataFrame":
        """A pandas frame with a row for each canary and control; no secrets.

        Columns: id, format, role, repetitions; log_perplexity_bits (lower = more memorised);
        exposure with low and high, in bits (higher = more memorised), whether it is capped, and the
        method; rank and place, as in `Estimate`; found_at: the guess at which the secret falls by
        the best of the searches, missing where it does not within all `guesses_tried`.
        """
        from lmexposure.records.result_views import frame_of

        return frame_of(self)

    @cached_property
    def scores(self) -> "Scores | None":
        """The scores of every text: in memory, or read from the scores.parquet next to the file.

        None where there are none. They are no part of the record, and of no copy of it.

        Raises:
            ResultError: a scores.parquet that is damaged, or of another result.
        """
        home = self.__dict__.get(_HOME)
        if home is None or home.name != self.NAME:  # next to another name, another result's may lie
            return None
        path = home.with_name("scores.parquet")
        if not path.exists():
            return None
        from lmexposure.records.scores import read_scores  # brings numpy

        return read_scores(path, self)

    def with_scores(self, scores: "Scores") -> Self:
        """The same result, with the scores that it was made from in memory."""
        kept = self.model_copy()
        kept.__dict__["scores"] = scores
        return kept

    @cached_property
    def format_named(self) -> Mapping[str, FormatResult]:
        """The formats by name."""
        return {form.name: form for form in self.formats}

    @cached_property
    def classes(self) -> Mapping[ClassKey, list[CanaryResult]]:
        """The canaries of each class, in the result's order."""
        found: dict[ClassKey, list[CanaryResult]] = {}
        for canary in self.canaries:
            key: ClassKey = (canary.format, canary.role, canary.repetitions)
            found.setdefault(key, []).append(canary)
        return found

    def __repr__(self) -> str:
        from lmexposure.records.result_views import title_of

        return f"<{title_of(self)}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from lmexposure.records.result_views import html_of

        return html_of(self)

    def __copy__(self) -> Self:
        """Without the views: `model_copy` may replace what they show."""
        return super().__copy__()._without_views()

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        """Without the views, as `__copy__`."""
        return super().__deepcopy__(memo)._without_views()

    def _without_views(self) -> Self:
        for view in ("classes", "format_named", "scores", _HOME):
            self.__dict__.pop(view, None)
        return self

    @model_validator(mode="after")
    def _each_is_there_once(self) -> Self:
        _once("format", [form.name for form in self.formats])
        _once("canary", [canary.id for canary in self.canaries])
        _once("summary of", [row.key for row in self.summary])
        return self

    @model_validator(mode="after")
    def _canaries_are_of_their_formats(self) -> Self:
        for canary in self.canaries:
            form = self.format_named.get(canary.format)
            if form is None:
                raise ValueError(
                    f"canary {canary.id!r} is of format {canary.format!r}, which the result does "
                    "not have"
                )
            for estimate in canary.estimates.values():
                _check_estimate(canary, estimate, form)
        return self

    @model_validator(mode="after")
    def _spaces_hold_what_was_inserted(self) -> Self:
        inserted = Counter(canary.format for canary in self.canaries if canary.role == "canary")
        for form in self.formats:
            taken = inserted[form.name] + form.set_aside
            if taken > form.space_size:
                raise ValueError(
                    f"format {form.name!r}: {taken:,} fills were inserted or set aside, of "
                    f"{form.space_size:,} that there are"
                )
        return self

    @model_validator(mode="after")
    def _summary_is_of_the_canaries(self) -> Self:
        rows = {row.key: row for row in self.summary}
        for name, role, repetitions in sorted(self.classes.keys() ^ rows.keys()):
            there = (name, role, repetitions) in rows
            raise ValueError(
                f"the summary has {'a' if there else 'no'} row of format {name!r}, role {role!r}, "
                f"repetitions {repetitions}, and the result holds {'no ' * there}such canaries"
            )
        for key, row in rows.items():
            _check_summary(row, self.classes[key], self.format_named[row.format])
            _check_controls(row, rows.get((row.format, "control", 0)))
        return self

    @model_validator(mode="after")
    def _settings_are_those_of_the_numbers(self) -> Self:
        asked, privacy = self.settings, self.privacy
        for row in self.summary:
            _same(row.name, "level", row.level, asked.level)
        for canary in self.canaries:
            most = max((search.revealed for search in canary.extraction), default=None)
            if most is not None and not (asked.extraction and most <= asked.revealed):
                raise ValueError(
                    f"canary {canary.id!r} was searched for with {most} characters revealed, but "
                    f"the settings say extraction={asked.extraction}, revealed={asked.revealed}"
                )
        if privacy is not None:
            _same("privacy", "significance", privacy.significance, asked.significance)
            if asked.delta is not None:
                _same("privacy", "deltas", tuple(privacy.deltas), (asked.delta,))
        return self

    @model_validator(mode="after")
    def _privacy_is_of_the_canaries(self) -> Self:
        for part in () if self.privacy is None else self.privacy.classes:
            keys: Iterator[ClassKey] = ((name, "canary", part.repetitions) for name in part.formats)
            there = sum(len(self.classes.get(key, ())) for key in keys)
            if there != part.canaries:
                raise ValueError(
                    f"privacy: {', '.join(part.formats)}, repetitions {part.repetitions}: "
                    f"canaries={part.canaries}, but the result holds {there}"
                )
        claim = None if self.privacy is None else self.privacy.claim
        wanted = self.settings.claimed_epsilon
        if claim is not None and claim.claimed_epsilon != wanted:
            raise ValueError(
                f"privacy: the claim is of epsilon {claim.claimed_epsilon:g}, and the settings' "
                f"claimed_epsilon is {wanted}"
            )
        return self

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        missing = [c.id for c in self.canaries if c.log_perplexity_bits is None]
        if missing and not self.warnings:
            raise ValueError(
                f"canary {missing[0]!r} has no log-perplexity, and no warning says why"
            )
        return self


def _check_estimate(canary: CanaryResult, estimate: Estimate, form: FormatResult) -> None:
    """Exposure follows from the rank; an extrapolation alone may lie beyond all ranks."""
    value, references = estimate.value, form.references
    if value is None or estimate.method == "skew_normal":
        return
    least = 0.0
    if estimate.method == "sampled":
        # What costs more than every reference has the rank n + 1 of n.
        least = math.log2(references / (references + 1))
    if not least - ROUNDING <= value <= form.bits + ROUNDING:
        raise ValueError(
            f"canary {canary.id!r} has an exposure of {value:g} bits, outside of {least:.4g} to "
            f"{form.bits:g}"
        )
    if estimate.rank is None or estimate.method == "importance":  # weighted ranks are rounded
        return
    among = references if estimate.method == "sampled" else form.space_size
    follows = math.log2(among) - math.log2(estimate.rank)
    if abs(value - follows) > ROUNDING:
        raise ValueError(
            f"canary {canary.id!r} has an exposure of {value:g} bits by {estimate.method!r}, but "
            f"its rank {estimate.rank} gives {follows:g}"
        )


def _check_summary(row: ClassSummary, canaries: Sequence[CanaryResult], form: FormatResult) -> None:
    """A row says what its canaries say."""
    shown = [canary.exposure for canary in canaries]
    _same(row.name, "n", row.n, len(canaries))
    _same(
        row.name, "methods", dict(row.methods), dict(Counter(estimate.method for estimate in shown))
    )
    _same(row.name, "capped", row.capped, sum(estimate.capped for estimate in shown))
    _same(row.name, "median_capped", row.median_capped, 2 * row.capped >= row.n)
    if row.guessing_test is not None:
        name = f"{row.name}, guessing test"
        _same(name, "references", row.guessing_test.references, form.references)
    _check_finds(row, canaries)
    values = [estimate.value for estimate in shown if estimate.value is not None]
    if len(values) < len(shown):
        return
    _near(row.name, "mean", row.mean, math.fsum(values) / len(values))
    _near(row.name, "mean_interval.value", row.mean_interval.value, row.mean)
    for part in (row.lower_quartile, row.median, row.upper_quartile):
        _near(
            row.name, f"{part.quantile:g} quantile", part.value, quantile_of(values, part.quantile)
        )
    if row.epsilon is not None:
        _near(row.name, "epsilon.median_exposure", row.epsilon.median_exposure, row.median.value)


def _check_finds(row: ClassSummary, canaries: Sequence[CanaryResult]) -> None:
    """Secrets are counted as their searches found them."""
    searches = [search for canary in canaries for search in canary.extraction]
    for count in row.extraction:
        chosen = [s for s in searches if (s.method, s.revealed) == (count.method, count.revealed)]
        name = f"{row.name}, {count.method} with {count.revealed} characters revealed"
        _same(name, "found", count.found, sum(search.found for search in chosen))
        made = sum(search.proven != 0 for search in chosen)
        if count.of != len(chosen):  # as versions before 2026-12 counted what proved nothing
            _same(name, "of", count.of, made)
    places = [s.place for s in searches if s.method == "best_first" and s.place is not None]
    for guessed in row.guesses:
        name = f"{row.name}, within {guessed.guesses:,} guesses"
        _same(name, "of", guessed.of, row.n)
        _same(name, "found", guessed.found, sum(place <= guessed.guesses for place in places))


def _check_controls(row: ClassSummary, controls: ClassSummary | None) -> None:
    """What a class is held against are the controls of its format."""
    if row.controls is None:
        return
    if controls is None:
        raise ValueError(f"{row.name} is held against controls, and its format has none")
    _same(row.name, "controls.n", row.controls.n, controls.n)
    _near(row.name, "controls.mean", row.controls.mean, controls.mean)
    _near(row.name, "controls.median", row.controls.median.value, controls.median.value)


def _same(where: str, name: str, said: object, found: object) -> None:
    if said != found:
        raise ValueError(f"{where}: {name}={said}, but the result holds {found}")


def _near(where: str, name: str, said: float, found: float) -> None:
    if abs(said - found) > ROUNDING:
        raise ValueError(f"{where}: {name}={said:g}, but the result's canaries give {found:g}")


def _once(kind: str, names: Iterable[object]) -> None:
    name, times = next(iter(Counter(names).most_common(1)), ("", 0))
    if times > 1:
        raise ValueError(f"{kind} {name!r} is there {times} times")
