"""manifest.json: what was inserted where, and all that is needed to score it later, elsewhere.

Read from the bottom up: `Manifest` is what code works with, `ManifestFile` is its file, and the
classes above are the file's parts. The file holds every secret and the seeds, so it is written for
its owner only, and no message about it shows a value. What must be true across its parts is in
`manifest_checks`, and is checked whenever a `Manifest` is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from lmexposure._files import PRIVATE, atomic_write
from lmexposure._integrity import content_hash
from lmexposure._record import BigInteger, Count, FileRecord, JsonTable, Record, Rows, Upgrades
from lmexposure._style import count, listed
from lmexposure._text import visible
from lmexposure._validate import integer, of_type
from lmexposure.canaries.format import Format
from lmexposure.canaries.inclusion import checked_inclusion
from lmexposure.canaries.manifest_checks import check_entries, check_set_aside, check_texts
from lmexposure.canaries.manifest_upgrades import UPGRADES, is_older, older_name
from lmexposure.canaries.plan import DEFAULT_REFERENCES, Canary, Plan, Role, secrets
from lmexposure.canaries.randomness import LARGEST_SEED
from lmexposure.errors import InputError, ManifestError, PlanError

Layout = Literal["lines", "paragraphs", "jsonl", "parquet", "dataset", "texts", "chat"]
Seed = Annotated[BigInteger, Field(le=LARGEST_SEED)]
# What gives a secret away is not printed, and pydantic's own errors show no value.
_HIDDEN = ConfigDict(hide_input_in_errors=True)


class FormatRecord(Record):
    """A format as `Format` describes it; the entries of its lists in their order."""

    model_config = _HIDDEN

    name: str
    template: str
    lists: dict[str, Rows[str]] = Field(repr=False)
    description: str
    source: str


class PlanRecord(Record):
    """What was asked for, as `Plan` describes it; its seed gives away every secret.

    Attributes:
        inclusion_probability: None where a fixed number went in.
        inclusion_seed: of the coins; None where none were tossed.
    """

    model_config = _HIDDEN

    formats: Rows[FormatRecord]
    canaries: Count
    repetitions: Rows[Count]
    controls: Count
    seed: Seed = Field(repr=False)
    left_out: Rows[str]
    inclusion_probability: Annotated[float, Field(gt=0, lt=1)] | None
    inclusion_seed: Seed | None = Field(repr=False)


class CorpusRecord(Record):
    """The corpus that the canaries went into.

    Attributes:
        name: file name without its directory; "" where there was no file.
        layout: what a document is, and what held them; "chat": one in a turn of a chat.
        text_field: the field that holds the text, None where a document has no fields.
        constant_fields: fields of inserted records that were given; the others were copied from
            the record that follows.
        separator: the text between documents; None: the model's BOS, else its EOS token.
        documents: how many there were before insertion.
        sha256: of the corpus before; for "texts" and "dataset" over the texts as JSON strings, one
            a line.
        sha256_inserted: of the corpus with its canaries.
        verified: whether insertion looked for fills, hashed, and checked what it wrote; where it
            was told not to, the hashes are "".

    Of packed files, the hashes are of the content; of Parquet, of the texts as for "dataset"; of
    several files, of their contents one after another. Where the whole was never read, they are "".
    """

    model_config = _HIDDEN

    name: str
    layout: Layout
    text_field: str | None
    constant_fields: Rows[str]
    separator: str | None
    documents: Count
    sha256: Annotated[str, StringConstraints(pattern="^([0-9a-f]{64})?$")]
    sha256_inserted: Annotated[str, StringConstraints(pattern="^([0-9a-f]{64})?$")]
    verified: bool


class Entry(Record):
    """A canary, candidate or control, as `Canary` describes it."""

    model_config = _HIDDEN

    id: str
    format: str
    index: BigInteger = Field(repr=False)
    text: str = Field(repr=False)
    role: Role
    repetitions: Count
    positions: Rows[Count]


class ManifestFile(FileRecord):
    """manifest.json.

    Attributes:
        plan: what was asked for.
        corpus: what it went into.
        entries: canaries, held-out candidates and controls, format by format, in drawing order.
        set_aside: per format, the secrets that were in the corpus already, ascending.
    """

    model_config = _HIDDEN

    NAME: ClassVar[str] = "manifest.json"
    FAMILY: ClassVar[str] = "lmexposure.manifest"
    VERSION: ClassVar[int] = 3
    ERROR: ClassVar[type[InputError]] = ManifestError
    AGAIN: ClassVar[str] = "take the manifest that insertion wrote, or insert again"
    SECRET: ClassVar[bool] = True
    UPGRADES: ClassVar[Upgrades] = UPGRADES

    plan: PlanRecord
    corpus: CorpusRecord
    entries: Rows[Entry]
    set_aside: dict[str, Rows[BigInteger]] = Field(repr=False)

    def manifest(self) -> "Manifest":
        """What the file says.

        Raises:
            ManifestError: a plan that cannot be, or entries that are not what it says.
        """
        try:
            # A plan would draw a new seed for coins that were tossed with another one.
            checked_inclusion(self.plan.inclusion_probability, self.plan.inclusion_seed)
            formats = tuple(Format(**vars(one)) for one in self.plan.formats)
            plan = Plan(**{**vars(self.plan), "formats": formats})
        except InputError as failure:
            raise ManifestError(f"the manifest is not sound: {failure}; insert again") from None
        entries = tuple(Canary(**vars(one)) for one in self.entries)
        made = Manifest(plan=plan, corpus=self.corpus, entries=entries, set_aside=self.set_aside)
        check_texts(made.formats, entries)
        return made


@dataclass(frozen=True, kw_only=True, repr=False)
class Manifest:
    """Which canaries exist, where each goes, and the controls.

    Attributes:
        plan: what was asked for.
        corpus: what it went into.
        entries: canaries, held-out candidates and controls (see their `role`), format by format, in
            drawing order; `canaries`, `held_out` and `controls` are those of one role.
        set_aside: per format, the secrets that were in the corpus already, ascending.

    Raises:
        ManifestError: entries that are not what the plan and its coins say; see `manifest_checks`.
    """

    plan: Plan
    corpus: CorpusRecord
    entries: tuple[Canary, ...]
    set_aside: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    # The file of an older version that it was read from: it keeps that version's name.
    _older: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_entries(self.plan, self.entries, documents=self.corpus.documents)
        check_set_aside(self.plan, self.entries, self.set_aside)

    def __repr__(self) -> str:
        roles = [count(len(self.canaries), "canary", "canaries")]
        roles += [f"{len(self.held_out):,} held out"] if self.held_out else []
        roles += [count(len(self.controls), "control")]
        documents = count(self.corpus.documents, "document")
        return f"<Manifest of {documents}: {listed(roles)} of {visible(', '.join(self.formats))}>"

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

    @property
    def formats(self) -> dict[str, Format]:
        """The formats by name."""
        return {one.name: one for one in self.plan.formats}

    @property
    def layout(self) -> str:
        """What a document is."""
        return self.corpus.layout

    @property
    def separator(self) -> str | None:
        """The left context that every fill is scored after; None: BOS, else EOS."""
        return self.corpus.separator

    @cached_property
    def sha256(self) -> str:
        """The manifest's name for other files: the hash of its contents, as its file carries it.

        One that an older version wrote keeps the name that it was given then: results, sidecars and
        trained models refer to it.
        """
        if self._older is not None:
            return older_name(self._older)
        return content_hash(self.to_dict())

    def references_left(self, format_name: str) -> int:
        """How many secrets of a format are neither candidate, control nor set aside."""
        one = self._format(format_name)
        return one.size - len(self.set_aside.get(one.name, ())) - self.plan.secrets_per_format

    def references(
        self, format_name: str, n: int | None = None, *, strict: bool = False
    ) -> list[int]:
        """Indices of fills that were never inserted; more of them begin with fewer of them.

        Args:
            format_name: one of `formats`.
            n: how many; by default 10,000. Where fewer are left, all that are left.
            strict: refuse instead of giving fewer.

        Raises:
            PlanError: `n` is below 0, or more than are left and `strict`.
            ManifestError: no such format.
        """
        one, left = self._format(format_name), self.references_left(format_name)
        wanted = integer("n", DEFAULT_REFERENCES if n is None else n, low=0, error=PlanError)
        if strict and wanted > left:
            raise PlanError(
                f"{wanted} references asked for, but format {one.name!r} has {left} secrets left "
                f"beside canaries and controls; ask for at most {left}"
            )
        used = self.plan.secrets_per_format
        stream = secrets(self.plan, one, frozenset(self.set_aside.get(one.name, ())))
        return list(islice(stream, used, used + min(wanted, left)))

    def to_dict(self) -> JsonTable:
        """The contents of its file but for their hash: they hold the secrets and the seeds."""
        return ManifestFile.model_validate(self, from_attributes=True).to_dict()

    def write(self, path: str | Path) -> None:
        """Write the manifest, readable by its owner only.

        One that an older version wrote is written as it was, so that it keeps its name.

        Raises:
            FileError: the disk refused.
        """
        if self._older is None:
            file = ManifestFile.model_validate(self, from_attributes=True)
            file.write(Path(path), mode=PRIVATE)
            return
        with atomic_write(Path(path), mode=PRIVATE) as stream:
            stream.write(self._older)

    @classmethod
    def read(cls, path: str | Path) -> "Manifest":
        """Read a manifest of this or an older version.

        Raises:
            ManifestError: missing, not JSON (cut short, for one), of another kind or a newer
                version, edited or damaged, with parts that no manifest has, or with entries that
                are not what its plan says.
        """
        path = Path(path)
        try:
            content = path.read_bytes()
        except OSError as failure:
            raise ManifestError(
                f"cannot read the manifest {path}: {failure.strerror or failure}; give the file "
                "that insertion wrote"
            ) from failure
        file = ManifestFile.parse(content, path)
        try:
            manifest = file.manifest()
        except ManifestError as failure:
            raise ManifestError(f"{path}: {failure}") from failure
        if is_older(content):
            object.__setattr__(manifest, "_older", content)
        return manifest

    @classmethod
    def of(cls, given: "Manifest | str | Path") -> "Manifest":
        """A manifest, or the one at a path.

        Raises:
            ManifestError: neither; or as `read`.
        """
        if isinstance(given, str | Path):
            return cls.read(given)
        wanted = (
            "the manifest that the insertion returned next to the texts, or the path of "
            "manifest.json"
        )
        of_type("manifest", given, cls, wanted, error=ManifestError)
        return given

    def _in_role(self, role: Role) -> tuple[Canary, ...]:
        return tuple(one for one in self.entries if one.role == role)

    def _format(self, name: str) -> Format:
        if name not in self.formats:
            raise ManifestError(
                f"the manifest has no format {name!r}; it has {', '.join(self.formats)}"
            )
        return self.formats[name]
