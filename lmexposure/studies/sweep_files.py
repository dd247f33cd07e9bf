"""A finished sweep on the disk: read as one, as `run.py` reads a run.

Gate and report begin here too, and need sweep.json alone: it holds everything that they show, and
no secret. The plan, whose coins are for its owner, is not opened.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from lmexposure._files import open_regular
from lmexposure._style import count, short_hash
from lmexposure._text import visible
from lmexposure.errors import ResultError
from lmexposure.studies.sweep_plan import SweepPlan
from lmexposure.studies.sweep_result import SweepResult

_LOOKED_AT = 2**20  # bytes of a file, whose schema comes after its longer parts
_IS_SWEEP = re.compile(rb'"schema": ?"' + re.escape(SweepResult.FAMILY.encode()) + rb"/\d")

MeasuredSweep: TypeAlias = "SweepResult | SweepFiles | str | Path"


@dataclass(frozen=True, kw_only=True)
class SweepProvenance:
    """What a sweep's numbers were made by, when, and of what; as `Provenance` of a run."""

    lmexposure: str  # the version that collected it
    measured: str  # when, in UTC: "2026-11-22T06:30:00Z"
    models: int  # that have scores
    plan_sha256: str  # of the plan with its coins
    matrices_sha256: str  # of all scores

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

        >>> said = {"lmexposure": "0.1.0", "measured": "2026-11-22T06:30:00Z", "models": 64}
        >>> SweepProvenance(**said, plan_sha256="ab" * 32, matrices_sha256="cd" * 32).line
        'lmexposure 0.1.0, measured 2026-11-22T06:30:00Z; 64 models, scores cdcdcdcdcdcd'
        """
        scores = short_hash(self.matrices_sha256)
        models = count(self.models, "model")
        return visible(f"{self.version}, {self.date}; {models}, scores {scores}")

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, the hashes in full."""
        return asdict(self) | {"models": str(self.models)}


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepFiles:
    """What a sweep left."""

    path: Path | None  # as it was given; None for a result in memory
    name: str  # of the directory
    result: SweepResult  # what all models say together
    result_path: Path | None  # the file that it was read from; None for one in memory

    @property
    def place(self) -> str:
        """Where the result is, for a message."""
        return "the sweep in memory" if self.result_path is None else str(self.result_path)

    @property
    def provenance(self) -> SweepProvenance:
        """Which version collected how many models, and when."""
        return SweepProvenance(
            lmexposure=self.result.lmexposure,
            measured=self.result.measured,
            models=self.result.models,
            plan_sha256=self.result.plan_sha256,
            matrices_sha256=self.result.matrices_sha256,
        )


def holds_sweep(path: object) -> bool:
    """Whether a directory is that of a sweep, collected or not, or a file a sweep's result."""
    if not isinstance(path, str | Path):
        return False
    path = Path(path)
    if path.is_dir():
        names = (SweepResult.NAME, SweepPlan.NAME)
        return not (path / "result.json").exists() and any((path / name).exists() for name in names)
    try:
        with open_regular(path) as file:
            return bool(_IS_SWEEP.search(file.read(_LOOKED_AT)))
    except OSError:
        return False


def open_sweep(path: str | Path) -> SweepFiles:
    """Read a sweep's directory, or its sweep.json.

    Args:
        path: a directory with a sweep.json in it, or such a file.

    Raises:
        ResultError: no sweep, one that is not collected yet, or a file that is torn, was edited or
            is of a newer schema.
    """
    path = Path(path)
    result_path = path / SweepResult.NAME if path.is_dir() else path
    result = SweepResult.read(result_path)
    named = result_path.name == SweepResult.NAME
    name = result_path.resolve().parent.name if named else result_path.stem
    return SweepFiles(path=path, name=name, result=result, result_path=result_path)


def sweep_of(measured: MeasuredSweep) -> SweepFiles:
    """A sweep, however it is given."""
    if isinstance(measured, SweepFiles):
        return measured
    if isinstance(measured, SweepResult):
        return SweepFiles(path=None, name="sweep", result=measured, result_path=None)
    if isinstance(measured, str | Path):
        return open_sweep(measured)
    raise ResultError(
        f"a sweep of type {type(measured).__name__} cannot be read; give a SweepResult, what "
        "open_sweep gave, or the path of a sweep's directory or sweep.json"
    )


def is_sweep(measured: object) -> bool:
    """Whether what was measured is a sweep, however it is given, and not a run."""
    return isinstance(measured, SweepResult | SweepFiles) or holds_sweep(measured)
