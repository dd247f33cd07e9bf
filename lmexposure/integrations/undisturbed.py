"""Look at a model in the middle of its training and leave no trace."""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lmexposure.scoring.evaluation import evaluation_mode


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


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Put the random number generators of Python, NumPy and torch back to where they were."""
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
