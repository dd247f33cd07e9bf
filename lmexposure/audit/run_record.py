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

__all__ = ["RunRecord"]

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
        timings: seconds by step, of the call that did the step.
    """

    out: Path
    settings: dict[str, Any]
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
        record = {
            "lmexposure": __version__,
            "git_revision": _git_revision(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "versions": {name: metadata.version(name) for name in _PACKAGES},
            "settings": self.settings,
            "seconds": self.timings,
            **more,
        }
        # A seed that was given is in it, and who has seed and format has the secrets.
        write_hashed(self.out / "run.json", record, mode=PRIVATE)


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
