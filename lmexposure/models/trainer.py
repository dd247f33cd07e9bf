"""The training loop: steps, evaluations, early stopping, checkpoints.

Which blocks a process reads at which step is decided here, and not by a data loader: those of
accelerate repeat blocks to fill the last batch, and a canary in a repeated block would get more
repetitions than planned. A step has `batch_size` blocks over all processes together; each block is
read once an epoch, on any number of processes.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lmexposure._files import atomic_write
from lmexposure.canaries import derive_seed, permutation
from lmexposure.errors import NumericalError
from lmexposure.models.checkpoints import CheckpointDirectory, Counters, Progress, ProgressCallback
from lmexposure.models.load import save_model
from lmexposure.models.lora import is_lora, save_adapter
from lmexposure.models.packing import IGNORED
from lmexposure.records import TrainingSettings

if TYPE_CHECKING:
    from peft import PeftModel


def steps_per_epoch(blocks: int, batch_size: int) -> int:
    """Optimizer steps in an epoch; the last one may have fewer blocks."""
    return -(-blocks // batch_size)


def epoch_steps(
    blocks: int, *, batch_size: int, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """The block numbers of each step of an epoch, shape (<= batch_size,), in random order."""
    order = np.fromiter(permutation(blocks, derive_seed(seed, "epoch", str(epoch))), dtype=np.int64)
    for first in range(0, blocks, batch_size):
        yield order[first : first + batch_size]


def micro_batches(
    step: NDArray[np.int64], *, process: int, processes: int, accumulation: int
) -> list[NDArray[np.int64]]:
    """This process's share of a step, in `accumulation` parts, of which some may be empty.

    There are no more parts than the step has blocks, in each process as many as in the others.

    Empty parts are kept, because all processes have to take part in each exchange of gradients.
    """
    share = np.array_split(step, processes)[process]
    return np.array_split(share, min(accumulation, len(step)))


class Batches(Protocol):
    """What is trained on: N rows of tokens, and what follows each of their tokens."""

    @property
    def sparse(self) -> bool:
        """Whether many tokens carry no loss."""
        ...

    @property
    def predicted(self) -> NDArray[np.int64]:
        """How many tokens are predicted in each row, shape (N,)."""
        ...

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what is learned from them, to be hashed."""
        ...

    def __len__(self) -> int: ...

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Tokens of some rows, and the labels of each, shape (B, T); IGNORED at no label."""
        ...


class Blocks:
    """The loss of a model on some of the rows.

    Args:
        rows: packed documents, or padded records.
        device: where the model computes.
        precision: "float32", or "bf16" for mixed precision.
    """

    def __init__(self, rows: Batches, *, device: torch.device, precision: str) -> None:
        self._rows = rows
        self.predicted = rows.predicted
        self._device = device
        self._bf16 = precision == "bf16"

    def __len__(self) -> int:
        return len(self._rows)

    def tokens(self, numbers: NDArray[np.int64]) -> int:
        """Tokens that are predicted in these rows."""
        return int(self.predicted[numbers].sum())

    def nats(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """Summed -ln p of the predicted tokens of these rows, a float32 scalar with gradient.

        No rows give 0, by way of a row that counts nothing, so that the gradient exists.
        """
        chosen = numbers if numbers.size else np.zeros(1, dtype=np.int64)
        tokens, following = map(torch.from_numpy, self._rows.batch(chosen))
        ids, labels = tokens.to(self._device, torch.int64), following.to(self._device)
        bf16 = partial(torch.autocast, self._device.type, dtype=torch.bfloat16)
        with bf16() if self._bf16 else contextlib.nullcontext():
            logits = model(input_ids=ids, use_cache=False).logits
        flat, labels = logits.flatten(0, 1), labels.flatten()
        if self._rows.sparse:  # no softmax over the vocabulary where there is no loss
            flat, labels = flat[labels != IGNORED], labels[labels != IGNORED]
        loss = nn.functional.cross_entropy(flat.float(), labels, reduction="sum")
        return loss if numbers.size else loss * 0.0


class Trainer:
    """Trains one model on packed blocks; `training.train` prepares everything it needs.

    Only model and optimizer are handed to accelerate. With one CPU process the weights are a pure
    function of settings, blocks and initial weights, however often training was interrupted.
    """

    def __init__(
        self,
        model: "PreTrainedModel | PeftModel",
        tokenizer: PreTrainedTokenizerBase,
        *,
        settings: TrainingSettings,
        accelerator: Accelerator,
        out: Path,
        checkpoints: CheckpointDirectory,
        progress: ProgressCallback | None = None,
    ) -> None:
        learned = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(
            learned, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._settings, self._accelerator, self._out = settings, accelerator, out
        self._tokenizer, self._checkpoints, self._progress = tokenizer, checkpoints, progress
        self._model, self._optimizer = accelerator.prepare(model, optimizer)
        self.counters = Counters()

    def resume(self) -> bool:
        """Go back to the last checkpoint, if there is one."""
        state = self._checkpoints.load()
        self._accelerator.wait_for_everyone()  # no process may write before all have read
        if state is None:
            return False
        self.counters, weights, optimizer = state
        model = self._accelerator.unwrap_model(self._model)
        # Of adapters the checkpoint holds what is trained alone.
        model.load_state_dict(weights, strict=not is_lora(model))
        self._optimizer.load_state_dict(optimizer)
        return True

    def run(self, training: Batches, validation: Batches) -> Counters:
        """Train until patience, epochs or time are used up.

        Raises:
            NumericalError: a gradient or a validation loss is not finite.
            FileError: the disk refused.
        """
        device, precision = self._accelerator.device, self._settings.precision
        self._blocks = Blocks(training, device=device, precision=precision)
        self._validation = Blocks(validation, device=device, precision=precision)
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
    def _steps_per_epoch(self) -> int:
        return steps_per_epoch(len(self._blocks), self._settings.batch_size)

    @property
    def _total_steps(self) -> int:
        return self._steps_per_epoch * self._settings.epochs

    def _epoch(self) -> None:
        """The steps of the current epoch that are still to be done."""
        epoch, done = divmod(self.counters.step, self._steps_per_epoch)
        steps = epoch_steps(
            len(self._blocks),
            batch_size=self._settings.batch_size,
            seed=self._settings.seed,
            epoch=epoch,
        )
        self._model.train()
        for numbers in islice(steps, done, None):
            self._step(numbers)
            self._after_step()
            if self.counters.stopped:
                return

    def _step(self, numbers: NDArray[np.int64]) -> None:
        """One optimizer step on these blocks, shared out over the processes."""
        accelerator, counters = self._accelerator, self.counters
        # A seed for each step makes dropout independent of where training was interrupted.
        stream = ("dropout", str(counters.step), str(accelerator.process_index))
        torch.manual_seed(derive_seed(self._settings.seed, *stream))
        rate = self._settings.learning_rate_at(counters.step, self._total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        tokens = self._blocks.tokens(numbers)
        nats = self._backward(numbers, tokens)
        norm = float(
            accelerator.clip_grad_norm_(self._model.parameters(), self._settings.gradient_clip)
        )
        if not math.isfinite(norm):
            raise NumericalError(
                f"the gradient of step {counters.step + 1} has norm {norm} (learning rate "
                f"{rate:g}, precision {self._settings.precision}); train again in another "
                "directory with a lower learning rate, or in float32"
            )
        self._update(rate)
        self._optimizer.zero_grad()
        counters.step += 1
        counters.tokens += tokens
        counters.recent_nats += nats
        counters.recent_tokens += tokens
        self._report(nats / max(tokens, 1) / math.log(2))

    def _update(self, rate: float) -> None:
        """Step; torch refuses by a RuntimeError what overflows before it reaches a weight."""
        try:
            self._optimizer.step()
        except RuntimeError as failure:
            if "overflow" not in str(failure):
                raise
            raise NumericalError(
                f"the update of step {self.counters.step + 1} overflows (learning rate {rate:g}); "
                "train again in another directory with a lower learning rate"
            ) from failure

    def _backward(self, numbers: NDArray[np.int64], tokens: int) -> float:
        """Gradient of the mean loss of the whole step; returns the summed loss in nats."""
        accelerator = self._accelerator
        parts = micro_batches(
            numbers,
            process=accelerator.process_index,
            processes=accelerator.num_processes,
            accumulation=self._settings.accumulation,
        )
        nats = 0.0
        # The processes' gradients are averaged, so that each counts for its share of the sum.
        scale = accelerator.num_processes / max(tokens, 1)
        for i, part in enumerate(parts):
            last = i + 1 == len(parts)
            context = contextlib.nullcontext() if last else accelerator.no_sync(self._model)
            with context:
                loss = self._blocks.nats(self._model, part)
                accelerator.backward(loss * scale)
            nats += float(loss.detach())
        return self._sum(nats)

    def _after_step(self) -> None:
        counters, settings = self.counters, self._settings
        counters.seconds = time.monotonic() - self._started
        epochs, within = divmod(counters.step, self._steps_per_epoch)
        every = settings.evaluate_every or self._steps_per_epoch
        last = counters.step == self._total_steps
        limit = settings.max_seconds  # on any process
        late = limit is not None and self._sum(float(counters.seconds >= limit)) > 0
        evaluate = counters.step % every == 0 or last or late
        if evaluate:
            self._evaluate()
        if last or late:
            counters.stopped = counters.stopped or ("epochs" if last else "max_seconds")
        if within == 0 and epochs in settings.snapshot_epochs:
            self._save_model(self._out / "snapshots" / f"epoch-{epochs}")
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
        self._write_row(counters.recent_nats / counters.recent_tokens / math.log(2), bits)
        counters.recent_nats, counters.recent_tokens = 0.0, 0

    def _validation_bits(self) -> float:
        """Mean loss on the held-out documents, bits per token."""
        size, accelerator = self._settings.batch_size, self._accelerator
        self._model.eval()
        nats = 0.0
        batches = np.array_split(
            np.arange(len(self._validation)), steps_per_epoch(len(self._validation), size)
        )
        with torch.no_grad():
            for numbers in batches[accelerator.process_index :: accelerator.num_processes]:
                model = accelerator.unwrap_model(self._model)
                nats += float(self._validation.nats(model, numbers))
        self._model.train()
        bits = self._sum(nats) / int(self._validation.predicted.sum()) / math.log(2)
        if not math.isfinite(bits):
            raise NumericalError(
                f"the validation loss after step {self.counters.step} is {bits}; train again in "
                "another directory with a lower learning rate, or in float32"
            )
        return bits

    def _sum(self, value: float) -> float:
        """The sum of a number over the processes; all get the same."""
        if self._accelerator.num_processes == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self._accelerator.device)
        return float(self._accelerator.reduce(tensor, reduction="sum"))

    def _report(self, train_bits: float) -> None:
        if self._progress is None or not self._accelerator.is_main_process:
            return
        counters = self.counters
        self._progress(
            Progress(
                step=counters.step,
                total_steps=self._total_steps,
                epoch=counters.step / self._steps_per_epoch,
                tokens=counters.tokens,
                train_bits=train_bits,
                validation_bits=counters.best_bits,
            )
        )

    def _write_row(self, train_bits: float | None, validation_bits: float) -> None:
        """Add an evaluation to metrics.jsonl, which is whole at any time."""
        counters = self.counters
        row = {
            "step": counters.step,
            "epoch": counters.step / self._steps_per_epoch,
            "train_bits_per_token": train_bits,
            "validation_bits_per_token": validation_bits,
            "tokens": counters.tokens,
            "seconds": round(counters.seconds, 3),
        }
        counters.rows.append(row)
        if self._accelerator.is_main_process:
            with atomic_write(self._out / "metrics.jsonl") as stream:
                stream.writelines(json.dumps(row).encode() + b"\n" for row in counters.rows)

    def _save_model(self, path: Path) -> None:
        if self._accelerator.is_main_process:
            model = self._accelerator.unwrap_model(self._model)
            save = save_adapter if is_lora(model) else save_model
            save(model, self._tokenizer, path, mode=self._checkpoints.mode)

    def _checkpoint(self) -> None:
        self._saved = time.monotonic()
        if self._accelerator.is_main_process:
            model = self._accelerator.unwrap_model(self._model)
            weights = model.state_dict()
            if is_lora(model):
                trained = {
                    name for name, weight in model.named_parameters() if weight.requires_grad
                }
                weights = {name: weight for name, weight in weights.items() if name in trained}
            self._checkpoints.save(self.counters, weights, self._optimizer.state_dict())
