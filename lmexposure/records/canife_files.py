"""A federated training and its canaries on the disk, read as `verbatim_files.py` reads a look."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from lmexposure._style import short_hash
from lmexposure.records.canife_record import CanifeRecord

_LOOKED_AT = 2**20  # bytes of a file, whose schema may come after longer parts
_IS_CANIFE = re.compile(rb'"schema": ?"' + re.escape(CanifeRecord.FAMILY.encode()) + rb"/\d")

MeasuredRounds: TypeAlias = "CanifeRecord | CanifeFiles | str | Path"


@dataclass(frozen=True, kw_only=True)
class CanifeProvenance:
    """What the numbers were made by, when, and of what; as `Provenance` of a run."""

    lmexposure: str  # the version
    measured: str  # when, in UTC
    inputs_sha256: str  # of clients and settings

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
        """All of it on one line.

        >>> said = {"lmexposure": "0.1.0", "measured": "2026-11-22T06:30:00Z"}
        >>> CanifeProvenance(**said, inputs_sha256="ab" * 32).line
        'lmexposure 0.1.0, measured 2026-11-22T06:30:00Z; inputs abababababab'
        """
        return f"{self.version}, {self.date}; inputs {short_hash(self.inputs_sha256)}"

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, the hash in full."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class CanifeFiles:
    """What a federated training and its canaries left."""

    result: CanifeRecord  # what was found
    result_path: Path | None  # the file that it was read from; None for one in memory

    @property
    def provenance(self) -> CanifeProvenance:
        """Which version, when, and of what."""
        return CanifeProvenance(
            lmexposure=self.result.lmexposure,
            measured=self.result.measured,
            inputs_sha256=self.result.inputs_sha256,
        )


def holds_rounds(path: object) -> bool:
    """Whether a directory is that of such a training, or a file its record."""
    if not isinstance(path, str | Path):
        return False
    path = Path(path)
    if path.is_dir():
        return not (path / "result.json").exists() and (path / CanifeRecord.NAME).exists()
    try:
        with open(path, "rb") as file:
            return bool(_IS_CANIFE.search(file.read(_LOOKED_AT)))
    except OSError:
        return False


def open_rounds(path: str | Path) -> CanifeFiles:
    """Read the directory of such a training, or its canife.json."""
    path = Path(path)
    result_path = path / CanifeRecord.NAME if path.is_dir() else path
    return CanifeFiles(result=CanifeRecord.read(result_path), result_path=result_path)


def rounds_of(measured: MeasuredRounds) -> CanifeFiles:
    """Such a training, however it is given."""
    if isinstance(measured, CanifeFiles):
        return measured
    if isinstance(measured, CanifeRecord):
        return CanifeFiles(result=measured, result_path=None)
    return open_rounds(measured)


def are_rounds(measured: object) -> bool:
    """Whether what was measured is such a training, however it is given."""
    return isinstance(measured, CanifeRecord | CanifeFiles) or holds_rounds(measured)
