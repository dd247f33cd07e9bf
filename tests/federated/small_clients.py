"""Clients of a few rows, and an LSTM of a few units that reads them."""

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np

from lmexposure.models import LstmSizes, new_model

LENGTH, VOCABULARY = 12, 20
_DRAWS = np.random.default_rng(0)
CLIENTS = {
    f"client {number}": _DRAWS.integers(3, 9, size=(3, LENGTH)).cumsum(1) % VOCABULARY
    for number in range(1, 13)
}


@cache
def _model() -> Any:
    letters = ["abcdefghijklmnopqrstuvwxyz"]
    sizes = LstmSizes(units=8, embedding=8, layers=2)
    return new_model("lstm", letters, seed=1, separator="\n", lstm=sizes).model.train()


def model() -> Any:
    """Untrained, always with the same weights."""
    return deepcopy(_model())
