"""DP-SGD by Opacus: clipped gradients of units that coins drew, their sum, and noise on it.

A unit is a document, or all documents of a user. Source: Abadi et al. 2016, "Deep Learning with
Differential Privacy"; Opacus (Yousefpour et al. 2021), whose hooks, optimizer and accountants do
the work.
"""

import copy
import math
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.errors import ModelError, NumericalError, SettingsError
from lmexposure.models.dp_accounting import epsilon_spent, noise_for
from lmexposure.models.dp_checker import DpCheck, dp_check
from lmexposure.models.dp_randomness import DpBatches
from lmexposure.models.dp_training import check_opacus, forget_gradients
from lmexposure.models.gradient_canaries import GradientCanaries
from lmexposure.models.lstm import LstmForCausalLM, PrivateLstm
from lmexposure.models.methods import Learned, Setup, TrainingMethod, new_optimizer, update
from lmexposure.models.packing import steps_per_epoch
from lmexposure.statistics import document_epsilons
from lmexposure.studies import (
    NOT_COVERED,
    DocumentPrivacy,
    DpClaim,
    TrainingSettings,
    WhiteBoxAudit,
)

_DOCUMENT = "document"
_STEPS_AN_EPOCH = 16  # where no size of a batch is given
_CHECKED = 8  # documents whose gradients are compared before the first step
_LEVEL = 1e-6  # how often a right training is refused by chance


