"""A DP training as it was: weights, gradients, optimizer, accountant, dropout, random numbers.

What is looked at is run for real, several steps of it, and then put back to the byte.
"""

import contextlib
import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_Undo = Callable[[], None]


@contextlib.contextmanager
def unchanged(
    model: nn.Module, optimizers: Sequence[Any], others: Iterable[Any], generators: Iterable[Any]
) -> Iterator[None]:
    """Whatever happens inside, afterwards all of a training is what it was."""
    weights = {id(p): p for owner in (model, *optimizers) for p in _weights(owner)}.values()
    undo = [
        *(_attributes(module) for module in model.modules()),
        *(_attributes(optimizer) for optimizer in optimizers),
        *(_attributes(other, deep=False) for other in others),  # not all documents of a sampler
        *(_weight(p) for p in weights),
        random_numbers(generators),
    ]
    try:
        for p in weights:
            forget_gradients(p)  # without touching the tensors, which come back
        yield
    finally:
        for restore in undo:
            restore()


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


def _weights(owner: Any) -> list[nn.Parameter]:
    if isinstance(owner, nn.Module):
        return list(owner.parameters())
    return [p for group in owner.param_groups for p in group["params"]]


def _attributes(thing: Any, *, deep: bool = True) -> _Undo:
    """All that `vars` has, and what is in lists and mappings there; with `deep`, in tensors too."""
    kept = dict(vars(thing))
    undo = [part for value in kept.values() for part in _inside(value, deep)]

    def restore() -> None:
        vars(thing).clear()
        vars(thing).update(kept)
        for part in undo:
            part()

    return restore


def _inside(value: Any, deep: bool) -> list[_Undo]:
    """Weights are left out, which are put back by themselves."""
    if isinstance(value, list | dict):
        held = value.values() if isinstance(value, dict) else value
        own = _entries(value) if isinstance(value, dict) else _items(value)
        return [own, *(part for entry in held if deep for part in _inside(entry, deep))]
    if deep and torch.is_tensor(value) and not isinstance(value, nn.Parameter):
        return [_contents(value)]
    return []


def _items(values: list[Any]) -> _Undo:
    kept = list(values)

    def restore() -> None:
        values[:] = kept

    return restore


def _entries(named: dict[Any, Any]) -> _Undo:
    """What each name is for: a forward pass may put another buffer in its place."""
    kept = dict(named)

    def restore() -> None:
        named.clear()
        named.update(kept)

    return restore


def _contents(tensor: Tensor) -> _Undo:
    before = tensor.detach().clone()

    def restore() -> None:
        with torch.no_grad():
            tensor.copy_(before)

    return restore


def _weight(weight: nn.Parameter) -> _Undo:
    # Not the gradients of single documents, which are large and which no step inside sees.
    undo = [_attributes(weight, deep=False), _contents(weight)]
    grad, trainable = weight.grad, weight.requires_grad

    def restore() -> None:
        for part in undo:
            part()
        weight.requires_grad_(trainable)
        weight.grad = grad  # no step inside has seen it

    return restore


def random_numbers(generators: Iterable[Any]) -> _Undo:
    """What puts these generators, and the global ones, back to where they are now."""
    named = [_generator(generator) for generator in generators]
    cpu, here, numpys = torch.get_rng_state(), random.getstate(), np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        random.setstate(here)
        np.random.set_state(numpys)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        for put_back in named:
            put_back()

    return restore


def _generator(generator: Any) -> _Undo:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return partial(setattr, bits, "state", copy.deepcopy(bits.state))
    try:
        return partial(generator.set_state, generator.get_state())
    except RuntimeError:  # of Opacus' secure mode: from the operating system, without a state
        return lambda: None
