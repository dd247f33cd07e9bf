"""What crafted canaries see of a federated training whose noise is known: scripts/benchmark_canife.

An LSTM of two layers of 32 units, and clients of some hundreds of characters of sentences. Parts:
`toy`: 20 canaries of 300 iterations against 20 mock clients: health, spread of scores without
noise, and the noise that is measured; `rounds`: ten rounds, each attacked; `sweeps`: over the
design pool, the clients of a round, and the iterations; `claims`: of 2,000 trainings of one weight,
whose canary is the clip itself, how many claims are refuted: right ones, and where the noise is
half of what is claimed, or missing.
"""

import argparse
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
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

_NOISE = 0.423
_TEXT = (
    "the keeper of the old tower counts gulls and ships at dawn while rain falls on the quay and "
    "a boy sells bread to sailors who sing of rivers far from here and never write home"
)
_WORDS = _TEXT.split()


def say(ok: bool, line: str) -> None:
    """A claim and whether it holds."""
    print(f"{'reached' if ok else 'MISSED '}  {line}", flush=True)


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


def toy() -> None:
    """Medians of 20 designs, before the training and after five rounds."""
    for rounds in (0, 5):
        model, rows = clients(60)
        if rounds:
            warmed(model, rows, rounds)
        names, how = sorted(rows), settings()
        design, pool = (updates(model, rows, part, how) for part in (names[:20], names[20:40]))
        still, found, begun = settings(noise_multiplier=0.0), [], time.process_time()
        for seed in range(20):
            made = design_canary(model, design, how, iterations=300, seed=seed)
            other = random_canary(model, design, how, seed=seed)
            row = [made.health, made.norm]
            for canary in (made, other):
                row += [
                    mock_rounds(pool, canary.update, still, rounds=200, seed=seed).noise,
                    mock_rounds(pool, canary.update, how, rounds=400, seed=seed).noise,
                ]
            found.append(row)
        health, norm, spread, noise, other_spread, other_noise = np.median(found, axis=0)
        seconds = (time.process_time() - begun) / 20
        when = f"after {rounds} rounds" if rounds else "untrained"
        say(health >= 0.9, f"{when}: health {health:.3f} (asked .9), norm {norm:.2f}")
        say(spread <= 0.1, f"{when}: spread of scores without noise {spread:.3f} (asked .1)")
        say(
            abs(noise / _NOISE - 1) <= 0.15,
            f"{when}: noise {noise:.3f} of {_NOISE} (asked within 15 %)",
        )
        say(
            other_spread > 1.5 * spread,
            f"{when}: a random text as long as the clip has a spread of {other_spread:.3f} without "
            f"noise, and {other_noise:.3f} with it; {seconds:.1f} CPU s a design with its rounds",
        )


def rounds() -> None:
    """Ten rounds, each of them attacked."""
    model, rows = clients(100)
    begun = time.monotonic()
    audit = federated_training(
        model, rows, settings(client_rate=0.2), CanifeSettings(iterations=300)
    )
    seconds = time.monotonic() - begun
    for row in audit.rounds:
        print(
            f"         round {row.round}: health {row.health:.3f}, noise {row.noise:.3f}, epsilon "
            f"{row.epsilon_round:.2f} of {row.claimed_round:.2f}, point {row.point:.2f}, so far "
            f"{row.epsilon_so_far:.2f} of {row.claimed_so_far:.2f}, random text "
            f"{row.random_epsilon_round or 0:.2f}"
        )
    say(not audit.refuted and seconds < 600, f"ten rounds in {seconds:.0f} s (asked 600)")


def sweeps() -> None:
    """Medians of five designs each, the others as in the toy."""
    for name, values in (
        ("design clients", (5, 10, 20, 40)),
        ("rate of clients", (0.1, 0.5, 1.0)),
        ("iterations", (50, 300, 1_000)),
    ):
        for value in values:
            health, spread, noise = np.median(list(_swept(name, value)), axis=0)
            print(
                f"         {name} {value}: health {health:.3f}, spread without noise {spread:.3f}, "
                f"noise {noise:.3f} of {_NOISE}",
                flush=True,
            )


def _swept(name: str, value: float) -> Iterator[tuple[float, float, float]]:
    model, rows = clients(80)
    warmed(model, rows, 5)
    names = sorted(rows)
    how = settings(client_rate=value) if name == "rate of clients" else settings()
    size = int(value) if name == "design clients" else 20
    iterations = int(value) if name == "iterations" else 300
    design = updates(model, rows, names[:size], how)
    pool = updates(model, rows, names[40:60], how)
    still = settings(client_rate=how.client_rate, noise_multiplier=0.0)
    for seed in range(5):
        made = design_canary(model, design, how, iterations=iterations, seed=seed)
        yield (
            made.health,
            mock_rounds(pool, made.update, still, rounds=200, seed=seed).noise,
            mock_rounds(pool, made.update, how, rounds=400, seed=seed).noise,
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
    from lmexposure.federated import rounds as real

    def less(updates: Any, how: FederatedSettings, noise: Any) -> Any:
        added = replace(how, noise_multiplier=share * how.noise_multiplier)
        return real.noisy_sum(updates, added, noise)

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
    there = "lmexposure.federated"
    with (
        mock.patch(f"{there}.audit.design_canary", return_value=canary),
        mock.patch(f"{there}.audit.noisy_sum", less),
        mock.patch(f"{there}.mock.noisy_sum", less),
    ):
        found = federated_training(OneWeight(), clients, how, attacks)
    return found.refuted or any(
        row.epsilon_round > row.claimed_round or row.epsilon_so_far > row.claimed_so_far
        for row in found.rounds
    )


def claims(trainings: int = 2_000) -> None:
    """At 5 %, all bounds of a training together."""
    for frozen in (True, False):
        what = "ten attacked rounds" if frozen else "coins in a hundred of its own rounds"
        alarms = sum(one_weight(frozen, 1.0, seed) for seed in range(trainings))
        p = stats.binomtest(alarms, trainings, 0.05, alternative="greater").pvalue
        say(p >= 0.01, f"{what}: right trainings refuted {alarms} of {trainings:,} (p {p:.2g})")
        for share, planted in ((0.5, "half of the noise"), (1e-6, "no noise")):
            few = trainings // 10
            seen = sum(one_weight(frozen, share, seed) for seed in range(few))
            say(seen >= 0.95 * few, f"{what}: {planted}: refuted {seen} of {few:,}")


PARTS = {"toy": toy, "rounds": rounds, "sweeps": sweeps, "claims": claims}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=[*PARTS, "all"])
    chosen = parser.parse_args().part
    for name, part in PARTS.items():
        if chosen in (name, "all"):
            part()
