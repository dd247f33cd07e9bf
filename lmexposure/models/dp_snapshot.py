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
    """Whatever happens inside, afterwards all of a training is what it was.

    Args:
        model: its weights, buffers and gradients, per document too; its modules' own attributes.
        optimizers: one around another; the attributes of each, and the state of the innermost.
        others: accountants, samplers: their attributes, and the contents of their lists.
        generators: of torch or numpy; those that are global are put back anyway.
    """
    weights = {id(p): p for owner in (model, *optimizers) for p in _weights(owner)}.values()
    undo = [
        *(_attributes(module) for module in model.modules()),
        *(_entries(module._buffers) for module in model.modules()),
        *(_attributes(thing) for thing in (*optimizers, *others)),
        *(_weight(p) for p in weights),
        *(_contents(buffer) for buffer in model.buffers()),
        _state(optimizers[-1]),
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


def _attributes(thing: Any) -> _Undo:
    """All that `vars` has, with the contents of lists and of an accountant's history."""
    kept = dict(vars(thing))
    lists = [(value, copy.copy(value)) for value in kept.values() if isinstance(value, list)]

    def restore() -> None:
        vars(thing).clear()
        vars(thing).update(kept)
        for value, contents in lists:
            value[:] = contents

    return restore


def _entries(named: dict[str, Any]) -> _Undo:
    """Which tensor each name is for: a forward pass may put another in its place."""
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
    undo = [_attributes(weight), _contents(weight)]
    grad, trainable = weight.grad, weight.requires_grad

    def restore() -> None:
        for part in undo:
            part()
        weight.requires_grad_(trainable)
        weight.grad = grad  # no step inside has seen it

    return restore


def _state(optimizer: Any) -> _Undo:
    state, groups = optimizer.state, optimizer.param_groups
    tensors = [
        _contents(value)
        for of_weight in state.values()
        for value in of_weight.values()
        if torch.is_tensor(value)
    ]
    kept = [(weight, of_weight, dict(of_weight)) for weight, of_weight in state.items()]
    options = [(group, dict(group)) for group in groups]

    def restore() -> None:
        state.clear()
        for weight, of_weight, values in kept:
            of_weight.clear()
            of_weight.update(values)
            state[weight] = of_weight
        for group, values in options:
            group.clear()
            group.update(values)
        for contents in tensors:
            contents()

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
