"""Two batches that differ in one document, and whether a noisy gradient tells them apart.

The gradients of both are clipped and summed once, by the training's own optimizer. Then its noise
is drawn again and again, on the one sum or the other by a fair coin each time, and read along the
difference. What is tested is how much a real document, clipped as the training clips it, shifts the
sum, and how much noise hides that; not the sampling, nor the composition of steps.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmexposure._validate import delta_of_dp, fraction, integer
from lmexposure.canaries import derive_seed
from lmexposure.errors import NumericalError, SettingsError
from lmexposure.models.dp_training import dp_optimizer
from lmexposure.statistics import GaussianEpsilon, step_guesses_epsilon


@dataclass(frozen=True, kw_only=True)
class TwoBatches:
    """What one document changes in a step, and what is seen of it through the noise."""

    # norm of the difference of the clipped sums over the clip: 1 where the document's gradient is
    # clipped, and never more where clipping works
    shift: float
    bound: GaussianEpsilon  # of this document in a step, from the draws
    claimed_mu: float  # what the optimizer's noise promises of a document as long as the clip

    @property
    def broken(self) -> bool:
        """Whether a step gives more away than its noise allows."""
        return self.shift > 1 + 1e-4 or self.bound.mu > self.claimed_mu


def two_batches(
    optimizer: Any,
    without: Callable[[], None],
    with_document: Callable[[], None],
    *,
    delta: float,
    draws: int = 10_000,
    significance: float = 0.05,
    seed: int | None = None,
) -> TwoBatches:
    """Audit a step by two batches that differ in one document; weights are not changed.

    Args:
        optimizer: Opacus' DPOptimizer, or what is around it.
        without: leaves each document's gradient of the one batch in the weights, as a forward and
            a backward pass do.
        with_document: the same of that batch with one document more.
        delta: at which the epsilon of a step is read off, in (0, 1).
        draws: of the noise, at least 100.
        significance: how often, at most, the bound lies above the truth.
        seed: of the coins; None: fresh from the operating system.

    Raises:
        ModelError: not a training by Opacus.
        SettingsError: a document that changes nothing, or a number out of range.
        NumericalError: gradients that are not finite.

    Source: Nasr et al. 2021 (arXiv 2101.04535), section 4, the gradient-level attack; the bound is
        that of `step_guesses_epsilon`.
    """
    private = dp_optimizer(optimizer)
    delta, level = delta_of_dp("delta", delta), fraction("significance", significance)
    count = integer("draws", draws, low=100)
    coins_seed = secrets.randbits(63) if seed is None else integer("seed", seed, low=0)
    weights = list(private.params)
    sums = [_clipped(private, weights, made) for made in (without, with_document)]
    change = [many - few for few, many in zip(*sums, strict=True)]
    square = float(sum((part.double() ** 2).sum() for part in change))
    clip = float(private.max_grad_norm)
    if not np.isfinite(square):
        raise NumericalError(
            "the clipped sums of the two batches are not finite; look at the model's loss on them"
        )
    if square == 0:
        raise SettingsError(
            "both batches have the same clipped sum, so that there is nothing to tell; give a "
            "second batch with a document more, and with a gradient"
        )
    coins = np.random.default_rng(derive_seed(coins_seed, "two batches")).random(count) < 0.5
    scores = []
    for sum_of_now in (sums[int(coin)] for coin in coins):
        for weight, part in zip(weights, sum_of_now, strict=True):
            weight.summed_grad = part.clone()
        private.add_noise()
        along = (  # the change, the sum without the document taken off
            ((weight.grad - few.view_as(weight)) * part.view_as(weight)).sum().double()
            for weight, few, part in zip(weights, sums[0], change, strict=True)
        )
        scores.append(float(sum(along)) / square)
    _forget(private)
    noise = float(private.noise_multiplier)
    return TwoBatches(
        shift=square**0.5 / clip,
        bound=step_guesses_epsilon(scores, coins, significance=level, delta=delta),
        claimed_mu=1 / noise if noise else float("inf"),
    )


def _clipped(optimizer: Any, weights: list[Any], made: Callable[[], None]) -> list[torch.Tensor]:
    """The clipped sum of a batch, a tensor a weight."""
    _forget(optimizer)
    made()
    optimizer.clip_and_accumulate()
    return [weight.summed_grad.detach().clone() for weight in weights]


def _forget(optimizer: Any) -> None:
    optimizer._is_last_step_skipped = False
    optimizer.zero_grad(set_to_none=True)
