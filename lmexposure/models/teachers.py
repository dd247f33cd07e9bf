"""Methods by which other models teach the one that is kept: SELENA, and distillation."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.errors import ModelError
from lmexposure.models.load import LoadedModel, load_model
from lmexposure.models.methods import PlainTraining, Setup
from lmexposure.models.packing import Batches, Packed, SomeRows
from lmexposure.models.trainer import Progress, ProgressCallback
from lmexposure.studies import OF_METHOD, PLAIN, TrainingSettings

TEACHERS = "teachers"  # a directory each, while the training is under way


def plain_settings(settings: TrainingSettings, place: int) -> TrainingSettings:
    """Of a teacher: without the settings of the method, which a plain training refuses."""
    usual = TrainingSettings()
    own = {name: getattr(usual, name) for name in OF_METHOD[settings.method]}
    seed = derive_seed(settings.seed, "teacher", str(place))
    own |= {"method": PLAIN, "seed": seed, "snapshot_epochs": (), "max_steps": None}
    plain: TrainingSettings = replace(settings, **own)
    return plain


def shifted(progress: ProgressCallback | None, done: int, total: int) -> ProgressCallback | None:
    """Progress of one model as that of all of them."""
    if progress is None:
        return None

    def tell(of_one: Progress) -> None:
        progress(replace(of_one, step=done + of_one.step, total_steps=total))

    return tell


_MOST_TOKENS = 50  # of a distribution that are kept; the others are taken for impossible


class Selena(PlainTraining):
    """SELENA: a row is absent from L of K models; what is kept learns the mean of what these say.

    Source: Tang et al. 2022, "Mitigating Membership Inference Attacks by Self-Distillation Through
        a Novel Ensemble Architecture" (USENIX Security 2022, arXiv 2110.08324), with K = 25 and L =
        10.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._starts = np.concatenate([[0], np.cumsum(setup.rows.predicted)])
        self._tokens, self._shares = self._taught(setup)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        logs, each = self._rows.read(self._model, numbers).scored()
        places = self._places(numbers)
        tokens, shares = (
            torch.from_numpy(kept[places]).to(logs.device) for kept in (self._tokens, self._shares)
        )
        return -(shares * logs.gather(1, tokens.long())).sum(), float(each.detach().sum())

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
        taught: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, absent in enumerate(absent_of(setup.settings, len(setup.rows)).tolist()):
            taught[tuple(absent)].append(number)
        together = setup.settings.batch_size
        for teachers, rows in sorted(taught.items()):
            for first in range(0, len(rows), together):
                numbers = np.array(rows[first : first + together], dtype=np.int64)
                with torch.inference_mode():
                    said = (self._rows.read(every[k], numbers).logits for k in teachers)
                    mean = torch.stack([torch.softmax(logits, dim=1) for logits in said]).mean(
                        dim=0
                    )
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


_AT_ONCE = 256  # rows that are sampled together


class Distillation(PlainTraining):
    """The model that is kept learns what another one says of text that it made up itself.

    Source: the data-free distillation that Aerni et al. 2024 (arXiv 2404.17399) take as a defence,
        with texts that the teacher samples in the place of a generator's images.
    """

    def __init__(self, setup: Setup) -> None:
        self._teacher = load_model(setup.teachers[0], device=str(setup.accelerator.device))
        self._teacher.model.eval()
        super().__init__(setup)

    def _batches(self, setup: Setup) -> Batches:
        settings, rows = setup.settings, setup.rows
        # The token that every document begins with, such as a separator's.
        openers = rows.openers if isinstance(rows, Packed) else frozenset()
        return sampled_rows(
            self._teacher,
            rows_to_sample(settings, rows),
            length=settings.block_size,
            seed=derive_seed(settings.seed, "sampled"),
            start=next(iter(openers)) if len(openers) == 1 else None,
        )

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        logs, each = self._rows.read(self._model, numbers).scored()
        with torch.no_grad():
            taught = torch.softmax(self._rows.read(self._teacher.model, numbers).logits, dim=1)
        return -(taught * logs).sum(), float(each.detach().sum())


def rows_to_sample(settings: TrainingSettings, rows: Batches) -> int:
    """How many rows the teacher makes up, at least 1."""
    tokens = settings.synthetic_share * int(rows.predicted.sum())
    return max(1, round(tokens / (settings.block_size - 1)))


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
    model, parts = teacher.model, []
    draws = torch.Generator(model.device).manual_seed(seed)
    for first in range(0, rows, _AT_ONCE):
        ids = torch.full((min(_AT_ONCE, rows - first), 1), start, device=model.device)
        state = None
        with torch.inference_mode():
            for _ in range(length - 1):
                said = model(input_ids=ids[:, -1:], past_key_values=state, use_cache=True)
                state = said.past_key_values
                shares = torch.softmax(said.logits[:, -1].float(), dim=1)
                ids = torch.cat([ids, torch.multinomial(shares, 1, generator=draws)], dim=1)
        parts.append(ids.cpu().numpy().astype(np.int32))
    lengths, openers = np.full(rows, length, np.int32), frozenset({int(start)})
    return Packed(ids=np.concatenate(parts), lengths=lengths, openers=openers)
