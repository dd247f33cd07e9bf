"""What interrupted training goes on from, and what finished training leaves behind."""

import io
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from lmexposure._files import PRIVATE, atomic_directory, atomic_write
from lmexposure.errors import ResultError

__all__ = ["CheckpointDirectory", "Counters"]


@dataclass(kw_only=True)
class Counters:
    """Where a training stands; the same on every process.

    Args:
        step: optimizer steps done.
        tokens: tokens predicted so far.
        seconds: time spent, over all attempts.
        recent_nats, recent_tokens: training loss since the last evaluation.
        initial_bits: validation loss before the first step, bits per token.
        best_bits, best_step: lowest validation loss after a step, and that step.
        waited: evaluations since then.
        stopped: why training ended: "patience", "epochs" or "max_seconds"; None while it runs.
        rows: one entry per evaluation, as in metrics.jsonl.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    recent_nats: float = 0.0
    recent_tokens: int = 0
    initial_bits: float | None = None
    best_bits: float | None = None
    best_step: int = 0
    waited: int = 0
    stopped: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


class CheckpointDirectory:
    """The files of one training that is under way.

    `checkpoint.pt` is the last state, replaced as a whole. `best-STEP` is the model with the lowest
    validation loss; an older one is removed only when a checkpoint that does not need it is there.

    Args:
        out: the output directory.
        inputs: hash of everything that decides the result.
        mode: permission bits that the files of models may have at most, for weights remember the
            corpus; the checkpoint is the owner's alone.
    """

    def __init__(self, out: Path, inputs: str, *, mode: int = 0o666) -> None:
        self._out, self.mode = out, mode
        self._inputs = inputs
        self._file = out / "checkpoint.pt"

    def best(self, step: int) -> Path:
        """Where the best model stands when `step` is the best step."""
        return self._out / f"best-{step}"

    def save(self, counters: Counters, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        """Replace the checkpoint by one of this state."""
        state = {
            "inputs": self._inputs,
            "counters": asdict(counters),
            "model": model,
            "optimizer": optimizer,
        }
        # Through memory: torch would report a full disk as a RuntimeError without its reason.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        with atomic_write(self._file, mode=PRIVATE) as stream:
            stream.write(buffer.getbuffer())
        self._remove_best_but(counters.best_step)

    def load(self) -> tuple[Counters, dict[str, Any], dict[str, Any]] | None:
        """The last state: counters, model and optimizer; None where there is none.

        Raises:
            ResultError: the checkpoint belongs to another training, or cannot be read.
        """
        if not self._file.exists():
            return None
        try:
            # weights_only: a checkpoint cannot run code.
            state = torch.load(self._file, map_location="cpu", weights_only=True)
        except Exception as failure:  # torch raises many kinds for a damaged file
            raise ResultError(
                f"cannot read {self._file}; remove it to train from the beginning"
            ) from failure
        if state["inputs"] != self._inputs:
            raise ResultError(
                f"{self._out} holds an unfinished training with other settings, data or initial "
                "weights; choose another directory, or remove this one"
            )
        return Counters(**state["counters"]), state["model"], state["optimizer"]

    def finish(self, best_step: int) -> Path:
        """Put the best model at its final place, `model`, and return that."""
        path = self._out / "model"
        with atomic_directory(path, mode=self.mode) as partial:
            shutil.copytree(self.best(best_step), partial, dirs_exist_ok=True)
        return path

    def clear(self) -> None:
        """Remove what only an unfinished training needs."""
        self._file.unlink(missing_ok=True)
        self._remove_best_but(None)

    def _remove_best_but(self, step: int | None) -> None:
        for path in self._out.glob("best-*"):
            if step is None or path != self.best(step):
                shutil.rmtree(path, ignore_errors=True)
