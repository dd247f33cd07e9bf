"""What crafted canaries see of a federated training whose noise is known.

An LSTM of two layers of 32 units, and clients of some hundreds of characters of sentences. `toy`:
canaries of 300 iterations against 20 mock clients; `claims`: trainings of one weight, whose canary
is the clip itself: right ones, and where the noise is half of what is claimed, or missing.
"""

import random
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from harness import Claims, Namespace
from scipy import stats

from lmexposure.federated import (
    CanifeSettings,
    CraftedCanary,
    FederatedSettings,
    clients_of,
    clipped,
    design_canary,
    federated_training,
    local_update,
    mock_rounds,
    random_canary,
)
from lmexposure.models import LstmSizes, new_model

ARGUMENTS = {"designs": 20, "trainings": 2_000}
_NOISE = 0.423
_TEXT = (
    "the keeper of the old tower counts gulls and ships at dawn while rain falls on the quay and "
    "a boy sells bread to sailors who sing of rivers far from here and never write home"
)
_WORDS = _TEXT.split()


def clients(count: int, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """An untrained model, and clients with words that each likes best."""
    draws = random.Random(seed)
    texts = {}
    for number in range(count):
        liked = draws.sample(_WORDS, 8)
        words = draws.choices(liked, k=60) + draws.choices(_WORDS, k=40)
        draws.shuffle(words)
        texts[f"client {number}"] = " ".join(words)
    sizes = LstmSizes(units=32, embedding=32, layers=2)
    made = new_model("lstm", texts.values(), seed=seed, separator=None, lstm=sizes)
    tokens = {
        name: made.tokenizer(text, add_special_tokens=False)["input_ids"]
        for name, text in texts.items()
    }
    return made.model.train(), clients_of(tokens, length=25)


def settings(**changes: Any) -> FederatedSettings:
    """DP-FedAvg: two epochs of eight rows."""
    values = {
        "client_rate": 0.5,
        "noise_multiplier": _NOISE,
        "local_epochs": 2,
        "local_batch": 8,
        "server_learning_rate": 2.0,
    }
    return FederatedSettings(**{**values, **changes})


def warmed(model: Any, rows: dict[str, Any], rounds: int) -> None:
    """Some rounds without noise, so that updates are those of a training under way."""
    quick = CanifeSettings(design_clients=2, iterations=1, mock_rounds=1, every=rounds)
    federated_training(model, rows, settings(rounds=rounds, noise_multiplier=0.0), quick)


def updates(model: Any, rows: dict[str, Any], names: list[str], how: FederatedSettings) -> Any:
    """Clipped, shape (n, d)."""
    return torch.stack([clipped(local_update(model, rows[n], how), how.clip) for n in names])


def toy(given: Namespace) -> Claims:
    """Medians of some designs, before the training and after five rounds."""
    for rounds in (0, 5):
        model, rows = clients(60)
        if rounds:
            warmed(model, rows, rounds)
        names, how = sorted(rows), settings()
        design, pool = (updates(model, rows, part, how) for part in (names[:20], names[20:40]))
        still, found = settings(noise_multiplier=0.0), []
        for seed in range(given.designs):
            made = design_canary(model, design, how, iterations=300, seed=seed)
            row = [made.health]
            for canary in (made, random_canary(model, design, how, seed=seed)):
                row += [
                    mock_rounds(pool, canary.update, still, rounds=200, seed=seed).noise,
                    mock_rounds(pool, canary.update, how, rounds=400, seed=seed).noise,
                ]
            found.append(row)
        health, spread, noise, other_spread, other_noise = np.median(found, axis=0)
        when = f"after {rounds} rounds" if rounds else "untrained"
        yield health >= 0.9, f"{when}: health {health:.3f} (asked .9)"
        yield spread <= 0.1, f"{when}: spread of scores without noise {spread:.3f} (asked .1)"
        yield (
            abs(noise / _NOISE - 1) <= 0.15,
            f"{when}: noise {noise:.3f} of {_NOISE} (asked within 15 %)",
        )
        random_text = f"spread {other_spread:.3f}, noise {other_noise:.3f}"
        yield (
            other_spread > 1.5 * spread,
            f"{when}: a random text as long as the clip: {random_text}",
        )


class OneWeight(torch.nn.Module):
    """A model that learns nothing: all that is seen of a round is its noise, and the canary."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, **_: Any) -> Any:
        """Its loss has no gradient but 0."""
        return SimpleNamespace(loss=(self.weight * 0).sum())


def one_weight(frozen: bool, share: float, seed: int) -> bool:
    """Whether a training is refuted that adds this share of the noise it claims.

    Frozen, ten rounds are attacked of a training whose clients are in every round; else the canary
    is in its own hundred rounds by coins, and clients are at a rate of .2.
    """
    from lmexposure.models import noisy_sum

    @cache
    def with_less(how: FederatedSettings) -> FederatedSettings:
        return replace(how, noise_multiplier=share * how.noise_multiplier)

    def less(updates: Any, how: FederatedSettings, noise: Any) -> Any:
        return noisy_sum(updates, with_less(how), noise)

    whole = torch.ones(1)
    canary = CraftedCanary(tokens=np.zeros(2, int), update=whole, norm=1.0, health=1.0, course=())
    how = FederatedSettings(
        rounds=10 if frozen else 100,
        client_rate=1.0 if frozen else 0.2,
        noise_multiplier=0.7,
        seed=seed,
    )
    attacks = CanifeSettings(
        every=1 if frozen else 100,
        design_clients=2,
        length=2,
        frozen=frozen,
        compared=False,
        canary_seed=seed,
    )
    clients = {f"client {number}": np.zeros((1, 2), dtype=np.int64) for number in range(6)}
    there = "lmexposure.models.federated_"
    with (
        mock.patch(f"{there}audit.design_canary", return_value=canary),
        mock.patch(f"{there}audit.noisy_sum", less),
        mock.patch(f"{there}rounds.noisy_sum", less),
    ):
        found = federated_training(OneWeight(), clients, how, attacks)
    return found.refuted or any(
        row.epsilon_round > row.claimed_round or row.epsilon_so_far > row.claimed_so_far
        for row in found.rounds
    )


def claims(given: Namespace) -> Claims:
    """At 5 %, all bounds of a training together."""
    for frozen in (True, False):
        what = "ten attacked rounds" if frozen else "coins in a hundred of its own rounds"
        alarms = sum(one_weight(frozen, 1.0, seed) for seed in range(given.trainings))
        p = stats.binomtest(alarms, given.trainings, 0.05, alternative="greater").pvalue
        yield (
            p >= 0.01,
            f"{what}: right trainings refuted {alarms} of {given.trainings:,} (p {p:.2g})",
        )
        few = max(1, given.trainings // 10)
        for share, planted in ((0.5, "half of the noise"), (1e-6, "no noise")):
            seen = sum(one_weight(frozen, share, seed) for seed in range(few))
            yield seen >= 0.95 * few, f"{what}: {planted}: refuted {seen} of {few:,}"


PARTS = {"toy": toy, "claims": claims}
