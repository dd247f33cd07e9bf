"""One process decides for all: clocks and disks differ from one process to the next."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed

from lmexposure.errors import LmexposureError

Out = TypeVar("Out")


def from_first(work: Callable[[], Out]) -> Out:
    """What `work` gives in the first process, in all of them; the others do not run it.

    With several processes (a torch.distributed group that is up) all must call this.

    Raises:
        LmexposureError: the one that the first process met, in all of them.

    >>> from_first(lambda: 3)
    3
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
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
    found: Out = sent[0]
    return found
