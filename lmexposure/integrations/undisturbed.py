"""Look at a model in the middle of its training and leave no trace."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lmexposure.scoring import (
    evaluation_mode,
    same_random_numbers,
)


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode; at the end all is as it was.

    Put back are the random number generators (Python, NumPy, torch on every device) and what
    `evaluation_mode` puts back.

    Args:
        model: the bare model, not one wrapped for several processes.
    """
    with same_random_numbers(), evaluation_mode(model):
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
