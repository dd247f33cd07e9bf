"""Rounds of federated training: updates by plain loops, clipping, coins, noise, what is no fit."""

from typing import Any

import numpy as np
import pytest
import torch
from federated.small_clients import CLIENTS, LENGTH, model

from lmexposure.errors import CorpusError, NumericalError, SettingsError
from lmexposure.federated import FederatedSettings, clients_of, clipped, local_update, noisy_sum
from lmexposure.models.federated_rounds import (
    apply_round,
    generator_of,
    taking_part,
    trained_weights,
)


def flat(weights: list[Any]) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in weights])


@pytest.mark.parametrize(("epochs", "batch"), [(1, None), (2, 1), (3, 2)])
def test_an_update_is_that_of_an_ordinary_optimizer(epochs: int, batch: int | None) -> None:
    settings = FederatedSettings(local_epochs=epochs, local_batch=batch, client_learning_rate=0.3)
    rows, own = CLIENTS["client 3"], model()
    before = flat(trained_weights(own))
    found = local_update(own, rows, settings)
    assert torch.equal(flat(trained_weights(own)), before)
    plain = torch.optim.SGD(own.parameters(), lr=0.3)
    for _ in range(epochs):
        for part in torch.from_numpy(rows).split(batch or len(rows)):  # type: ignore[no-untyped-call]
            plain.zero_grad()
            own(input_ids=part, labels=part).loss.backward()
            plain.step()
    assert torch.allclose(found, before - flat(trained_weights(own)), atol=1e-6)


def test_a_client_is_clipped_as_a_whole() -> None:
    update = torch.tensor([3.0, 4.0])
    assert torch.allclose(clipped(update, 1.0), update / 5)
    assert torch.equal(clipped(update, 10.0), update)
    assert torch.equal(clipped(torch.zeros(2), 1.0), torch.zeros(2))


def test_the_noise_of_a_sum_is_that_of_the_claim() -> None:
    settings = FederatedSettings(noise_multiplier=0.5, clip=2.0)
    nothing = torch.zeros(20_000)
    found = noisy_sum([nothing, nothing + 1], settings, generator_of(settings, "test")) - 1
    assert abs(float(found.std()) - 1.0) < 5 / np.sqrt(2 * 20_000)
    without = FederatedSettings(noise_multiplier=0.0)
    assert torch.equal(noisy_sum([nothing + 1], without, generator_of(without, "")), nothing + 1)


def test_a_round_takes_the_mean_update_off_the_weights() -> None:
    own = model()
    before = flat(trained_weights(own))
    settings = FederatedSettings(client_rate=0.25, server_learning_rate=2.0)
    apply_round(own, torch.ones(before.numel()), 8, settings)
    assert torch.allclose(flat(trained_weights(own)), before - 2.0 / (0.25 * 8), atol=1e-6)


def test_each_client_has_a_coin_of_its_own() -> None:
    names = [str(number) for number in range(200)]
    settings = FederatedSettings(client_rate=0.3)
    rounds = [taking_part(names, settings, str(number)) for number in range(200)]
    assert abs(sum(map(len, rounds)) / 40_000 - 0.3) < 5 * np.sqrt(0.21 / 40_000)
    assert len({len(names) for names in rounds}) > 10
    assert rounds[3] == taking_part(names, settings, "3")
    assert taking_part(names, FederatedSettings(client_rate=1.0), "0") == names


def test_clients_are_cut_into_rows() -> None:
    found = clients_of({"a": list(range(7)), "b": [1, 2, 3], "c": [1]}, length=3)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": [[1, 2, 3]],
    }
    with pytest.raises(CorpusError, match="1 of 2 clients have a row of 3 tokens"):
        clients_of({"a": [1, 2, 3], "b": []}, length=3)
    with pytest.raises(SettingsError, match="length"):
        clients_of({"a": [1, 2, 3]}, length=1)
    assert CLIENTS["client 1"].shape[1] == LENGTH


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clip": "adaptive"}, "follows the updates"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"clip": 1e-320}, "clip=1e-320 is too small to calculate with; give"),
        ({"noise_multiplier": 1e-320}, "noise_multiplier=1e-320 is too small to calculate with"),
        ({"client_rate": 0.0}, "client_rate"),
        ({"client_rate": 1.1}, "client_rate"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"rounds": 0}, "rounds"),
        ({"local_epochs": 0}, "local_epochs"),
        ({"local_batch": 0}, "local_batch"),
        ({"client_learning_rate": 0.0}, "client_learning_rate"),
        ({"delta": 1.0}, "delta"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_out_of_range_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        FederatedSettings(**given)


def test_an_update_that_is_not_finite_is_refused_and_undone() -> None:
    own = model()
    before = flat(trained_weights(own))
    wild = FederatedSettings(client_learning_rate=1e39)
    with pytest.raises(NumericalError, match="client_learning_rate"):
        local_update(own, CLIENTS["client 1"], wild)
    assert torch.equal(flat(trained_weights(own)), before)
