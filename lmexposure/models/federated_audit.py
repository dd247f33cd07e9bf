"""CANIFE over a federated training: attacked rounds, what they show, and the claim beside it.

In an attacked round the model is frozen, a canary is crafted against clients of a design pool, and
mock rounds of other clients, with the canary or not, give scores. From them follow a bound on the
mu of the round, and the noise multiplier that it leaves room for. That is held until the next
attacked round and composed with the rate of the clients: the epsilon that the training has shown so
far. Beside it is the epsilon that it claims.

Mock clients and design clients take no part in training.
"""

import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmexposure.canaries import derive_seed
from lmexposure.core import Part
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models.dp_accounting import epsilon_at_least, epsilon_spent
from lmexposure.models.federated_rounds import (
    CraftedCanary,
    RoundScores,
    apply_round,
    audit_update,
    clipped,
    design_canary,
    generator_of,
    local_update,
    mean_loss,
    mock_rounds,
    noisy_sum,
    random_canary,
    taking_part,
    trained_weights,
)
from lmexposure.statistics import (
    canife_point,
    epsilon_of_mu,
    gaussian_dp_epsilon,
    step_guesses_epsilon,
)
from lmexposure.studies import CanifeRound, CanifeSettings, FederatedSettings

Clients = Mapping[str, NDArray[np.int64]]
_LOG = logging.getLogger(__name__)
Told = Callable[[str, int, int, str], None]
_FEWEST = 2  # clients of a pool


@dataclass(frozen=True, kw_only=True)
class FederatedAudit:
    """A federated training and what canaries saw of it."""

    settings: FederatedSettings  # of the training
    canife: CanifeSettings  # of the attacks
    clients: int  # that took part by their coins
    rounds: tuple[CanifeRound, ...]  # those attacked, in order
    attainable: float  # the most that the last `epsilon_so_far` could have been
    # of the model on mock clients before each round and after the last, nats a token
    losses: tuple[float, ...]

    @property
    def refuted(self) -> bool:
        """Whether a round has less noise than is claimed."""
        least = [row.noise_at_most for row in self.rounds if row.noise_at_most is not None]
        return any(noise < self.settings.noise_multiplier for noise in least)


def federated_training(
    model: Any,
    clients: Clients,
    settings: FederatedSettings,
    canife: CanifeSettings | None = None,
    *,
    progress: Told = lambda what, done, total, note: None,
    kept: Part | None = None,
) -> FederatedAudit:
    """Train a model by DP-FedAvg and attack it; with `kept` it goes on from an attacked round.

    Progress takes what is done, how much of it, of how much, and a note: "crafting" of a canary,
    and "rounds".
    """
    canife = CanifeSettings() if canife is None else canife
    longest = max(rows.shape[1] for rows in clients.values())
    if canife.length > longest:  # and its length gives it away
        raise SettingsError(
            f"length={canife.length} tokens of the canary are more than the {longest} of a row; "
            f"give at most {longest}"
        )
    _warn_of_too_few(settings, canife)
    design, mock, training = _parted(clients, canife)
    names = sorted(training)
    crafting = partial(progress, "crafting")
    attack = _Attack(model, settings, canife, design, mock, crafting)
    begin, losses, audits = 0, [_loss(model, mock)], list[CanifeRound]()
    if kept is not None and (before := kept.read()) is not None:
        begin, losses, audits = _unpacked(before, model, attack)
    for number in range(begin, settings.rounds):
        progress("rounds", number, settings.rounds, f"loss {losses[-1]:.3f} nats")
        if number % canife.every == 0:
            audits += attack.finished(number, losses)
            if kept is not None and number > begin:
                kept.write(_packed(number, model, attack, losses, audits))
            attack.begin(number)
            progress("rounds", number, settings.rounds, f"loss {losses[-1]:.3f} nats")
        updates = [
            clipped(local_update(model, training[name], settings), settings.clip)
            for name in taking_part(names, settings, str(number))
        ]
        total = noisy_sum(
            [torch.zeros(attack.dimension), *updates, *attack.joining(number)],
            settings,
            generator_of(settings, "round", str(number)),
        )
        attack.see(total)
        apply_round(model, total, len(names), settings)
        losses.append(_loss(model, mock))
    progress("rounds", settings.rounds, settings.rounds, f"loss {losses[-1]:.3f} nats")
    audits += attack.finished(settings.rounds, losses)
    return FederatedAudit(
        settings=settings,
        canife=canife,
        clients=len(names),
        rounds=tuple(audits),
        # Had every canary been told from none in each of its rounds.
        attainable=max(
            epsilon_at_least(attack.perfect, delta=settings.delta),
            *(row.epsilon_so_far for row in audits),
        ),
        losses=tuple(losses),
    )


