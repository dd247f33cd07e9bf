"""A sweep whose models are trained by nobody: what a driver sees of them, and what goes wrong.

A worker of Ray gets this file by value, so that it imports nothing heavy.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lmexposure._files import atomic_directory, only_writer
from lmexposure.errors import FileError, LmexposureError, ResultError

STEPS = 30


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of a model."""

    diverges: bool = False
    disk_full: bool = False
    bug: bool = False
    killed: int = 0  # how often its worker is killed in its midst
    seconds: float = 0.0  # of a step


@dataclass(frozen=True, kw_only=True)
class Trained:
    """In the place of a `SweepModel`."""

    number: int
    seconds: float = 0.5


@dataclass(frozen=True, kw_only=True)
class FakeDirectory:
    """In the place of a `SweepDirectory`; whole models are files, as theirs are directories."""

    out: Path
    plan: Any

    @classmethod
    def open(cls, out: str | Path) -> "FakeDirectory":
        if not (Path(out) / "plan.json").exists():
            raise ResultError(f"cannot read {out}; prepare the sweep first")
        told = json.loads((Path(out) / "plan.json").read_text())
        run = SimpleNamespace(device=told["device"])
        settings = SimpleNamespace(models=told["models"], run=run)
        return cls(
            out=Path(out),
            plan=SimpleNamespace(settings=settings, models=told["models"], fates=told["fates"]),
        )

    def home(self, number: int) -> Path:
        return self.out / "models" / f"{number:03d}"

    def work(self, number: int) -> Path:
        return self.out / "work" / f"{number:03d}"

    def done(self, number: int) -> Trained | None:
        return Trained(number=number) if self.home(number).exists() else None

    def failed(self, number: int) -> object:
        from lmexposure.studies import FailedModel

        path = self.out / f"failed-{number}"
        return FailedModel(number=number, reason="its loss is nan") if path.exists() else None


def write_plan(
    out: Path, models: int, fates: Mapping[int, Fate] | None = None, *, device: str = "cpu"
) -> Path:
    """A plan of fake models, of which some have a fate."""
    out.mkdir(parents=True, exist_ok=True)
    told = {str(number): vars(fate) for number, fate in (fates or {}).items()}
    plan = {"models": models, "device": device, "fates": told}
    (out / "plan.json").write_text(json.dumps(plan))
    return out


def fake_task(
    directory: FakeDirectory, number: int, *, progress: Callable[..., None] | None = None
) -> Any:
    """In the place of `task`."""
    if (done := directory.done(number)) is not None:
        return done
    with only_writer(directory.out / "work" / f"{number:03d}"):
        fate = Fate(**directory.plan.fates.get(str(number), {}))
        for step in range(STEPS):
            time.sleep(fate.seconds)
            if progress is not None:
                progress("training", step + 1, STEPS)
            if step == STEPS // 2:
                _suffer(directory, number, fate)
        if fate.diverges:
            (directory.out / f"failed-{number}").touch()
            return directory.failed(number)
        with atomic_directory(directory.home(number)) as home:
            (home / "scores").write_text(f"{number}, {os.environ.get('OMP_NUM_THREADS')} thread")
        return Trained(number=number)


def _suffer(directory: FakeDirectory, number: int, fate: Fate) -> None:
    if fate.disk_full:
        raise FileError(28, "the disk is full")
    if fate.bug:
        raise KeyError("a bug")
    lives = directory.out / f"killed-{number}"
    spent = len(lives.read_text()) if lives.exists() else 0
    if spent < fate.killed:
        lives.write_text("x" * (spent + 1))
        os.kill(os.getpid(), 9)


def fake_worker(out: str, plan_sha256: str, number: int) -> Any:
    """In the place of `train_in_worker`."""
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        return fake_task(FakeDirectory.open(out), number)
    except LmexposureError as failure:
        return failure
