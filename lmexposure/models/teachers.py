"""Methods by which other models teach the one that is kept: SELENA, and distillation."""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.errors import CorpusError, ModelError
from lmexposure.models.checkpoints import Progress, ProgressCallback
from lmexposure.models.load import LoadedModel, load_model
from lmexposure.models.methods import PlainTraining, Setup
from lmexposure.models.packing import Batches, Blocks, Packed, SomeRows, steps_per_epoch
from lmexposure.studies import OF_METHOD, PLAIN, TrainingSettings

TEACHERS = "teachers"  # a directory each, while the training is under way


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One of the models that teach."""

    # with the initial weights of the one that is taught, in an object of its own
    loaded: LoadedModel
    rows: Batches  # that it is trained on
    settings: TrainingSettings  # a plain training, with a seed of its own
    out: Path  # its directory
    progress: ProgressCallback | None  # of the whole training


def taught(
    loaded: LoadedModel,
    rows: Sequence[Batches],
    settings: TrainingSettings,
    out: Path,
    *,
    after: int,
    progress: ProgressCallback | None,
    train: Callable[[Lesson], Path],
) -> tuple[list[Path], ProgressCallback | None]:
    """Train the teachers, or find those that are trained; as often called, as often the same."""
    steps = [steps_per_epoch(len(own), settings.batch_size) * settings.epochs for own in rows]
    total = sum(steps) + after
    empty = [place for place, own in enumerate(rows) if not len(own)]
    if empty:
        raise CorpusError(
            f"teacher {empty[0]} of {len(rows)} has no rows at all; give a larger corpus, or fewer "
            "models that teach"
        )
    models = []
    for place, own in enumerate(rows):
        lesson = Lesson(
            loaded=replace(loaded, model=copy.deepcopy(loaded.model)),
            rows=own,
            settings=_plain(settings, place),
            out=out / TEACHERS / str(place),
            progress=_shifted(progress, sum(steps[:place]), total),
        )
        models.append(train(lesson))
    return models, _shifted(progress, sum(steps), total)


def _plain(settings: TrainingSettings, place: int) -> TrainingSettings:
    """The same without the settings of the method, which a plain training refuses."""
    usual = TrainingSettings()
    own = {name: getattr(usual, name) for name in OF_METHOD[settings.method]}
    seed = derive_seed(settings.seed, "teacher", str(place))
    own |= {"method": PLAIN, "seed": seed, "snapshot_epochs": (), "max_steps": None}
    plain: TrainingSettings = replace(settings, **own)
    return plain


def _shifted(progress: ProgressCallback | None, done: int, total: int) -> ProgressCallback | None:
    """Progress of one model as that of all of them."""
    if progress is None:
        return None

    def tell(of_one: Progress) -> None:
        progress(replace(of_one, step=done + of_one.step, total_steps=total))

    return tell


_MOST_TOKENS = 50  # of a distribution that are kept; the others are taken for impossible


class Selena(PlainTraining):
    """SELENA: several models see a part of the rows each; of a row those teach that did not.

    Each row is absent from L of K models. The model that is kept learns, of each row, the mean of
    what these L predict, and never the row's own tokens. What it does not hide: a row that has a
    near copy, for that one's teachers did see it.

    Source: Tang et al. 2022, "Mitigating Membership Inference Attacks by Self-Distillation Through
        a Novel Ensemble Architecture" (USENIX Security 2022, arXiv 2110.08324), with K = 25 and L =
        10.
    """

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


_AT_ONCE = 256  # rows that are sampled together


class Distillation(PlainTraining):
    """The model that is kept reads only text that another one made up.

    A teacher is trained on the corpus as it is; as many tokens as the corpus has are sampled from
    it, at temperature 1; and the model that is kept learns to predict of these what the teacher
    predicts. It is what the release of synthetic text gives away at most. What it does not hide:
    what the teacher says unasked, and what its predictions of any text show.

    Source: the data-free distillation that Aerni et al. 2024 (arXiv 2404.17399) take as a defence,
        with texts that the teacher samples in the place of a generator's images.
    """

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
