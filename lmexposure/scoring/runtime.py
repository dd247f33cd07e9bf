"""How a model runs while it is scored: evaluation mode, batches that fit memory, many processes.

A model that the caller holds in memory is handed back exactly as it was. `Ints`, `Floats` and
`Bools` are the arrays that this room passes on.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from math import log
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed
import torch.utils.data
from numpy.typing import NDArray
from transformers.activations import FastGELUActivation, NewGELUActivation

from lmexposure.errors import LmexposureError, ModelError
from lmexposure.models import LoadedModel

# These write out the tanh form of GELU as a chain of tensor operations.
_CHAINS = (NewGELUActivation, FastGELUActivation)
# What a model raises when it cannot do what it is asked.
MODEL_FAILURES = (RuntimeError, AttributeError, TypeError, ValueError, LookupError, AssertionError)
# Two right ways to compute a token's bits differ by rounding, in bfloat16 and float16 by far more.
_ROUNDING_BITS, _ROUNDING_BITS_HALF = 1e-3, 0.25
LN2 = log(2)  # nats a bit
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Item = TypeVar("Item")
Out = TypeVar("Out")


def module_of(model: Any) -> Any:
    """The module of torch in a loaded model, or the model that was given as such."""
    return model.model if isinstance(model, LoadedModel) else model


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Let a model's numbers be those of its weights, without dropout; then all is as it was."""
    modules = list(model.modules())
    # accelerate keeps the forward pass it replaced under this name, for itself to put back.
    original, patched = (vars(model).get(name) for name in ("_original_forward", "forward"))
    device = next((weight.device.type for weight in model.parameters()), "cpu")
    with ExitStack() as stack:
        if original is not None and patched is not None:
            stack.enter_context(_holding("forward", original, [model]))
        # `model.compile()` would compile anew for each shape of a batch.
        compiled = [module for module in modules if module._compiled_call_impl]
        stack.enter_context(_holding("_compiled_call_impl", None, compiled))
        # No result would name the half precision of a caller's `torch.autocast`.
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_buffers(modules))
        # Frozen parts may be in evaluation mode while the others train.
        training = [module for module in modules if module.training]
        stack.enter_context(_holding("training", False, training))
        yield


@contextmanager
def _holding(name: str, value: object, owners: Sequence[Any]) -> Iterator[None]:
    """Let an attribute of these have another value, and then its own again."""
    before = [getattr(owner, name) for owner in owners]
    for owner in owners:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, own in zip(owners, before, strict=True):
            setattr(owner, name, own)


@contextmanager
def _buffers(modules: Sequence[Any]) -> Iterator[None]:
    """Some models make a buffer anew in a forward pass; one made without gradients can't train."""
    kept = [(module, dict(module._buffers)) for module in modules if module._buffers]
    try:
        yield
    finally:
        for module, buffers in kept:
            module._buffers.update(buffers)


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
    """`evaluation_mode` for many short calls, where a look at each module would cost time."""

    def __init__(self, model: Any) -> None:
        self._model, self._modules = model, tuple(model.modules())

    def __call__(self) -> AbstractContextManager[None]:
        """Nothing where the whole model is in evaluation mode already."""
        training = any(module.training for module in self._modules)
        return evaluation_mode(self._model) if training else nullcontext()


@contextmanager
def fused_activations(model: Any) -> Iterator[None]:
    """Let the model's chained activations run as one kernel; the model is left as it was.

    The numbers are the same up to rounding. What these modules are given is overwritten: it is the
    output of a linear layer, which nothing else reads; were it otherwise, the caller's probe would
    find it. On a CPU the chain takes about a sixth of GPT-2's time.
    """
    # One whose forward pass is replaced already stays as it is.
    chains = [m for m in model.modules() if type(m) in _CHAINS and "forward" not in vars(m)]
    for module in chains:
        # An attribute of the instance hides the method of the class.
        module.forward = partial(torch.ops.aten.gelu_, approximate="tanh")
    try:
        yield
    finally:
        for module in chains:
            module.__dict__.pop("forward", None)


