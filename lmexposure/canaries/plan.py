"""What to hide: how many canaries of which formats, how often, and the seeds that decide it.

One seed decides secrets and positions; coins, where some are tossed, have one of their own
(`inclusion` says why).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from lmexposure._validate import integer
from lmexposure.canaries.format import Format
from lmexposure.canaries.inclusion import checked_inclusion, is_included
from lmexposure.canaries.randomness import LARGEST_SEED, derive_seed, fresh_seed, permutation
from lmexposure.errors import PlanError

MOST_SECRETS = 10**7  # per format: each is a record in memory
DEFAULT_REFERENCES = 10_000  # per format

Role = Literal["canary", "held_out", "control"]
FormatLike = str | Path | Format
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many secrets to draw and how often to insert each.

    Args:
        formats: one or more, with different names; a `Format`, the name of a shipped one or the
            path of a format file.
        canaries: per format and repetition class, at least 1; where coins are tossed, candidates.
        repetitions: the classes, different whole numbers of at least 1; a canary of class 4 is
            inserted 4 times.
        controls: per format, drawn like canaries and never inserted.
        seed: decides secrets and positions, in [0, 2^63); None draws a fresh one from the operating
            system. Whoever has it and the formats has the secrets, and a small one is guessed: give
            one only where the same canaries must be had again.
        left_out: ids of canaries that are not inserted after all; see `without`.
        inclusion_probability: None inserts them all, a fixed number; p in (0, 1) tosses a coin for
            each candidate, which goes in with probability p. All are drawn before the coins, and no
            coin moves anything else.
        inclusion_seed: of the coins, in [0, 2^63); None draws a fresh one from the operating system
            where coins are tossed. Give one only to toss the same again: what coins prove, they
            prove to a training that could not know them.

    Raises:
        FormatError: a format that cannot be found or read.
        PlanError: a value outside its range, a seed for coins and no coins, or more secrets than a
            format has or a plan may hold.

    >>> Plan(formats=["pin"], repetitions=(1, 16), seed=7).secrets_per_format
    52
    """

    formats: tuple[Format, ...]
    canaries: int = 10
    repetitions: tuple[int, ...] = (1, 4, 16)
    controls: int = 32
    seed: int = field(default_factory=fresh_seed, repr=False)
    left_out: tuple[str, ...] = ()
    inclusion_probability: float | None = None
    inclusion_seed: int | None = field(default=None, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            formats: FormatLike | Iterable[FormatLike],
            canaries: int = 10,
            repetitions: Iterable[int] = (1, 4, 16),
            controls: int = 32,
            seed: int | None = None,
            left_out: Iterable[str] = (),
            inclusion_probability: float | None = None,
            inclusion_seed: int | None = None,
        ) -> None:
            """What is given; the attributes are what became of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", _loaded(self.formats))
        for name in ("repetitions", "left_out"):
            object.__setattr__(self, name, _listed(name, getattr(self, name)))
        if vars(self)["seed"] is None:
            object.__setattr__(self, "seed", fresh_seed())
        if self.inclusion_probability is not None and self.inclusion_seed is None:
            object.__setattr__(self, "inclusion_seed", fresh_seed())
        for name, low, high in (
            ("canaries", 1, None),
            ("controls", 0, None),
            ("seed", 0, LARGEST_SEED),
        ):
            value = integer(name, getattr(self, name), low=low, high=high, error=PlanError)
            object.__setattr__(self, name, value)
        for repetition in self.repetitions:
            integer("repetitions", repetition, low=1, error=PlanError)
        probability, inclusion_seed = checked_inclusion(
            self.inclusion_probability, self.inclusion_seed
        )
        object.__setattr__(self, "inclusion_probability", probability)
        object.__setattr__(self, "inclusion_seed", inclusion_seed)
        _all_different("repetitions", self.repetitions)
        _all_different("formats", [one.name for one in self.formats])
        for one in self.formats:
            _refuse_nesting(one)
        self.check_space()  # before anything that takes a while for each canary
        self._check_number()
        unknown = set(self.left_out) - {name for one in self.formats for name in self.ids(one)}
        if unknown:
            raise PlanError(f"left_out={sorted(unknown)} names no canary of this plan")

    def _check_number(self) -> None:
        if self.secrets_per_format > MOST_SECRETS:
            raise PlanError(
                f"canaries={self.canaries} in each of {len(self.repetitions)} classes and "
                f"controls={self.controls} are {self.secrets_per_format} secrets per format; plan "
                f"at most {MOST_SECRETS}"
            )

    def ids(self, canary_format: Format) -> list[str]:
        """The ids of a format's canaries, class by class: "pin/x4/0003"."""
        return [
            f"{canary_format.name}/x{repetition}/{number:04d}"
            for repetition in self.repetitions
            for number in range(self.canaries)
        ]

    def control_ids(self, canary_format: Format) -> list[str]:
        """The ids of a format's controls: "pin/control/0003"."""
        return [f"{canary_format.name}/control/{number:04d}" for number in range(self.controls)]

    def role(self, candidate: str) -> Literal["canary", "held_out"]:
        """What its coin makes of a candidate, by its id."""
        included = is_included(self.inclusion_seed, candidate, self.inclusion_probability)
        return "canary" if included else "held_out"

    def without(self, *ids: str) -> "Plan":
        """The same plan with these canaries not inserted; nothing else moves.

        Raises:
            PlanError: an id that is not of this plan.
        """
        return replace(self, left_out=(*self.left_out, *ids))

    @property
    def secrets_per_format(self) -> int:
        """Canaries (where coins are tossed, all candidates) and controls of one format."""
        return self.canaries * len(self.repetitions) + self.controls

    def check_space(
        self, *, references: int = 0, set_aside: Mapping[str, Collection[int]] | None = None
    ) -> None:
        """Refuse when a format has too few secrets.

        Args:
            references: how many are explicitly asked for, beside canaries and controls.
            set_aside: indices per format name that must not be drawn.

        Raises:
            PlanError: it says the largest plan that fits.
        """
        for one in self.formats:
            aside = len((set_aside or {}).get(one.name, ()))
            if self.secrets_per_format + references > one.size - aside:
                raise PlanError(self._too_large(one, references, aside))

    def _too_large(self, one: Format, references: int, aside: int) -> str:
        free, classes = one.size - aside, len(self.repetitions)
        fits = (free - self.controls - references) // classes
        best = f"{fits} canaries per class with these controls and references"
        if fits < 1:
            best = f"{free // classes} canaries per class with no controls and no references"
        return (
            f"format {one.name!r} has {one.size} secrets, {aside} of them set aside; "
            f"{self.canaries} canaries in each of {classes} classes, {self.controls} controls "
            f"and {references} references do not fit; the largest plan that fits has {best}"
        )


