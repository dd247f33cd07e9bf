"""SELENA: several models see a part of the rows each, and of a row those teach that did not see it.

Each row is absent from L of K models. The model that is kept learns, of each row, the mean of what
these L predict, and never the row's own tokens. What it does not hide: a row that has a near copy,
for that one's teachers did see it.

Source: Tang et al. 2022, "Mitigating Membership Inference Attacks by Self-Distillation Through a
Novel Ensemble Architecture" (USENIX Security 2022, arXiv 2110.08324), with K = 25 and L = 10.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.models.batches import Batches, Blocks, SomeRows
from lmexposure.models.load import load_model
from lmexposure.models.methods import Setup
from lmexposure.models.plain import PlainTraining
from lmexposure.studies import TrainingSettings

_MOST_TOKENS = 50  # of a distribution that are kept; the others are taken for impossible


class Selena(PlainTraining):
    """Plain training on what the teachers predict; see the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        predicted = setup.rows.predicted
        self._starts = np.concatenate([[0], np.cumsum(predicted)])
        self._tokens, self._shares = self._taught(setup)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        read = self._rows.read(self._model, numbers)
        logs = torch.log_softmax(read.logits, dim=1)
        places = self._places(numbers)
        tokens, shares = (
            torch.from_numpy(kept[places]).to(logs.device) for kept in (self._tokens, self._shares)
        )
        loss = -(shares * logs.gather(1, tokens.long())).sum()
        own = logs.detach().gather(1, read.labels[:, None])
        return loss, -float(own.sum())

    def _places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the predicted tokens of some rows are among those of all."""
        ranges = [np.arange(self._starts[row], self._starts[row + 1]) for row in numbers.tolist()]
        return np.concatenate([np.empty(0, np.int64), *ranges])

    def _taught(self, setup: Setup) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The likeliest tokens of each predicted one and their shares, (tokens, at most 50)."""
        size = setup.model.get_output_embeddings().weight.shape[0]
        shape = int(self._starts[-1]), min(_MOST_TOKENS, size)
        tokens, shares = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        device = str(setup.accelerator.device)
        # Each once: of many parts nearly every row has other teachers than the one before.
        every = [load_model(path, device=device).model.eval() for path in setup.teachers]
        for teachers, rows in _groups(absent_of(setup.settings, len(setup.rows))):
            models = [every[teacher] for teacher in teachers]
            for first in range(0, len(rows), setup.settings.batch_size):
                numbers = rows[first : first + setup.settings.batch_size]
                mean = _mean(models, self._rows, numbers)
                top = mean.topk(shape[1], dim=1)
                places = self._places(numbers)
                tokens[places] = top.indices.cpu().numpy()
                shares[places] = (top.values / top.values.sum(dim=1, keepdim=True)).cpu().numpy()
        return tokens, shares


def parts_of(settings: TrainingSettings, rows: Batches) -> list[Batches]:
    """The rows of each teacher."""
    absent = absent_of(settings, len(rows))
    numbers = np.arange(len(rows))
    return [
        SomeRows(rows, numbers[(absent != teacher).all(axis=1)])
        for teacher in range(settings.selena_parts)
    ]


def absent_of(settings: TrainingSettings, rows: int) -> NDArray[np.int64]:
    """Which teachers never see each row, ascending, shape (rows, selena_absent)."""
    drawn = np.random.default_rng(derive_seed(settings.seed, "selena"))
    order = drawn.permuted(np.tile(np.arange(settings.selena_parts), (rows, 1)), axis=1)
    return np.sort(order[:, : settings.selena_absent], axis=1)


def _groups(absent: NDArray[np.int64]) -> list[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """Rows that the same teachers never saw, with these."""
    rows: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, teachers in enumerate(absent.tolist()):
        rows[tuple(teachers)].append(number)
    return [(teachers, np.array(own, dtype=np.int64)) for teachers, own in sorted(rows.items())]


def _mean(
    models: Sequence[torch.nn.Module], rows: Blocks, numbers: NDArray[np.int64]
) -> torch.Tensor:
    """What the models predict of some rows, on average: probabilities of shape (tokens, V)."""
    with torch.inference_mode():
        each = [torch.softmax(rows.read(model, numbers).logits, dim=1) for model in models]
        return torch.stack(each).mean(dim=0)