def in_batches(
    items: Sequence[Item], batch_size: int, work: Callable[[Sequence[Item]], Out]
) -> Iterator[Out]:
    """Yield `work(batch)` over consecutive batches; out of memory halves the batch and goes on."""
    start = 0
    while start < len(items):
        try:
            out = work(items[start : start + batch_size])
        except (RuntimeError, MemoryError) as failure:
            if not out_of_memory(failure):
                raise
            if batch_size == 1:
                raise ModelError(
                    "out of memory with one text at a time; "
                    "use a smaller model, dtype bfloat16, or a device with more memory"
                ) from failure
            batch_size = max(1, batch_size // 2)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            continue
        start += batch_size
        yield out


def rounding_bits(model: Any) -> float:
    """By how many bits a token may differ between two right ways, in the model's dtype."""
    return _ROUNDING_BITS if model.dtype.itemsize >= 4 else _ROUNDING_BITS_HALF


def out_of_memory(failure: Exception) -> bool:
    """Whether memory ran out: CUDA has a type for it, the CPU allocator only a message."""
    if isinstance(failure, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(failure).lower()
    return "out of memory" in message or "can't allocate memory" in message


def failure_text(failure: Exception) -> str:
    """The type of a failure and the first line of its message; of ours the message alone."""
    message = str(failure).strip().split("\n")[0][:200].rstrip(".")
    if message and isinstance(failure, LmexposureError):
        return message
    return f"{type(failure).__name__}: {message}" if message else type(failure).__name__


_SINGLE: ContextVar[bool] = ContextVar("single_process", default=False)


@contextmanager
def single_process() -> Iterator[None]:
    """Score inside in this process alone, without waiting for the others."""
    token = _SINGLE.set(True)
    try:
        yield
    finally:
        _SINGLE.reset(token)


def share_spans(costs: Ints, work: Callable[[range], list[Out]]) -> list[Out]:
    """Do `work` on spans of places, one a process; all must call this alike, and get the same."""
    processes, own = _processes()
    if processes == 1:
        return work(range(len(costs)))
    try:
        mine: list[Out] | LmexposureError = work(spans(costs, processes)[own])
    except LmexposureError as failure:
        mine = failure  # the others wait for this process, and must hear of it
    gathered = from_all(mine)
    for part in gathered:
        if isinstance(part, LmexposureError):
            raise part
    return [item for part in gathered for item in part]


def from_all(mine: Any) -> list[Any]:
    """What each process has; all must call this alike. With one it is what this one has."""
    if not _is_distributed():
        return [mine]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
    return gathered


def from_first(work: Callable[[], Out]) -> Out:
    """What `work` gives in the first process, in all of them; the others do not run it."""
    if not _is_distributed():
        return work()
    sent: list[Any] = [None]
    if torch.distributed.get_rank() == 0:
        try:
            sent = [work()]
        except LmexposureError as failure:
            sent = [failure]  # the others wait for this process, and must hear of it
    torch.distributed.broadcast_object_list(sent, src=0)
    if isinstance(sent[0], LmexposureError):
        raise sent[0]
    outcome: Out = sent[0]
    return outcome


def in_loader_worker() -> bool:
    """Whether this is a process that a loader began, where what is counted is lost."""
    return torch.utils.data.get_worker_info() is not None


def spans(costs: Ints, parts: int) -> list[range]:
    """Consecutive spans of about equal cost that cover all places."""
    # Each place costs something, if only to be looked up.
    before = np.concatenate([[0.0], np.cumsum(costs + 1.0)])
    ends = np.searchsorted(before, before[-1] * np.arange(1, parts) / parts)
    cuts = [0, *ends.tolist(), len(costs)]
    return [range(a, b) for a, b in pairwise(cuts)]


def _processes() -> tuple[int, int]:
    """How many processes score together, and the number of this one."""
    if _SINGLE.get() or not _is_distributed():
        return 1, 0
    return torch.distributed.get_world_size(), torch.distributed.get_rank()


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
