"""manifest.json: what was inserted where, and all that is needed to score it later, elsewhere.

It holds every secret and the seeds, so it is written for its owner only, and no message about it
shows a value. Roles that coins deny prove nothing: whenever a `Manifest` is made, it is checked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator

from lmexposure._files import PRIVATE, content_hash, read_bytes
from lmexposure._record import FileRecord, JsonTable
from lmexposure._saved_models import is_manifest, manifest_at
from lmexposure._style import count, html, html_table, listed, visible
from lmexposure._types import BigInteger, Count, Found, Matching, Rows
from lmexposure._validate import integer, of_type
from lmexposure.canaries.corpora import ADAPTERS, IN_MEMORY
from lmexposure.canaries.format import PARTNERS, UNIFORM, Format
from lmexposure.canaries.plan import DEFAULT_REFERENCES, WITNESS, Canary, Plan, Role, secrets
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import InputError, ManifestError, PlanError

if TYPE_CHECKING:
    Layout = str
else:  # The published schema does not change with each kind of file that is known.
    Layout = Annotated[Literal[*ADAPTERS, *IN_MEMORY], WithJsonSchema({"type": "string"})]
_Hash = Annotated[str, Matching("^([0-9a-f]{64})?$")]
# What gives a secret away is not printed, and pydantic's own errors show no value.
_HIDDEN = ConfigDict(hide_input_in_errors=True)
_OF_CORPORA = {".txt", ".gz", ".zst", *(end for kind in ADAPTERS.values() for end in kind.suffixes)}
_AGAIN = "take the manifest that insertion wrote, or insert again"


@dataclass(frozen=True, kw_only=True)
class CorpusRecord(Found):
    """The corpus that the canaries went into."""

    name: str = ""  # file name without its directory; "" where there was no file
    layout: Layout  # what a document is, and what held them
    # the field that holds the text, None where a document has no fields; of chats where the canary
    # is, such as "messages[1].content"
    text_field: str | None = None
    # fields of inserted records that were given; the others were copied from the record that
    # follows
    constant_fields: Rows[str] = ()
    separator: str | None = None  # the text between documents; None: the BOS, else the EOS token
    documents: Count = 0  # how many there were before insertion
    # of the corpus before; for "texts" and "dataset" over the texts as JSON strings, one a line
    sha256: _Hash = ""
    sha256_inserted: _Hash = ""  # of the corpus with its canaries
    # whether insertion looked for fills, hashed, and checked what it wrote; where it was told not
    # to, the hashes are ""
    verified: bool = True
    # where in its record each canary is; None: it is a text of its own
    wrapping: Wrapping | None = None

    def __post_init__(self) -> None:
        if self.wrapping is not None and self.wrapping.turn == "plain":
            raise ManifestError("wrapping: turn='plain' is of no record; it must be None")


class ManifestFile(FileRecord):
    """Which secrets there are, and where each was inserted: manifest.json."""

    model_config = _HIDDEN

    NAME: ClassVar[str] = "manifest.json"
    FAMILY: ClassVar[str] = "lmexposure.manifest"
    VERSION: ClassVar[int] = 5
    ERROR: ClassVar[type[InputError]] = ManifestError
    AGAIN: ClassVar[str] = _AGAIN
    ANEW: ClassVar[str] = "insert again"
    SECRET: ClassVar[bool] = True

    plan: Plan  # what was asked for
    corpus: CorpusRecord  # what it went into
    # canaries, held-out candidates and controls, format by format, in drawing order; then the
    # witnesses
    entries: Rows[Canary]
    # per format, the secrets that were in the corpus already, ascending
    set_aside: dict[str, Rows[BigInteger]] = Field(repr=False)

    @field_validator("plan", mode="before")
    @classmethod
    def _keeps_coins(cls, plan: object) -> object:
        """A plan would draw a new seed for coins that were tossed with another one."""
        if not isinstance(plan, dict):
            return plan
        tossed = plan.get("inclusion_probability") is not None
        if tossed and plan.get("inclusion_seed", "") is None:
            raise ManifestError("inclusion_probability needs the inclusion_seed of its coins")
        return {"witness": False, **plan}  # manifests were without witnesses once

    def manifest(self) -> "Manifest":
        """What the file says."""
        made = Manifest(
            plan=self.plan, corpus=self.corpus, entries=self.entries, set_aside=self.set_aside
        )
        check_texts(made.hidden_formats, self.entries)
        return made


# What the Tab key offers of a manifest.
_TAB = (
    *("canaries", "controls", "corpus", "entries", "formats", "held_out", "plan", "read"),
    *("references", "set_aside", "sha256", "to_dict", "witnesses", "wrapping", "write"),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Manifest:
    """Which canaries exist, where each goes, and the controls.

    Raises:
        ManifestError: entries that are not what the plan and its coins say; see `check_entries` and
            `check_set_aside`.
    """

    plan: Plan
    """What was asked for."""
    corpus: CorpusRecord
    """What it went into."""
    entries: tuple[Canary, ...]
    """Canaries, held-out candidates and controls (see their `role`), format by format, in drawing
    order, then the witnesses; `canaries`, `held_out`, `controls` and `witnesses` are those of one
    role.
    """
    set_aside: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """Per format, the secrets that were in the corpus already, ascending."""

    def __post_init__(self) -> None:
        check_entries(self.plan, self.entries, documents=self.corpus.documents)
        check_set_aside(self.plan, self.entries, self.set_aside)

    def __repr__(self) -> str:
        roles = [count(len(self.canaries), "canary", "canaries")]
        roles += [f"{len(self.held_out):,} held out"] if self.held_out else []
        roles += [count(len(self.controls), "control")]
        documents = count(self.corpus.documents, "document")
        return f"<Manifest of {documents}: {listed(roles)} of {visible(', '.join(self.formats))}>"

    def _repr_html_(self) -> str:
        every = Counter((entry.format, entry.role, entry.repetitions) for entry in self.entries)
        rows = [
            (form, role.replace("_", " "), str(repetitions or ""), str(n))
            for (form, role, repetitions), n in every.items()
        ]
        return html(repr(self)) + html_table(("format", "role", "repetitions", "secrets"), rows)

    def __dir__(self) -> list[str]:
        """What a person needs of it, for the Tab key; all else is there too."""
        return sorted(_TAB)

    @cached_property
    def canaries(self) -> tuple[Canary, ...]:
        """Those that went into the corpus."""
        return self._in_role("canary")

    @cached_property
    def held_out(self) -> tuple[Canary, ...]:
        """Candidates that their coins kept out; none where a fixed number went in."""
        return self._in_role("held_out")

    @cached_property
    def controls(self) -> tuple[Canary, ...]:
        """Drawn like canaries, and never inserted."""
        return self._in_role("control")

    @cached_property
    def witnesses(self) -> tuple[Canary, ...]:
        """Inserted to see later that a model read the corpus; never judged."""
        return self._in_role("witness")

    @property
    def formats(self) -> dict[str, Format]:
        """The formats that are judged, by name."""
        return {form.name: form for form in self.plan.formats}

    @property
    def hidden_formats(self) -> dict[str, Format]:
        """All formats of which fills went into the corpus, by name: the witness' too."""
        return {form.name: form for form in self.plan.hidden_formats}

    @cached_property
    def ranked(self) -> "Manifest":
        """Its part that has ranks: formats of uniform fills with their entries, under its name."""
        kept = tuple(form for form in self.plan.formats if form.is_uniform)
        if len(kept) == len(self.plan.formats):
            return self
        if not kept:
            raise ManifestError(
                f"the manifest holds no uniform canaries, which alone have ranks and exposure, but "
                f"{', '.join(self.formats)}; insert with the kind {UNIFORM} beside these, or use "
                "lmexposure sweep"
            )
        names = {form.name for form in kept}
        # An id begins with its format's name.
        left_out = tuple(name for name in self.plan.left_out if name.split("/")[0] in names)
        part = replace(
            self,
            plan=replace(self.plan, formats=kept, left_out=left_out, witness=False),
            entries=tuple(entry for entry in self.entries if entry.format in names),
            set_aside={name: aside for name, aside in self.set_aside.items() if name in names},
        )
        vars(part)["sha256"] = self.sha256
        return part

    @property
    def chosen(self) -> tuple[Format, ...]:
        """The formats of chosen texts, which have no ranks; partners of near-duplicates apart."""
        return tuple(f for f in self.plan.formats if not f.is_uniform and f.kind not in PARTNERS)

    @property
    def layout(self) -> str:
        """What a document is."""
        return self.corpus.layout

    @property
    def separator(self) -> str | None:
        """The left context that every fill is scored after; None: BOS, else EOS."""
        return self.corpus.separator

    @property
    def wrapping(self) -> Wrapping | None:
        """Where in its record each canary is; None: it is a text of its own."""
        known = self.corpus.wrapping
        return None if known is None else replace(known, template_sha256=None, special_tokens=None)

    @cached_property
    def sha256(self) -> str:
        """The manifest's name for other files: the hash of its contents."""
        return content_hash(self.to_dict())

    def references_left(self, format_name: str) -> int:
        """How many secrets of a format are neither candidate, control nor set aside."""
        form = self._format(format_name)
        return form.size - len(self.set_aside.get(form.name, ())) - self._used(form)

    def references(
        self, format_name: str, n: int | None = None, *, strict: bool = False
    ) -> list[int]:
        """Indices of fills that were never inserted, or of all that are left, where not `strict`.

        By default 10,000; more of them begin with fewer of them.
        """
        form, left = self._format(format_name), self.references_left(format_name)
        wanted = integer("n", DEFAULT_REFERENCES if n is None else n, low=0, error=PlanError)
        if strict and wanted > left:
            raise PlanError(
                f"{wanted} references asked for, but format {form.name!r} has {left} secrets left "
                f"after canaries and controls; ask for at most {left}"
            )
        used = self._used(form)
        stream = secrets(self.plan, form, frozenset(self.set_aside.get(form.name, ())))
        return list(islice(stream, used, used + min(wanted, left)))

    def to_dict(self) -> JsonTable:
        """The contents of its file but for their hash: they hold the secrets and the seeds."""
        return self._file().to_dict()

    def _file(self) -> ManifestFile:
        return ManifestFile.model_validate(self, from_attributes=True)

    def write(self, path: str | Path) -> None:
        """Write the manifest, readable by its owner only."""
        self._file().write(Path(path), mode=PRIVATE)

    @classmethod
    def read(cls, path: str | Path) -> "Manifest":
        """Read a manifest; a file that insertion did not write, or not so, is refused."""
        path = manifest_at(path)
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ManifestError(
                f"cannot read the manifest {path}: {failure.strerror or failure}; give the file "
                "that insertion wrote"
            ) from failure
        if path.suffix in _OF_CORPORA and not is_manifest(path):
            near = (home / ManifestFile.NAME for home in path.parents[:2])
            way = next(filter(Path.is_file, near), "manifest.json, which insertion wrote")
            raise ManifestError(f"{path} is a corpus, and a manifest is asked for; give {way}")
        file = ManifestFile.parse(content, path)
        try:
            return file.manifest()
        except ManifestError as failure:
            raise ManifestError(f"{path}: {failure}") from failure

    @classmethod
    def of(cls, given: "Manifest | str | Path") -> "Manifest":
        """A manifest, or the one at a path."""
        if isinstance(given, str | Path):
            return cls.read(given)
        wanted = (
            "the manifest that the insertion returned next to the texts, or the path of "
            "manifest.json"
        )
        of_type("manifest", given, cls, wanted, error=ManifestError)
        return given

    def _in_role(self, role: Role) -> tuple[Canary, ...]:
        return tuple(entry for entry in self.entries if entry.role == role)

    def _used(self, form: Format) -> int:
        """How many secrets of a format the plan drew before references."""
        own = form.name in self.formats
        return self.plan.secrets_per_format if own else len(self.witnesses)

    def _format(self, name: str) -> Format:
        if name not in self.hidden_formats:
            raise ManifestError(
                f"the manifest has no format {name!r}; it has {', '.join(self.formats)}"
            )
        return self.hidden_formats[name]


