"""Look at a model in the middle of its training and leave no trace."""

import gc
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["uncollected", "undisturbed"]


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode; at the end all is as it was.

    Put back are the random number generators (Python, NumPy, torch on every device), the mode of
    each module, and buffers that were exchanged. Where accelerate made the forward pass one of
    mixed precision, it is the model's own inside: numbers are those of the weights as they are.

    Args:
        model: the bare model, not one wrapped for several processes.
    """
    with ExitStack() as stack:
        for keep in (_random_numbers, _forward, _buffers, _modes):
            stack.enter_context(keep(model))
        model.eval()
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects and set off no search for garbage among all objects of the training.

    One full search takes a third of a second where torch and transformers are loaded.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _random_numbers(_: Any) -> Iterator[None]:
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if mps is not None:
            torch.mps.set_rng_state(mps)


@contextmanager
def _forward(model: Any) -> Iterator[None]:
    # accelerate keeps the forward pass it replaced under this name, for itself to put back.
    original, patched = (vars(model).get(name) for name in ("_original_forward", "forward"))
    if original is None or patched is None:
        yield
        return
    model.forward = original
    try:
        yield
    finally:
        model.forward = patched


@contextmanager
def _buffers(model: Any) -> Iterator[None]:
    """Some models make a buffer anew in a forward pass; one made without gradients can't train."""
    kept = [(module, dict(module._buffers)) for module in model.modules() if module._buffers]
    try:
        yield
    finally:
        for module, buffers in kept:
            module._buffers.update(buffers)


@contextmanager
def _modes(model: Any) -> Iterator[None]:
    kept = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in kept:
            module.training = training
