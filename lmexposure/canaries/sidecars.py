"""The note next to each copy of a corpus file: what was put into it; it holds no secrets."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lmexposure._files import PRIVATE, write_json
from lmexposure._validate import integer
from lmexposure.canaries.corpora.files import SIDECAR_SUFFIX
from lmexposure.canaries.insertion import Occurrence, Placement
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import CorpusError

SCHEMA = "lmexposure.shard/1"
_MOST = 2**63 - 1  # of documents or bytes


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a file was, and which documents were inserted.

    Attributes:
        name: of the file, without its directory.
        first_document: number of its first document in the whole corpus, from 0.
        documents: how many it had.
        occurrences: the inserted ones, in their order.
        sha256: of its content before; "" where nothing was checked.
        sha256_inserted: of its content with the canaries, as it is on the disk; "" where nothing
            was checked.
    """

    name: str
    first_document: int
    documents: int
    occurrences: tuple[Occurrence, ...]
    sha256: str
    sha256_inserted: str


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """Which inserted documents are in one file of a corpus.

    Attributes:
        manifest_sha256: of the manifest that it belongs to.
        shard: the file's place among all, from 1.
        shards: how many there are.
        copied: the file before and after.
    """

    manifest_sha256: str
    shard: int
    shards: int
    copied: Copied

    def write(self, path: Path) -> None:
        """Write the note of the file `path` beside it, readable by its owner only.

        Who knows a file but for one short secret can try all of them against its hash.
        """
        values = asdict(self)
        copied = values.pop("copied")
        write_json(sidecar_path(path), {"schema": SCHEMA, **values, **copied}, mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        """Read the note of the file `path`; what no insertion wrote is refused."""
        note = sidecar_path(path)
        try:
            return cls._from_dict(json.loads(note.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            raise CorpusError(
                f"{note} is not what insertion wrote ({type(failure).__name__}); take a whole copy"
            ) from failure

    @classmethod
    def _from_dict(cls, values: Any) -> "Sidecar":
        if not isinstance(values, dict) or values.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        own = {name: values.pop(name) for name in ("manifest_sha256", "shard", "shards")}
        occurrences = tuple(Occurrence(**one) for one in values.pop("occurrences"))
        note = cls(**own, copied=Copied(**values, occurrences=occurrences))
        for record in (note, note.copied, *occurrences):
            for name, kind in type(record).__annotations__.items():
                if kind is str and not isinstance(getattr(record, name), str):
                    raise TypeError(f"{name} is no string")
                if kind is int:
                    integer(name, getattr(record, name), low=0, high=_MOST)
        integer("shard", note.shard, low=1, high=note.shards)
        return note


def sidecar_path(path: Path) -> Path:
    """Where the note of a file is: NAME.canaries.json beside NAME."""
    return path.with_name(path.name + SIDECAR_SUFFIX)


def read_sidecars(paths: Sequence[Path], manifest: Manifest) -> list[Sidecar] | None:
    """The notes beside these files, or None where no file has one.

    One file may be alone; of several, all files and notes of one manifest must be there.
    """
    bare = [path for path in paths if not sidecar_path(path).exists()]
    if len(bare) == len(paths):
        return None
    if bare:
        raise CorpusError(
            f"{len(bare)} of {len(paths)} files have no sidecar ({sidecar_path(bare[0])}), "
            "which says what each should hold; bring all along, or give the files without any"
        )
    notes = [Sidecar.read(path) for path in paths]
    for path, note in zip(paths, notes, strict=True):
        if note.manifest_sha256 != manifest.sha256:
            raise CorpusError(
                f"{sidecar_path(path)} belongs to another manifest; give the one of this corpus"
            )
    shards: dict[int, Path] = {}
    for path, note in zip(paths, notes, strict=True):
        if shards.setdefault(note.shard, path) != path:
            raise CorpusError(
                f"{shards[note.shard]} and {path} are both number {note.shard} of this corpus, by "
                "their sidecars; give one of them"
            )
    _check_complete(notes)
    _check_told(paths, notes, manifest)
    return notes


def _check_complete(notes: Sequence[Sidecar]) -> None:
    given, most = {note.shard for note in notes}, notes[0].shards
    missing = list(islice((str(n) for n in range(1, most + 1) if n not in given), 10))
    if missing and len(notes) > 1:
        which = (
            f"number {missing[0]} is" if len(missing) == 1 else f"numbers {', '.join(missing)} are"
        )
        raise CorpusError(
            f"of the {most} files of this corpus, {which} missing; give all of them, or one alone"
        )


def _check_told(paths: Sequence[Path], notes: Sequence[Sidecar], manifest: Manifest) -> None:
    """Refuse notes that say of documents what the manifest does not."""
    placement, done = Placement(manifest.entries), 0
    ordered = sorted(zip(paths, notes, strict=True), key=lambda pair: pair[1].shard)
    for path, note in ordered:
        told, shards = note.copied, len(notes) if len(notes) > 1 else note.shards
        stop = told.first_document + told.documents
        wanted = [(n, canary.id) for n, canary in placement.within(told.first_document, stop)]
        if (
            [(one.document, one.id) for one in told.occurrences] != wanted
            or stop > manifest.corpus.documents
            or (len(notes) == shards and told.first_document != done)
            or (note.shard == shards and stop != manifest.corpus.documents)
            or note.shards != shards
        ):
            raise CorpusError(
                f"{sidecar_path(path)} does not say what the manifest does; take a whole copy"
            )
        done = stop


def as_inserted(paths: Sequence[Path], manifest: Manifest) -> list[Path]:
    """These files in the order that insertion gave them, where their sidecars say it."""
    with suppress(CorpusError):
        notes = read_sidecars(paths, manifest) or []
        order = {path: note.shard for path, note in zip(paths, notes, strict=False)}
        return sorted(paths, key=lambda path: order.get(path, 0))
    return list(paths)
