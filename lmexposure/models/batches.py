"""What a training reads: rows of tokens, which of them a step has, and a model's loss on them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from lmexposure.canaries import derive_seed, permutation
from lmexposure.models.packing import IGNORED

_ROWS_AT_ONCE = 256


def has_length(data: Any) -> bool:
    """Whether it is known how many rows or batches there are."""
    try:
        return len(data) is not None
    except (TypeError, AttributeError):  # the latter of Ray's
        return False


def is_stream(data: Any) -> bool:
    """Whether rows come one after the other, and none can be had by its number."""
    by_number = has_length(data) and hasattr(data, "__getitem__")
    return isinstance(data, IterableDataset) or not by_number


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
    """This process's share of a step, in `accumulation` parts, of which some may be empty."""
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

    @property
    def units(self) -> NDArray[np.int64]:
        """Whose each row is, shape (N,): numbers from 0, as differential privacy counts them."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the units are called, in order."""
        ...

    def __len__(self) -> int: ...

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Tokens of some rows, and the labels of each, shape (B, T); IGNORED at no label."""
        ...


def unigram_bits(training: Batches, held: Batches) -> float:
    """Loss on held-out rows by how often each token is in the training rows, bits per token."""
    learned, asked = _counts(training), _counts(held)
    size = max(learned.size, asked.size)
    learned, asked = (np.pad(n, (0, size - n.size)) for n in (learned, asked))
    bits = -np.log2((learned + 1) / (learned.sum() + size))
    return float((asked * bits).sum() / max(1, asked.sum()))


def _counts(rows: Batches) -> NDArray[np.int64]:
    """How often each token is predicted, shape (largest token + 1,)."""
    counts = np.zeros(1, dtype=np.int64)
    for numbers in np.array_split(np.arange(len(rows)), -(-len(rows) // _ROWS_AT_ONCE)):
        labels = rows.batch(numbers)[1]
        found = np.bincount(labels[labels != IGNORED])
        size = max(found.size, counts.size)
        counts = np.pad(counts, (0, size - counts.size)) + np.pad(found, (0, size - found.size))
    return counts


class SomeRows:
    """Some of the rows, as rows of their own."""

    def __init__(self, rows: Batches, numbers: NDArray[np.int64]) -> None:
        self._rows, self._numbers = rows, numbers
        self.sparse = rows.sparse
        self.predicted = rows.predicted[numbers]
        self.units = np.unique(rows.units[numbers], return_inverse=True)[1]
        self.names = tuple(rows.names[unit] for unit in np.unique(rows.units[numbers]))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what is learned from them, to be hashed."""
        return *self._rows.parts, self._numbers.tobytes()

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """See `Batches`."""
        return self._rows.batch(self._numbers[numbers])


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """What a model says of the predicted tokens of some rows."""

    logits: Tensor  # of each of N tokens, row by row, float32 of shape (N, V)
    labels: Tensor  # the tokens, shape (N,)
    kept: Tensor  # where they are, shape (B, T)


class Blocks:
    """The loss of a model on some of the rows."""

    def __init__(self, rows: Batches, *, device: torch.device, precision: str) -> None:
        self._rows = rows
        self.predicted, self.units, self.names = rows.predicted, rows.units, rows.names
        self._device = device
        self._bf16 = precision == "bf16"

    def __len__(self) -> int:
        return len(self._rows)

    def tokens(self, numbers: NDArray[np.int64]) -> int:
        """Tokens that are predicted in these rows."""
        return int(self.predicted[numbers].sum())

    def nats(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """Summed -ln p of the predicted tokens of these rows, a float32 scalar with gradient."""
        ids, labels = self._batch(numbers)
        with self._precision():
            logits = model(input_ids=ids, use_cache=False).logits
        flat, labels = logits.flatten(0, 1), labels.flatten()
        if self._rows.sparse:  # no softmax over the vocabulary where there is no loss
            flat, labels = flat[labels != IGNORED], labels[labels != IGNORED]
        loss = nn.functional.cross_entropy(flat.float(), labels, reduction="sum")
        return loss if numbers.size else loss * 0.0

    def read(self, model: nn.Module, numbers: NDArray[np.int64]) -> "Read":
        """What a model says of the predicted tokens of these rows, with gradient."""
        ids, labels = self._batch(numbers)
        with self._precision():
            logits = model(input_ids=ids, use_cache=False).logits
        kept = labels != IGNORED
        kept &= numbers.size > 0
        return Read(logits=logits[kept].float(), labels=labels[kept], kept=kept)

    def nats_of_each(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """The same of each row by itself, float32 of shape (B,): for per-document gradients."""
        ids, labels = self._batch(numbers)
        places = torch.arange(ids.shape[1], device=self._device).expand(ids.shape)
        logits = model(input_ids=ids, position_ids=places, use_cache=False).logits
        each = nn.functional.cross_entropy(
            logits.float().transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
        )
        nats: Tensor = each.sum(dim=1)
        return nats if numbers.size else nats * 0.0

    def _precision(self) -> AbstractContextManager[None]:
        if not self._bf16:
            return nullcontext()
        bf16: AbstractContextManager[None] = torch.autocast(self._device.type, dtype=torch.bfloat16)
        return bf16

    def _batch(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Tokens and labels of some rows on the device; of none, those of a row."""
        chosen = numbers if numbers.size else np.zeros(1, dtype=np.int64)
        tokens, following = map(torch.from_numpy, self._rows.batch(chosen))
        return tokens.to(self._device, torch.int64), following.to(self._device)
