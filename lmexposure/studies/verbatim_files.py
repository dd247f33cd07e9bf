"""A finished look at memorised text on the disk: read as one, as `sweep_files.py` reads a sweep."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from lmexposure._files import open_regular
from lmexposure._style import short_hash
from lmexposure._text import visible
from lmexposure.studies.verbatim_record import VerbatimRecord

_LOOKED_AT = 2**20  # bytes of a file, whose schema may come after longer parts
_IS_LOOK = re.compile(rb'"schema": ?"' + re.escape(VerbatimRecord.FAMILY.encode()) + rb"/\d")

MeasuredText: TypeAlias = "VerbatimRecord | VerbatimFiles | str | Path"


@dataclass(frozen=True, kw_only=True)
class VerbatimProvenance:
    """What a look's numbers were made by, when, and of what; as `Provenance` of a run."""

    lmexposure: str  # the version
    measured: str  # when, in UTC: "2026-11-22T06:30:00Z"
    model: str  # that was asked
    weights_sha256: str  # of it
    corpus_sha256: str  # of the documents

    @property
    def version(self) -> str:
        """The version in words."""
        return f"lmexposure {self.lmexposure}"

    @property
    def date(self) -> str:
        """The date in words."""
        return f"measured {self.measured}"

    @property
    def line(self) -> str:
        """All of it on one line, the hashes in short.

        >>> said = {"lmexposure": "0.1.0", "measured": "2026-11-22T06:30:00Z", "model": "m"}
        >>> hashes = {"weights_sha256": "ab" * 32, "corpus_sha256": "cd" * 32}
        >>> VerbatimProvenance(**said, **hashes).line.partition("; ")[2]
        'm, weights abababababab, corpus cdcdcdcdcdcd'
        """
        weights, corpus = short_hash(self.weights_sha256), short_hash(self.corpus_sha256)
        said = f"{self.version}, {self.date}; {self.model}, weights {weights}, corpus {corpus}"
        return visible(said)

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, the hashes in full."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class VerbatimFiles:
    """What a look left."""

    result: VerbatimRecord  # what it found
    result_path: Path | None  # the file that it was read from; None for one in memory

    @property
    def provenance(self) -> VerbatimProvenance:
        """Which version asked which model of which corpus, and when."""
        return VerbatimProvenance(
            lmexposure=self.result.lmexposure,
            measured=self.result.measured,
            model=self.result.model.name,
            weights_sha256=self.result.model.weights_sha256,
            corpus_sha256=self.result.corpus_sha256,
        )


def holds_look(path: object) -> bool:
    """Whether a directory is that of a look at memorised text, or a file its record."""
    if not isinstance(path, str | Path):
        return False
    path = Path(path)
    if path.is_dir():
        return not (path / "result.json").exists() and (path / VerbatimRecord.NAME).exists()
    try:
        with open_regular(path) as file:
            return bool(_IS_LOOK.search(file.read(_LOOKED_AT)))
    except OSError:
        return False


def open_look(path: str | Path) -> VerbatimFiles:
    """Read a look's directory, or its verbatim.json."""
    path = Path(path)
    result_path = path / VerbatimRecord.NAME if path.is_dir() else path
    return VerbatimFiles(result=VerbatimRecord.read(result_path), result_path=result_path)


def look_of(measured: MeasuredText) -> VerbatimFiles:
    """A look, however it is given."""
    if isinstance(measured, VerbatimFiles):
        return measured
    if isinstance(measured, VerbatimRecord):
        return VerbatimFiles(result=measured, result_path=None)
    return open_look(measured)


def is_look(measured: object) -> bool:
    """Whether what was measured is a look at memorised text, however it is given."""
    return isinstance(measured, VerbatimRecord | VerbatimFiles) or holds_look(measured)
