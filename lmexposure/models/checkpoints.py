"""What interrupted training goes on from, and what finished training leaves behind and returns."""

import io
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from lmexposure._files import PRIVATE, atomic_directory, read_bytes
from lmexposure._integrity import check_seal, damaged_file, file_hashes, say_rebuilt, write_sealed
from lmexposure._written import listed, remove
from lmexposure.errors import FileError, ResultError
from lmexposure.studies import TRAINING_SCHEMA, read_training

BEGINS_ANEW = "the training begins anew"
_BEST = re.compile(r"best-\d+|\.best-\d+(\.\d+)?\.(partial|old)")
_PARTS = {"inputs", "counters", "model", "optimizer"}


@dataclass(kw_only=True)
class Counters:
    """How far a training is; the same on every process."""

    step: int = 0  # optimizer steps done
    tokens: int = 0  # tokens predicted so far
    seconds: float = 0.0  # time spent, over all attempts
    # recent_nats, recent_tokens: training loss since the last evaluation
    recent_nats: float = 0.0
    recent_tokens: int = 0
    initial_bits: float | None = None  # validation loss before the first step, bits per token
    # best_bits, best_step: lowest validation loss after a step, and that step
    best_bits: float | None = None
    best_step: int = 0
    waited: int = 0  # evaluations since then
    # why training ended: "patience", "epochs" or "max_seconds"; None while it runs
    stopped: str | None = None
    threads: int | None = None  # of the CPU, of each process; None before the first step
    # one entry per evaluation, as in metrics.jsonl
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far training is after a step."""

    step: int  # optimizer steps done
    total_steps: int  # steps at most; training may stop earlier
    epoch: float  # passes over the corpus done, a fraction within a pass
    tokens: int  # tokens predicted so far
    train_bits: float  # training loss of this step, bits per token
    # lowest validation loss so far, bits per token; None before the first
    validation_bits: float | None


ProgressCallback = Callable[[Progress], None]


class CheckpointDirectory:
    """The last state of a training, sealed, and its best model, kept until no state needs it."""

    def __init__(self, out: Path, inputs: str, *, mode: int = 0o666) -> None:
        self.out, self.mode, self._inputs = out, mode, inputs
        self._file = out / "checkpoint.pt"
        # Of the best model's files, by its step; {} before the first.
        self._hashes: tuple[int, dict[str, str]] = (0, {})

    def best(self, step: int) -> Path:
        """Where the best model is kept when `step` is the best step."""
        return self.out / f"best-{step}"

    def save(self, counters: Counters, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        """Replace the checkpoint by one of this state."""
        if self._hashes[0] != counters.best_step:
            self._hashes = (counters.best_step, file_hashes(self.best(counters.best_step)))
        state = {
            "inputs": self._inputs,
            "counters": asdict(counters),
            "model": model,
            "optimizer": optimizer,
            "best_files": self._hashes[1],
        }
        # Through memory: torch would report a full disk as a RuntimeError without its reason.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_sealed(self._file, buffer.getbuffer(), mode=PRIVATE)
        self._remove_best_but(counters.best_step)

    def load(self) -> tuple[Counters, dict[str, Any], dict[str, Any]] | None:
        """The last state: counters, model and optimizer; None where there is none."""
        if not self._file.exists():
            return None
        state = None
        if check_seal(self._file):
            with suppress(Exception):  # torch raises many kinds for a damaged file
                # weights_only: a checkpoint cannot run code.
                state = torch.load(self._file, map_location="cpu", weights_only=True)
        if not (isinstance(state, dict) and state.keys() >= _PARTS):
            say_rebuilt(self._file, BEGINS_ANEW)
            return None
        if state["inputs"] != self._inputs:
            raise ResultError(
                f"{self.out} holds an unfinished training with other settings, data or initial "
                "weights; choose another directory"
            )
        try:
            counters = Counters(**state["counters"])
        except TypeError:  # another version's: it counts what this one does not
            say_rebuilt(self._file, BEGINS_ANEW, why="is not as this version writes it")
            return None
        self._hashes = (counters.best_step, state.get("best_files", {}))
        best = self.best(counters.best_step)
        gone = counters.best_bits is not None and not best.is_dir()
        damaged = best if gone else damaged_file(best, self._hashes[1])
        if damaged is not None:
            say_rebuilt(damaged, BEGINS_ANEW)
            return None
        return counters, state["model"], state["optimizer"]

    def finish(self, best_step: int) -> dict[str, str]:
        """Put the best model at its final place, `model`."""
        with atomic_directory(self.out / "model", mode=self.mode) as partial:
            shutil.copytree(self.best(best_step), partial, dirs_exist_ok=True)
            hashes = file_hashes(partial)
            damaged = damaged_file(partial, self._hashes[1])
            if damaged is not None:
                raise FileError(
                    None,
                    f"{self.best(best_step) / damaged.name} was damaged while the training went "
                    "on; give the same command again",
                )
        return hashes

    def clear(self, teachers: Path) -> None:
        """Remove what only an unfinished training needs."""
        remove(teachers)
        remove(self._file)
        self._remove_best_but(None)

    def _remove_best_but(self, step: int | None) -> None:
        for name in listed(self.out):
            if _BEST.fullmatch(name) and (step is None or name != self.best(step).name):
                remove(self.out / name)


def damaged_model(model: str | Path) -> Path | None:
    """The first file of a trained model, or its record, that its training did not write so."""
    model = Path(model)
    path = model.parent / "training.json"
    if model.name != "model" or not os.path.lexists(path):
        return None
    if not model.is_dir():
        return model if path.is_file() else None
    record = read_training(path)
    if record is None:
        return path if _was_ours(path) else None
    return damaged_file(model, record.model_files)


def _was_ours(path: Path) -> bool:
    """Whether a damaged record is of a training here, by the list next to it or what is left."""
    if listed(path.parent) & {path.name, "model"}:
        return True
    with suppress(OSError):
        content = read_bytes(path)
        return not content or TRAINING_SCHEMA.partition("/")[0].encode() in content
    return False
