"""What result.json holds of a class of canaries, and of the controls: its summary row, and tests.

Exposures are in bits, higher = more memorised.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    Count,
    NotNegative,
    Positive,
    Record,
    Rows,
)
from lmexposure._style import at_least, visible
from lmexposure.statistics import EpsilonPoint, ExposureSummary, GuessingTest, Method
from lmexposure.studies.exposure.formats import Role

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

    __str__ = __repr__

    @property
    def counted(self) -> int:
        """Canaries whose rank was counted over all of R."""
        return sum(n for method, n in self.methods.items() if method.startswith("exact"))

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.role == "control"):
            raise ValueError(f"{self.name}: a point value of epsilon is of canaries, and of each")
