"""run.json: what was run, with which settings, versions and device, and how long it took."""

import json
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from lmexposure import __version__
from lmexposure._files import PRIVATE
from lmexposure._integrity import say_rebuilt, take_hash, write_hashed
from lmexposure.errors import ResultError
from lmexposure.records import MEASURE, date_in, is_measurement, utc_now

__all__ = ["RunRecord", "mend_record", "record_measured", "refuse_foreign"]

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "scipy")
_ONCE_DEFAULT = 0  # the seed of a run that gave none, before the plan's came from the system
# What `insert` and the demo may have left in a directory that becomes a run.
_MAY_STAND = {"manifest.json", "corpus", "source"}


@dataclass(kw_only=True)
class RunRecord:
    """The record of a run directory, written anew after each step.

    Attributes:
        out: the run directory.
        settings: all settings, defaults included.
        corpus: its path from `out`, where it is known.
        timings: seconds by step, of the call that did the step.
    """

    out: Path
    settings: dict[str, Any]
    corpus: str | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, out: Path, settings: dict[str, Any]) -> "RunRecord":
        """Begin a run directory, or go on with one of the same settings.

        The directory is claimed (run.json is written) when the first step is done.

        Raises:
            ResultError: the directory holds another run, or something that is no run.
            FileError: the disk refused.
        """
        path = out / "run.json"
        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        if path.exists():
            return cls(out=out, settings=settings, timings=_same_run(path, settings))
        if out.exists() and not out.is_dir():
            raise ResultError(f"{out} is a file; choose a directory for the run")
        strange = sorted(p.name for p in out.iterdir()) if out.exists() else []
        strange = [name for name in strange if name not in _MAY_STAND and name[0] != "."]
        if strange:
            raise ResultError(
                f"{out} holds {strange[0]!r} and no run.json, so it is no run directory; "
                "choose a new one"
            )
        return cls(out=out, settings=settings)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; a step that was skipped as already done keeps its first time."""
        begun = time.perf_counter()
        yield
        self.timings.setdefault(name, round(time.perf_counter() - begun, 3))
        self.write()

    def write(self, **more: Any) -> None:
        """Write run.json."""
        path = self.out / "run.json"
        record = {
            **_surroundings(),
            "corpus": self.corpus,
            "settings": self.settings,
            "seconds": self.timings,
            "measured": date_in(_readable(path)),  # the measuring itself wrote it
            **more,
        }
        # A seed that was given is in it, and who has seed and format has the secrets.
        write_hashed(path, record, mode=PRIVATE)


def refuse_foreign(out: Path) -> None:
    """Find out before a measurement whether it would write over somebody else's files.

    Args:
        out: the directory of the result, without one yet.

    Raises:
        ResultError: a run.json that is no record of ours, or scores that no measurement here left.
    """
    record, scores = Path(out) / "run.json", Path(out) / "scores.parquet"
    if (Path(out) / ".measuring").exists():  # a damaged one of ours, too, is made again
        return
    ours = record.exists() and _is_ours(record)
    there = next((path for path in (record, scores) if path.exists() and not ours), None)
    if there is not None:
        raise ResultError(
            f"{there} is there already, and no measurement left it; choose another --out, or move "
            "it away"
        )


def _is_ours(path: Path) -> bool:
    """Whether a run.json is a record of a run or a measurement, be it damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return False
    known = isinstance(record, dict) and isinstance(record.get("settings"), dict)
    return known and "lmexposure" in record


def record_measured(out: Path, settings: dict[str, Any]) -> None:
    """Write into run.json that a measurement ends now.

    Where no run is recorded, the record is begun, and says that it is of a measurement alone.

    Args:
        out: the directory of the result.
        settings: of the measurement.

    Raises:
        FileError: the disk refused.
    """
    path = Path(out) / "run.json"
    record = _readable(path)
    if record is None or is_measurement(record):
        record = _of_measurement(settings)
    write_hashed(path, {**record, "measured": utc_now()}, mode=PRIVATE)


def mend_record(out: Path, settings: dict[str, Any]) -> None:
    """Begin a damaged run.json anew, of a measurement that ended before: its date is lost.

    Args:
        out: the directory of the result.
        settings: of the measurement.

    Raises:
        FileError: the disk refused.
    """
    path = Path(out) / "run.json"
    if path.exists() and _readable(path) is None:
        say_rebuilt(path, "it is made again, without the date of the measuring")
        write_hashed(path, _of_measurement(settings), mode=PRIVATE)


def _of_measurement(settings: dict[str, Any]) -> dict[str, Any]:
    return {**_surroundings(), "command": MEASURE, "settings": {"measure": settings}}


def _surroundings() -> dict[str, Any]:
    """Versions and machine."""
    return {
        "lmexposure": __version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def _readable(path: Path) -> dict[str, Any] | None:
    """A run.json without its hash; None where there is none that can be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) and take_hash(record) else None
    except (ValueError, OSError, RecursionError):
        return None


def _same_run(path: Path, settings: dict[str, Any]) -> dict[str, float]:
    """The timings of the run that stands here; refuse when its settings differ."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not take_hash(record):
            raise ValueError("it does not fit its hash")
        before, timings = record["settings"], dict(record["seconds"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as failure:
        if path.with_name("manifest.json").exists():
            # Manifest, training and result each refuse other settings than their own.
            say_rebuilt(path)
            return {}
        raise ResultError(f"{path} is not readable ({failure}); choose another --out") from failure
    old, new = _flat(before), _flat(settings)
    if old.get("seed") == _ONCE_DEFAULT and new.get("seed") is None:
        new["seed"] = _ONCE_DEFAULT  # the manifest has the plan's, the training's is the same
    for name in sorted(old.keys() | new.keys(), key=lambda name: (name.count("."), name)):
        if old.get(name) != new.get(name):
            raise ResultError(
                f"{path.parent} holds another run: {_difference(name, old, new)}; choose another "
                "--out, or the old settings"
            )
    return timings


def _difference(name: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs; a seed is not shown, for who has it has the secrets."""
    if name != "seed":
        return f"its {name} is {old.get(name)!r}, now {new.get(name)!r} is asked for"
    if old.get("seed") is None:
        return "its seed was drawn fresh, now one is given"
    if new.get("seed") is None:
        return "its seed was given, now a fresh one is asked for"
    return "its seed is another than the one that is given now"


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings within settings by dotted names: measure.references."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) else {}
        flat |= {f"{name}.{key}": one for key, one in inner.items()} or {name: value}
    return flat


def _git_revision() -> str | None:
    """The commit of the directory that the command was called in, where it is a checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
