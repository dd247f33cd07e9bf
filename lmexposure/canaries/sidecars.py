"""The note of each file that insertion wrote, its sidecar: what was put into it, and no secrets.

Sidecars are in a hidden directory: loaders of a directory take every other JSON file for data.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from pydantic import TypeAdapter

from lmexposure._files import PRIVATE, read_bytes, write_json
from lmexposure._record import refuse_other_version
from lmexposure._types import FROM_FILE, Count, Found, Positive, Rows, Sha256
from lmexposure._validate import integer
from lmexposure.canaries.corpora.files import SIDECAR_SUFFIX, SIDECARS
from lmexposure.canaries.insertion import Occurrence, Placement
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import CorpusError, ResultError

_INSERT_AGAIN = "insert again into another directory, with this version"


@dataclass(frozen=True, kw_only=True)
class Copied(Found):
    """What a file was, and which documents were inserted."""

    name: str  # of the file, without its directory
    first_document: Count  # number of its first document in the whole corpus, from 0
    documents: Count  # how many it had
    occurrences: Rows[Occurrence]  # the inserted ones, in their order
    sha256: str  # of its content before; "" where nothing was checked
    # of its content with the canaries, as it is on the disk; "" where nothing was checked
    sha256_inserted: str


@dataclass(frozen=True, kw_only=True)
class Sidecar(Found):
    """Which inserted documents are in one file of a corpus."""

    SCHEMA: ClassVar[str] = "lmexposure.shard/1"

    manifest_sha256: Sha256  # of the manifest that it belongs to
    shard: Positive  # the file's place among all, from 1
    shards: Positive  # how many there are
    copied: Copied  # the file before and after

    def __post_init__(self) -> None:
        integer("shard", self.shard, low=1, high=self.shards)

    def write(self, path: Path) -> None:
        """Write the note of the file `path`, readable by its owner only."""
        values = asdict(self)
        copied = values.pop("copied")
        write_json(sidecar_path(path), {"schema": self.SCHEMA, **values, **copied}, mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        """Read the note of the file `path`; what no insertion of this version wrote is refused."""
        note = sidecar_path(path)
        try:
            values = json.loads(read_bytes(note))
            refuse_other_version(values, note, cls.SCHEMA, _INSERT_AGAIN)
            if not isinstance(values, dict) or values.pop("schema") != cls.SCHEMA:
                raise ValueError("another schema")
            own = {name: values.pop(name) for name in ("manifest_sha256", "shard", "shards")}
            read = TypeAdapter(cls).validate_python({**own, "copied": values}, context=FROM_FILE)
        except ResultError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            raise CorpusError(
                f"{note} is not what insertion wrote ({type(failure).__name__}); take a whole copy"
            ) from failure
        return read


def sidecar_path(path: Path) -> Path:
    """Where the note of a file is: .sidecars/NAME.canaries.json next to NAME."""
    return path.parent / SIDECARS / (path.name + SIDECAR_SUFFIX)


def read_sidecars(paths: Sequence[Path], manifest: Manifest) -> list[Sidecar] | None:
    """The notes of these files, or None where no file has one."""
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
    given, most = {note.shard for note in notes}, notes[0].shards
    missing = list(islice((str(n) for n in range(1, most + 1) if n not in given), 10))
    if missing and len(notes) > 1:
        several = f"numbers {', '.join(missing)} are"
        which = f"number {missing[0]} is" if len(missing) == 1 else several
        raise CorpusError(
            f"of the {most} files of this corpus, {which} missing; give all of them, or one alone"
        )
    _check_agreement(paths, notes, manifest)
    return notes


def _check_agreement(paths: Sequence[Path], notes: Sequence[Sidecar], manifest: Manifest) -> None:
    """Refuse notes that say of documents what the manifest does not."""
    placement, done = Placement(manifest.entries), 0
    ordered = sorted(zip(paths, notes, strict=True), key=lambda pair: pair[1].shard)
    for path, note in ordered:
        copied, shards = note.copied, len(notes) if len(notes) > 1 else note.shards
        stop = copied.first_document + copied.documents
        wanted = [(n, canary.id) for n, canary in placement.within(copied.first_document, stop)]
        if (
            [(occurrence.document, occurrence.id) for occurrence in copied.occurrences] != wanted
            or stop > manifest.corpus.documents
            or (len(notes) == shards and copied.first_document != done)
            or (note.shard == shards and stop != manifest.corpus.documents)
            or note.shards != shards
        ):
            raise CorpusError(
                f"{sidecar_path(path)} does not say what the manifest does; take a whole copy"
            )
        done = stop


def in_insertion_order(paths: Sequence[Path], manifest: Manifest) -> list[Path]:
    """These files in the order that insertion gave them, where their sidecars say it."""
    with suppress(CorpusError):
        notes = read_sidecars(paths, manifest) or []
        order = {path: note.shard for path, note in zip(paths, notes, strict=False)}
        return sorted(paths, key=lambda path: order.get(path, 0))
    return list(paths)
