"""Work through many items in batches, halving the batch when memory runs out."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from lmexposure.errors import LmexposureError, ModelError

# What a model cannot do it says in many ways.
UNABLE = (RuntimeError, AttributeError, TypeError, ValueError, LookupError, AssertionError)

Item = TypeVar("Item")
Out = TypeVar("Out")


def in_batches(
    items: Sequence[Item], batch_size: int, work: Callable[[Sequence[Item]], Out]
) -> Iterator[Out]:
    """Yield `work(batch)` over consecutive batches; out of memory halves the batch and goes on.

    Args:
        items: what to work on, in the order wanted.
        batch_size: the first batch size to try, at least 1.
        work: called with 1 to `batch_size` items.

    Raises:
        ModelError: a single item does not fit into memory.
    """
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


def out_of_memory(failure: Exception) -> bool:
    """CUDA has a type for it; the CPU allocator only a message."""
    if isinstance(failure, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(failure).lower()
    return "out of memory" in message or "can't allocate memory" in message


def in_words(failure: Exception) -> str:
    """The type of a failure and the first line of its message; of ours the message alone."""
    message = str(failure).strip().split("\n")[0][:200].rstrip(".")
    if message and isinstance(failure, LmexposureError):
        return message
    return f"{type(failure).__name__}: {message}" if message else type(failure).__name__
