"""Opacus' optimizer over one weight, without a model: thousands of private steps a second."""

from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import nn

DIMENSION = 64


def optimizer(noise_multiplier: float = 1.0, clip: float = 0.5, seed: int = 0) -> Any:
    weight = nn.Parameter(torch.zeros(DIMENSION))
    return DPOptimizer(
        torch.optim.SGD([weight], lr=0.0),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip,
        expected_batch_size=1,
        generator=torch.Generator().manual_seed(seed),
    )


def step(made: Any, gradients: torch.Tensor | None = None) -> torch.Tensor:
    """A step over documents' gradients, shape (B, DIMENSION); returns what the weight got."""
    (weight,) = made.params
    weight.grad_sample = torch.zeros(1, DIMENSION) if gradients is None else gradients.clone()
    made.step()
    got: torch.Tensor = weight.grad.clone()
    made.zero_grad()
    return got
