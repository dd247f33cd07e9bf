"""Methods that are plain training with another loss: Goldfish, RelaxLoss, HAMP."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from lmexposure.errors import SettingsError
from lmexposure.models.encoding import context_window
from lmexposure.models.load import LoadedModel
from lmexposure.models.methods import PlainTraining, Setup
from lmexposure.models.packing import IGNORED, Batches, Read

_AT_ONCE = 4_096  # rows whose hashes are held in memory
# The increment and the two factors of splitmix64 (Steele, Lea, Flood 2014).
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Goldfish(PlainTraining):
    """Of every k tokens one carries no loss, the same one wherever the passage is.

    A model cannot recite a passage whole that it was never asked for whole. Which tokens are left
    out follows from a hash of the last tokens up to each, so that a copy of a passage elsewhere
    leaves out the same ones, past its first tokens. What it does not hide: the tokens that are
    kept, and those in front of which there is something else.

    Source: Hans et al. 2024, "Be like a Goldfish, Don't Memorize!" (arXiv 2406.10209); their models
        had k = 4 and the hash of 13 tokens. Their hash, a product of token ids modulo a prime, is 0
        wherever token 0 is among them; this one mixes every bit of each.
    """

    def _batches(self, setup: Setup) -> Batches:
        return GoldfishRows(
            setup.rows, k=setup.settings.goldfish_k, width=setup.settings.goldfish_width
        )


class GoldfishRows:
    """Rows of which one token in k carries no loss."""

    def __init__(self, rows: Batches, *, k: int, width: int) -> None:
        self._rows, self._k, self._width = rows, k, width
        self.units, self.names, self.parts = rows.units, rows.names, rows.parts

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def sparse(self) -> bool:
        """Whether many tokens carry no loss: one in k does not."""
        return True

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """How many tokens are predicted in each row, shape (N,)."""
        firsts = range(0, len(self), _AT_ONCE)
        some = [np.arange(first, min(first + _AT_ONCE, len(self))) for first in firsts]
        counts = [(self.batch(numbers)[1] != IGNORED).sum(axis=1) for numbers in some]
        return np.concatenate(counts).astype(np.int64)

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """See `Batches`."""
        ids, labels = self._rows.batch(numbers)
        dropped = left_out(ids, labels, k=self._k, width=self._width)
        return ids, np.where(dropped, IGNORED, labels)


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

    In even epochs the gradient is of the distance between a step's mean loss and the level, so that
    it climbs where the loss is below. In odd epochs it falls where the loss is above the level;
    where it is below, what the model gives the other tokens is flattened: of tokens that it would
    get wrong, the loss against the flattened target is added, and the loss of all is taken away.

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


_READ = 64  # random tokens whose predictions lend their values


class Hamp(PlainTraining):
    """HAMP leaves a model unsure of what it read, and the output of `masked` keeps the order.

    In training the target is soft: its token has a probability, all others the same, so that the
    entropy of the target is a given share of the largest; and the entropy of what the model
    predicts is rewarded. At test time what the model says is replaced by what it says of random
    tokens, put into the same order, so that an attacker learns which tokens are likely and not how
    likely.

    Source: Chen, Pattabiraman 2024, "Overconfidence is a Dangerous Thing: Mitigating Membership
        Inference Attacks by Enforcing Less Confident Prediction" (HAMP, NDSS 2024, arXiv
        2307.01610), with tokens in the place of images; Aerni et al. 2024 had a share of .9997 and
        a weight of .005.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._vocabulary = setup.model.get_output_embeddings().weight.shape[0]
        self._own = sure(setup.settings.hamp_entropy, self._vocabulary)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        read = self._rows.read(self._model, numbers)
        logs = torch.log_softmax(read.logits, dim=1)
        each = -logs.gather(1, read.labels[:, None]).squeeze(1)
        rest = (1 - self._own) / (self._vocabulary - 1)
        soft = self._own * each + rest * (-logs.sum(dim=1) - each)
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
    """The model with an output of which only the order of the tokens is its own.

    Each position gets the logits that the model has for a random text at that position, in the
    order of its own logits; whether a text is read at once, token by token or for its last logits
    alone. The model itself is changed: no one can read it otherwise any more.
    """
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
