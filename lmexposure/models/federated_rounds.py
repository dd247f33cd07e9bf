"""Federated training with user-level privacy, in one process: clients, updates, noisy sums.

A client's update is what its own steps took off the weights. Each is clipped as a whole, so that
the unit of privacy is the client with all that it holds; a coin decides for each client and round;
noise is added to the sum. One full step is DP-FedSGD, several epochs of small batches DP-FedAvg.

In mock rounds the model is frozen: all are of the same weights, and nothing is taken off them. The
canary's client takes part by a coin, and what is read is what a server would release.

A canary is a text whose update lies across those of clients, so that noise alone can hide it. Its
tokens are soft at first, drawn by a Gumbel softmax and read through the embedding, so that its
gradient has a gradient. Wanted are small products with the updates of a design pool, and a gradient
that is at least as long as a given norm. At last texts are drawn from the soft one, and the best of
them by its real update, as a client's own steps make it, is changed token by token where that makes
it better still.

Source: Maddock et al. 2023, CANIFE (arXiv 2210.02912), sections 3 and 4; the Gumbel softmax of
texts: Guo et al. 2021 (arXiv 2104.13733).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmexposure._style import short
from lmexposure._validate import integer, positive
from lmexposure.canaries import derive_seed
from lmexposure.errors import CorpusError, InputError, ModelError, NumericalError, SettingsError
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
    ids, size = torch.as_tensor(rows, device=weights[0].device), settings.local_batch or len(rows)
    batches = [ids[first : first + size] for first in range(0, len(ids), size)]
    try:
        for batch in chain.from_iterable(repeat(batches, settings.local_epochs)):
            gradients = torch.autograd.grad(mean_loss(model, batch), weights)
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


_ROUNDING = 1e-3  # of a clip computed in half precision
_SHAPES = 3  # named in a message


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundScores:
    """What rounds showed of a canary."""

    # shape (n,), in units of the canary: about 1 where its client took part, about 0 where it did
    # not
    scores: NDArray[np.float64]
    coins: NDArray[np.bool_]  # whether it did, shape (n,)

    @property
    def noise(self) -> float | None:
        """Standard deviation of the scores but for the canary's own part; None of a single one."""
        rest = self.scores - self.coins
        return float(rest.std(ddof=1)) if rest.size > 1 else None


def audit_update(update: Any, canary: Any, *, clip: float | None = None) -> float:
    """How much of a canary's update a released update holds: 1 of all of it, 0 of nothing.

    Of a server of your own (Flower, pfl): the sum of the clipped updates with its noise, before it
    is divided by the number of clients; and what the canary's client sent.

    Args:
        update: an array or tensor of any float type, or a list of them, one a weight.
        canary: of the same shapes, or one of both as a single vector.
        clip: that clients' updates are clipped to; a longer canary is refused. An update of another
            scale, such as a mean in place of the sum, cannot be told from one with less of the
            canary. None: nothing is known.

    Returns:
        the inner product over the canary's squared length; noise of standard deviation s in each
        weight gives it one of s over the canary's length.

    Raises:
        InputError: no numbers, or such that are not finite; shapes that differ; a canary of zeros,
            or of a length that cannot be.

    Source: Maddock et al. 2023 (arXiv 2210.02912), section 3.

    >>> audit_update([3.0, 1.0], [2.0, 0.0])
    1.5
    """
    return _score(update, _parts("canary", canary), clip)


