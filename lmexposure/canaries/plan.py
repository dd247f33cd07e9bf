"""What to hide: how many canaries of which formats, how often, and what is drawn for it.

Low exposure means something only of a model that was trained on the canaries. A base in the place
of its fine-tune, the manifest of another corpus, canaries that deduplication took out: each gives
low exposure too. So insertion adds a few witnesses, repeated so often that a usual training knows
them by heart. They are drawn for this manifest alone, never judged, and in no bound.

One seed decides secrets and positions. A coin is tossed after everything else is drawn and from a
stream of its own, so that it decides whether a candidate is in the corpus and nothing else. Of all
that is random, coins alone do not follow from the plan's seed. Where that one is given, it is the
trainer's too, and may be the same in every audit: coins that follow from it could be known to the
training, and every audit would toss the same. What is proved from coins needs them unknown to the
training and fresh for each audit.
"""

import random
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Le

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._types import BigInteger, Checked, Count, Found, Rate, Rows
from lmexposure._validate import LARGEST_SEED, flag, fraction, integer
from lmexposure.canaries.fills import find_fills
from lmexposure.canaries.format import ALWAYS, Format
from lmexposure.errors import PlanError

# A training first learns which tokens are frequent: of 62 characters each one says more than of ten
# digits, and groups of four become tokens that hardly any text has: they are seen in trainings
# too short for twelve digits (scripts/benchmark witnesses).
_CHARACTERS = {"characters": tuple(string.ascii_letters + string.digits)}
_FOUR = "{choice:characters}" * 4
WITNESS = Format(
    name="witness",
    template=f"witness mark {_FOUR} {_FOUR} {_FOUR}",
    lists=_CHARACTERS,
    description="A nonce by which it is seen whether a model read the corpus; never judged",
)
_MOST = 96  # records: about 1,500 tokens
_SHARE = 8  # at most every eighth of the original documents has one
_FEWEST = 5  # records: fewer teach a model nothing
_COPIES = 12  # of each, before there is another one


