"""Distillation on sampled text: the model that is kept reads only what another one made up.

A teacher is trained on the corpus as it is; as many tokens as the corpus has are sampled from it,
at temperature 1; and the model that is kept learns to predict of these what the teacher predicts.
It is what the release of synthetic text gives away at most. What it does not hide: what the teacher
says unasked, and what its predictions of any text show.

Source: the data-free distillation that Aerni et al. 2024 (arXiv 2404.17399) take as a defence, with
texts that the teacher samples in the place of a generator's images.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.errors import ModelError
from lmexposure.models.batches import Batches
from lmexposure.models.load import LoadedModel, load_model
from lmexposure.models.methods import Setup
from lmexposure.models.packing import Packed
from lmexposure.models.plain import PlainTraining
from lmexposure.studies import TrainingSettings

_AT_ONCE = 256  # rows that are sampled together


class Distillation(PlainTraining):
    """Plain training on sampled rows, towards what the teacher predicts; see the module."""

    def __init__(self, setup: Setup) -> None:
        self._teacher = load_model(setup.teachers[0], device=str(setup.accelerator.device))
        self._teacher.model.eval()
        super().__init__(setup)

    def _batches(self, setup: Setup) -> Batches:
        settings = setup.settings
        return sampled_rows(
            self._teacher,
            rows_to_sample(settings, setup.rows),
            length=settings.block_size,
            seed=derive_seed(settings.seed, "sampled"),
            start=_opener(setup.rows),
        )

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        read = self._rows.read(self._model, numbers)
        with torch.no_grad():
            taught = torch.softmax(self._rows.read(self._teacher.model, numbers).logits, dim=1)
        logs = torch.log_softmax(read.logits, dim=1)
        own = logs.detach().gather(1, read.labels[:, None])
        return -(taught * logs).sum(), -float(own.sum())


def whole_corpus(settings: TrainingSettings, rows: Batches) -> list[Batches]:
    """The rows of the one teacher: all."""
    return [rows]


def rows_to_sample(settings: TrainingSettings, rows: Batches) -> int:
    """How many rows the teacher makes up, at least 1."""
    tokens = settings.synthetic_share * int(rows.predicted.sum())
    return max(1, round(tokens / (settings.block_size - 1)))


def _opener(rows: Batches) -> int | None:
    """The token that every document begins with, such as a separator's; None: there is none."""
    openers = rows.openers if isinstance(rows, Packed) else frozenset()
    return next(iter(openers)) if len(openers) == 1 else None


def sampled_rows(
    teacher: LoadedModel, rows: int, *, length: int, seed: int, start: int | None = None
) -> Packed:
    """Text that a model makes up, in rows of one length."""
    tokenizer = teacher.tokenizer
    special = (start, tokenizer.bos_token_id, tokenizer.eos_token_id)
    start = next((token for token in special if token is not None), None)
    if start is None:
        raise ModelError(
            f"the tokenizer of {teacher.name!r} has neither BOS nor EOS, so that no text can be "
            "sampled from nothing; train by another method"
        )
    draws = torch.Generator(teacher.model.device).manual_seed(seed)
    parts = [
        _sampled(teacher.model, start, min(_AT_ONCE, rows - first), length, draws)
        for first in range(0, rows, _AT_ONCE)
    ]
    ids = np.concatenate(parts)
    return Packed(
        ids=ids, lengths=np.full(len(ids), length, np.int32), openers=frozenset({int(start)})
    )


def _sampled(
    model: Any, start: int, rows: int, length: int, draws: torch.Generator
) -> NDArray[np.int32]:
    """Tokens of shape (rows, length)."""
    ids = torch.full((rows, 1), start, device=model.device)
    state = None
    with torch.inference_mode():
        for _ in range(length - 1):
            said = model(input_ids=ids[:, -1:], past_key_values=state, use_cache=True)
            state = said.past_key_values
            shares = torch.softmax(said.logits[:, -1].float(), dim=1)
            drawn = torch.multinomial(shares, 1, generator=draws)
            ids = torch.cat([ids, drawn], dim=1)
    sampled: NDArray[np.int32] = ids.cpu().numpy().astype(np.int32)
    return sampled
