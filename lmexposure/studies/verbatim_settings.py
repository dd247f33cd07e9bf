"""What a person may choose of looks at a corpus: for memorised text, and for its identifiers."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from lmexposure._settings import SEED, Settings, choice, part, setting, whole, whole_numbers
from lmexposure._validate import coverage, fraction, integer, positive, text
from lmexposure.canaries import ADAPTERS, layouts_listed
from lmexposure.errors import SettingsError
from lmexposure.studies.settings import RunSettings

VERBATIM = "Memorised text"  # the panel of a command's help
METRICS = ("levenshtein", "hamming")
# What has to be the same of looks that are set side by side.
RULE = (
    *("prefix_tokens", "suffix_tokens", "stride", "temperature", "top_k", "top_p", "tries"),
    *("chance", "distance", "metric"),
)
# Settings of runs that it takes over: what the documents are, and how models are loaded.
OF_RUNS = (
    "layout",
    "text_field",
    "device",
    "dtype",
    "load_in",
    "device_map",
    "offline",
    "revision",
)


def _tokens_kept(name: str, value: int | None) -> None:
    """The rule of top-k."""
    if value is not None:
        integer(name, value, low=1)


def _top_k(flag: str, text: str) -> int | None:
    """As a flag has it: a number, or all."""
    if text.strip() == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"{flag}={text!r} must be a whole number from 1, or all") from None


def _top_p(name: str, value: float) -> None:
    if not 0 < positive(name, value) <= 1:
        raise SettingsError(f"{name}={value!r} must be above 0 and at most 1")


def _temperature(name: str, value: float) -> None:
    if value == 0:
        raise SettingsError(
            "temperature=0 is greedy decoding, which is measured in any case; give the temperature "
            "of sampling, such as 1"
        )
    positive(name, value)


def _numbers(name: str, value: object) -> None:
    """The rule of numbers of documents."""
    if value is None:
        return
    if not isinstance(value, tuple) or not value:
        raise SettingsError(f"{name}={value!r} must be numbers of documents, from 1")
    for number in value:
        integer(name, number, low=1)


@dataclass(frozen=True, kw_only=True)
class VerbatimSettings(Settings):
    """Which windows of a corpus are looked at, and how they are asked for."""

    PANEL: ClassVar[str] = VERBATIM

    prefix_tokens: int = setting(50, "tokens of a prompt, taken from the document", rule=whole(1))
    suffix_tokens: int = setting(50, "tokens that are to follow", rule=whole(1))
    stride: int | None = setting(
        None,
        "tokens between two windows of a document",
        rule=whole(1),
        usual="as many as the suffix has",
    )
    windows: int = setting(
        2_000,
        "most windows that are looked at, a random sample where there are more; with held-out "
        "documents twice as many of both together",
        rule=whole(1),
    )
    documents: tuple[int, ...] | None = setting(
        None,
        "numbers of the documents to look at, from 1",
        rule=_numbers,
        metavar="N,N,...",
        parse=whole_numbers,
        usual="all",
    )
    temperature: float = setting(1.0, "temperature of sampling", rule=_temperature)
    top_k: int | None = setting(
        40,
        "how many of the likeliest tokens can be sampled, or all",
        rule=_tokens_kept,
        metavar="N|all",
        parse=_top_k,
    )
    top_p: float = setting(
        1.0,
        "only the likeliest tokens that together have this probability can be sampled",
        rule=_top_p,
    )
    tries: int = setting(
        1_000,
        "a suffix counts as extractable where this many tries give it with chance 0.5",
        rule=whole(1, 10**15),
    )
    chance: float = setting(0.5, "the chance of that", rule=fraction)
    near_windows: int = setting(
        20, "windows whose chance within some edits is bounded, the likeliest first", rule=whole(0)
    )
    distance: int = setting(5, "these edits, in tokens", rule=whole(0, 1_000))
    metric: str = setting(
        "levenshtein",
        "how edits are counted: levenshtein, or hamming, place by place",
        rule=choice(*METRICS),
    )
    beam: int = setting(20, "beginnings that a beam keeps", rule=whole(1))
    draws: int = setting(200, "samples that close what the beam left", rule=whole(0))
    samples: int = setting(
        100, "texts that are sampled freely and looked up in the corpus", rule=whole(0)
    )
    sample_tokens: int = setting(200, "tokens of each", rule=whole(1))
    least_match: int = setting(50, "characters of the shortest match that is told", rule=whole(8))
    level: float = setting(0.95, "coverage of intervals", rule=coverage)
    seed: int = setting(0, "seed of what is drawn", rule=SEED)
    random_split: bool = setting(
        False, "the held-out documents were split off at random, before the training"
    )
    false_share: float = setting(
        0.01,
        "of the documents that are called memorised, the share that may be false, on average",
        rule=fraction,
    )
    run: RunSettings = field(
        default=RunSettings(), metadata=part(RunSettings, names=OF_RUNS, recorded=False)
    )
    """Layout, text field, and how models are loaded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.near_windows and self.distance >= self.suffix_tokens:
            raise SettingsError(
                f"distance={self.distance} edits make any text of suffix_tokens="
                f"{self.suffix_tokens}; give fewer edits, or longer suffixes"
            )

    def resolved(self) -> "VerbatimSettings":
        """The same, with the tokens between two windows: what the record of a look says of them."""
        return replace(self, stride=self.stride or self.suffix_tokens)


IDENTIFIERS = "Identifiers"  # the panel of a command's help
_LOADING = ("device", "dtype", "offline", "revision")
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %


@dataclass(frozen=True, kw_only=True)
class IdentifierSettings(Settings):
    """How identifiers of a corpus are looked for and compared."""

    PANEL: ClassVar[str] = IDENTIFIERS

    draws: int = setting(
        999, "fresh draws in the place of each identifier", rule=whole(_FEWEST_DRAWS)
    )
    most: int = setting(1000, "identifiers to compare, chosen at random among all", rule=whole(1))
    left: int = setting(
        200, "characters in front of each that a model reads, at most", rule=whole(0)
    )
    seed: int = setting(0, "seed of the choice and of the draws", rule=SEED)
    layout: str | None = setting(
        None,
        f"what a document is: {layouts_listed(hints=True)}",
        rule=choice(*ADAPTERS),
        usual="by the file's suffix, else lines",
    )
    text_field: str = setting("text", "the field of a record that holds the text", rule=text)
    run: RunSettings = field(
        default=RunSettings(), metadata=part(RunSettings, names=_LOADING, recorded=False)
    )
    """How both models are loaded."""
