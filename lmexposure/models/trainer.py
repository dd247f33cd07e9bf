"""The training loop of every method: epochs, evaluations, early stopping.

Checkpoints are what interrupted training goes on from, and what it leaves behind and returns.
"""

import io
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerBase

from lmexposure._files import PRIVATE, atomic_directory, atomic_write, read_bytes
from lmexposure._integrity import check_seal, damaged_file, file_hashes, say_rebuilt, write_sealed
from lmexposure._written import listed, remove
from lmexposure.canaries import derive_seed
from lmexposure.errors import FileError, ModelError, NumericalError, ResultError
from lmexposure.models.load import save_model
from lmexposure.models.methods import Setup, TrainingMethod, summed
from lmexposure.models.new_models import is_lora
from lmexposure.models.packing import Blocks, steps_per_epoch
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


class Trainer:
    """Trains one model by one method; `training.train` prepares everything it needs."""

    def __init__(
        self,
        method: TrainingMethod,
        setup: Setup,
        validation: Blocks,
        tokenizer: PreTrainedTokenizerBase,
        checkpoints: CheckpointDirectory,
        progress: ProgressCallback | None,
    ) -> None:
        self._method, self._validation, self._tokenizer = method, validation, tokenizer
        self._settings, self._accelerator = setup.settings, setup.accelerator
        self._checkpoints, self._progress = checkpoints, progress
        self.counters = Counters()

    def resume(self) -> None:
        """Go back to the last checkpoint, if there is one."""
        state = self._checkpoints.load()
        self._accelerator.wait_for_everyone()  # no process may write before all have read
        if state is not None:
            self.counters, weights, kept = state
            model = self._method.model
            # Of adapters the checkpoint holds what is trained alone.
            model.load_state_dict(weights, strict=not is_lora(model))
            self._method.restore(kept)

    def run(self) -> Counters:
        """Train until patience, epochs or time are used up."""
        device = self._accelerator.device
        self._started = time.monotonic() - self.counters.seconds
        self._saved = time.monotonic()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            if self.counters.initial_bits is None:
                self.counters.initial_bits = self._validation_bits()
                self._write_row(None, self.counters.initial_bits)
            while self.counters.stopped is None:
                self._epoch()
        return self.counters

    @property
    def _total_steps(self) -> int:
        steps = self._method.steps_per_epoch * self._settings.epochs
        return min(steps, self._settings.max_steps or steps)

    def _epoch(self) -> None:
        """The steps of the current epoch that are still to be done."""
        epoch, done = divmod(self.counters.step, self._method.steps_per_epoch)
        self._method.model.train()
        for numbers in islice(self._method.steps(epoch), done, None):
            self._step(numbers)
            self._after_step()
            if self.counters.stopped:
                return

    def _step(self, numbers: NDArray[np.int64]) -> None:
        """One optimizer step."""
        counters, settings = self.counters, self._settings
        # A seed for each step makes dropout independent of where training was interrupted.
        stream = ("dropout", str(counters.step), str(self._accelerator.process_index))
        torch.manual_seed(derive_seed(settings.seed, *stream))
        rate = settings.learning_rate_at(counters.step, self._total_steps)
        learned = self._method.learn(numbers, step=counters.step, rate=rate)
        counters.step += 1
        counters.tokens += learned.tokens
        counters.recent_nats += learned.nats
        counters.recent_tokens += learned.tokens
        if self._progress is not None and self._accelerator.is_main_process:
            self._progress(
                Progress(
                    step=counters.step,
                    total_steps=self._total_steps,
                    epoch=counters.step / self._method.steps_per_epoch,
                    tokens=counters.tokens,
                    train_bits=learned.nats / max(learned.tokens, 1) / math.log(2),
                    validation_bits=counters.best_bits,
                )
            )

    def _after_step(self) -> None:
        counters, settings = self.counters, self._settings
        counters.seconds = time.monotonic() - self._started
        epochs, within = divmod(counters.step, self._method.steps_per_epoch)
        every = settings.evaluate_every or self._method.steps_per_epoch
        last = counters.step == self._total_steps
        limit = settings.max_seconds  # on any process
        late = limit is not None and summed(self._accelerator, float(counters.seconds >= limit)) > 0
        evaluate = counters.step % every == 0 or last or late
        if evaluate:
            self._evaluate()
        if last or late:
            counters.stopped = counters.stopped or ("epochs" if last else "max_seconds")
        if within == 0 and epochs in settings.snapshot_epochs:
            self._save_model(self._checkpoints.out / "snapshots" / f"epoch-{epochs}")
        if evaluate or time.monotonic() - self._saved >= settings.checkpoint_seconds:
            self._checkpoint()

    def _evaluate(self) -> None:
        counters = self.counters
        bits = self._validation_bits()
        if counters.best_bits is None or bits < counters.best_bits:
            counters.best_bits, counters.best_step, counters.waited = bits, counters.step, 0
            self._save_model(self._checkpoints.best(counters.step))
        else:
            counters.waited += 1
        if counters.waited >= self._settings.patience:
            counters.stopped = "patience"
        recent = counters.recent_nats / max(counters.recent_tokens, 1)
        self._write_row(recent / math.log(2), bits)
        counters.recent_nats, counters.recent_tokens = 0.0, 0

    def _validation_bits(self) -> float:
        """Mean loss on the held-out documents, bits per token."""
        rows, accelerator, nats = len(self._validation), self._accelerator, 0.0
        batches = np.array_split(np.arange(rows), steps_per_epoch(rows, self._settings.batch_size))
        with self._method.evaluated() as model, torch.no_grad():
            model.eval()
            for numbers in batches[accelerator.process_index :: accelerator.num_processes]:
                nats += float(self._validation.nats(model, numbers))
        self._method.model.train()
        bits = summed(self._accelerator, nats) / int(self._validation.predicted.sum()) / math.log(2)
        if not math.isfinite(bits):
            raise NumericalError(
                f"the validation loss after step {self.counters.step} is {bits}; train again in "
                "another directory with a lower learning rate, or in float32"
            )
        return bits

    def _write_row(self, train_bits: float | None, validation_bits: float) -> None:
        """Add an evaluation to metrics.jsonl, which is whole at any time."""
        counters = self.counters
        row = {
            "step": counters.step,
            "epoch": counters.step / self._method.steps_per_epoch,
            "train_bits_per_token": train_bits,
            "validation_bits_per_token": validation_bits,
            "tokens": counters.tokens,
            "seconds": round(counters.seconds, 3),
        }
        counters.rows.append(row)
        if self._accelerator.is_main_process:
            with atomic_write(self._checkpoints.out / "metrics.jsonl") as stream:
                stream.writelines(json.dumps(row).encode() + b"\n" for row in counters.rows)

    def _save_model(self, path: Path) -> None:
        if self._accelerator.is_main_process:
            with self._method.evaluated() as model:
                # The base of an adapter is as it was, its embeddings too: the hub is asked nothing.
                options = {"save_embedding_layers": False} if is_lora(model) else {}
                save_model(model, self._tokenizer, path, mode=self._checkpoints.mode, **options)

    def _checkpoint(self) -> None:
        self._saved = time.monotonic()
        if self._accelerator.is_main_process:
            model = self._method.model
            weights = model.state_dict()
            if is_lora(model):
                learned = (
                    name for name, weight in model.named_parameters() if weight.requires_grad
                )
                weights = {name: weights[name] for name in learned if name in weights}
            self._checkpoints.save(self.counters, weights, self._method.state())


_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)


def set_dropout(model: nn.Module, share: float) -> None:
    """Let every place of a model that can drop units in training drop this share of them."""
    found = False
    for module in model.modules():
        name = "p" if isinstance(module, _LAYERS) else ""
        if isinstance(module, nn.LSTM) and module.num_layers > 1:
            name = "dropout"
        elif isinstance(getattr(module, "attention_dropout", None), float):  # of Llama's kind
            name = name or "attention_dropout"
        if name:
            vars(module)[name], found = share, True
    if not found:
        raise ModelError(
            f"{type(model).__name__} has no place where units could be dropped, such as between "
            "the layers of an LSTM of two; give it more layers, or leave dropout out"
        )
