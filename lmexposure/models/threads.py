"""How many threads a model computes with: by its size, recorded, and the same on resuming.

The last bits of a loss or a score depend on the number of threads, on how busy the machine is they
do not. So the number is chosen once, and whoever goes on with a begun work takes it from there.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_LOG = logging.getLogger(__name__)
# Below this size a second thread gains next to nothing: an operation ends before a thread wakes. An
# LSTM of 2 x 200 units has .7 million parameters, and gains 12 % on a quiet machine.
_WORTH_THREADS = 1_000_000


def threads_for(model: Any, *, asked: int | None = None, recorded: int | None = None) -> int:
    """The number of threads for a training or a measurement.

    Args:
        model: what computes.
        asked: what the user wants; None: one thread for a model under a million parameters unless
            OMP_NUM_THREADS is set, else those that torch has.
        recorded: what the work began with; nothing else is right for the rest of it.
    """
    if recorded is not None:
        if asked not in (None, recorded):
            _LOG.warning(
                "this goes on with threads=%d, as it began, and not with %d: the last bits of its "
                "numbers depend on it",
                recorded,
                asked,
            )
        return recorded
    if asked is not None:
        return asked
    small = sum(parameter.numel() for parameter in model.parameters()) < _WORTH_THREADS
    return 1 if small and "OMP_NUM_THREADS" not in os.environ else torch.get_num_threads()


@contextmanager
def computing_threads(number: int) -> Iterator[None]:
    """Let torch compute with so many threads; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