def check_entries(plan: Plan, entries: Sequence[Canary], *, documents: int) -> None:
    """Compare the entries with the plan: who is there, in which role, how often, and where."""
    planned = _planned(plan, documents)
    _check_ids(set(planned), [entry.id for entry in entries])
    holders: dict[tuple[str, int], str] = {}
    for entry in entries:
        name, repetitions = planned[entry.id]
        _check_entry(plan, entry, name, repetitions, documents)
        other = holders.setdefault((entry.format, entry.index), entry.id)
        if other != entry.id:
            raise ManifestError(f"{other} and {entry.id} hold the same secret; {_AGAIN}")


def _planned(plan: Plan, documents: int) -> dict[str, tuple[str, int]]:
    """(format, class of repetitions) by id; controls are of class 0."""
    left_out, planned = set(plan.left_out), {}
    for form in plan.formats:
        classes = [times for times in plan.repetitions for _ in range(plan.canaries)]
        for name, times in zip(plan.ids(form), classes, strict=True):
            if name not in left_out:
                planned[name] = (form.name, times)
        planned |= dict.fromkeys(plan.control_ids(form), (form.name, 0))
    witnesses = plan.witnesses(documents).items()
    return planned | {name: (WITNESS.name, copies) for name, copies in witnesses}


def _check_ids(planned: set[str], given: Sequence[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(given):
        if name not in planned:  # not shown: where columns were swapped, it is a secret
            raise ManifestError(
                f"entries[{number}].id is of no entry of the manifest's own plan; {_AGAIN}"
            )
        if name in seen:
            raise ManifestError(f"{name} is in the manifest twice; {_AGAIN}")
        seen.add(name)
    if missing := planned - seen:
        raise ManifestError(
            f"the plan's {min(missing)} is missing from the manifest ({len(missing)} in all); "
            f"to drop some afterwards biases every number; {_AGAIN}"
        )


def _check_entry(plan: Plan, entry: Canary, name: str, repetitions: int, documents: int) -> None:
    role = plan.role(entry.id) if repetitions else "control"
    role = "witness" if plan.witness and name == WITNESS.name else role
    if entry.role != role:
        raise ManifestError(
            f"{entry.id} has role {entry.role!r}, but by the plan and its coins it is {role!r}; "
            f"{_AGAIN}"
        )
    if entry.format != name or entry.repetitions != repetitions:
        # A format that the plan has not may be a secret, where columns were swapped.
        known = entry.format in {form.name for form in plan.hidden_formats}
        shown = repr(entry.format) if known else "<not the plan's>"
        raise ManifestError(
            f"{entry.id} has format {shown} and repetitions={entry.repetitions!r}, but the plan "
            f"says {name!r} and {repetitions}; {_AGAIN}"
        )
    places = entry.positions
    ascending = all(a < b for a, b in pairwise(places))
    inside = not places or (places[0] >= 0 and places[-1] < documents)
    if len(places) != repetitions or not ascending or not inside:
        raise ManifestError(
            f"{entry.id} must have {repetitions} different positions, ascending, from 0 to "
            f"{documents - 1}, and has others; {_AGAIN}"
        )


def check_set_aside(
    plan: Plan, entries: Sequence[Canary], set_aside: Mapping[str, Sequence[int]]
) -> None:
    """Compare the secrets that were set aside with the plan's formats and entries."""
    sizes = {form.name: form.size for form in plan.hidden_formats}
    for name, indices in set_aside.items():
        if name not in sizes:
            raise ManifestError(f"set_aside has a format that is not among the plan's; {_AGAIN}")
        ascending = all(a < b for a, b in pairwise(indices))
        if not ascending or (indices and not 0 <= indices[0] <= indices[-1] < sizes[name]):
            raise ManifestError(
                f"set_aside of format {name!r} must hold secrets of it, ascending; {_AGAIN}"
            )
    aside = {name: frozenset(indices) for name, indices in set_aside.items()}
    for entry in entries:
        if entry.index in aside.get(entry.format, ()):
            raise ManifestError(f"the secret of {entry.id} is set aside as well; {_AGAIN}")


def check_texts(formats: Mapping[str, Format], entries: Sequence[Canary]) -> None:
    """Compare the texts that a file holds with the fills of their indices."""
    for entry in entries:
        form = formats[entry.format]
        if entry.index >= form.size or form.text(entry.index) != entry.text:
            raise ManifestError(f"the text of {entry.id} is not that of its index; insert again")
