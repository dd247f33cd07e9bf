"""How a model runs while it is scored: evaluation mode, batches that fit memory, many processes.

A model that the caller holds in memory is handed back exactly as it was. `Ints`, `Floats` and
`Bools` are the arrays that this room passes on.

Most of a model's logits for many positions are numbers that are not asked for: with 50,000 tokens,
8,000 positions take 1.6 GB. The last hidden states are taken instead, and the head is applied to a
block of the vocabulary at a time.
"""

import ctypes
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed
import torch.utils.data
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.activations import FastGELUActivation, NewGELUActivation

from lmexposure.errors import LmexposureError, ModelError
from lmexposure.models import LoadedModel, holding, instead, random_numbers

# These write out the tanh form of GELU as a chain of tensor operations.
_CHAINS = (NewGELUActivation, FastGELUActivation)
# What a model raises when it cannot do what it is asked.
MODEL_FAILURES = (
    *(RuntimeError, AttributeError, TypeError, ValueError, LookupError, AssertionError),
    MemoryError,
)
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
            stack.enter_context(holding("forward", original, [model]))
        # `model.compile()` would compile anew for each shape of a batch.
        compiled = [module for module in modules if module._compiled_call_impl]
        stack.enter_context(holding("_compiled_call_impl", None, compiled))
        # No result would name the half precision of a caller's `torch.autocast`.
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_buffers(modules))
        # Frozen parts may be in evaluation mode while the others train.
        training = [module for module in modules if module.training]
        stack.enter_context(holding("training", False, training))
        yield


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
    undo = random_numbers()
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


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
    with ExitStack() as stack:
        for module in chains:
            fused = partial(torch.ops.aten.gelu_, approximate="tanh")
            stack.enter_context(instead(module, "forward", fused))
        yield


