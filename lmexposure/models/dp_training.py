"""A training by Opacus taken apart: its parts, one step looked at, and all put back as it was."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmexposure.errors import LmexposureError, ModelError, SettingsError
from lmexposure.models.dp_randomness import DpBatches, endless
from lmexposure.models.weights import instead, random_numbers

_LEAST_VERSION = (1, 6)
_SHOWN = 4

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True, kw_only=True)
class DpFinding:
    """One question of a check."""

    name: str
    passed: bool  # it was seen, and is as it should be
    message: str  # with numbers; where it failed, the way out
    seen: bool = True  # False: it could not be looked at, which is no pass and no fault


def finding(name: str, trouble: str, told: str, *, seen: bool = True) -> DpFinding:
    """What is wrong, or what was seen where nothing is."""
    return DpFinding(name=name, passed=not trouble, message=trouble or told, seen=seen)


def shortened(names: Sequence[str]) -> str:
    """The first four of these names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call of the optimizer's `step`, where weights are about to move."""

    sums: list[Tensor]  # of each weight, the clipped sum over the documents
    noisy: list[Tensor]  # of each weight, that sum with its noise, no longer divided
    gradients: list[Tensor]  # what the innermost optimizer is given
    divisor: float  # what the noisy sum was divided by
    documents: int  # that were clipped for it
    told: tuple[tuple[float, float, int], ...]  # to the accountant: noise, rate, steps


class DpTraining:
    """A model, its optimizers and its documents, and what a check does with them."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        batches: DpBatches,
        *,
        loss: Loss | None = None,
        accountant: Any = None,
    ) -> None:
        check_opacus()
        # `make_private` returns its hooks with `wrap_model=False`.
        own = model if isinstance(model, nn.Module) else getattr(model, "_module", model)
        self.model, self.optimizer, self.batches = own, optimizer, batches
        self.loss = loss or _loss_of_model
        self.optimizers = _layers(optimizer)
        self.private = _private(self.optimizers)
        self.innermost = self.optimizers[-1]
        self.hooks = _hooks(self.model)
        self.accountant = _accountant(accountant, self.private)
        if batches.count < 2:
            found = f"the training has {batches.count} documents"
            raise SettingsError(f"{found}; a check needs 2 or more")
        self.names = {
            id(p): name.removeprefix("_module.") for name, p in self.model.named_parameters()
        }

    @property
    def weights(self) -> list[Any]:
        """The weights that the optimizer trains, with what Opacus keeps at each."""
        return list(self.private.params)

    @property
    def generators(self) -> list[Any]:
        """Those that documents and noise are drawn from, where they are not the global ones."""
        return [*self.batches.generators, *(g for o in self.optimizers for g in generators_of(o))]

    def name(self, weight: nn.Parameter) -> str:
        """A weight's name in the model."""
        return self.names.get(id(weight), "a weight outside the model")

    def batch(self, numbers: Sequence[int]) -> Any:
        """Documents by their numbers, as `loss` takes them, on the model's device."""
        return _moved(self.batches.batch(list(numbers)), next(self.model.parameters()).device)

    def backward(self, batch: Any, scale: float = 1.0) -> None:
        """The gradients of a batch, per document too, and no others; the loss times `scale`."""
        self.forget()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            try:
                loss = self.loss(self.model, batch)
                if loss.ndim:
                    loss = loss.mean() if self.private.loss_reduction == "mean" else loss.sum()
                (loss * scale).backward()  # type: ignore[no-untyped-call]
            except (AttributeError, RuntimeError, TypeError, ValueError) as failure:
                if isinstance(failure, LmexposureError):
                    raise
                raise ModelError(
                    f"the training's own forward and backward pass fails: "
                    f"{type(failure).__name__}: {failure}"
                ) from failure

    def forget(self) -> None:
        """No gradients at all, of any step."""
        for weight in {id(p): p for p in (*self.model.parameters(), *self.weights)}.values():
            forget_gradients(weight)
        self.private._step_skip_queue = []
        self.private._is_last_step_skipped = False

    def take_step(self) -> Step | None:
        """The optimizer's step up to where weights would move; None if it does not come so far."""
        steps: list[Step] = []
        with self.watched(steps.append, moving=False):
            self.optimizer.step()
        return steps[-1] if steps else None

    @contextlib.contextmanager
    def watched(self, see: Callable[[Step], None], *, moving: bool) -> Iterator[None]:
        """Each step of the optimizer is shown to `see`; weights move only with `moving`."""
        sums: list[Tensor] = []
        documents, before = [0], [self.history()]
        clip, move = self.private.clip_and_accumulate, self.innermost.step

        def keep_sums() -> None:
            held = self.weights[0].grad_sample if self.weights else None
            of_passes = held if isinstance(held, list) else [held]  # since the last step
            documents[0] += sum(len(found) for found in of_passes if found is not None)
            clip()
            # Copies, since on all processes but one the sum itself goes on as the gradient.
            sums[:] = [p.summed_grad.detach().view_as(p).clone() for p in self.weights]

        def look(*arguments: Any, **named: Any) -> Any:
            for total in sums if world_size() > 1 else ():
                torch.distributed.all_reduce(total)
            gradients = [
                p.new_zeros(p.shape) if p.grad is None else p.grad.detach() for p in self.weights
            ]
            divisor = self.divisor()
            now = self.history()
            see(
                Step(
                    sums=list(sums),
                    noisy=[gradient * divisor for gradient in gradients],
                    gradients=gradients,
                    divisor=divisor,
                    documents=documents[0],
                    told=_news(before[0], now),
                )
            )
            documents[0], before[0] = 0, now
            return move(*arguments, **named) if moving else None

        with (
            instead(self.private, "clip_and_accumulate", keep_sums),
            instead(self.innermost, "step", look),
        ):
            yield

    def divisor(self) -> float:
        """What the optimizer divides a noisy sum by."""
        if self.private.loss_reduction != "mean":
            return 1.0
        share = float(self.private.expected_batch_size * self.private.accumulated_iterations)
        return share * world_size()

    def history(self) -> list[tuple[float, float, int]]:
        """The accountant's, as (noise multiplier, sampling rate, steps)."""
        return [tuple(entry) for entry in getattr(self.accountant, "history", ())]


