"""What happens with a batch: the one interface that every training method has, and plain training.

The training loop (epochs, evaluations, early stopping, checkpoints) is shared; a method says which
rows a step reads, and how their loss changes the weights. In plain training every row comes once an
epoch, and the gradient is of a step's mean loss. `losses.py` and `teachers.py` have methods that
differ from it in their loss, `dp_sgd.py` has the one with a promise.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray

from lmexposure.errors import NumericalError
from lmexposure.models.dp_checker import DpCheck
from lmexposure.models.packing import Batches, Blocks, epoch_steps, micro_batches, steps_per_epoch
from lmexposure.studies import DocumentPrivacy, DpClaim, TrainingSettings, WhiteBoxAudit


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a method is made of."""

    model: Any  # changed in place
    rows: Batches  # that it is trained on
    settings: TrainingSettings  # of the training
    accelerator: Accelerator  # whose processes share each step
    # directories of the models that were trained before it, in their order; see `TEACHERS` of
    # `models.training`
    teachers: Sequence[Path] = ()

    def blocks(self, rows: Batches) -> Blocks:
        """A model's loss on rows, where and how precisely this training computes."""
        return Blocks(rows, device=self.accelerator.device, precision=self.settings.precision)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a step read, over all processes together."""

    nats: float  # summed -ln p of the tokens that were predicted, before the update
    tokens: int  # how many they were; 0 in a step that no row was drawn for


class TrainingMethod(Protocol):
    """A way to train a model on rows; made anew for each call of `train`, also to resume."""

    @property
    def model(self) -> Any:
        """The model with its weights of now, unwrapped."""
        ...

    def evaluated(self) -> AbstractContextManager[Any]:
        """The model as it is evaluated and kept: with averaged weights, where they are."""
        ...

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in a pass over the rows."""
        ...

    def steps(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """What each step of an epoch reads, shape (B,); in order, the same at every call."""
        ...

    def learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        """One optimizer step."""
        ...

    def state(self) -> dict[str, Any]:
        """What `restore` needs beyond the weights, of types that torch loads without code."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, whose weights `model` has already."""
        ...

    def check(self) -> DpCheck | None:
        """Whether the training is what its promise is for; None where it promises nothing."""
        ...

    def claim(self, steps: int | None = None) -> DpClaim | None:
        """What these steps promise of each document; None: nothing."""
        ...

    def document_privacy(self, claim: DpClaim) -> DocumentPrivacy | None:
        """What the steps that were taken let out about each unit; None: it was not measured."""
        ...

    def white_box(self, claim: DpClaim) -> WhiteBoxAudit | None:
        """What canaries in the gradients have shown; None: there were none."""
        ...

    def close(self) -> None:
        """Take off what was put on the model; only what is asked of the claim comes after."""
        ...


def new_optimizer(model: Any, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over the weights that are trained."""
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.AdamW(learned, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def update(optimizer: Any, *, step: int, rate: float) -> None:
    """Step; torch refuses by a RuntimeError what overflows before it reaches a weight."""
    try:
        optimizer.step()
    except RuntimeError as failure:
        if "overflow" not in str(failure):
            raise
        raise NumericalError(
            f"the update of step {step + 1} overflows (learning rate {rate:g}); "
            "train again in another directory with a lower learning rate"
        ) from failure


class PlainTraining:
    """Trains on packed blocks or padded records; methods replace its `_loss`.

    Only model and optimizer go to accelerate: its loaders repeat rows to fill the last batch, and a
    canary in a repeated row would get more repetitions than planned.
    """

    def __init__(self, setup: Setup) -> None:
        self._rows, self._settings, self._accelerator = (
            setup.blocks(self._batches(setup)),
            setup.settings,
            setup.accelerator,
        )
        optimizer = new_optimizer(setup.model, setup.settings)
        self._model, self._optimizer = self._accelerator.prepare(setup.model, optimizer)

    @property
    def model(self) -> Any:
        """See `TrainingMethod`."""
        return self._accelerator.unwrap_model(self._model)

    def evaluated(self) -> contextlib.AbstractContextManager[Any]:
        """See `TrainingMethod`: as it is."""
        return contextlib.nullcontext(self.model)

    @property
    def steps_per_epoch(self) -> int:
        """See `TrainingMethod`."""
        return steps_per_epoch(len(self._rows), self._settings.batch_size)

    def steps(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """See `TrainingMethod`: each row once, in random order."""
        return epoch_steps(
            len(self._rows),
            batch_size=self._settings.batch_size,
            seed=self._settings.seed,
            epoch=epoch,
        )

    def learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        """See `TrainingMethod`."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        tokens = self._rows.tokens(numbers)
        nats = self._backward(numbers, tokens, step)
        norm = float(
            self._accelerator.clip_grad_norm_(
                self._model.parameters(), self._settings.gradient_clip
            )
        )
        if not math.isfinite(norm):
            raise NumericalError(
                f"the gradient of step {step + 1} has norm {norm} (learning rate "
                f"{rate:g}, precision {self._settings.precision}); train again in another "
                "directory with a lower learning rate, or in float32"
            )
        update(self._optimizer, step=step, rate=rate)
        self._optimizer.zero_grad()
        return Learned(nats=nats, tokens=tokens)

    def state(self) -> dict[str, Any]:
        """See `TrainingMethod`."""
        state: dict[str, Any] = self._optimizer.state_dict()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """See `TrainingMethod`."""
        self._optimizer.load_state_dict(state)

    def check(self) -> None:
        """See `TrainingMethod`: there is no promise to break."""

    def claim(self, steps: int | None = None) -> None:
        """See `TrainingMethod`: nothing is promised."""

    def document_privacy(self, claim: DpClaim) -> None:
        """See `TrainingMethod`: there is no noise that would hide anything."""

    def white_box(self, claim: DpClaim) -> None:
        """See `TrainingMethod`: there is no noise to look behind."""

    def close(self) -> None:
        """See `TrainingMethod`: nothing was put on it."""

    def _batches(self, setup: Setup) -> Batches:
        """The rows that are trained on."""
        return setup.rows

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        """What the gradient is of, summed over the tokens of some rows, and their -ln p."""
        nats = self._rows.nats(self._model, numbers)
        return nats, float(nats.detach())

    def _backward(self, numbers: NDArray[np.int64], tokens: int, step: int) -> float:
        """Gradient of the mean loss of the whole step; returns the summed -ln p."""
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
                loss, its = self._loss(part, step)
                accelerator.backward(loss * scale)
            nats += its
        return summed(accelerator, nats)


def summed(accelerator: Accelerator, value: float) -> float:
    """The sum of a number over the processes; all get the same."""
    if accelerator.num_processes == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=accelerator.device)
    return float(accelerator.reduce(tensor, reduction="sum"))
