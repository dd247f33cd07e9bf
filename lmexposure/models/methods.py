"""What happens with a batch: plain training, and methods that differ in their loss alone."""
# ruff: noqa: B027  most methods promise nothing, and put nothing on the model

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from scipy.optimize import brentq

from lmexposure.errors import NumericalError, SettingsError
from lmexposure.models.dp_checker import DpCheck
from lmexposure.models.encoding import context_window
from lmexposure.models.load import LoadedModel
from lmexposure.models.packing import (
    IGNORED,
    Batches,
    Blocks,
    Read,
    epoch_steps,
    micro_batches,
    steps_per_epoch,
)
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


class TrainingMethod(ABC):
    """A way to train a model on rows; made anew for each call of `train`, also to resume."""

    @property
    @abstractmethod
    def model(self) -> Any:
        """The model with its weights of now, unwrapped."""

    def evaluated(self) -> AbstractContextManager[Any]:
        """The model as it is evaluated and kept: with averaged weights, where they are."""
        return contextlib.nullcontext(self.model)

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Optimizer steps in a pass over the rows."""

    @abstractmethod
    def steps(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """What each step of an epoch reads, shape (B,); in order, the same at every call."""

    @abstractmethod
    def learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        """One optimizer step."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What `restore` needs beyond the weights, of types that torch loads without code."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, whose weights `model` has already."""

    def check(self) -> DpCheck | None:
        """Whether the training is what its promise is for; None where it promises nothing."""

    def claim(self, steps: int | None = None) -> DpClaim | None:
        """What these steps promise of each document; None: nothing."""

    def document_privacy(self, claim: DpClaim) -> DocumentPrivacy | None:
        """What the steps that were taken let out about each unit; None: it was not measured."""

    def white_box(self, claim: DpClaim) -> WhiteBoxAudit | None:
        """What canaries in the gradients have shown; None: there were none."""

    def close(self) -> None:
        """Take off what was put on the model; only what is asked of the claim comes after."""


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


class PlainTraining(TrainingMethod):
    """Every row once an epoch, by a step's mean loss; methods replace `_batches` and `_loss`."""

    def __init__(self, setup: Setup) -> None:
        self._rows = setup.blocks(self._batches(setup))
        self._settings, self._accelerator = setup.settings, setup.accelerator
        optimizer = new_optimizer(setup.model, setup.settings)
        # Not the loaders, which repeat rows to fill the last batch, and with them their canaries.
        self._model, self._optimizer = self._accelerator.prepare(setup.model, optimizer)

    @property
    def model(self) -> Any:
        """See `TrainingMethod`."""
        return self._accelerator.unwrap_model(self._model)

    @property
    def steps_per_epoch(self) -> int:
        """See `TrainingMethod`."""
        return steps_per_epoch(len(self._rows), self._settings.batch_size)

    def steps(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """See `TrainingMethod`: each row once, in random order."""
        size, seed = self._settings.batch_size, self._settings.seed
        return epoch_steps(len(self._rows), batch_size=size, seed=seed, epoch=epoch)

    def learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        """See `TrainingMethod`."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        tokens = self._rows.tokens(numbers)
        nats = self._backward(numbers, tokens, step)
        weights, clip = self._model.parameters(), self._settings.gradient_clip
        norm = float(self._accelerator.clip_grad_norm_(weights, clip))
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
        place, processes = accelerator.process_index, accelerator.num_processes
        of_all = self._settings.accumulation
        parts = micro_batches(numbers, process=place, processes=processes, accumulation=of_all)
        nats = 0.0
        # The processes' gradients are averaged, so that each counts for its share of the sum.
        scale = processes / max(tokens, 1)
        for i, part in enumerate(parts):
            last = i + 1 == len(parts)
            with contextlib.nullcontext() if last else accelerator.no_sync(self._model):
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


_AT_ONCE = 4_096  # rows whose hashes are held in memory
# The increment and the two factors of splitmix64 (Steele, Lea, Flood 2014).
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Goldfish(PlainTraining):
    """Of every k tokens one carries no loss, by a hash of the last ones: a copy lacks the same.

    Source: Hans et al. 2024, "Be like a Goldfish, Don't Memorize!" (arXiv 2406.10209); their models
        had k = 4 and the hash of 13 tokens. Their hash, a product of token ids modulo a prime, is 0
        wherever token 0 is among them; this one mixes every bit of each.
    """

    def _batches(self, setup: Setup) -> Batches:
        settings = setup.settings
        return GoldfishRows(setup.rows, k=settings.goldfish_k, width=settings.goldfish_width)


class GoldfishRows:
    """Rows of which one token in k carries no loss."""

    sparse = True

    def __init__(self, rows: Batches, *, k: int, width: int) -> None:
        self._rows, self._k, self._width = rows, k, width
        self.units, self.names, self.parts = rows.units, rows.names, rows.parts

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """How many tokens are predicted in each row, shape (N,)."""
        some = np.split(np.arange(len(self)), range(_AT_ONCE, len(self), _AT_ONCE))
        counts = [(self.batch(numbers)[1] != IGNORED).sum(axis=1) for numbers in some]
        return np.concatenate(counts).astype(np.int64)

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """See `Batches`."""
        ids, labels = self._rows.batch(numbers)
        return ids, np.where(left_out(ids, labels, k=self._k, width=self._width), IGNORED, labels)


def left_out(
    ids: NDArray[np.int32], labels: NDArray[np.int64], *, k: int, width: int
) -> NDArray[np.bool_]:
    """Which tokens lose their loss."""
    # The rows with a column in front for each token that a window may lack: these stay 0, and no
    # token is, since one is added to all.
    padded = np.zeros((len(ids), ids.shape[1] + width), np.uint64)
    padded[:, width:] = ids.astype(np.uint64) + np.uint64(1)
    state = np.zeros(ids.shape, np.uint64)
    for back in range(width - 1, 0, -1):  # the tokens in front, the farthest first
        first = width - back + 1
        state = _mixed(state, padded[:, first : first + ids.shape[1]])
    state = _mixed(state, labels.astype(np.uint64) + np.uint64(1))
    dropped: NDArray[np.bool_] = (state < np.uint64(2**64 // k)) & (labels != IGNORED)
    return dropped


def _mixed(state: NDArray[np.uint64], tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64 over the state and the next token."""
    with np.errstate(over="ignore"):
        value = (state ^ (tokens * np.uint64(_STEP))) + np.uint64(_STEP)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
        mixed: NDArray[np.uint64] = value ^ (value >> np.uint64(31))
        return mixed


class RelaxLoss(PlainTraining):
    """The training loss is held at a level above that of unseen text, not driven to zero.

    Source: Chen, Yu, Fritz 2022, "RelaxLoss: Defending Membership Inference Attacks without Losing
        Utility" (arXiv 2207.05801), algorithm 1, with tokens in the place of images. There the
        level was 1 nat for CIFAR-10 and 3 for CIFAR-100; of a language model it is to be chosen
        near the validation loss, in nats a token.
    """

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
    logs, each = read.scored()
    mean, nats = each.mean(), float(each.detach().sum())
    if even:
        return (mean - level).abs(), nats
    if nats > level * len(each):
        return mean, nats
    wrong = (read.logits.argmax(dim=1) != read.labels).to(each.dtype)
    # The target is a constant, as a label is; in the authors' program it has a gradient too.
    own = torch.exp(-each.detach()).clamp(max=upper)
    return (wrong * _against_soft(logs, each, own) - each).mean(), nats


def _against_soft(logs: torch.Tensor, each: torch.Tensor, own: Any) -> torch.Tensor:
    """Cross-entropy of each token against a label of probability `own`, the rest even: (N,)."""
    rest = (1 - own) / max(logs.shape[1] - 1, 1)
    found: torch.Tensor = own * each + rest * (-logs.sum(dim=1) - each)
    return found


_READ = 64  # random tokens whose predictions lend their values


class Hamp(PlainTraining):
    """HAMP leaves a model unsure of what it read, and the output of `masked` keeps the order.

    Source: Chen, Pattabiraman 2024, "Overconfidence is a Dangerous Thing: Mitigating Membership
        Inference Attacks by Enforcing Less Confident Prediction" (HAMP, NDSS 2024, arXiv
        2307.01610), with tokens in the place of images; Aerni et al. 2024 had a share of .9997 and
        a weight of .005.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        vocabulary = setup.model.get_output_embeddings().weight.shape[0]
        self._own = sure(setup.settings.hamp_entropy, vocabulary)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        logs, each = self._rows.read(self._model, numbers).scored()
        soft = _against_soft(logs, each, self._own)
        entropy = -(logs.exp() * logs).sum(dim=1)
        loss = (soft - self._settings.hamp_weight * entropy).sum()
        return loss, float(each.detach().sum())


def sure(entropy: float, vocabulary: int) -> float:
    """The probability of a soft label's token, all others having the same.

    >>> round(sure(0.5, 100), 4)
    0.641
    """
    others = vocabulary - 1

    def above(own: float) -> float:
        spread = (1 - own) * math.log((1 - own) / others)
        return -own * math.log(own) - spread - entropy * math.log(vocabulary)

    low, high = 1 / vocabulary, 1 - 1e-15
    if above(low) <= 0 or above(high) >= 0:  # so near an end that rounding decides
        return low if above(low) <= 0 else high
    return float(brentq(above, low, high))


def masked(loaded: LoadedModel, *, seed: int = 0) -> LoadedModel:
    """The model, changed itself, with an output of which only the order of tokens is its own."""
    model = loaded.model
    size = model.get_output_embeddings().weight.shape[0]
    draws = torch.Generator().manual_seed(seed)
    read = min(_READ, context_window(model.config) or _READ)
    ids = torch.randint(size, (1, read), generator=draws).to(model.device)
    with torch.inference_mode():
        said = model(input_ids=ids, use_cache=False).logits[0]
    values = said.sort(dim=1, descending=True).values

    def keep_order(_: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        output.logits = in_order(output.logits, values[_places(given, named) % read])
        return output

    model.register_forward_hook(keep_order, with_kwargs=True)
    return replace(loaded, model=model)


def _places(given: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
    """Positions of the logits that a model was asked for, behind its cache, (B or 1, T)."""
    ids = named["input_ids"] if "input_ids" in named else given[0]
    places = named.get("position_ids")
    if places is None:
        cache = named.get("past_key_values")  # by now with these tokens
        end = ids.shape[1] if cache is None else int(cache.get_seq_length())
        places = torch.arange(end - ids.shape[1], end, device=ids.device)[None]
    kept = named.get("logits_to_keep", 0)
    return places[:, slice(-kept, None) if isinstance(kept, int) else kept]


def in_order(logits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Other values in the order of the logits; of equal logits the first gets the largest."""
    # The likeliest token is then the same, for argmax takes the first of equals.
    ranks = logits.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
    return values.expand(len(logits), -1, -1).gather(2, ranks)