class DpSgd(TrainingMethod):
    """Trains on rows of one document each, with a promise for each unit.

    With `weight_average` what is evaluated and kept is a running average of the weights, which
    follows from them alone and costs no privacy (De et al. 2022, arXiv 2204.13650, section 3).
    """

    def __init__(self, setup: Setup) -> None:
        check_opacus()
        from opacus.accountants import RDPAccountant
        from opacus.optimizers import DPOptimizer

        if setup.accelerator.num_processes > 1:
            raise SettingsError(
                f"method='dp-sgd' takes one process, and there are "
                f"{setup.accelerator.num_processes}: shared out batches would change the rate that "
                "the claim is made of; start one"
            )
        settings, units = setup.settings, setup.rows.units
        self._rows, self._settings = setup.blocks(setup.rows), settings
        order = np.argsort(units, kind="stable")
        self._units = np.split(order, np.flatnonzero(np.diff(units[order])) + 1)  # rows of each
        self._batch = expected_batch(settings, len(self._units))
        self.noise_multiplier = chosen_noise(settings, len(self._units))
        # Coins and noise follow from it: in the checkpoint alone, while the training is under way.
        self._key = settings.noise_seed if settings.noise_seed is not None else secrets.randbits(64)
        self._plain = setup.model
        self._model = _hooked(setup.model)
        device = setup.accelerator.device
        self._accountant = RDPAccountant()
        self._norms: list[torch.Tensor] = []  # over the clip, shape (units,), of each epoch
        self._optimizer = DPOptimizer(
            new_optimizer(self._model, settings),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=settings.clip,
            expected_batch_size=self._batch,
            generator=torch.Generator(device),
        )
        told = self._accountant.get_optimizer_hook_fn(sample_rate=self.sample_rate)
        self._optimizer.attach_step_hook(told)
        # In the steps of the training alone; their coins are drawn apart from noise.
        self._canaries: GradientCanaries | None = None
        if settings.gradient_canaries is not None:
            self._canaries = GradientCanaries(
                self._optimizer,
                sample_rate=self.sample_rate,
                count=settings.gradient_canaries,
                seed=derive_seed(self._key, "gradient canaries"),
            )
            self._canaries.detach()
        self._average: list[torch.Tensor] = []  # of the weights; before the first step, none

    @property
    def model(self) -> Any:
        """See `TrainingMethod`: with the LSTM of torch."""
        return self._plain

    @contextmanager
    def evaluated(self) -> Iterator[Any]:
        """See `TrainingMethod`: with averaged weights, where they are asked for."""
        if not self._average:
            yield self._plain
            return
        own = [weight.detach().clone() for weight in self._optimizer.params]
        self._put(self._average)
        try:
            yield self._plain
        finally:
            self._put(own)

    @property
    def sample_rate(self) -> float:
        """Probability of each unit to be in a step."""
        return self._batch / len(self._units)

    @property
    def steps_per_epoch(self) -> int:
        """See `TrainingMethod`: a unit is in one of them on average."""
        return steps_per_epoch(len(self._units), self._batch)

    def steps(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """See `TrainingMethod`: numbers of units, each by a coin of its own in each step."""
        for step in range(epoch * self.steps_per_epoch, (epoch + 1) * self.steps_per_epoch):
            coins = np.random.default_rng(derive_seed(self._key, "units", str(step)))
            yield np.flatnonzero(coins.random(len(self._units)) < self.sample_rate)

    def learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        """See `TrainingMethod`: no unit is noise alone, and a step like every other."""
        if self._settings.document_norms and len(self._norms) * self.steps_per_epoch == step:
            self._norms.append(self._unit_norms())
        with nullcontext() if self._canaries is None else self._canaries.attached():
            learned = self._learn(numbers, step=step, rate=rate)
        if self._settings.weight_average is not None:
            self._follow(step)
        return learned

    def _learn(self, numbers: NDArray[np.int64], *, step: int, rate: float) -> Learned:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.generator.manual_seed(derive_seed(self._key, "noise", str(step)))
        parts, nats = self._parts(numbers), 0.0
        for i, part in enumerate(parts):
            nats += self._gradients(part)
            if not math.isfinite(nats):
                raise NumericalError(
                    f"the loss of step {step + 1} is {nats} (learning rate {rate:g}); train again "
                    "in another directory with a lower learning rate"
                )
            self._optimizer.signal_skip_step(do_skip=i + 1 < len(parts))
            update(self._optimizer, step=step, rate=rate)
            self._optimizer.zero_grad()
        return Learned(nats=nats, tokens=self._rows.tokens(self._rows_of(numbers)))

    def state(self) -> dict[str, Any]:
        """See `TrainingMethod`."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "key": self._key,
            "history": [tuple(entry) for entry in self._accountant.history],
            "norms": self._norms,
            "average": self._average,
            "canaries": None if self._canaries is None else self._canaries.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """See `TrainingMethod`."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._key, self._accountant.history = state["key"], list(state["history"])
        # A checkpoint is read to the CPU.
        self._norms, self._average = (
            [kept.to(self._plain.device) for kept in state[name]] for name in ("norms", "average")
        )
        if self._canaries is not None:
            self._canaries.restore(state["canaries"])

    def check(self) -> DpCheck:
        """See `TrainingMethod`: is this the training that its epsilon is for?"""
        turns, rate = count(), self._settings.learning_rate
        return dp_check(
            self._model,
            self._optimizer,
            DpBatches(
                count=len(self._units),
                batch=partial(np.array, dtype=np.int64),
                sample=partial(next, chain.from_iterable(map(self.steps, count()))),
                rate=self.sample_rate,
                generators=[self._optimizer.generator],
            ),
            loss=self._losses,
            step=lambda units: self._learn(units, step=next(turns), rate=rate),
            accountant=self._accountant,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self._settings.clip,
            sample_rate=self.sample_rate,
            documents=max(2, min(_CHECKED, self._settings.batch_size)),
            level=_LEVEL,
        )

    def claim(self, steps: int | None = None) -> DpClaim:
        """See `TrainingMethod`."""
        settings = self._settings
        history: list[tuple[float, float, int]] = list(self._accountant.history)
        if steps is not None:
            history = [(self.noise_multiplier, self.sample_rate, steps)]
        spent = epsilon_spent(history, delta=settings.delta)
        return DpClaim(
            method="dp-sgd",
            sampler="poisson",
            accountant=spent.accountant,
            unit=settings.unit_field or _DOCUMENT,
            adjacency="add or remove one",
            epsilon=spent.epsilon,
            epsilon_rdp=spent.rdp,
            delta=settings.delta,
            noise_multiplier=self.noise_multiplier,
            clip=settings.clip,
            sample_rate=self.sample_rate,
            steps=sum(taken for _, _, taken in history),
            units=len(self._units),
            largest_group=max(map(len, self._units)),
            noise_is_given=settings.noise_seed is not None,
            not_covered=NOT_COVERED,
        )

    def document_privacy(self, claim: DpClaim) -> DocumentPrivacy | None:
        """See `TrainingMethod`: by the gradients before the first step of each epoch."""
        if not self._norms:
            return None
        last = claim.steps - (len(self._norms) - 1) * self.steps_per_epoch
        epsilons = document_epsilons(
            torch.stack(self._norms).cpu().numpy(),
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            steps_each=[*[self.steps_per_epoch] * (len(self._norms) - 1), last],
            delta=claim.delta,
        )
        return DocumentPrivacy.now(
            unit=claim.unit,
            claimed=claim.epsilon,
            delta=claim.delta,
            moments=len(self._norms),
            names=self._rows.names,
            # The claim is of whatever gradients there could have been, and of these as well.
            epsilons=tuple(np.minimum(epsilons, claim.epsilon).tolist()),
        )

    def white_box(self, claim: DpClaim) -> WhiteBoxAudit | None:
        """See `TrainingMethod`: at the claim's delta."""
        if self._canaries is None:
            return None
        return self._canaries.audit(delta=claim.delta, claimed_epsilon=claim.epsilon)

    def close(self) -> None:
        """See `TrainingMethod`: the next training would meet hooks, and what a step left there."""
        for hook in vars(self._model).pop("autograd_grad_sample_hooks", ()):
            hook.remove()
        for layer in self._model.modules():
            vars(layer).pop("activations", None)
            vars(layer).pop("max_batch_len", None)
        for weight in self._model.parameters():
            forget_gradients(weight)

    def _losses(self, model: Any, units: NDArray[np.int64]) -> torch.Tensor:
        """The summed loss of each unit's first document, as `_gradients` has it."""
        rows = np.array([self._units[unit][0] for unit in units.tolist()], dtype=np.int64)
        each = self._rows.nats_of_each(model, rows)
        tokens = np.maximum(self._rows.predicted[rows], 1) if rows.size else np.ones(1)
        return (each / torch.as_tensor(tokens, dtype=each.dtype, device=each.device)).sum()

    def _rows_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of some units, one unit after the other."""
        return np.concatenate([np.empty(0, np.int64), *(self._units[unit] for unit in units)])

    def _parts(self, units: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Units whose rows go through the model together; at least one part, which may be empty."""
        parts: list[list[int]] = [[]]
        rows = 0
        for unit in units.tolist():
            size = len(self._units[unit])
            if parts[-1] and rows + size > self._settings.batch_size:
                parts.append([])
                rows = 0
            parts[-1].append(unit)
            rows += size
        return [np.array(part, dtype=np.int64) for part in parts]

    def _follow(self, step: int) -> None:
        """Move the average to the weights: at first fast, so that the beginning is forgotten."""
        assert self._settings.weight_average is not None
        weights = [weight.detach() for weight in self._optimizer.params]
        if not self._average:
            self._average = [weight.clone() for weight in weights]
            return
        left = min(self._settings.weight_average, (1 + step) / (10 + step))
        for average, weight in zip(self._average, weights, strict=True):
            average.lerp_(weight, 1 - left)

    def _put(self, values: Sequence[torch.Tensor]) -> None:
        """Set the weights that are trained."""
        with torch.no_grad():
            for weight, value in zip(self._optimizer.params, values, strict=True):
                weight.copy_(value)

    def _unit_norms(self) -> torch.Tensor:
        """Norm of each unit's gradient over the clip, shape (units,), as a step would have it."""
        device = self._plain.device
        found: list[torch.Tensor] = []
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for part in self._parts(np.arange(len(self._units))):
                self._gradients(part)
                of_weights = [w.grad_sample.flatten(1).norm(dim=1) for w in self._optimizer.params]
                found.append(torch.stack(of_weights).norm(dim=0))
                self._optimizer.zero_grad()
        return torch.cat(found) / self._settings.clip

    def _gradients(self, units: NDArray[np.int64]) -> float:
        """Gradients of the mean loss of each unit into `grad_sample`; returns the summed nats."""
        rows = self._rows_of(units)
        tokens = self._rows.predicted[rows].astype(np.float64)
        place = np.repeat(np.arange(len(units)), [len(self._units[unit]) for unit in units])
        of_unit = np.bincount(place, weights=tokens, minlength=len(units))
        nats = 0.0
        found: dict[Any, torch.Tensor] = {}
        batch = self._settings.batch_size
        for first in range(0, max(len(rows), 1), batch):
            some = slice(first, first + batch)
            each = self._rows.nats_of_each(self._model, rows[some])
            weights = 1.0 / np.maximum(of_unit[place[some]], 1.0) if len(rows) else np.zeros(1)
            scale = torch.as_tensor(weights, dtype=each.dtype, device=each.device)
            with warnings.catch_warnings():
                # A model reads tokens, which have no gradient: that is meant.
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                (each * scale).sum().backward()  # type: ignore[no-untyped-call]
            nats += float(each.detach().sum())
            self._sum_by_unit(place[some], len(units), found)
        for weight, gradients in found.items():
            weight.grad_sample = gradients
        return nats

    def _sum_by_unit(
        self, place: NDArray[np.int64], units: int, found: dict[Any, torch.Tensor]
    ) -> None:
        """Add the gradients of single rows to those of their units, shape (units, ...)."""
        for weight in self._optimizer.params:
            own, weight.grad_sample, weight.grad = weight.grad_sample, None, None
            if len(place) == units and weight not in found:
                found[weight] = own  # a row each
                continue
            total = found.setdefault(weight, own.new_zeros(units, *own.shape[1:]))
            if len(place):
                total.index_add_(0, torch.as_tensor(place, device=own.device), own)


def expected_batch(settings: TrainingSettings, units: int) -> int:
    """Units in a step on average: as asked, or the sixteenth part of all."""
    asked = settings.expected_batch
    if asked is None:
        return max(1, -(-units // _STEPS_AN_EPOCH))
    if asked > units:
        raise SettingsError(
            f"expected_batch={asked} is more than the {units} units of the corpus; give at most "
            f"{units}, or leave it out"
        )
    return asked


def chosen_noise(settings: TrainingSettings, units: int) -> float:
    """The noise multiplier: as given, or the smallest by which all epochs keep to epsilon."""
    if settings.delta > 1 / units:
        raise SettingsError(
            f"delta={settings.delta:g} is above 1 / {units}, the number of units: a training that "
            f"gives one of them away would keep to it; give at most {1 / units:.3g}"
        )
    if settings.noise_multiplier is not None:
        return settings.noise_multiplier
    assert settings.epsilon is not None, "the settings have one of the two"
    batch = expected_batch(settings, units)
    steps = settings.epochs * steps_per_epoch(units, batch)
    return noise_for(settings.epsilon, delta=settings.delta, sample_rate=batch / units, steps=steps)


def _hooked(model: Any) -> Any:
    """A model whose backward pass leaves gradients of single rows."""
    from opacus.grad_sample import GradSampleHooks
    from opacus.utils.module_utils import trainable_modules
    from opacus.validators import ModuleValidator

    own, known = model, ModuleValidator.VALIDATORS
    if isinstance(model, LstmForCausalLM):  # another LSTM, with the same weights
        own = copy.copy(model)
        own._modules = {**model._modules, "lstm": PrivateLstm(model.lstm)}
    unfit = [
        f"{name} ({type(layer).__name__})"
        for name, layer in trainable_modules(own.train())
        if (type(layer) in known and known[type(layer)](layer)) or list(layer.buffers())
    ]
    if unfit:
        raise ModelError(
            f"gradients of single documents cannot be had of layers {', '.join(unfit)}: what they "
            "do with a document depends on others, or Opacus does not know them; train another "
            "model, or adapters on linear layers (lora=True)"
        )
    hooks = GradSampleHooks(own, loss_reduction="sum")
    hooks.forbid_grad_accumulation()
    return own