def _packed(
    number: int, model: Any, attack: "_Attack", losses: list[float], audits: list[CanifeRound]
) -> bytes:
    """A training in front of an attacked round: its weights, random numbers, and what was seen."""
    said = {
        "number": number,
        "losses": losses,
        "audits": [row.model_dump(mode="json") for row in audits],
        "history": attack.history,
        "perfect": attack.perfect,
    }
    arrays = {f"w{place}": w.detach().numpy() for place, w in enumerate(trained_weights(model))}
    stream = io.BytesIO()
    said_bytes = np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)
    np.savez(stream, said=said_bytes, random=torch.get_rng_state().numpy(), **arrays)
    return stream.getvalue()


def _unpacked(
    data: bytes, model: Any, attack: "_Attack"
) -> tuple[int, list[float], list[CanifeRound]]:
    """Bring model, random numbers and attack to where they were; the round, and what was seen."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        said = json.loads(arrays["said"].tobytes())
        with torch.no_grad():
            for place, weight in enumerate(trained_weights(model)):
                weight.copy_(torch.from_numpy(arrays[f"w{place}"]))
        torch.set_rng_state(torch.from_numpy(arrays["random"]))
    attack.history = [(noise, rate, steps) for noise, rate, steps in said["history"]]
    attack.perfect = [(noise, rate, steps) for noise, rate, steps in said["perfect"]]
    audits = [CanifeRound.model_validate(row) for row in said["audits"]]
    return said["number"], said["losses"], audits


def _parted(
    clients: Clients, canife: CanifeSettings
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Rows of the design pool, of mock clients, and of those that train."""
    aside = 2 * canife.design_clients
    if len(clients) < aside + _FEWEST:
        raise CorpusError(
            f"there are {len(clients)} clients, of which {aside} would be put aside to design "
            f"canaries and to play rounds, and {_FEWEST} are to train; give more clients, or "
            "put fewer aside (design_clients=...)"
        )
    names = sorted(clients)
    order = np.random.default_rng(derive_seed(canife.canary_seed, "pools")).permutation(len(names))
    drawn = [names[place] for place in order]
    half = canife.design_clients
    design, mock = ([clients[name] for name in some] for some in (drawn[:half], drawn[half:aside]))
    return design, mock, {name: clients[name] for name in drawn[aside:]}