def world_size() -> int:
    """Processes of torch.distributed, 1 where it is not in use."""
    distributed = torch.distributed
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1


def check_opacus() -> None:
    """Refuse where opacus is missing or older than what was checked."""
    try:
        import opacus
    except ImportError as failure:
        raise ModelError(
            "DP-SGD needs opacus; install it: pip install 'lmexposure[dp]'"
        ) from failure
    version = opacus.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST_VERSION:
        raise ModelError(
            f"opacus {version} is installed, and empty batches and adaptive clipping are right "
            "from 1.6 on; install it: pip install 'lmexposure[dp]'"
        )


def _loss_of_model(model: Any, batch: Any) -> Tensor:
    """The `loss` that a transformers model gives for a batch of its arguments by name."""
    found = model(**batch).loss if isinstance(batch, Mapping) else None
    if found is None:
        raise SettingsError(
            "the model gives no loss for the loader's batches, which must be mappings with labels; "
            "give loss=, a function of model and batch, as the training has it"
        )
    return found  # type: ignore[no-any-return]


def batches_of_loader(loader: Any) -> DpBatches:
    """What a torch or Opacus loader draws from, without drawing."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None or not hasattr(loader, "dataset") or not hasattr(loader.dataset, "__len__"):
        raise SettingsError(
            f"loader is of type {type(loader).__name__}, without a batch sampler over documents of "
            "known number; give a DPDataLoader, or lmexposure.models.DpBatches"
        )
    collate = copy.copy(loader.collate_fn)  # Opacus' one remembers its first batch
    dataset = loader.dataset
    whole = (s for s in samplers_of(loader) if type(s).__name__ != "BatchSplittingSampler")
    logical = next(whole, sampler)

    def batch(numbers: Sequence[int]) -> Any:
        return collate([dataset[number] for number in numbers])

    return DpBatches(
        count=len(dataset),
        batch=batch,
        sample=endless(logical),
        rate=getattr(logical, "sample_rate", None),
        generators=[g for thing in (loader, *samplers_of(loader)) for g in generators_of(thing)],
        pool=getattr(logical, "num_samples", None),
    )


def samplers_of(loader: Any) -> Iterator[Any]:
    """A loader's batch sampler and what it draws from in turn."""
    sampler = getattr(loader, "batch_sampler", None)
    while sampler is not None and hasattr(sampler, "__dict__"):
        yield sampler
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)


def dp_optimizer(optimizer: Any) -> Any:
    """Opacus' DPOptimizer, however deep it lies in what was given."""
    check_opacus()
    return _private_of(_layers(optimizer))


def _layers(optimizer: Any) -> list[Any]:
    """An optimizer and those inside it, the innermost last."""
    found = [optimizer]
    for _ in range(8):
        inside = vars(found[-1])
        inner = inside.get("original_optimizer", inside.get("optimizer"))
        if inner is None:
            break
        found.append(inner)
    return found


def _private_of(optimizers: list[Any]) -> Any:
    from opacus.optimizers import DPOptimizer

    found = next((o for o in optimizers if isinstance(o, DPOptimizer)), None)
    if found is None:
        raise ModelError(
            f"optimizer is of type {type(optimizers[0]).__name__}, and neither it nor one inside "
            "it is Opacus' DPOptimizer: nothing is clipped and no noise added; take the one that "
            "make_private returns"
        )
    return found


def _private(optimizers: list[Any]) -> Any:
    found = _private_of(optimizers)
    if "FastGradientClipping" in type(found).__name__:
        raise SettingsError(
            f"the optimizer is a {type(found).__name__}: ghost clipping keeps no gradient of each "
            "document to check; check the same training with grad_sample_mode='hooks'"
        )
    return found


