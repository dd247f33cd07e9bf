"""A text whose update lies across those of clients: a canary that noise alone can hide.

Its tokens are soft at first, drawn by a Gumbel softmax and read through the embedding, so that its
gradient has a gradient. Wanted are small products with the updates of a design pool, and a gradient
that is at least as long as a given norm. At last texts are drawn from the soft one, and the best of
them by its real update, as a client's own steps make it, is changed token by token where that makes
it better still: that is the canary.

Source: Maddock et al. 2023, CANIFE (arXiv 2210.02912), sections 3 and 4; the Gumbel softmax of
texts: Guo et al. 2021 (arXiv 2104.13733).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmexposure._validate import integer, positive
from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.models.federated_rounds import clipped, local_update, trained_weights
from lmexposure.studies import FederatedSettings

_TEXTS = 64  # that are drawn from the soft text, and of random ones beside them
_CHANGES = 200  # of single tokens that are tried


@dataclass(frozen=True, kw_only=True, eq=False)
class CraftedCanary:
    """A canary for one round's model."""

    tokens: NDArray[np.int64]  # its text, shape (T,)
    update: Tensor  # of a client that holds nothing else, clipped, shape (d,)
    norm: float  # of that update before it was clipped
    # how much less than a random text it has in common with the pool: 1 less the ratio of mean
    # squared products, of updates as long as the clip. 1: nothing; 0: as much.
    health: float
    course: tuple[float, ...]  # loss of the soft text at each iteration; lower = better


def design_canary(  # noqa: PLR0913  a public door: its parameters are its options
    model: Any,
    updates: Tensor,
    settings: FederatedSettings,
    *,
    length: int = 25,
    iterations: int = 2_500,
    learning_rate: float = 0.1,
    least_norm: float = 1.0,
    seed: int = 0,
) -> CraftedCanary:
    """Craft a text for the weights of now."""
    length, iterations = integer("length", length, low=2), integer("iterations", iterations, low=1)
    positive("learning_rate", learning_rate)
    weights = trained_weights(model)
    _check(model, updates, sum(weight.numel() for weight in weights), length)
    draws = torch.Generator().manual_seed(derive_seed(seed, "canary"))
    vocabulary = model.get_input_embeddings().weight.shape[0]
    soft = torch.rand(length, vocabulary, generator=draws).requires_grad_()
    descent = torch.optim.Adam([soft], lr=learning_rate)
    course = []
    for _ in range(iterations):
        descent.zero_grad()
        loss = _loss(model, weights, _gumbel(soft, draws), updates, settings.clip, least_norm)
        (soft.grad,) = torch.autograd.grad(loss, [soft])
        descent.step()
        course.append(float(loss.detach()))
    chosen, update, shared = _best(model, soft.detach(), updates, settings, draws)
    random = torch.randint(vocabulary, (_TEXTS, length), generator=draws)
    usual = float(np.mean([_shared(model, text, updates, settings)[1] for text in random.numpy()]))
    return CraftedCanary(
        tokens=chosen,
        update=clipped(update, settings.clip),
        norm=float(update.norm()),
        health=1.0 - shared / usual if usual > 0 else 1.0,
        course=tuple(course),
    )


def random_canary(
    model: Any, updates: Tensor, settings: FederatedSettings, *, length: int = 25, seed: int = 0
) -> CraftedCanary:
    """A text of random tokens, for comparison; its update is made as long as the clip."""
    draws = np.random.default_rng(derive_seed(seed, "random canary"))
    vocabulary = model.get_input_embeddings().weight.shape[0]
    tokens = draws.integers(vocabulary, size=integer("length", length, low=2))
    update, _ = _shared(model, tokens, updates, settings)
    norm = float(update.norm())
    scaled = update * (settings.clip / max(norm, 1e-30))
    return CraftedCanary(tokens=tokens, update=scaled, norm=norm, health=0.0, course=())


def _check(model: Any, updates: Tensor, dimension: int, length: int) -> None:
    if not hasattr(model, "lstm") or not hasattr(model, "lm_head"):
        raise ModelError(
            f"canaries are crafted on the LSTM, and this is a {type(model).__name__}; give a model "
            "that new_model('lstm', ...) made"
        )
    if updates.ndim != 2 or not len(updates) or updates.shape[1] != dimension:
        raise InputError(
            f"updates have shape {tuple(updates.shape)}; give those of at least one client, each "
            f"of the model's {dimension} weights"
        )
    window = getattr(model.config, "max_position_embeddings", None)
    if window is not None and length > window:
        raise SettingsError(f"length={length} is more than the {window} tokens of the context")


def _gumbel(soft: Tensor, draws: torch.Generator) -> Tensor:
    """Soft tokens at temperature 1, shape (T, V)."""
    uniform = torch.rand(soft.shape, generator=draws).clamp_(1e-20)
    noise = -torch.log((-torch.log(uniform)).clamp(min=1e-20))
    return torch.softmax(soft + noise, dim=-1)


def _loss(
    model: Any, weights: list[Any], tokens: Tensor, updates: Tensor, clip: float, least: float
) -> Tensor:
    """Mean squared product with the pool, and how much too short the gradient is; times d."""
    embedded = (tokens @ model.get_input_embeddings().weight).unsqueeze(0)
    outputs, _ = model.lstm(embedded)
    said = torch.log_softmax(model.lm_head(outputs[0, :-1]), dim=-1)
    nats = -(tokens[1:] * said).sum(-1).mean()
    parts = torch.autograd.grad(nats, weights, create_graph=True)
    gradient = torch.cat([part.flatten() for part in parts])
    norm = gradient.norm()
    products = updates @ (gradient * (clip / norm.clamp(min=1e-12)))
    found: Tensor = len(gradient) * ((products**2).mean() + torch.relu(least - norm) ** 2)
    return found


def _best(
    model: Any, soft: Tensor, updates: Tensor, settings: FederatedSettings, draws: torch.Generator
) -> tuple[NDArray[np.int64], Tensor, float]:
    """The best text that is drawn from the soft one, made better by single tokens."""

    def judged(tokens: NDArray[np.int64]) -> tuple[float, NDArray[np.int64], Tensor, float]:
        update, shared = _shared(model, tokens, updates, settings)
        short = max(0.0, 1 - float(update.norm()) / settings.clip)
        return shared / settings.clip**2 + short**2, tokens, update, shared

    drawn = (judged(_gumbel(soft, draws).argmax(-1).numpy()) for _ in range(_TEXTS))
    best = min(drawn, key=lambda found: found[0])
    for _ in range(_CHANGES):
        changed = best[1].copy()
        place = int(torch.randint(len(changed), (1,), generator=draws))
        changed[place] = int(torch.randint(soft.shape[1], (1,), generator=draws))
        best = min(best, judged(changed), key=lambda found: found[0])
    return best[1:]


def _shared(
    model: Any, tokens: NDArray[np.int64], updates: Tensor, settings: FederatedSettings
) -> tuple[Tensor, float]:
    """A text's update, and its mean squared product with the pool, were it as long as the clip."""
    update = local_update(model, tokens[None], settings)
    unit = update * (settings.clip / max(float(update.norm()), 1e-30))
    return update, float(((updates @ unit) ** 2).mean())
