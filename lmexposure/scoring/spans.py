"""Work shared by the processes that torchrun started: each does a span, all get everything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch.distributed
from numpy.typing import NDArray

from lmexposure.errors import LmexposureError

Out = TypeVar("Out")
_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """What is scored inside is scored by this process; the others are not waited for."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def share_spans(costs: NDArray[np.int64], work: Callable[[range], list[Out]]) -> list[Out]:
    """Do `work` on spans of consecutive places, one a process; the same result in each of them.

    With several processes (a torch.distributed group that is up) all must call this with the same
    arguments. With one it is `work(range(n))`.

    Args:
        costs: what each of n places costs; the spans cost about the same.
        work: a span of places -> one item for each.

    Raises:
        LmexposureError: the first that any process met, in all of them.
    """
    processes, own = _processes()
    if processes == 1:
        return work(range(len(costs)))
    try:
        mine: list[Out] | LmexposureError = work(spans(costs, processes)[own])
    except LmexposureError as failure:
        mine = failure  # the others wait for this process, and must hear of it
    gathered: list[Any] = [None] * processes
    torch.distributed.all_gather_object(gathered, mine)
    for part in gathered:
        if isinstance(part, LmexposureError):
            raise part
    return [one for part in gathered for one in part]


def spans(costs: NDArray[np.int64], parts: int) -> list[range]:
    """Consecutive spans of about equal cost that cover all places."""
    # Each place costs something, if only to be looked up.
    before = np.concatenate([[0.0], np.cumsum(costs + 1.0)])
    ends = np.searchsorted(before, before[-1] * np.arange(1, parts) / parts)
    cuts = [0, *ends.tolist(), len(costs)]
    return [range(a, b) for a, b in pairwise(cuts)]


def _processes() -> tuple[int, int]:
    """How many processes score together, and the number of this one."""
    up = torch.distributed.is_available() and torch.distributed.is_initialized()
    if _ALONE.get() or not up:
        return 1, 0
    return torch.distributed.get_world_size(), torch.distributed.get_rank()
