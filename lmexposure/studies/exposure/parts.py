"""What result.json holds of formats, canaries and classes, of the base, and of chosen texts.

Bits are base-2 logarithms. Of an exposure, higher = more memorised; of a log-perplexity, lower =
more memorised. Calibrated exposures are by ranks of log-perplexity minus the base's, so that what
any model finds likely is not taken for memorised. Canaries whose texts were chosen have neither
rank nor exposure: coins alone tell whether one is in.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from lmexposure._record import (
    BigInteger,
    Bits,
    Count,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure._style import (
    LABELS,
    MISSING,
    at_least,
    html,
    html_table,
    interval,
    percent,
    probability,
    visible,
)
from lmexposure._types import Found
from lmexposure._validate import LARGEST_NUMBER
from lmexposure.errors import SettingsError
from lmexposure.statistics import (
    AreaUnderCurve,
    EpsilonBound,
    EpsilonPoint,
    Estimate,
    ExposureSummary,
    GoodnessOfFit,
    GuessingTest,
    Method,
    QuantileInterval,
    TprAtFpr,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

# What estimates are kept under; a rank that is exact up to a margin is an "exact" one.
EstimateName = Literal[
    "exact", "bounded", "importance", "sampled", "skew_normal", "certificate", "calibrated"
]
Role = Literal["canary", "control"]

_QUANTILES = 9  # of the references that are kept
# What the Tab key offers of a class.
_TAB = (
    *("format", "role", "repetitions", "n", "mean", "median", "mean_interval", "capped", "plot"),
    *("guesses", "guessing_test", "epsilon", "extraction", "methods", "notes"),
)


class SkewNormalFit(Record):
    """The skew-normal curve through the log-perplexities of a format's references."""

    location: Number  # where the curve lies, in bits; its mean where the shape is 0
    scale: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)]  # how wide it is, in bits
    # how lopsided it is, without unit: 0 is a normal curve, above 0 the long tail is to the right,
    # towards fills that surprise the model more
    shape: Number
    goodness: GoodnessOfFit | None  # how well it fits; None where the curve was not asked for


@dataclass(frozen=True, kw_only=True)
class TokenProof(Found):
    """How it was shown that every fill was followed as its own tokens."""

    rule: str  # of the tokenizer, that was shown to hold
    counted: BigInteger  # fills that the walk over tokens holds
    looked_up: Count  # texts that were encoded to show it


@dataclass(frozen=True, kw_only=True)
class Margin(Found):
    """By how much a cost may be off, in bits, and how that is known."""

    bits: NotNegative  # two fills that are further apart are in their true order
    measured: NotNegative  # the largest difference that was seen
    sample: Count  # over how many fills
    empirical: bool  # whether it is only seen, and not kept by recomputing in float64


class Search(Record):
    """How a format's fills were searched; None for what was not done."""

    tokens: TokenProof  # how fills were followed as tokens
    shared_tokens: Count  # how many tokens all fills begin with
    # by how much a fill's cost in bits may be off; None where nothing was counted
    margin: Margin | None
    budget_steps: BigInteger  # model steps that each search might take
    draws: Count | None  # fills drawn by importance
    draw_steps: Count | None  # model steps that drawing took
    walk_steps: Count | None  # model steps that counting ranks took
    most_live: Count | None  # model states held at once
    guesses_proven: Count | None  # how many of the likeliest fills are known in their order
    guess_steps: Count | None  # model steps that this took


