"""A corpus of many files: their order, and the note beside each that says what was put into it.

Documents are numbered over all files, sorted by name. The note, a sidecar, holds no secrets.
"""

import glob
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

from lmexposure._files import PRIVATE, write_json
from lmexposure._validate import integer
from lmexposure.canaries.corpora.copying import Copied
from lmexposure.canaries.corpora.merging import Occurrence
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import CorpusError

SCHEMA = "lmexposure.shard/1"
_SUFFIX = ".canaries.json"
_MOST = 2**63 - 1  # of documents or bytes
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """Which inserted documents stand in one file of a corpus.

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

        Raises:
            FileError: the disk refused.
        """
        values = asdict(self)
        copied = values.pop("copied")
        contents = {"schema": SCHEMA, **values, **copied}
        write_json(sidecar_path(path), contents, mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        """Read the note of the file `path`.

        Raises:
            CorpusError: it is cut short, or was not written by an insertion.
        """
        note = sidecar_path(path)
        try:
            return cls._from_dict(json.loads(note.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            raise CorpusError(
                f"{note} is not what insertion wrote ({type(failure).__name__}); take a whole copy"
            ) from failure

    @classmethod
    def _from_dict(cls, values: Any) -> "Sidecar":
        values = _typed(values, dict)
        if values.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        own = {name: values.pop(name) for name in ("manifest_sha256", "shard", "shards")}
        found = _typed(values.pop("occurrences"), list)
        occurrences = tuple(Occurrence(**_typed(one, dict)) for one in found)
        note = cls(**own, copied=Copied(**values, occurrences=occurrences))
        texts = (note.manifest_sha256, note.copied.name, note.copied.sha256)
        for text in (*texts, note.copied.sha256_inserted, *(one.id for one in occurrences)):
            _typed(text, str)
        integer("shard", note.shard, low=1, high=integer("shards", note.shards, low=1))
        counts = [note.copied.first_document, note.copied.documents]
        counts += [n for one in occurrences for n in (one.document, one.offset, one.length)]
        for count in counts:
            integer("documents", count, low=0, high=_MOST)
        return note


def _typed(value: Any, kind: type[_Kind]) -> _Kind:
    if not isinstance(value, kind):
        raise TypeError(f"no {kind.__name__}")
    return value


def sidecar_path(path: Path) -> Path:
    """Where the note of a file stands: NAME.canaries.json beside NAME."""
    return path.with_name(path.name + _SUFFIX)


def corpus_files(names: Sequence[str | Path]) -> list[Path]:
    """The files of a corpus, sorted by name.

    Args:
        names: files, or patterns such as "data/*.jsonl.gz".

    Raises:
        CorpusError: a pattern that matches no file, or a file named twice.
    """
    found: list[Path] = []
    for name in names:
        known = [name] if Path(name).exists() or not glob.has_magic(str(name)) else []
        matched = known or glob.glob(str(name), recursive=True)
        files = [Path(one) for one in matched if not str(one).endswith(_SUFFIX)]
        if not files:
            raise CorpusError(f"no file matches {str(name)!r}; give a file, or another pattern")
        found += files
    found.sort()
    for one, following in pairwise(found):
        if one == following:
            raise CorpusError(f"{one} is given twice; give it once")
    return found


def read_sidecars(paths: Sequence[Path], manifest: Manifest) -> list[Sidecar] | None:
    """The notes beside these files, or None where no file has one.

    One file may stand alone; of several, all must be there.

    Raises:
        CorpusError: a note belongs to another manifest, or files or some of the notes are missing.
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
    given = {note.shard for note in notes}
    missing = list(islice((n for n in range(1, notes[0].shards + 1) if n not in given), 10))
    if missing and len(notes) > 1:
        listed = ", ".join(map(str, missing))
        raise CorpusError(
            f"of the {notes[0].shards} files of this corpus, number {listed} is missing; give all "
            "of them, or one alone"
        )
    return notes
