"""Mock rounds: clients of a pool, by coins; the canary's client, by a coin; noise; and the score.

The model is frozen: all rounds are of the same weights, and nothing is taken off them. What is read
is what a server would release.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lmexposure._validate import integer
from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError
from lmexposure.federated.rounds import generator_of, noisy_sum
from lmexposure.records import FederatedSettings


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundScores:
    """What rounds showed of a canary.

    Attributes:
        scores: shape (n,), in units of the canary: about 1 where its client took part, about 0
            where it did not.
        coins: whether it did, shape (n,).
    """

    scores: NDArray[np.float64]
    coins: NDArray[np.bool_]

    @property
    def noise(self) -> float:
        """Standard deviation of the scores but for the canary's own part, in units of it."""
        rest = self.scores - self.coins
        return float(rest.std(ddof=1)) if rest.size > 1 else float("nan")


def audit_update(update: Any, canary: Any) -> float:
    """How much of a canary's update a released update holds: 1 of all of it, 0 of nothing.

    Of a server of your own (Flower, pfl): the sum of the clipped updates with its noise, before it
    is divided by the number of clients; and what the canary's client sent.

    Args:
        update: an array or tensor, or a list of them, one a weight.
        canary: of the same shapes.

    Returns:
        the inner product over the canary's squared length; noise of standard deviation s in each
        weight gives it one of s over the canary's length.

    Raises:
        InputError: shapes that differ, or a canary of zeros.

    Source: Maddock et al. 2023 (arXiv 2210.02912), section 3.

    >>> audit_update([3.0, 1.0], [2.0, 0.0])
    1.5
    """
    found, wanted = _flat(update), _flat(canary)
    if found.size != wanted.size:
        raise InputError(
            f"the update has {found.size} numbers and the canary {wanted.size}; give both of the "
            "same weights in the same order"
        )
    square = float(wanted @ wanted)
    if not square > 0:
        raise InputError("the canary's update is 0 in all weights, and cannot be seen in any sum")
    return float(found @ wanted) / square


def mock_rounds(
    pool: Tensor, canary: Tensor, settings: FederatedSettings, *, rounds: int = 100, seed: int = 0
) -> RoundScores:
    """Scores of rounds in which the canary's client takes part by a fair coin.

    Args:
        pool: clipped updates of clients who did not design it, shape (n, d), for these weights.
        canary: its clipped update, shape (d,).
        settings: rate, clip and noise.
        rounds: that are played.
        seed: of coins and noise.

    Raises:
        InputError: see `audit_update`.
        SettingsError: fewer than 1 round.
    """
    rounds = integer("rounds", rounds, low=1)
    draws = np.random.default_rng(derive_seed(seed, "mock rounds"))
    noise = generator_of(settings, "mock rounds", str(seed))
    coins = draws.random(rounds) < 0.5
    nothing = torch.zeros_like(canary)
    scores = np.empty(rounds)
    for number, coin in enumerate(coins):
        taking_part = torch.from_numpy(draws.random(len(pool)) < settings.client_rate)
        updates = [pool[taking_part].sum(0), canary if coin else nothing]
        scores[number] = audit_update(noisy_sum(updates, settings, noise), canary)
    return RoundScores(scores=scores, coins=coins)


def _flat(values: Any) -> NDArray[np.float64]:
    """Numbers of an array, a tensor, or a list of them, in their order."""
    if isinstance(values, Tensor):
        return values.detach().cpu().double().numpy().ravel()
    if isinstance(values, Sequence) and any(np.ndim(_array(part)) for part in values):
        return np.concatenate([np.ravel(_array(part)) for part in values]).astype(np.float64)
    return np.ravel(np.asarray(values, dtype=np.float64))


def _array(part: Any) -> ArrayLike:
    made: ArrayLike = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    return made