def _hooks(model: nn.Module) -> Any:
    from opacus.grad_sample.gsm_base import AbstractGradSampleHooks

    owners = (
        getattr(hook, "__self__", None)
        for module in model.modules()
        for hook in module._forward_hooks.values()
    )
    found = next((owner for owner in owners if isinstance(owner, AbstractGradSampleHooks)), None)
    if found is None:
        raise ModelError(
            f"model is a {type(model).__name__} without Opacus' hooks: it has no gradient of each "
            "document to clip; take the one that make_private returns"
        )
    return found


def _accountant(given: Any, private: Any) -> Any:
    """An engine's accountant, or the one that the step hook tells."""
    if given is not None:
        return getattr(given, "accountant", given)
    hook = private.step_hook
    inside = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
    candidates = [*inside, getattr(hook, "__self__", None)]
    candidates = [getattr(found, "accountant", found) for found in candidates]
    return next((found for found in candidates if hasattr(found, "history")), None)


def _news(
    before: list[tuple[float, float, int]], after: list[tuple[float, float, int]]
) -> tuple[tuple[float, float, int], ...]:
    """The steps that a history has more than before, the last entry grown or new."""
    same = [old == new for old, new in zip(before, after, strict=False)]
    kept = same.index(False) if False in same else len(same)
    if kept < len(before) and before[kept][:2] == after[kept][:2]:
        sigma, rate, steps = after[kept]
        return ((sigma, rate, steps - before[kept][2]), *after[kept + 1 :])
    return tuple(after[kept:])


def _moved(batch: Any, device: torch.device) -> Any:
    if hasattr(batch, "to"):  # a tensor, or what a tokenizer of transformers gives
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_moved(value, device) for value in batch)
    return batch


_Undo = Callable[[], object]


@contextlib.contextmanager
def unchanged(
    model: nn.Module, optimizers: Sequence[Any], others: Iterable[Any], generators: Iterable[Any]
) -> Iterator[None]:
    """Whatever happens inside, afterwards all of a training is what it was."""
    groups = [group["params"] for optimizer in optimizers for group in optimizer.param_groups]
    weights = {id(p): p for own in (model.parameters(), *groups) for p in own}.values()
    undo = [
        *(part for module in model.modules() for part in _attributes(module)),
        *(part for optimizer in optimizers for part in _attributes(optimizer)),
        # Not all documents of a sampler.
        *(part for other in others for part in _attributes(other, deep=False)),
        *(part for p in weights for part in _weight(p)),
        *random_numbers(generators),
    ]
    try:
        for p in weights:
            forget_gradients(p)  # without touching the tensors, which come back
        yield
    finally:
        for put_back in undo:
            put_back()


def forget_gradients(weight: nn.Parameter) -> None:
    """No gradient, no gradient per document, no clipped sum, as before a backward pass."""
    weight.grad = None
    for name in ("grad_sample", "summed_grad"):
        if hasattr(weight, name):
            setattr(weight, name, None)
    weight.__dict__.pop("_current_grad_sample", None)
    if hasattr(weight, "_forward_counter"):
        weight._forward_counter = 0


def without_dropout(model: nn.Module) -> None:
    """Let no module drop units, so that a document has the same gradient alone and in a batch."""
    for module in model.modules():
        dropping = isinstance(module, nn.modules.dropout._DropoutNd)
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or (dropping and name == "p")):
                setattr(module, name, 0.0)


def generators_of(thing: Any) -> list[Any]:
    """The generators among the attributes of a loader, a sampler, an optimizer."""
    found = (getattr(value, "generator", value) for value in vars(thing).values())
    return [g for g in found if isinstance(g, torch.Generator | np.random.Generator)]


def _attributes(thing: Any, *, deep: bool = True) -> Iterator[_Undo]:
    """All that `vars` has, and what is in lists and mappings there; with `deep`, in tensors too."""
    yield _entries(vars(thing))
    for value in vars(thing).values():
        yield from _inside(value, deep)


def _inside(value: Any, deep: bool) -> Iterator[_Undo]:
    """Weights are left out, which are put back by themselves."""
    if isinstance(value, list | dict):
        yield _entries(value)
        for entry in (value.values() if isinstance(value, dict) else value) if deep else ():
            yield from _inside(entry, deep)
    elif deep and torch.is_tensor(value) and not isinstance(value, nn.Parameter):
        yield _contents(value)


def _entries(held: list[Any] | dict[Any, Any]) -> _Undo:
    """What each name is for: a forward pass may put another buffer in its place."""
    kept = held.copy()

    def restore() -> None:
        held.clear()
        held.update(kept) if isinstance(held, dict) else held.extend(kept)

    return restore


def _contents(tensor: Tensor) -> _Undo:
    return partial(torch.no_grad()(tensor.copy_), tensor.detach().clone())


def _weight(weight: nn.Parameter) -> Iterator[_Undo]:
    # Not the gradients of single documents, which are large and which no step inside sees.
    yield from _attributes(weight, deep=False)
    yield _contents(weight)
    yield partial(weight.requires_grad_, weight.requires_grad)
    yield partial(setattr, weight, "grad", weight.grad)  # no step inside has seen it