@dataclass
class Shortage:
    """Where memory did not hold a batch: how many texts were too many, and how many were not."""

    too_many: int = 0  # the most at a time that failed; 0: memory never ran out
    enough: int = 0

    def halved(self, size: int) -> int:
        """Note that memory ran out, and give half of the size."""
        half = max(1, size // 2)
        self.too_many = max(self.too_many, size)
        self.enough = half if not self.enough else min(half, self.enough)
        return half

    @property
    def note(self) -> str:
        """For a reader of the result; empty where memory never ran out."""
        if not self.too_many:
            return ""
        return (
            f"memory ran out with {self.too_many:,} texts at a time; {self.enough:,} were computed "
            "at a time, which is slower; numbers change by rounding, and where secrets were drawn, "
            "as by another seed"
        )


_SHORTAGE: ContextVar[Shortage | None] = ContextVar("shortage", default=None)


@contextmanager
def noting_shortage() -> Iterator[Shortage]:
    """Note where memory runs out inside, and how far batches are halved."""
    token = _SHORTAGE.set(noted := Shortage())
    try:
        yield noted
    finally:
        _SHORTAGE.reset(token)


def halved(size: int) -> int:
    """Half of a batch that memory did not hold, said to whoever notes it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return (_SHORTAGE.get() or Shortage()).halved(size)


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
            batch_size = halved(len(items[start : start + batch_size]))
            continue
        start += batch_size
        yield out


def return_memory() -> None:
    """Give freed memory back to the system, where its allocator keeps it: glibc does."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class Proven:
    """What a numerical probe showed right on a model, as long as the model computes alike."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, dict[Hashable, int]] = WeakKeyDictionary()

    def covers(self, model: Any, way: Hashable, length: int) -> bool:
        """Whether this way was right on texts of as many tokens, where a window may have closed."""
        return self._known.get(model, {}).get(self._name(model, way), -1) >= length

    def add(self, model: Any, way: Hashable, length: int) -> None:
        """Take note that it was right."""
        known, name = self._known.setdefault(model, {}), self._name(model, way)
        known[name] = max(length, known.get(name, -1))

    @staticmethod
    def _name(model: Any, way: Hashable) -> Hashable:
        attention = getattr(model.config, "_attn_implementation", None)
        computes = type(model).forward, id(vars(model).get("forward"))
        return way, computes, model.dtype, model.device, attention


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


_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 27}  # logits held at once; on a CPU they stay in its cache
_ROWS = 1 << 13


class LmHead:
    """Reads a model in two halves, where a probe shows them right: hidden states, then bits."""

    def __init__(self, model: Any, probe: list[int]) -> None:
        self.model = model
        self.split = False  # "hidden states" are the logits themselves, which is always right
        config = model.config.get_text_config()
        self._cap = getattr(config, "final_logit_softcapping", None)
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        head = model.get_output_embeddings()
        if type(head) is nn.Linear:  # a quantised or adapted head computes something else
            self._head = head
            self.split = self._is_right(probe)

    @torch.inference_mode()
    def hidden(self, **inputs: Any) -> tuple[Tensor, Any]:
        """Run the model; the hidden states under its head, and its output (for the cache)."""
        if not self.split:
            output = self.model(**inputs)
            return output.logits, output
        with _headless(self._head) as seen:
            output = self.model(**inputs)
        return seen.pop(), output

    @torch.inference_mode()
    def bits(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Floats:
        """Bits of token `columns[m]` after position `rows[m]`. Lower = more expected."""
        rows, columns = rows.to(hidden.device), columns.to(hidden.device)
        if len(hidden) <= _ROWS:
            return self._bits(hidden, rows, columns)
        found = np.empty(len(rows), dtype=np.float64)
        for first in range(0, len(hidden), _ROWS):
            inside = ((rows >= first) & (rows < first + _ROWS)).nonzero().squeeze(1)
            part = hidden[first : first + _ROWS]
            found[inside.cpu().numpy()] = self._bits(part, rows[inside] - first, columns[inside])
        return found

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of every token, shape (N, V), in float32 at least."""
        return torch.cat([logits for _, logits in self._blocks(hidden)], dim=1)

    def sequence_bits(self, hidden: Tensor, ids: list[int]) -> Floats:
        """Bits of each token of a sequence, shape (T,); NaN for the first, which none predicts."""
        if len(ids) < 2:
            return np.full(len(ids), np.nan)
        bits = self.bits(hidden, torch.arange(len(ids) - 1), torch.tensor(ids[1:]))
        return np.concatenate([[np.nan], bits])

    def _bits(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Floats:
        """Running log of the sum of exponentials over the vocabulary's blocks."""
        total: Tensor | None = None  # (N,)
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        wanted = torch.empty(len(rows), dtype=dtype, device=hidden.device)
        order = columns.argsort()
        ordered = columns[order].contiguous()
        for first, logits in self._blocks(hidden):  # (N, block)
            ends = torch.tensor([first, first + logits.shape[1]], device=hidden.device)
            low, high = torch.searchsorted(ordered, ends).tolist()
            inside = order[low:high]
            wanted[inside] = logits[rows[inside], columns[inside] - first]
            part = _log_sum_exp_(logits) if self.split else logits.logsumexp(-1)
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None
        nats: Tensor = total[rows].cpu().double() - wanted.cpu().double()
        return (nats / LN2).numpy()

    def _blocks(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Logits of a block of the vocabulary, with the number of its first token."""
        if not self.split:
            yield 0, working(hidden)
            return
        weight, bias = self._head.weight, self._head.bias
        budget = _BLOCK.get(hidden.device.type, _BLOCK["cuda"])
        size = max(256, budget // max(1, len(hidden)))
        for first in range(0, len(weight), size):
            part = slice(first, first + size)
            logits = working(
                nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])
            )
            # What some models do behind their head; the probe finds what is missing here.
            if self._scale != 1.0:
                logits = logits * self._scale
            yield first, torch.tanh(logits / self._cap) * self._cap if self._cap else logits

    @torch.inference_mode()
    def _is_right(self, probe: list[int]) -> bool:
        """Compare a spread of tokens' bits with the model's own logits."""
        ids = torch.tensor([probe], device=self.model.device)
        try:
            whole = working(self.model(input_ids=ids).logits[0])  # (T, V)
            with _headless(self._head) as seen:
                self.model(input_ids=ids)
            self.split = True
            hidden = seen.pop()[0]
            whole = whole[-len(hidden) :]  # of an encoder-decoder, those behind the source
            columns = torch.arange(0, whole.shape[1], max(1, whole.shape[1] // 997))
            pairs = torch.cartesian_prod(torch.arange(len(hidden)), columns).to(ids.device)
            found = self.bits(hidden, pairs[:, 0], pairs[:, 1])
        except (RuntimeError, AttributeError, TypeError, ValueError, IndexError):
            return False
        expected = -torch.log_softmax(whole, dim=-1)[pairs[:, 0], pairs[:, 1]].double() / LN2
        allowed = rounding_bits(self.model)
        return bool(np.allclose(found, expected.cpu().numpy(), rtol=0, atol=allowed))


def working(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def _log_sum_exp_(logits: Tensor) -> Tensor:
    """Over the last axis, in place: the logits are no longer needed, and fresh memory is dear."""
    top = logits.amax(-1, keepdim=True)
    top.masked_fill_(top.isinf(), 0)
    return logits.sub_(top).exp_().sum(-1).log_().add_(top.squeeze(-1))


@contextmanager
def _headless(head: nn.Module) -> Iterator[list[Tensor]]:
    """Let the head pass its input through, and keep it: what is done behind it cannot blur it."""
    seen: list[Tensor] = []

    def keep(hidden: Tensor) -> Tensor:
        seen.append(hidden)
        return hidden

    with instead(head, "forward", keep):
        yield seen
