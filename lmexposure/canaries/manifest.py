"""The record of what was inserted: all that is needed to score later, elsewhere."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from lmexposure._files import PRIVATE, canonical_json, sha256_bytes, write_json
from lmexposure._validate import integer
from lmexposure.canaries.format import CanaryFormat
from lmexposure.canaries.plan import Canary, Plan, secrets
from lmexposure.canaries.soundness import check_canaries
from lmexposure.errors import InputError, ManifestError, PlanError

__all__ = ["DEFAULT_REFERENCES", "SCHEMA", "TOSSED_SCHEMA", "CorpusRecord", "Manifest"]

SCHEMA = "lmexposure.manifest/1"
# Where coins were tossed: who reads only the first would take the excluded for inserted.
TOSSED_SCHEMA = "lmexposure.manifest/2"
DEFAULT_REFERENCES = 10_000


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """The corpus that the canaries went into.

    Attributes:
        name: file name without its directory; "" where there was no file.
        layout: "lines", "paragraphs", "jsonl", "parquet", "dataset" or "texts".
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
    several files, of their contents one after another.
    """

    name: str
    layout: str
    text_field: str | None
    constant_fields: tuple[str, ...] = ()
    separator: str | None
    documents: int
    sha256: str
    sha256_inserted: str
    verified: bool = True


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Which canaries exist, where each stands, and the controls.

    Attributes:
        plan: what was asked for.
        corpus: what it went into.
        canaries: canaries, excluded candidates and controls (see their `role`), format by format,
            in drawing order.
        set_aside: per format, the secrets that stood in the corpus already.

    Raises:
        ManifestError: canaries that are not what the plan and its coins say; see `soundness`.
    """

    plan: Plan
    corpus: CorpusRecord
    canaries: tuple[Canary, ...]
    set_aside: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_canaries(self.plan, self.canaries, documents=self.corpus.documents)

    @property
    def schema(self) -> str:
        """Of the file; a manifest without coins is written as before there were any."""
        return SCHEMA if self.plan.coins == "fixed" else TOSSED_SCHEMA

    @property
    def formats(self) -> dict[str, CanaryFormat]:
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
        """SHA-256 of the contents in canonical JSON: the manifest's name for other files."""
        return sha256_bytes(canonical_json(self._contents()))

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

    def to_dict(self) -> dict[str, Any]:
        """The manifest as it is written: it holds the secrets, and the seed of the coins."""
        contents = self._contents()
        return {"schema": contents.pop("schema"), "checksum": self.sha256, **contents}

    @classmethod
    def from_dict(cls, values: Any) -> "Manifest":
        """The manifest of `to_dict`.

        Raises:
            ManifestError: another or a newer schema, a checksum that does not fit, missing parts,
                or canaries that are not what the plan says.
        """
        _check_schema(values)
        contents = {key: value for key, value in values.items() if key != "checksum"}
        if _checksum(contents) != values.get("checksum"):
            raise ManifestError(
                "the checksum does not fit: the manifest was edited or damaged; take the one that "
                "insertion wrote"
            )
        try:
            return _manifest(contents)
        except ManifestError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as failure:
            # Only our own messages are known to hold no secret.
            why = failure if isinstance(failure, InputError) else type(failure).__name__
            raise ManifestError(f"the manifest is not sound: {why}; insert again") from None

    def write(self, path: str | Path) -> None:
        """Write the manifest, readable by its owner only.

        Raises:
            FileError: the disk refused.
        """
        write_json(Path(path), self.to_dict(), mode=PRIVATE)

    @classmethod
    def read(cls, path: str | Path) -> "Manifest":
        """Read a manifest.

        Raises:
            ManifestError: missing, not JSON (cut short, for one), or see `from_dict`.
        """
        try:
            values = json.loads(Path(path).read_bytes())
        except OSError as failure:
            raise ManifestError(
                f"cannot read the manifest {path}: {failure.strerror or failure}; give the file "
                "that insertion wrote"
            ) from failure
        except (ValueError, RecursionError):
            raise ManifestError(
                f"the manifest {path} is cut short or not JSON; take a whole copy"
            ) from None
        try:
            return cls.from_dict(values)
        except ManifestError as failure:
            raise ManifestError(f"{path}: {failure}") from failure

    def _format(self, name: str) -> CanaryFormat:
        if name not in self.formats:
            raise ManifestError(
                f"the manifest has no format {name!r}; it has {', '.join(self.formats)}"
            )
        return self.formats[name]

    def _contents(self) -> dict[str, Any]:
        # Left out where none are tossed: a manifest of before there were coins keeps its hash.
        tossed = {"coins": self.plan.coins, "coin_seed": str(self.plan.coin_seed)}
        coins = {} if self.plan.coins == "fixed" else tossed
        return {
            "schema": self.schema,
            "plan": {
                "formats": [one.to_dict() for one in self.plan.formats],
                "canaries": self.plan.canaries,
                "repetitions": list(self.plan.repetitions),
                "controls": self.plan.controls,
                "seed": str(self.plan.seed),
                "left_out": list(self.plan.left_out),
                **coins,
            },
            "corpus": _corpus_contents(self.corpus),
            "canaries": [
                {**asdict(one), "index": str(one.index), "positions": list(one.positions)}
                for one in self.canaries
            ],
            "set_aside": {name: [str(i) for i in ids] for name, ids in self.set_aside.items()},
        }


def _corpus_contents(corpus: CorpusRecord) -> dict[str, Any]:
    contents = {**asdict(corpus), "constant_fields": list(corpus.constant_fields)}
    # Left out where it is true: a manifest of before there was a choice keeps its hash.
    if contents["verified"]:
        del contents["verified"]
    return contents


def _checksum(contents: Mapping[str, Any]) -> str | None:
    try:
        return sha256_bytes(canonical_json(contents))
    except ValueError:
        return None


def _check_schema(values: Any) -> None:
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema in (SCHEMA, TOSSED_SCHEMA):
        return
    family, _, version = str(schema).partition("/")
    if family == SCHEMA.partition("/")[0] and version.isdecimal():
        raise ManifestError(
            f"schema {schema!r} is newer than {TOSSED_SCHEMA!r}, which this version reads; upgrade "
            "lmexposure"
        )
    raise ManifestError(f"schema {schema!r} is no manifest; one that can be read says {SCHEMA!r}")


def _manifest(contents: Mapping[str, Any]) -> Manifest:
    plan, corpus = dict(contents["plan"]), dict(contents["corpus"])
    formats = tuple(CanaryFormat.from_dict(one) for one in plan.pop("formats"))
    seeds = {name: int(plan[name]) for name in ("seed", "coin_seed") if name in plan}
    manifest = Manifest(
        plan=Plan(**{**plan, "formats": formats, **seeds}),
        corpus=CorpusRecord(**{**corpus, "constant_fields": tuple(corpus["constant_fields"])}),
        canaries=tuple(_canary(one) for one in contents["canaries"]),
        set_aside={name: tuple(map(int, ids)) for name, ids in contents["set_aside"].items()},
    )
    if manifest.schema != contents["schema"]:
        raise ManifestError(
            f"schema {contents['schema']!r} does not go with coins={manifest.plan.coins}, which "
            f"{manifest.schema!r} is for; insert again"
        )
    for canary in manifest.canaries:
        if manifest.formats[canary.format].text(canary.index) != canary.text:
            raise ManifestError(
                f"the text of {canary.id} is not the fill of its index; insert again"
            )
    return manifest


def _canary(values: Mapping[str, Any]) -> Canary:
    changed = {"index": int(values["index"]), "positions": tuple(values["positions"])}
    return Canary(**{**values, **changed})