class _Attack:
    """The canary of now, and what was seen of it."""

    def __init__(
        self,
        model: Any,
        settings: FederatedSettings,
        canife: CanifeSettings,
        design: Sequence[Any],
        mock: Sequence[Any],
        crafting: Callable[[int, int, str], None],
    ) -> None:
        self._crafting = crafting
        self._model, self._settings, self._canife = model, settings, canife
        self._design, self._mock = design, mock
        self.history: list[tuple[float, float, int]] = []
        self.perfect: list[tuple[float, float, int]] = []
        self._begun = 0
        self._canary: CraftedCanary | None = None
        self._seen: list[tuple[float, bool]] = []
        self._others: RoundScores | None = None
        self._coin = False
        self.dimension = sum(w.numel() for w in model.parameters() if w.requires_grad)

    def begin(self, number: int) -> None:
        """Craft a canary for the weights of now; frozen, play all its rounds."""
        settings, canife = self._settings, self._canife
        seed = derive_seed(canife.canary_seed, "round", str(number))
        updates = self._updates(self._design)
        self._canary = design_canary(
            self._model,
            updates,
            settings,
            length=canife.length,
            iterations=canife.iterations,
            learning_rate=canife.design_rate,
            seed=seed,
            progress=partial(self._told, number),
        )
        self._begun, self._seen, self._others = number, [], None
        if canife.frozen:
            pool = self._updates(self._mock)
            found = self._rounds(pool, self._canary.update, seed)
            self._seen = list(zip(found.scores.tolist(), found.coins.tolist(), strict=True))
            if canife.compared:
                other = random_canary(
                    self._model, updates, settings, length=canife.length, seed=seed
                )
                self._others = self._rounds(pool, other.update, seed)

    def _told(self, number: int, done: int) -> None:
        self._crafting(done, self._canife.iterations, f"a canary of round {number + 1}")

    def joining(self, number: int) -> list[Tensor]:
        """The canary's update, where it takes part in a round of the training."""
        if self._canife.frozen or self._canary is None:
            return []
        coins = np.random.default_rng(derive_seed(self._canife.canary_seed, "coin", str(number)))
        self._coin = bool(coins.random() < 0.5)
        return [self._canary.update] if self._coin else []

    def see(self, total: Tensor) -> None:
        """Read a round of the training, where the canary may be in it."""
        if not self._canife.frozen and self._canary is not None:
            self._seen.append((audit_update(total, self._canary.update), self._coin))

    def finished(self, number: int, losses: Sequence[float]) -> Iterator[CanifeRound]:
        """What was seen since the canary was made, if there was one."""
        if self._canary is None:
            return
        settings, steps = self._settings, number - self._begun
        scores = np.array([score for score, _ in self._seen])
        coins = np.array([coin for _, coin in self._seen], dtype=bool)
        mu, perfect = self._mu(scores, coins), self._mu(coins.astype(float), coins)
        self.history += _stretch(mu, settings.client_rate, steps)
        self.perfect += _stretch(perfect, settings.client_rate, steps)
        others, delta = self._others, settings.delta
        claimed: float | None = None
        so_far: float | None = None
        of_random: float | None = None
        if others is not None:
            of_random = epsilon_of_mu(mu=self._mu(others.scores, others.coins), delta=delta)
        if noise := settings.noise_multiplier:
            claimed = epsilon_of_mu(mu=1 / noise, delta=delta)
            so_far = epsilon_spent([(noise, settings.client_rate, number)], delta=delta).epsilon
        two_sides = 0 < coins.sum() < coins.size
        point = canife_point(scores[coins], scores[~coins], delta=delta) if two_sides else 0.0
        yield CanifeRound(
            round=self._begun + 1,
            loss=losses[self._begun],
            health=self._canary.health,
            norm=self._canary.norm,
            scores=tuple(scores.tolist()),
            coins=tuple(coins.tolist()),
            noise=RoundScores(scores=scores, coins=coins).noise,
            point=point,
            mu=mu,
            epsilon_round=epsilon_of_mu(mu=mu, delta=delta),
            attainable_round=epsilon_of_mu(mu=perfect, delta=delta),
            noise_at_most=1 / mu if mu > 0 else None,
            epsilon_so_far=epsilon_at_least(self.history, delta=delta),
            claimed_round=claimed,
            claimed_so_far=so_far,
            random_noise=None if others is None else others.noise,
            random_epsilon_round=of_random,
        )
        self._canary = None

    def _updates(self, pool: Sequence[Any]) -> Tensor:
        clip = self._settings.clip
        return torch.stack(
            [clipped(local_update(self._model, rows, self._settings), clip) for rows in pool]
        )

    def _rounds(self, pool: Tensor, canary: Tensor, seed: int) -> RoundScores:
        return mock_rounds(pool, canary, self._settings, rounds=self._canife.mock_rounds, seed=seed)

    def _mu(self, scores: NDArray[np.float64], coins: NDArray[np.bool_]) -> float:
        return _round_mu(scores, coins, self._settings, self._canife)


def _round_mu(
    scores: NDArray[np.float64],
    coins: NDArray[np.bool_],
    settings: FederatedSettings,
    canife: CanifeSettings,
) -> float:
    """The bound on the mu of a round at its share of the significance; 0 of one kind alone."""
    if not 0 < coins.sum() < coins.size:
        return 0.0
    # Bonferroni over attacked rounds.
    level = canife.significance / -(-settings.rounds // canife.every)
    if not canife.frozen:  # rounds of a training under way drift, and ranks may not
        return step_guesses_epsilon(scores, coins, significance=level, delta=settings.delta).mu
    inside, outside = scores[coins], scores[~coins]
    return gaussian_dp_epsilon(inside, outside, significance=level, delta=settings.delta).mu


def _warn_of_too_few(settings: FederatedSettings, canife: CanifeSettings) -> None:
    """Say beforehand that no canary, however well it is told, could refute the claim."""
    coins = np.arange(canife.mock_rounds if canife.frozen else canife.every) % 2 == 0
    mu = _round_mu(coins.astype(float), coins, settings, canife)
    if settings.noise_multiplier and mu * settings.noise_multiplier <= 1:
        room = f"a noise multiplier of {1 / mu:.3g}" if mu else "any noise"
        _LOG.warning(
            "the claim cannot be refuted: canaries that are told in each of their %d rounds leave "
            "room for %s, and %g is claimed; play more mock rounds (mock_rounds=...), or attack "
            "fewer rounds (every=...)",
            coins.size,
            room,
            settings.noise_multiplier,
        )


def _stretch(mu: float, rate: float, steps: int) -> list[tuple[float, float, int]]:
    """Rounds with the noise that an attack left room for; none where that is any."""
    return [(1 / mu, rate, steps)] if mu > 0 else []


def _loss(model: Any, clients: Sequence[Any]) -> float:
    """Mean over clients, nats a token."""
    with torch.no_grad():
        each = [float(mean_loss(model, torch.as_tensor(rows))) for rows in clients]
    return float(np.mean(each))
