"""GPT-2's activation in one pass over memory, in place, instead of seven, while scoring."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers.activations import FastGELUActivation, NewGELUActivation

# These write out the tanh form of GELU as a chain of tensor operations.
_CHAINS = (NewGELUActivation, FastGELUActivation)


@contextmanager
def fused_activations(model: Any) -> Iterator[None]:
    """Let the model's chained activations run as one kernel; the model is left as it was.

    The numbers are the same up to rounding. What these modules are given is overwritten: it is the
    output of a linear layer, which nothing else reads; were it otherwise, the caller's probe would
    find it. On a CPU the chain takes about a sixth of GPT-2's time.
    """
    # One whose forward pass somebody replaced already stays as it is.
    chains = [m for m in model.modules() if type(m) in _CHAINS and "forward" not in vars(m)]
    for module in chains:
        # An attribute of the instance hides the method of the class.
        module.forward = partial(torch.ops.aten.gelu_, approximate="tanh")
    try:
        yield
    finally:
        for module in chains:
            module.__dict__.pop("forward", None)
