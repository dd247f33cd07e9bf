"""Federated trainings by plain loops, and what crafted canaries show of them."""

import math
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from known import known

import lmexposure as lx
from lmexposure.errors import CorpusError, InputError, ModelError, NumericalError, SettingsError
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
    noisy_sum,
    random_canary,
)
from lmexposure.federated.canife import _Ahead
from lmexposure.models import LstmSizes, new_model
from lmexposure.models.dp_accounting import epsilon_spent
from lmexposure.models.federated_rounds import (
    apply_round,
    generator_of,
    taking_part,
    trained_weights,
)
from lmexposure.statistics import epsilon_of_mu, sampled_epsilon

LENGTH, VOCABULARY = 12, 20
_DRAWS = np.random.default_rng(0)
CLIENTS = {
    f"client {number}": _DRAWS.integers(3, 9, size=(3, LENGTH)).cumsum(1) % VOCABULARY
    for number in range(1, 13)
}


@cache
def _model() -> Any:
    letters = ["abcdefghijklmnopqrstuvwxyz"]
    sizes = LstmSizes(units=8, embedding=8, layers=2)
    return new_model("lstm", letters, seed=1, separator="\n", lstm=sizes).model.train()


def model() -> Any:
    """Untrained, always with the same weights."""
    return deepcopy(_model())


SETTINGS = FederatedSettings(client_learning_rate=2.0, clip=0.5, client_rate=0.5, rounds=3)
QUICK = CanifeSettings(design_clients=4, length=8, iterations=60, mock_rounds=60, every=2)


@pytest.fixture(scope="module")
def pool() -> torch.Tensor:
    own = model()
    return torch.stack([clipped(local_update(own, r, SETTINGS), 0.5) for r in CLIENTS.values()])


@pytest.fixture(scope="module")
def crafted(pool: torch.Tensor) -> CraftedCanary:
    return design_canary(model(), pool[:6], SETTINGS, length=8, iterations=150, seed=3)


def shared(canary: torch.Tensor, pool: torch.Tensor) -> float:
    unit = canary / canary.norm()
    return float(((pool @ unit) ** 2).mean())


def test_a_crafted_update_has_less_in_common_with_clients(
    crafted: CraftedCanary, pool: torch.Tensor
) -> None:
    usual = [
        shared(random_canary(model(), pool[:6], SETTINGS, length=8, seed=seed).update, pool[:6])
        for seed in range(20)
    ]
    assert shared(crafted.update, pool[:6]) < 0.2 * np.mean(usual)
    assert shared(crafted.update, pool[6:]) < np.mean(usual)  # of clients it was not made of
    assert crafted.health > 0.8
    assert crafted.course[-1] < 0.5 * crafted.course[0]


def test_its_update_is_that_of_a_client_who_holds_it(crafted: CraftedCanary) -> None:
    update = local_update(model(), crafted.tokens[None], SETTINGS)
    assert torch.equal(crafted.update, clipped(update, SETTINGS.clip))
    assert crafted.norm == pytest.approx(float(update.norm()))
    assert crafted.tokens.shape == (8,)


