"""What checks are made of: a class of canaries with the numbers that decide.

The checks themselves are in `check_exposure`, `check_extraction`, `check_epsilon` and
`preconditions`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lmexposure._quantiles import ExposureEstimate
from lmexposure._style import times, visible
from lmexposure.statistics import Estimate, GuessingTest, Method
from lmexposure.studies.exposure.parts import CanaryResult, EstimateName, Extraction, FormatResult
from lmexposure.studies.exposure.record import ResultNumbers

# An extrapolation or a certificate may be shown, but what was counted or drawn decides.
_DECIDING: tuple[EstimateName, ...] = ("exact", "importance", "sampled")
_NOT_DECIDING: tuple[Method, ...] = ("skew_normal", "certificate")


@dataclass(frozen=True, kw_only=True)
class CanaryClass:
    """Canaries of one format and number of repetitions."""

    # form, repetitions: which
    form: FormatResult
    repetitions: int
    # one for each canary; None where it, or its log-perplexity, is missing
    exposures: tuple[ExposureEstimate | None, ...]
    # for each canary the searches for it with nothing revealed
    attacks: tuple[tuple[Extraction, ...], ...]
    test: GuessingTest | None  # the permutation test against guessing; None where none was made
    # bits by which chance alone moves exposures up where part of R was inserted: a rank among the N
    # fills left is no larger than N + 1, so that P(exposure >= t) <= 2^(shift - t) with shift =
    # log2|R| - log2(N + 1). 0 for ranks among references, whose exposure is counted from how many
    # there are.
    shift: float
    # places, in best-first order, of canaries of this format that are not judged
    unjudged: tuple[int, ...]

    @property
    def n(self) -> int:
        """How many canaries."""
        return len(self.exposures)

    @property
    def bits(self) -> float:
        """log2|R|."""
        return math.log2(self.form.space_size)

    @property
    def possible(self) -> int:
        """Fills that a secret is drawn from: those set aside are none."""
        return self.form.space_size - self.form.set_aside

    @property
    def known(self) -> list[ExposureEstimate]:
        """The exposures that are there."""
        return [exposure for exposure in self.exposures if exposure is not None]

    @property
    def scope(self) -> str:
        """The class in words."""
        return f"{visible(self.form.name)}, repetitions {self.repetitions}"

    @property
    def secret(self) -> str:
        """Any of its canaries in words: "a secret inserted 4 times"."""
        return f"a secret inserted {times(self.repetitions)}"

    @property
    def secrets(self) -> str:
        """Its canaries in words: "10 secrets inserted 4 times"."""
        return f"{self.n:,} secret{'s' * (self.n != 1)} inserted {times(self.repetitions)}"


def classes_of(result: ResultNumbers, *, most: int | None = None) -> list[CanaryClass]:
    """The classes of inserted canaries, format by format, ascending repetitions."""
    return [group for form in result.formats for group in _of_format(result, form, most)]


def _of_format(
    result: ResultNumbers, form: FormatResult, most: int | None
) -> Iterator[CanaryClass]:
    """The classes of one format that are judged."""
    groups = {
        repetitions: canaries
        for (name, role, repetitions), canaries in result.classes.items()
        if name == form.name and role == "canary"
    }
    judged = [count for count in sorted(groups) if most is None or count <= most]
    inserted = sum(map(len, groups.values()))
    others = [canary for count in groups if count not in judged for canary in groups[count]]
    searches = [search for canary in others for search in canary.blind_searches]
    unjudged = [search.found_at for search in searches if search.method == "best_first"]
    tests = {row.key: row.guessing_test for row in result.summary}
    for count in judged:
        exposures = tuple(_exposure(canary, form) for canary in groups[count])
        yield CanaryClass(
            form=form,
            repetitions=count,
            exposures=exposures,
            attacks=tuple(canary.blind_searches for canary in groups[count]),
            test=tests[form.name, "canary", count],
            shift=_shift(exposures, form, inserted),
            unjudged=tuple(place for place in unjudged if place is not None),
        )


def _shift(
    exposures: Iterable[ExposureEstimate | None], form: FormatResult, inserted: int
) -> float:
    """See `CanaryClass`; fills that were inserted or set aside count in no rank."""
    if all(exposure is None or exposure.method == "sampled" for exposure in exposures):
        return 0.0
    taken = inserted + form.set_aside
    return -math.log1p(-(taken - 1) / form.space_size) / math.log(2)


def _exposure(canary: CanaryResult, form: FormatResult) -> ExposureEstimate | None:
    """The estimate that decides; None where its value or the log-perplexity is missing."""
    estimate, space_bits = _deciding(canary), math.log2(form.space_size)
    if estimate is None:
        return None
    return estimate.with_error(
        canary.log_perplexity_bits, references=form.references, space_bits=space_bits
    )


def _deciding(canary: CanaryResult) -> Estimate | None:
    """The estimate shown, or the best that may decide; None where there is none."""
    if canary.exposure.method not in _NOT_DECIDING:
        return canary.exposure
    made = canary.estimates
    return next((made[name] for name in _DECIDING if name in made), None)
