"""A study of each kind that nobody made: for what must hold of every one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lmexposure.core import Study
from lmexposure.studies import Canife, CanifeRound


def canife(seed: int = 0) -> Canife:
    """Of one to four attacked rounds, with noise or without, sound or not."""
    rng = np.random.default_rng(seed)
    noise = float(rng.choice([0.0, 0.5, 1.1]))
    rounds = tuple(_round(rng, number, noise) for number in range(1, 2 + int(rng.integers(4))))
    return Canife(
        measured="2026-11-26T06:30:00Z",
        lmexposure="0.1.0",
        inputs_sha256=f"{seed:064x}",
        clients=12,
        aside=8,
        weights=1234,
        rounds=20,
        client_rate=0.25,
        local_epochs=1,
        local_batch=None if rng.random() < 0.5 else 8,
        clip=1.0,
        noise_multiplier=noise,
        delta=1e-5,
        frozen=bool(rng.random() < 0.5),
        significance=0.05,
        attacked=rounds,
        attainable=float(rng.exponential(9)),
        losses=tuple(rng.uniform(2, 4, len(rounds) + 1).tolist()),
    )


def _round(rng: np.random.Generator, number: int, noise: float) -> CanifeRound:
    coins = rng.random(30) < rng.choice([0.5, 0.5, 1.0])
    low, mu = (float(value) for value in rng.exponential(2, 2))
    claimed: dict[str, Any] = {"claimed_round": None, "claimed_so_far": None}
    if noise:
        claimed = {"claimed_round": float(rng.exponential(9)), "claimed_so_far": 9.0 + number}
    return CanifeRound(
        round=number,
        loss=float(rng.uniform(2, 4)),
        health=float(rng.uniform(0.3, 1)),
        norm=float(rng.exponential()),
        scores=tuple((coins + rng.normal(size=30)).tolist()),
        coins=tuple(coins.tolist()),
        noise=None if rng.random() < 0.2 else float(rng.exponential()),
        point=low,
        mu=mu,
        epsilon_round=low,
        attainable_round=low + 1,
        noise_at_most=None if rng.random() < 0.3 else float(rng.exponential(2)),
        epsilon_so_far=low / 2,
        random_noise=None,
        random_epsilon_round=None if rng.random() < 0.5 else 0.25,
        **claimed,
    )


MADE: dict[str, Callable[[int], Study]] = {"canife": canife}