def _score(update: Any, wanted: list[NDArray[np.float64]], clip: float | None = None) -> float:
    """As `audit_update` says, of a canary whose arrays are known to be finite."""
    found = _parts("update", update)
    shapes = [part.shape for part in found], [part.shape for part in wanted]
    flat = any(len(each) == 1 and len(each[0]) < 2 for each in shapes)
    sent, held = (np.concatenate([np.ravel(part) for part in parts]) for parts in (found, wanted))
    if sent.size != held.size or not (flat or shapes[0] == shapes[1]):
        raise InputError(
            f"the update has {sent.size} numbers in shapes {_shown(shapes[0])}, and the canary "
            f"{held.size} in {_shown(shapes[1])}; give both of the same weights in the same order"
        )
    largest = float(np.abs(held).max(initial=0.0))
    if not largest > 0:
        raise InputError("the canary's update is 0 in all weights, and cannot be seen in any sum")
    unit = held / largest  # so that no square is too large or too small for a number
    length = largest * float(np.linalg.norm(unit))
    if clip is not None and length > positive("clip", clip) * (1 + _ROUNDING):
        raise InputError(
            f"the canary's update is {short(length)} long, and the clip is {short(clip)}; give "
            "what its client sends, clipped"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        score = float(sent @ unit) / float(unit @ unit) / largest
    if not math.isfinite(score):
        raise InputError(
            f"the update and the canary, {short(length)} long, are of scales too far apart for a "
            "score; give both in the same unit"
        )
    return score


def mock_rounds(
    pool: Tensor, canary: Tensor, settings: FederatedSettings, *, rounds: int = 100, seed: int = 0
) -> RoundScores:
    """Scores of rounds in which the canary's client takes part by a fair coin."""
    rounds = integer("rounds", rounds, low=1)
    draws = np.random.default_rng(derive_seed(seed, "mock rounds"))
    noise = generator_of(settings, "mock rounds", str(seed))
    coins = draws.random(rounds) < 0.5
    nothing, wanted = torch.zeros_like(canary), _parts("canary", canary)
    scores = np.empty(rounds)
    for number, coin in enumerate(coins):
        taking_part = torch.from_numpy(draws.random(len(pool)) < settings.client_rate)
        updates = [pool[taking_part].sum(0), canary if coin else nothing]
        scores[number] = _score(noisy_sum(updates, settings, noise), wanted)
    return RoundScores(scores=scores, coins=coins)


def _parts(name: str, values: Any) -> list[NDArray[np.float64]]:
    """The arrays of an update, in their order; a single one is one part."""
    if isinstance(values, Mapping):
        raise InputError(
            f"the {name} is a {type(values).__name__}; give the changes of the weights as a list "
            "of arrays, such as [after[n] - before[n] for n in names]: a state_dict holds the "
            "weights themselves"
        )
    try:
        several = isinstance(values, Sequence) and any(
            isinstance(part, Tensor) or np.ndim(part) > 0 for part in values
        )
        tensors = (
            part.detach().cpu().double() if isinstance(part, Tensor) else part
            for part in (values if several else [values])
        )
        parts = [np.asarray(part, dtype=np.float64) for part in tensors]
    except (TypeError, ValueError, RuntimeError) as failure:
        raise InputError(
            f"the {name} holds something else than numbers ({type(failure).__name__}); give "
            "arrays or tensors of floats"
        ) from None
    wrong = sum(int(np.sum(~np.isfinite(part))) for part in parts)
    if wrong:
        raise InputError(
            f"the {name} has {wrong:,} numbers that are not finite; look for what made them, "
            "such as a training that diverged"
        )
    return parts


def _shown(shapes: Sequence[tuple[int, ...]]) -> str:
    more = ", ..." if len(shapes) > _SHAPES else ""
    return ", ".join(str(shape) for shape in shapes[:_SHAPES]) + more


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
    progress: Callable[[int], None] = lambda done: None,
) -> CraftedCanary:
    """Craft a text for the weights of now; progress takes iterations."""
    length, iterations = integer("length", length, low=2), integer("iterations", iterations, low=1)
    positive("learning_rate", learning_rate)
    weights = trained_weights(model)
    _check(model, updates, sum(weight.numel() for weight in weights), length)
    draws = torch.Generator().manual_seed(derive_seed(seed, "canary"))
    vocabulary = model.get_input_embeddings().weight.shape[0]
    soft = torch.rand(length, vocabulary, generator=draws).requires_grad_()
    descent = torch.optim.Adam([soft], lr=learning_rate)
    course = []
    for iteration in range(iterations):
        progress(iteration)
        descent.zero_grad()
        loss = _loss(model, weights, _gumbel(soft, draws), updates, settings.clip, least_norm)
        (soft.grad,) = torch.autograd.grad(loss, [soft])
        descent.step()
        course.append(float(loss.detach()))
    progress(iterations)
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