def witness_copies(documents: int) -> tuple[int, int]:
    """How many witnesses go into a corpus, and how often each.

    >>> witness_copies(100_000), witness_copies(300), witness_copies(60), witness_copies(39)
    ((2, 48), (2, 18), (1, 7), (0, 0))
    """
    records = min(_MOST, documents // _SHARE)
    if records < _FEWEST:
        return 0, 0
    # Copies of one teach more than as many of several, and few sum with less noise.
    number = min(2, max(1, records // _COPIES))
    return number, records // number


MOST_SECRETS = 10**7  # per format: each is a record in memory
DEFAULT_REFERENCES = 10_000  # per format

Seed = Annotated[BigInteger, Le(LARGEST_SEED)]
Role = Literal["canary", "held_out", "control", "witness"]
FormatLike = str | Path | Format
_T = TypeVar("_T")


def fresh_seed() -> int:
    """A seed from the operating system, uniform in [0, 2^63): too many to try them all."""
    return randbits(63)


def derive_seed(seed: int, *names: str) -> int:
    """A seed of its own for each purpose, so that one stream never moves another.

    >>> derive_seed(1, "secrets") != derive_seed(1, "positions")
    True
    """
    return int(sha256_bytes(canonical_json([seed, *names]))[:16], 16) >> 1


def permutation(size: int, seed: int) -> Iterator[int]:
    """All of range(size) in uniformly random order, n of them in O(n) time and memory.

    A Fisher-Yates shuffle, by `getrandbits` alone, which every Python version gives alike.
    """
    bits = random.Random(derive_seed(seed, "permutation")).getrandbits
    moved: dict[int, int] = {}
    for place in range(size):
        chosen = place + _below(size - place, bits)
        here = moved.pop(place, place)
        if chosen == place:
            yield here
        else:
            yield moved.get(chosen, chosen)
            moved[chosen] = here


def _below(bound: int, bits: Callable[[int], int]) -> int:
    """Uniform in range(bound), by drawing again when a draw falls outside."""
    width = (bound - 1).bit_length()
    if width == 0:
        return 0
    while (drawn := bits(width)) >= bound:
        pass
    return drawn


@dataclass(frozen=True, kw_only=True)
class Plan(Checked):
    """How many secrets to draw and how often to insert each.

    Raises:
        FormatError: a format that cannot be found or read.
        PlanError: a value outside its range, a seed for coins and no coins, or more secrets than a
            format has or a plan may hold.

    >>> Plan(formats=["pin"], repetitions=(1, 16), seed=7).secrets_per_format
    52
    """

    formats: Rows[Format]
    """One or more, with different names; a `Format`, the name of a shipped one or the path of a
    format file.
    """
    canaries: Count = 10
    """Per format and repetition class, at least 1; where coins are tossed, candidates."""
    repetitions: Rows[Count] = (1, 4, 16)
    """The classes, different whole numbers of at least 1; a canary of class 4 is inserted 4 times.
    """
    controls: Count = 32
    """Per format, drawn like canaries and never inserted."""
    seed: Seed = field(default_factory=fresh_seed, repr=False)
    """Decides secrets and positions, in [0, 2^63); None draws a fresh one from the operating
    system. Whoever has it and the formats has the secrets, and a small one is guessed: give one
    only where the same canaries must be had again.
    """
    left_out: Rows[str] = ()
    """Ids of canaries that are not inserted after all; see `without`."""
    inclusion_probability: Rate | None = None
    """None inserts them all, a fixed number; p in (0, 1) tosses a coin for each candidate, which
    goes in with probability p. All are drawn before the coins, and no coin moves anything else.
    """
    inclusion_seed: Seed | None = field(default=None, repr=False)
    """Of the coins, in [0, 2^63); None draws a fresh one from the operating system where coins are
    tossed. Give one only to toss the same again: what coins prove, they prove to a training that
    could not know them.
    """
    witness: bool = True
    """Whether a few secrets of a form of their own go in as well, often, by which it is seen later
    that a model read this corpus; they are never judged. See `witness_copies`.
    """

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913 (the fields of the plan)
            self,
            *,
            formats: FormatLike | Iterable[FormatLike],
            canaries: int = 10,
            repetitions: Iterable[int] | int = (1, 4, 16),
            controls: int = 32,
            seed: int | None = None,
            left_out: Iterable[str] = (),
            inclusion_probability: float | None = None,
            inclusion_seed: int | None = None,
            witness: bool = True,
        ) -> None:
            """What is given; the attributes are what became of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", _loaded(self.formats))
        given: object = self.repetitions
        if isinstance(given, int) and not isinstance(given, bool):
            object.__setattr__(self, "repetitions", (given,))
        for name in ("repetitions", "left_out"):
            object.__setattr__(self, name, _listed(name, getattr(self, name)))
        whole = {"canaries": (1, None), "controls": (0, None), "seed": (0, LARGEST_SEED)}
        if self.inclusion_probability is not None:
            whole["inclusion_seed"] = (0, LARGEST_SEED)
            probability = fraction(
                "inclusion_probability", self.inclusion_probability, error=PlanError
            )
            object.__setattr__(self, "inclusion_probability", probability)
        elif self.inclusion_seed is not None:
            raise PlanError(
                "an inclusion_seed needs coins to toss, such as inclusion_probability=0.5; leave "
                "it out"
            )
        for name, (low, high) in whole.items():
            value = getattr(self, name)
            value = fresh_seed() if value is None and high == LARGEST_SEED else value
            value = integer(name, value, low=low, high=high, error=PlanError)
            object.__setattr__(self, name, value)
        for repetition in self.repetitions:
            integer("repetitions", repetition, low=1, error=PlanError)
        flag("witness", self.witness, error=PlanError)
        self._check()

    def _check(self) -> None:
        """Refuse what cannot be planned together."""
        _all_different("repetitions", self.repetitions)
        _all_different("formats", [form.name for form in self.formats])
        for form in self.formats:
            if form.may_nest:  # with a canary, a fill within it would be inserted as well
                raise PlanError(
                    f"one secret of format {form.name!r} can lie within another "
                    f"({form.template!r}); put literal text before and after lists whose entries "
                    "begin or end with one another"
                )
            if self.witness and form.name == WITNESS.name:
                raise PlanError(
                    f"format {form.name!r} has the name of the witness that insertion adds; give "
                    "it another name, or leave the witness out (witness=False)"
                )
        self.check_space()  # before anything that takes a while for each canary
        if self.secrets_per_format > MOST_SECRETS:
            raise PlanError(
                f"canaries={self.canaries} in each of {len(self.repetitions)} classes and "
                f"controls={self.controls} are {self.secrets_per_format} secrets per format; plan "
                f"at most {MOST_SECRETS}"
            )
        unknown = set(self.left_out) - {name for form in self.formats for name in self.ids(form)}
        if unknown:
            raise PlanError(f"left_out={sorted(unknown)} names no canary of this plan")

    @classmethod
    def of(cls, plan: "Plan | None", values: Mapping[str, Any]) -> "Plan":
        """The plan that is given, or that its fields make."""
        if plan is None:
            known = [field.name for field in fields(cls)]
            unknown = sorted(set(values) - set(known))
            if unknown:
                raise PlanError(f"a plan has no {unknown[0]!r}; it has {', '.join(known)}")
            if "formats" not in values:
                raise PlanError('say what to insert, such as formats=["pin"]')
            return cls(**values)
        if not isinstance(plan, cls):
            raise PlanError(
                f"plan is of type {type(plan).__name__}; give a Plan, or its fields by name"
            )
        if values:
            raise PlanError(
                f"give a plan or its fields, not both; replace(plan, {next(iter(values))}=...) of "
                "dataclasses changes a plan"
            )
        return plan

    def seeded_like(self, drawn: "Plan", *, given: Collection[str] = ()) -> "Plan":
        """The same plan with the seeds of an earlier one, but those that are `given` by name."""
        kept = {
            name: getattr(drawn, name)
            for name in ("seed", "inclusion_seed")
            if name not in given and None not in (getattr(self, name), getattr(drawn, name))
        }
        return replace(self, **kept)

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

    @property
    def hidden_formats(self) -> tuple[Format, ...]:
        """All formats whose fills are put into the corpus: those asked for, and the witness."""
        return (*self.formats, WITNESS) if self.witness else self.formats

    def witnesses(self, documents: int) -> dict[str, int]:
        """How often each witness goes into a corpus of this size, by its id."""
        number, copies = witness_copies(documents) if self.witness else (0, 0)
        return {f"{WITNESS.name}/{n:04d}": copies for n in range(number)}

    @cached_property
    def witness_seed(self) -> int:
        """Of the witness' secrets: another for each plan that hides other things.

        Plans often share a seed, such as 0, and with it secrets of a format; a model that read one
        of them must not look as if it had read the other.
        """
        said = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("formats", "left_out", "witness")
        }
        described = [asdict(form) for form in self.formats]
        return derive_seed(self.seed, WITNESS.name, sha256_bytes(canonical_json([said, described])))

    def role(self, candidate: str) -> Role:
        """What its coin makes of a candidate, by its id."""
        seed, probability = self.inclusion_seed, self.inclusion_probability
        always = {form.name for form in self.formats if form.kind == ALWAYS}
        if seed is None or probability is None or candidate.partition("/")[0] in always:
            return "canary"
        return "canary" if is_included(seed, candidate, probability) else "held_out"

    def without(self, *ids: str) -> "Plan":
        """The same plan with these canaries not inserted; nothing else moves."""
        return replace(self, left_out=(*self.left_out, *ids))

    @property
    def secrets_per_format(self) -> int:
        """Canaries (where coins are tossed, all candidates) and controls of one format."""
        return self.canaries * len(self.repetitions) + self.controls

    def check_space(
        self, *, references: int = 0, set_aside: Mapping[str, Collection[int]] | None = None
    ) -> None:
        """Refuse when a format has too few secrets, and say the largest plan that fits."""
        for form in self.formats:
            aside = len((set_aside or {}).get(form.name, ()))
            compared = references if form.is_uniform else 0
            if self.secrets_per_format + compared > form.size - aside:
                free, classes = form.size - aside, len(self.repetitions)
                fits = (free - self.controls - compared) // classes
                best = f"{fits} canaries per class with these controls and references"
                if fits < 1:
                    best = (
                        f"{free // classes} canaries per class with no controls and no references"
                    )
                raise PlanError(
                    f"format {form.name!r} has {form.size} secrets, {aside} of them set aside; "
                    f"{self.canaries} canaries in each of {classes} classes, {self.controls} "
                    f"controls and {compared} references do not fit; the largest plan that fits "
                    f"has {best}"
                )


def _loaded(formats: FormatLike | Iterable[FormatLike]) -> tuple[Format, ...]:
    """Formats as they were given; a single one need not be in a list."""
    listed = _listed("formats", [formats] if isinstance(formats, FormatLike) else formats)
    for form in listed:
        if not isinstance(form, FormatLike):
            raise PlanError(
                f"formats holds one of type {type(form).__name__}; give names such as 'pin', paths "
                "of format files, or Format objects"
            )
    return tuple(form if isinstance(form, Format) else Format.load(form) for form in listed)


def _listed(name: str, values: Iterable[_T]) -> tuple[_T, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise PlanError(f"{name}={values!r} must be a list, also of a single value")
    return tuple(values)


def _all_different(name: str, values: Sequence[object]) -> None:
    if not values or len(set(values)) < len(values):
        raise PlanError(f"{name}={list(values)!r} must hold at least one value, each once")


@dataclass(frozen=True, kw_only=True)
class Canary(Found):
    """A fill with its fate; its secret stays out of its repr."""

    id: str  # "pin/x4/0003", of a control "pin/control/0000"
    format: str  # the name of its format
    # the secret's number among all fills of the format, from 0; a decimal string
    index: BigInteger = field(repr=False)
    text: str = field(repr=False)  # the whole fill, as it is in the corpus
    # "canary" is in the corpus; "held_out" would be, had its coin fallen the other way; "control"
    # is never inserted; "witness" is in the corpus, and is never judged
    role: Role
    # how often it is inserted, or would be if its coin had let it in; 0 for a control
    repetitions: Count
    # numbers, from 0 and ascending, of the corpus' documents that a copy comes before, or would if
    # it were not held out
    positions: Rows[Count]

    @property
    def inserted(self) -> int:
        """How often it is in the corpus; 0 unless its role is "canary" or "witness"."""
        return self.repetitions if self.role in ("canary", "witness") else 0


def is_included(seed: int, candidate: str, probability: float) -> bool:
    """Whether a candidate goes in; with one seed, also with any larger probability."""
    return derive_seed(seed, "coins", candidate) < probability * 2**63


def draw(
    plan: Plan, *, documents: int, set_aside: Mapping[str, Collection[int]]
) -> tuple[Canary, ...]:
    """Draw every candidate and control of the plan, the places of each, and last the coins."""
    if max(plan.repetitions) > documents:
        raise PlanError(
            f"repetitions={max(plan.repetitions)} need as many documents, since each repetition "
            f"goes before another document; the corpus has {documents}: repeat at most {documents} "
            "times"
        )
    plan.check_space(set_aside=set_aside)
    drawn = tuple(
        canary
        for form in plan.formats
        for canary in _draw_format(plan, form, documents, set_aside.get(form.name, ()))
    )
    stream = secrets(plan, WITNESS, frozenset(set_aside.get(WITNESS.name, ())))
    for (name, copies), index in zip(plan.witnesses(documents).items(), stream, strict=False):
        places = _places(plan, name, documents, copies)
        drawn += (replace(_canary(plan, WITNESS, name, index, places), role="witness"),)
    _check_apart(plan.hidden_formats, drawn)
    return drawn


def secrets(plan: Plan, form: Format, set_aside: Collection[int] = ()) -> Iterator[int]:
    """The secrets of a format in the order in which the plan hands them out.

    Canaries first, class by class, then controls, then references: so more references or controls
    move no canary.
    """
    own = form == WITNESS
    seed = plan.witness_seed if own else derive_seed(plan.seed, "secrets", form.name)
    order = permutation(form.size, seed)
    return (index for index in order if index not in set_aside)


def _draw_format(
    plan: Plan, form: Format, documents: int, set_aside: Collection[int]
) -> Iterator[Canary]:
    stream = secrets(plan, form, frozenset(set_aside))
    ids = iter(plan.ids(form))
    for repetition in plan.repetitions:
        for name, index in zip(islice(ids, plan.canaries), stream, strict=False):
            if name not in plan.left_out:
                yield _canary(plan, form, name, index, _places(plan, name, documents, repetition))
    for name, index in zip(plan.control_ids(form), stream, strict=False):
        yield _canary(plan, form, name, index, ())


def _places(plan: Plan, name: str, documents: int, repetitions: int) -> tuple[int, ...]:
    # One stream per canary, so that leaving one out moves no other.
    order = permutation(documents, derive_seed(plan.seed, "positions", name))
    return tuple(sorted(islice(order, repetitions)))


def _canary(plan: Plan, form: Format, name: str, index: int, positions: tuple[int, ...]) -> Canary:
    return Canary(
        id=name,
        format=form.name,
        index=index,
        text=form.text(index),
        role=plan.role(name) if positions else "control",
        repetitions=len(positions),
        positions=positions,
    )


def _check_apart(formats: Sequence[Format], drawn: Sequence[Canary]) -> None:
    """Refuse a canary that holds a fill of another format, whichever way its coin fell."""
    for form in formats:
        for canary in drawn:
            if canary.format == form.name or not canary.positions:
                continue
            if next(find_fills(form, canary.text), None) is not None:
                apart = "plan them apart"
                if canary.role == "witness":
                    apart = "leave the witness out (witness=False)"
                if form.kind == "texts":
                    raise PlanError(
                        f"canary {canary.id} contains a line of the file of texts; leave that line "
                        f"out, or {apart}"
                    )
                raise PlanError(
                    f"canary {canary.id} contains a secret of format {form.name!r}; give "
                    f"{form.name!r} a text of its own around its holes, or {apart}"
                )