class FormatResult(Record):
    """A format, and the references that its canaries were compared with."""

    name: str  # as in the manifest
    space_size: Annotated[BigInteger, Field(ge=1)]  # |R|, exactly
    bits: NotNegative  # log2|R|, the most that exposure can show
    references: Positive  # fills never inserted that were scored
    exhaustive: bool  # they are all fills that are neither canary nor control
    set_aside: Count  # fills that the corpus held before insertion: not drawn, and in no rank
    shared_tokens: Count  # how many tokens all scored texts begin with
    certifiable: bool  # fills have token paths of their own behind those, and all of it was scored
    first_unscored: bool  # the first token of a text went unscored, for there was nothing before it
    # of the references' log-perplexities: least, 1, 5, 25, 50, 75, 95, 99 %, largest; empty in
    # results that did not keep them
    reference_bits_quantiles: Rows[Number]
    skew_normal: SkewNormalFit | None  # the curve through them; None where there is none
    # over all of R; None where the fills could not be followed as tokens, or it was not asked for
    search: Search | None
    interrupted: bool  # a person ended the search or the extraction early

    @model_validator(mode="after")
    def _references_are_some_of_all(self) -> Self:
        if self.references >= self.space_size:
            raise ValueError(
                f"format {self.name!r} has {self.references:,} references among {self.space_size} "
                "secrets"
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


class Extraction(Record):
    """One search for one secret."""

    # "greedy" and "beam" follow the likeliest characters, "best_first" tries fills in proven order
    method: Literal["greedy", "beam", "best_first"]
    revealed: Count  # characters of the secret that were given
    width: Count  # fills that were tried at most
    found: bool  # whether the secret was among them
    # at which of them; None where it was not found, or the search does not say
    place: Annotated[BigInteger, Field(ge=1)] | None
    steps: Count  # model steps
    proven: Count | None  # guesses whose order is proven, of "best_first"; None for the others
    fills_left: Annotated[BigInteger, Field(ge=1)]  # that agree with what was given
    by_chance: Share  # how likely as many blind guesses hold the secret

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
    """What was measured of one canary or control. Its secret is not here; the manifest holds it."""

    # id, format, role, repetitions: as in the manifest; a control has repetitions 0
    id: str
    format: str
    role: Role
    repetitions: Count
    # lower = more memorised; None where the model gave no finite one
    log_perplexity_bits: Bits | None
    exposure: Estimate  # the estimate that is shown: one of `estimates`
    estimates: dict[EstimateName, Estimate]  # every estimate that was made, by name
    extraction: Rows[Extraction]  # one row per method and number of revealed characters

    @property
    def calibrated(self) -> Estimate | None:
        """The exposure beside the base; None where none was measured."""
        return self.estimates.get("calibrated")

    @property
    def blind_searches(self) -> tuple[Extraction, ...]:
        """Searches with nothing of the secret given."""
        return tuple(search for search in self.extraction if search.revealed == 0)

    @model_validator(mode="after")
    def _controls_were_never_inserted(self) -> Self:
        if (self.repetitions > 0) != (self.role == "canary"):
            raise ValueError(
                f"canary {self.id!r} has role {self.role!r} and repetitions {self.repetitions}"
            )
        return self


ClassKey = tuple[str, Role, int]
OtherEstimate = Literal["certificate", "skew_normal", "calibrated"]  # never shown first


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


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassSummary(ExposureSummary):
    """Canaries of one format and number of repetitions, or its controls."""

    # format, role, repetitions: which; a control has repetitions 0
    format: str
    role: Role
    repetitions: Count
    # medians by estimates that are never shown first; None where one is infinite
    other_medians: dict[OtherEstimate, float | None]
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

    def _repr_html_(self) -> str:
        found = self.guesses[-1] if self.guesses else None
        tries = f"found within {found.guesses:,} guesses" if found else "found by guessing"
        p_value = None if self.guessing_test is None else self.guessing_test.p_value
        rows = [
            ("canaries", f"{self.n:,}"),
            ("median exposure, bits", at_least(self.median.value, self.median_capped)),
            (LABELS["interval"], interval(self.median.low, self.median.high)),
            (LABELS["p_value"], probability(p_value)),
            (tries, f"{found.found:,} of {found.of:,}" if found else MISSING),
        ]
        chart = self.plot().image() if self.guesses else ""
        return html(self.name) + html_table((), rows) + chart

    __str__ = __repr__

    def plot(self) -> "Chart":
        """The share of its secrets that is found, by guesses; a notebook shows it.

        Raises:
            SettingsError: no guesses were made.
        """
        from lmexposure.core.charts import lines_chart

        if not self.guesses:
            raise SettingsError(
                f"no secret of {self.name} was searched for, so there is nothing to draw; "
                "result.plot() shows its exposure"
            )
        points = [(row.guesses, row.found / max(1, row.of)) for row in self.guesses]
        return lines_chart(
            name="guesses",
            title=f"Secrets found by guessing: {self.name}",
            caption="The share of the secrets of this class that an attacker finds who tries the "
            "likeliest first. The higher, and the farther left, the more the model gives away.",
            lines={self.name: points},
            axes=("Guesses", "Share found"),
            shown=percent,
            logarithmic=True,
        )

    def __dir__(self) -> list[str]:
        """What a person needs of it, for the Tab key; all else is there too."""
        return sorted(_TAB)

    @property
    def counted(self) -> int:
        """Canaries whose rank was counted over all of R."""
        return sum(n for method, n in self.methods.items() if method.startswith("exact"))

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.role == "control"):
            raise ValueError(f"{self.name}: a point value of epsilon is of canaries, and of each")


class BaseCanary(Record):
    """One canary or control under the base."""

    id: str  # as in the manifest
    log_perplexity_bits: Bits  # under the base; lower = likelier before the training
    exposure: Estimate  # under the base, by its rank among the references


class BaseClass(Record):
    """A class of canaries, or the controls of a format, beside the base."""

    # format, role, repetitions: which; a control has repetitions 0
    format: str
    role: Role
    repetitions: Count
    n: Positive  # how many
    exposure: QuantileInterval  # the median under the base, by ranks among the references
    # median of what the training added to each exposure by rank; below 0: it took away
    added: Number
    added_capped: bool  # `added` is a lower bound
    calibrated: QuantileInterval  # the median of calibrated exposures
    calibrated_mean: Number  # their mean; 1.44 where the training left nothing
    capped: Count  # how many calibrated exposures are lower bounds
    gained_bits: Number  # median of the bits by which the training made a canary likelier
    reference_gained_bits: Number  # the same of the references
    guessing_test: GuessingTest  # of the calibrated mean against chance

    @property
    def key(self) -> ClassKey:
        """Which class."""
        return self.format, self.role, self.repetitions

    @property
    def calibrated_capped(self) -> bool:
        """Whether the median of calibrated exposures is a lower bound."""
        return 2 * self.capped >= self.n


class BaseModelRecord(Record):
    """The model before the training that is judged, and what the canaries are under it."""

    path: str  # its directory or name, as in `Model`
    weights_sha256: Sha256  # of its weights
    switched_off: bool  # whether it is the measured model with its adapters switched off
    canaries: Rows[BaseCanary]  # canaries and controls, in the result's order
    classes: Rows[BaseClass]  # in the order of the result's summary


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