@pytest.mark.slow
def test_a_seed_decides_it(pool: torch.Tensor) -> None:
    made = [
        design_canary(model(), pool[:4], SETTINGS, length=5, iterations=5, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(made[0].tokens, made[1].tokens)
    assert not np.array_equal(made[0].tokens, made[2].tokens)


def test_scores_are_one_with_it_and_nothing_without(
    crafted: CraftedCanary, pool: torch.Tensor
) -> None:
    still = replace(SETTINGS, noise_multiplier=0.0)
    found = mock_rounds(pool[6:], crafted.update, still, rounds=60)
    assert known(found.noise) < 0.25  # what clients leave of it; six of them, of rows alike
    assert abs((found.scores - found.coins).mean()) < 0.3
    noisy = mock_rounds(pool[6:], crafted.update, replace(still, noise_multiplier=0.8), rounds=400)
    length = float(crafted.update.norm()) / SETTINGS.clip
    assert noisy.noise == pytest.approx(math.hypot(0.8 / length, known(found.noise)), rel=0.15)


def test_an_update_of_any_form_is_read() -> None:
    canary = [torch.tensor([[1.0, 0.0]]), torch.tensor([2.0])]
    assert lx.audit_update([np.array([[3.0, 9.0]]), np.array([1.0])], canary) == 1.0
    assert lx.audit_update(torch.tensor([3.0, 9.0, 1.0]), [1.0, 0.0, 2.0]) == 1.0
    half = [part.bfloat16() for part in canary]
    assert lx.audit_update(half, canary) == lx.audit_update(half, half) == 1.0
    assert lx.audit_update(torch.tensor([3.0, 9.0, 1.0], dtype=torch.bfloat16), canary) == 1.0


@pytest.mark.parametrize(
    ("update", "canary", "message"),
    [
        ([1.0, math.nan], [1.0, 0.0], "the update has 1 numbers that are not finite; look for"),
        ([1.0, 2.0], [math.inf, 0.0], "the canary has 1 numbers that are not finite"),
        ({"w": torch.ones(2)}, [1.0, 0.0], "the update is a dict; .* a state_dict holds the weigh"),
        (torch.nn.Linear(1, 2).state_dict(), [1.0, 0.0, 0.0], "the update is a OrderedDict; give"),
        (["a", "b"], [1.0, 0.0], r"the update holds something else than numbers \(ValueError\)"),
        (
            [np.ones((2, 3))],
            [np.ones((3, 2))],
            r"6 numbers in shapes \(2, 3\), and the canary 6 in \(3, 2\); give both of the same",
        ),
        ([1e300, 0.0], [1e-300, 0.0], "are of scales too far apart for a score; give both in the"),
        ([1.0, 0.0], [5e-324, 0.0], "are of scales too far apart for a score"),
        ([1.0, 2.0], [1.0, 0.0, 2.0], r"2 numbers in shapes \(2,\), and the canary 3"),
        ([1.0, 2.0], [0.0, 0.0], "is 0 in all weights"),
        ([3.0, 1.0], [6.0, 8.0], "is 10 long, and the clip is 1; give what its client se"),
    ],
)
def test_what_is_no_update_is_refused(update: Any, canary: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lx.audit_update(update, canary, clip=1.0 if canary == [6.0, 8.0] else None)


def test_no_scale_of_numbers_is_lost() -> None:
    assert lx.audit_update([3.0, 1.0], [0.6, 0.8], clip=1.0) == pytest.approx(2.6)
    for scale in (1e-200, 1e-30, 1e200):  # whose squares are 0 or infinite
        assert lx.audit_update([3 * scale, scale], [scale, 0.0]) == pytest.approx(3.0)


def test_the_score_is_the_naive_one() -> None:
    for update, canary in np.random.default_rng(0).normal(size=(50, 2, 40)):
        naive = sum(a * b for a, b in zip(update, canary, strict=True)) / sum(canary**2)
        assert lx.audit_update(update, canary) == pytest.approx(naive)


@pytest.mark.slow
def test_a_training_is_audited_round_by_round() -> None:
    seen: list[tuple[str, int]] = []
    settings = replace(SETTINGS, noise_multiplier=0.7)
    audit = federated_training(
        model(), CLIENTS, settings, QUICK, progress=lambda what, done, *_: seen.append((what, done))
    )
    told = [done for what, done in seen if what == "rounds"]
    assert told == [0, 0, 1, 2, 2, 3]  # before an attack, and behind it
    crafted = [done for what, done in seen if what == "crafting"]
    assert crafted == 2 * list(range(QUICK.iterations + 1))
    assert audit.clients == len(CLIENTS) - 8
    assert len(audit.losses) == 4
    first, second = audit.rounds
    assert (first.round, second.round) == (1, 3)
    for row, rounds in ((first, 2), (second, 3)):
        history = [(0.7, 0.5, rounds)]
        assert row.claimed_so_far == epsilon_spent(history, delta=1e-5).epsilon
        assert row.claimed_round == epsilon_of_mu(mu=1 / 0.7, delta=1e-5)
        assert row.epsilon_round == epsilon_of_mu(mu=row.mu, delta=1e-5)
        assert 0 < row.mu < 1 / 0.7
        assert row.noise_at_most == 1 / row.mu
        assert row.epsilon_so_far < row.claimed_so_far
        assert row.epsilon_so_far >= sampled_epsilon(mu=row.mu, rate=0.5, delta=1e-5)
        assert row.epsilon_round < row.attainable_round
        assert row.random_noise is not None
        assert len(row.scores) == len(row.coins) == QUICK.mock_rounds
        assert row.point > 0
    assert audit.attainable > second.epsilon_so_far > first.epsilon_so_far
    assert not audit.refuted


@pytest.mark.slow
def test_half_of_the_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmexposure.models import federated_rounds as rounds
    from lmexposure.models import noisy_sum

    def less(
        updates: list[torch.Tensor], settings: FederatedSettings, noise: torch.Generator
    ) -> torch.Tensor:
        half = replace(settings, noise_multiplier=settings.noise_multiplier / 2)
        return noisy_sum(updates, half, noise)

    monkeypatch.setattr(rounds, "noisy_sum", less)
    settings = replace(SETTINGS, rounds=1, noise_multiplier=1.0, client_rate=0.2)
    canife = replace(QUICK, mock_rounds=600, compared=False, iterations=120)
    audit = federated_training(model(), CLIENTS, settings, canife)
    assert known(audit.rounds[0].noise) < 0.75
    assert audit.refuted


@pytest.mark.slow
def test_without_frozen_rounds_the_training_itself_is_read() -> None:
    settings = replace(SETTINGS, rounds=12, noise_multiplier=0.3)
    audit = federated_training(
        model(), CLIENTS, settings, replace(QUICK, frozen=False, every=6, iterations=40)
    )
    assert [row.round for row in audit.rounds] == [1, 7]
    assert [len(row.scores) for row in audit.rounds] == [6, 6]
    for row in audit.rounds:
        assert row.random_noise is None
        rest = np.array(row.scores) - row.coins
        assert np.abs(rest).max() < 3  # noise of .3, and the clients


@pytest.mark.slow
def test_a_training_without_privacy_is_watched() -> None:
    audit = federated_training(model(), CLIENTS, replace(SETTINGS, noise_multiplier=0.0), QUICK)
    row = audit.rounds[0]
    assert row.claimed_round is row.claimed_so_far is None
    assert known(row.noise) < 0.5
    assert row.mu > 1
    assert row.epsilon_so_far >= sampled_epsilon(mu=row.mu, rate=0.5, delta=1e-5) > 0
    assert not audit.refuted


@pytest.mark.slow
def test_a_perfect_canary_of_few_mock_rounds_shows_nothing() -> None:
    """Of ten rounds that share the significance, each with a mock round too few."""
    settings = replace(SETTINGS, rounds=2)
    few = replace(QUICK, every=1, mock_rounds=6, significance=0.01, iterations=5, compared=False)
    audit = federated_training(model(), CLIENTS, settings, few)
    assert audit.attainable == 0.0
    assert [row.attainable_round for row in audit.rounds] == [0.0, 0.0]


def test_what_is_no_fit_is_refused(pool: torch.Tensor) -> None:
    with pytest.raises(CorpusError, match="12 clients, of which 40"):
        federated_training(model(), CLIENTS, SETTINGS, replace(QUICK, design_clients=20))
    with pytest.raises(SettingsError, match=f"length=30.*the {LENGTH} of a row"):
        federated_training(model(), CLIENTS, SETTINGS, replace(QUICK, length=30))
    with pytest.raises(ModelError, match="crafted on the LSTM"):
        design_canary(torch.nn.Linear(2, 2), pool, SETTINGS)
    with pytest.raises(InputError, match=r"\(12, 3\)"):
        design_canary(model(), pool[:, :3], SETTINGS)
    wrong: dict[str, Any] = {"design_clients": 1, "every": 0, "length": 1, "significance": 0}
    for name, value in wrong.items():
        with pytest.raises(SettingsError, match=name):
            replace(QUICK, **{name: value})


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


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Told:
    """A watcher that keeps what it was told last."""

    seconds: float | None = None
    title = ""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take nothing."""

    def plan(self, title: str, phases: object, *, keeps: bool) -> None:
        self.title = title

    def expect(self, what: str, seconds: float) -> None:
        assert what == "rounds"
        self.seconds = seconds

    def end_asked(self) -> bool:
        return False


@pytest.mark.parametrize(("iterations", "update"), [(2_500, 0.02), (200, 0.5)])
@pytest.mark.parametrize("first", [0, 4])  # a training that goes on
def test_what_a_training_still_takes_is_known_from_its_first_canary_on(
    iterations: int, update: float, first: int
) -> None:
    """Within a factor of 1.5, by a fake clock."""
    settings = FederatedSettings(rounds=10, client_rate=0.5, noise_multiplier=1.0)
    attacks = CanifeSettings(every=4, design_clients=20, iterations=iterations)
    clock, told = _Clock(), _Told()
    ahead = _Ahead(told, settings, attacks, 100, clock)
    assert told.title == "training 10 rounds, 3 of them attacked"
    said: list[tuple[float, float | None]] = []

    def tell(what: str, done: int, total: int) -> None:
        ahead(what, done, total)
        said.append((clock.now, told.seconds))

    for number in range(first, 10):
        tell("rounds", number, 10)
        if number % 4 == 0:
            clock.now += 20 * update
            for done in range(iterations + 1):
                tell("crafting", done, iterations)
                clock.now += 3 * update * (done < iterations)
            clock.now += (328 + 20 + 60) * update  # texts, mock clients and their rounds
            tell("rounds", number, 10)
        clock.now += 58 * update  # a little more than its fifty clients
    tell("rounds", 10, 10)
    assert said[-1][1] == 0.0
    early = [left for now, left in said if now < said[0][0] + 5]
    assert None in early
    for now, left in said[:-1]:
        true = said[-1][0] - now
        if left is not None and true > 0.05 * said[-1][0]:
            assert true / 1.5 < left < 1.5 * true


@pytest.mark.parametrize(
    ("mock_rounds", "frozen", "said"), [(4, True, 1), (40, True, 0), (4, False, 1)]
)
def test_canaries_that_could_refute_nothing_are_said_to_be_too_few(
    caplog: pytest.LogCaptureFixture, mock_rounds: int, frozen: bool, said: int
) -> None:
    settings = replace(SETTINGS, noise_multiplier=0.7)
    canife = replace(QUICK, mock_rounds=mock_rounds, frozen=frozen)
    with pytest.raises(CorpusError):  # there it goes on
        federated_training(model(), {"a": CLIENTS[min(CLIENTS)]}, settings, canife)
    assert sum("the claim cannot be refuted" in line for line in caplog.messages) == said
    if said:
        assert "more mock rounds (mock_rounds=...)" in caplog.text
