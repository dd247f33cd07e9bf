"""The training loop of every method: epochs, evaluations, early stopping, checkpoints."""

import json
import math
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerBase

from lmexposure._files import atomic_write
from lmexposure.canaries import derive_seed
from lmexposure.errors import ModelError, NumericalError
from lmexposure.models.checkpoints import CheckpointDirectory, Counters, Progress, ProgressCallback
from lmexposure.models.load import save_model
from lmexposure.models.methods import Setup, TrainingMethod, summed
from lmexposure.models.new_models import is_lora
from lmexposure.models.packing import Blocks, steps_per_epoch


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
