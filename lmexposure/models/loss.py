"""Summed token losses of blocks, the same way for training and validation."""

import contextlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmexposure.models.packing import Packed


class Blocks:
    """Packed documents as tensors, and the loss of a model on some of them.

    Args:
        packed: N blocks.
        device: where the model computes.
        precision: "float32", or "bf16" for mixed precision.
    """

    def __init__(self, packed: Packed, *, device: torch.device, precision: str) -> None:
        self.ids = torch.from_numpy(packed.ids)  # (N, T)
        self.labels = torch.from_numpy(packed.labels())  # (N, T - 1)
        self.predicted = (packed.labels() >= 0).sum(axis=1)  # (N,)
        self._device = device
        self._bf16 = precision == "bf16"

    def __len__(self) -> int:
        return len(self.ids)

    def tokens(self, numbers: NDArray[np.int64]) -> int:
        """Tokens that are predicted in these blocks."""
        return int(self.predicted[numbers].sum())

    def nats(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """Summed -ln p of the predicted tokens of these blocks, a float32 scalar with gradient.

        No blocks give 0, by way of a block that counts nothing, so that the gradient exists.
        """
        chosen = torch.from_numpy(numbers if numbers.size else np.zeros(1, dtype=np.int64))
        ids = self.ids[chosen, :-1].to(self._device, torch.int64)
        labels = self.labels[chosen].to(self._device)
        with self._mixed_precision():
            logits = model(input_ids=ids, use_cache=False).logits
        flat = logits.flatten(0, 1).float()
        loss = nn.functional.cross_entropy(flat, labels.flatten(), reduction="sum")
        return loss if numbers.size else loss * 0.0

    def _mixed_precision(self) -> contextlib.AbstractContextManager[object]:
        if self._bf16:
            return torch.autocast(self._device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()
