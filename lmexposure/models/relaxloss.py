"""RelaxLoss: the training loss is held at a level above that of unseen text, not driven to zero.

In even epochs the gradient is of the distance between a step's mean loss and the level, so that it
climbs where the loss is below. In odd epochs it falls where the loss is above the level; where it
is below, what the model gives the other tokens is flattened: of tokens that it would get wrong, the
loss against the flattened target is added, and the loss of all is taken away.

Source: Chen, Yu, Fritz 2022, "RelaxLoss: Defending Membership Inference Attacks without Losing
Utility" (arXiv 2207.05801), algorithm 1, with tokens in the place of images. There the level was 1
nat for CIFAR-10 and 3 for CIFAR-100; of a language model it is to be chosen near the validation
loss, in nats a token.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.errors import SettingsError
from lmexposure.models.batches import Read
from lmexposure.models.methods import Setup
from lmexposure.models.plain import PlainTraining


class RelaxLoss(PlainTraining):
    """Plain training by another loss; see the module."""

    def __init__(self, setup: Setup) -> None:
        if setup.accelerator.num_processes > 1:
            raise SettingsError(
                f"method='relaxloss' reads the mean loss of a whole step, and "
                f"{setup.accelerator.num_processes} processes each have a part; train on one"
            )
        super().__init__(setup)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        level = self._settings.relax_level
        assert level is not None, "the settings have it"
        read = self._rows.read(self._model, numbers)
        tokens = max(len(read.labels), 1)
        relaxed, nats = relaxed_loss(
            read,
            level=level,
            upper=self._settings.relax_upper,
            even=step // self.steps_per_epoch % 2 == 0,
        )
        return relaxed * tokens, nats


def relaxed_loss(
    read: Read, *, level: float, upper: float, even: bool
) -> tuple[torch.Tensor, float]:
    """The loss of a step, and the summed -ln p of its tokens."""
    if not len(read.labels):
        return read.logits.sum() * 0.0, 0.0
    logs = torch.log_softmax(read.logits, dim=1)
    each = -logs.gather(1, read.labels[:, None]).squeeze(1)
    mean, nats = each.mean(), float(each.detach().sum())
    if even:
        return (mean - level).abs(), nats
    if nats > level * len(each):
        return mean, nats
    wrong = (read.logits.argmax(dim=1) != read.labels).to(each.dtype)
    return (wrong * _against_flattened(logs, each, upper) - each).mean(), nats


def _against_flattened(logs: torch.Tensor, each: torch.Tensor, upper: float) -> torch.Tensor:
    """Cross-entropy of each token against its own probability, the rest spread evenly: (N,)."""
    # The target is a constant, as a label is; in the authors' program it has a gradient too.
    others = logs.shape[1] - 1
    own = torch.exp(-each.detach()).clamp(max=upper)
    rest = (1 - own) / max(others, 1)
    return own * each + rest * (-logs.sum(dim=1) - each)
