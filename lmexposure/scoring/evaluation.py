"""Score a model that somebody holds in memory, and hand it back as it was."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, in which no dropout blurs a score; then put it back.

    Each module gets its own mode back, also after an exception: frozen parts may be in evaluation
    mode while the others train. So does each buffer that the forward pass exchanged. Where
    accelerate made the forward pass one of mixed precision, or `compile` put a compiled one in its
    place, it is the model's own inside, and `torch.autocast` is off: numbers are those of the
    weights as they are, whether or not the model was trained in this process.

    Args:
        model: the bare `torch.nn.Module`, not one wrapped for several processes; one with adapters
            too.
    """
    with ExitStack() as stack:
        for keep in (_forward, _uncompiled, _own_precision, _buffers, _modes):
            stack.enter_context(keep(model))
        yield


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Put the random number generators of Python, NumPy and torch back to where they were."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # Where CUDA is not in use, asking for its state would begin to use every GPU.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if in_use else None
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


class EvaluationMode:
    """`evaluation_mode` for calls so many and so short that looking at each module would tell.

    Args:
        model: as for `evaluation_mode`; a part that is added to it later is not seen.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._modules = model, tuple(model.modules())

    def __call__(self) -> AbstractContextManager[None]:
        """Nothing where the whole model is in evaluation mode already."""
        training = any(module.training for module in self._modules)
        return evaluation_mode(self._model) if training else nullcontext()


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
def _uncompiled(model: Any) -> Iterator[None]:
    """`model.compile()` would compile anew for each shape of a batch."""
    kept = [(one, one._compiled_call_impl) for one in model.modules() if one._compiled_call_impl]
    for module, _ in kept:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, compiled in kept:
            module._compiled_call_impl = compiled


@contextmanager
def _own_precision(model: Any) -> Iterator[None]:
    """Without the half precision of a caller's `torch.autocast`, which no result would name."""
    device = next((weight.device.type for weight in model.parameters()), "cpu")
    if not torch.is_autocast_enabled(device):
        yield
        return
    with torch.autocast(device, enabled=False):
        yield


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
    kept = [module for module in model.modules() if module.training]
    for module in kept:
        module.training = False
    try:
        yield
    finally:
        for module in kept:
            module.training = True