def _loaded(formats: FormatLike | Iterable[FormatLike]) -> tuple[Format, ...]:
    """Formats as they were given; a single one need not be in a list."""
    if isinstance(formats, FormatLike):
        formats = [formats]
    return tuple(
        form if isinstance(form, Format) else _load(form) for form in _listed("formats", formats)
    )


def _load(form: object) -> Format:
    if not isinstance(form, str | Path):
        raise PlanError(
            f"formats holds one of type {type(form).__name__}; give names such as 'pin', paths of "
            "format files, or Format objects"
        )
    return Format.load(form)


def _listed(name: str, values: Iterable[_T]) -> tuple[_T, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise PlanError(f"{name}={values!r} must be a list, also of a single value")
    return tuple(values)


def _refuse_nesting(one: Format) -> None:
    """With a canary inserted, the fills within it would be no never-inserted references."""
    if one.may_nest:
        raise PlanError(
            f"one fill of format {one.name!r} can stand within another ({one.template!r}); put "
            "literal text before and after lists whose entries begin or end with one another"
        )


def _all_different(name: str, values: Sequence[object]) -> None:
    if not values or len(set(values)) < len(values):
        raise PlanError(f"{name}={list(values)!r} must hold at least one value, each once")


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A fill with its fate; its secret stays out of its repr.

    Attributes:
        id: "pin/x4/0003", for a control "pin/control/0000".
        format: name of the format.
        index: which secret.
        text: the whole fill.
        role: "canary" is in the corpus; "held_out" would be, had its coin fallen the other way;
            "control" is never inserted.
        repetitions: the class: how often it is inserted if it is, 0 for a control.
        positions: numbers (from 0) of the corpus' documents that it comes before, or would if it
            were not held out, ascending.
    """

    id: str
    format: str
    index: int = field(repr=False)
    text: str = field(repr=False)
    role: Role
    repetitions: int
    positions: tuple[int, ...]

    @property
    def inserted(self) -> int:
        """How often it is in the corpus; 0 unless its role is "canary"."""
        return self.repetitions if self.role == "canary" else 0


def secrets(plan: Plan, one: Format, set_aside: Collection[int] = ()) -> Iterator[int]:
    """The secrets of a format in the order in which the plan hands them out.

    Canaries first, class by class, then controls, then references: so more references or controls
    move no canary.
    """
    order = permutation(one.size, derive_seed(plan.seed, "secrets", one.name))
    return (index for index in order if index not in set_aside)
