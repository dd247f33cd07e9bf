"""What happens with a batch: the one interface that every training method has, a file a method.

The training loop (epochs, evaluations, early stopping, checkpoints) is shared; a method says which
rows a step reads, and how their loss changes the weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from accelerate import Accelerator
from numpy.typing import NDArray

from lmexposure.models.batches import Batches, Blocks
from lmexposure.models.dp_checker import DpCheck
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
