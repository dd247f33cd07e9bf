"""Federated training with user-level privacy, in one process: clients, updates, noisy sums.

A client's update is what its own steps took off the weights. Each is clipped as a whole, so that
the unit of privacy is the client with all that it holds; a coin decides for each client and round;
noise is added to the sum. One full step is DP-FedSGD, several epochs of small batches DP-FedAvg.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmexposure._validate import integer
from lmexposure.canaries import derive_seed
from lmexposure.errors import CorpusError, NumericalError
from lmexposure.studies import FederatedSettings


def clients_of(tokens: Mapping[str, Sequence[int]], *, length: int) -> dict[str, NDArray[np.int64]]:
    """Each client's rows of tokens."""
    length = integer("length", length, low=2)
    found = {}
    for name, own in tokens.items():
        rows = len(own) // length
        if rows:
            whole = np.asarray(own[: rows * length], dtype=np.int64)
            found[name] = whole.reshape(rows, length)
    if len(found) < 2:
        raise CorpusError(
            f"{len(found)} of {len(tokens)} clients have a row of {length} tokens, and 2 are "
            "needed; give more text, or a smaller length"
        )
    return found


def local_update(model: Any, rows: NDArray[np.int64], settings: FederatedSettings) -> Tensor:
    """What a client's steps would take off the weights, not clipped, shape (d,)."""
    weights = trained_weights(model)
    before = [weight.detach().clone() for weight in weights]
    ids = torch.as_tensor(rows, device=weights[0].device)
    try:
        for batch in _batches(ids, settings):
            loss = mean_loss(model, batch)
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= settings.client_learning_rate * gradient
        with torch.no_grad():
            parts = [(old - weight).flatten() for old, weight in zip(before, weights, strict=True)]
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
    update = torch.cat(parts)
    if not torch.isfinite(update).all():
        raise NumericalError(
            f"a client's update is not finite at client_learning_rate="
            f"{settings.client_learning_rate:g}; give a lower one"
        )
    return update


def clipped(update: Tensor, clip: float) -> Tensor:
    """The update, at most as long as the clip."""
    return update * min(1.0, clip / max(float(update.norm()), 1e-30))


def noisy_sum(
    updates: Sequence[Tensor], settings: FederatedSettings, noise: torch.Generator
) -> Tensor:
    """What a server releases of clipped updates: their sum with noise, shape (d,)."""
    total = torch.stack(list(updates)).sum(0)
    if settings.noise_multiplier:
        drawn = torch.randn(total.shape, generator=noise, device=total.device)
        total = total + settings.noise_multiplier * settings.clip * drawn
    return total


def apply_round(model: Any, total: Tensor, clients: int, settings: FederatedSettings) -> None:
    """Take a round's noisy sum off the weights, over the number of clients that it expects."""
    scale = settings.server_learning_rate / (settings.client_rate * clients)
    first = 0
    with torch.no_grad():
        for weight in trained_weights(model):
            weight -= scale * total[first : first + weight.numel()].view_as(weight)
            first += weight.numel()


def taking_part(names: Sequence[str], settings: FederatedSettings, *purpose: str) -> list[str]:
    """The clients of a round, each by a coin of its own."""
    coins = np.random.default_rng(derive_seed(settings.seed, "clients", *purpose))
    drawn = coins.random(len(names)) < settings.client_rate
    return [name for name, is_in in zip(names, drawn, strict=True) if is_in]


def generator_of(settings: FederatedSettings, *purpose: str) -> torch.Generator:
    """A source of noise, apart from all others."""
    return torch.Generator().manual_seed(derive_seed(settings.seed, "noise", *purpose))


def trained_weights(model: Any) -> list[Any]:
    """The weights that updates are made of, in their order."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def mean_loss(model: Any, ids: Tensor) -> Tensor:
    """Mean -ln p of a batch's tokens, each after those before it."""
    found: Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
    return found


def _batches(ids: Tensor, settings: FederatedSettings) -> Iterator[Tensor]:
    size = settings.local_batch or len(ids)
    for _ in range(settings.local_epochs):
        for first in range(0, len(ids), size):
            yield ids[first : first + size]
