"""DP-SGD: gradients of units by those of each alone, clipping, noise, coins, what it refuses."""

import math
import sys
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hashes import sha256_tree
from known import known
from models.small_private import (
    ARCHITECTURES,
    PRIVATE,
    adapted,
    alone,
    interrupted_at,
    lstm,
    made,
    named,
    norm,
    rows_of,
    trained,
    units_of,
)
from scipy import stats
from torch import Tensor, nn

from lmexposure.errors import ModelError, NumericalError, SettingsError
from lmexposure.models import TrainingSettings, dp_sgd, load_model
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.studies import TrainingResult

pytestmark = pytest.mark.usefixtures("accounted_once")
BY_CHANCE = 1e-6  # how often a right generator would fail


def summed(method: DpSgd, units: list[int]) -> dict[str, Tensor]:
    """What a step adds noise to."""
    seen: list[Tensor] = []
    method._optimizer.attach_step_hook(
        lambda of: seen.extend(weight.summed_grad.detach().clone() for weight in of.params)
    )
    method.learn(units_of(*units), step=0, rate=0.0)
    return named(method, seen)


def by_a_plain_loop(model: Any, units: list[list[int]], clip: float) -> dict[str, Tensor]:
    """Of each unit its gradient, clipped as a whole, summed."""
    rows, total = rows_of(), dict[str, Tensor]()
    for unit in units:
        own = alone(model, unit, rows)
        scale = min(1.0, clip / (norm(own) + 1e-6))
        total = {name: total.get(name, torch.zeros(())) + scale * g for name, g in own.items()}
    return total


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """To 1e-4 of the largest norm among the weights."""
    assert found.keys() == expected.keys()
    scale = max(float(g.norm()) for g in expected.values())
    assert scale > 0
    for name, gradient in expected.items():
        assert float((found[name] - gradient).norm()) < 1e-4 * scale, name


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_in_a_padded_batch_are_those_of_each_document_alone(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is printed on the way: of Opacus' hooks torch would say much."""
    model, settings = adapted(name, tmp_path)
    plain, rows = deepcopy(model).train(), rows_of()
    method = made(model, replace(settings, batch_size=8))
    chosen = [0, 1, 2, 3, 47, 48]
    assert len(set(rows.predicted[chosen])) > 2
    capfd.readouterr()
    method._gradients(units_of(*chosen))
    together = named(method, [weight.grad_sample for weight in method._optimizer.params])
    for place, row in enumerate(chosen):
        expected = alone(plain, row, rows)
        found = {name: gradients[place] for name, gradients in together.items()}
        assert norm(found) == pytest.approx(norm(expected), rel=1e-4)
        assert_near(found, expected)
    method._optimizer.zero_grad()
    method.learn(units_of(*chosen), step=0, rate=0.01)
    assert (*capfd.readouterr(), caplog.records) == ("", "", [])


OWNERS: list[str | None] = [None if i % 7 == 0 else f"user {i % 11}" for i in range(64)]
OF_USERS = replace(PRIVATE, unit_field="user")


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_users_documents_are_clipped_together_as_by_a_plain_loop(batch: int) -> None:
    """Also where a user has more documents than go through the model together."""
    method = made(lstm().model, replace(OF_USERS, batch_size=batch), OWNERS)
    sizes = [len(rows) for rows in method._units]
    assert max(sizes) > 3
    chosen = [0, sizes.index(max(sizes)), len(sizes) - 1]
    expected = by_a_plain_loop(
        lstm().model.train(), [method._units[unit].tolist() for unit in chosen], PRIVATE.clip
    )
    assert_near(summed(method, chosen), expected)


def test_the_promise_is_of_users_and_says_how_much_the_largest_has() -> None:
    method = made(lstm().model, OF_USERS, OWNERS)
    sizes = [len(rows) for rows in method._units]
    assert sizes.count(1) >= 6  # who has no owner is alone
    assert sum(sizes) == len(rows_of()) > len(sizes)
    claim = method.claim(10)
    assert (claim.unit, claim.units, claim.largest_group) == ("user", len(sizes), max(sizes))
    assert (claim.sample_rate, claim.steps) == (8 / len(sizes), 10)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_without_noise_and_clipping_a_step_is_that_of_adam(name: str, tmp_path: Path) -> None:
    model, settings = adapted(name, tmp_path)
    twin = deepcopy(model).train()
    method = made(model, replace(settings, noise_multiplier=1e-15, clip=1e6, weight_decay=0.1))
    units = list(range(11))
    expected = by_a_plain_loop(twin, [[unit] for unit in units], 1e6)
    learned = method.learn(units_of(*units), step=0, rate=0.01)
    assert learned.tokens == int(rows_of().predicted[units].sum())
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0.1)
    assert PRIVATE.expected_batch == 8
    for key, gradient in expected.items():
        twin.get_parameter(key).grad = gradient / 8  # whatever the batch
    optimizer.step()
    after = method.model.state_dict()
    for key in expected:
        weight = twin.get_parameter(key)
        # Adam's first step is the gradient's sign: where that is rounding, the step is a guess.
        clear = expected[key].abs() > 1e-5
        assert torch.allclose(after[key][clear], weight[clear], rtol=1e-4, atol=2e-5), key


def weights_of(method: DpSgd) -> Tensor:
    return torch.cat([weight.flatten() for weight in method.model.state_dict().values()])


def test_noise_follows_the_key_and_empty_steps_are_taken() -> None:
    def stepped(seed: int | None) -> Tensor:
        method = made(lstm().model, replace(PRIVATE, noise_seed=seed))
        learned = method.learn(units_of(), step=0, rate=0.01)
        assert (learned.nats, learned.tokens) == (0.0, 0)
        return weights_of(method)

    same, again, other, *fresh = map(stepped, (3, 3, 4, None, None))
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert not torch.equal(*fresh)


def test_noise_is_gaussian_of_its_size_new_at_each_step_and_the_same_whoever_is_drawn() -> None:
    method = made(lstm().model)
    deviation = PRIVATE.clip * 0.8

    def noise(units: list[int], step: int) -> Tensor:
        seen: list[Tensor] = []

        def look(of: Any) -> None:
            seen.extend((w.grad * 8 - w.summed_grad.view_as(w)).flatten() for w in of.params)

        method._optimizer.attach_step_hook(look)
        method.learn(units_of(*units), step=step, rate=0.0)
        return torch.cat(seen).double() / deviation

    steps = [noise([], step) for step in range(12)]
    every = torch.cat(steps)
    n = len(every)
    of_chance = stats.chi2.cdf(float((every**2).sum()), n)
    assert BY_CHANCE < of_chance < 1 - BY_CHANCE
    assert stats.kstest(every.numpy(), "norm").pvalue > BY_CHANCE
    furthest = stats.norm.isf(BY_CHANCE)
    for first, second in pairwise(steps):
        assert abs(float((first * second).sum())) < 1.1 * furthest * math.sqrt(len(first))
    assert torch.allclose(noise([0, 1, 2, 3, 4, 5, 6], 5), steps[5], atol=1e-5)


def test_every_unit_is_drawn_at_the_rate_by_a_coin_of_its_own() -> None:
    method = made(lstm().model)
    n, rate = len(method._units), method.sample_rate
    assert rate == 8 / n
    steps = [numbers for epoch in range(200) for numbers in method.steps(epoch)]
    assert len(steps) == 200 * method.steps_per_epoch
    spread = len(steps) * rate * (1 - rate)
    counts = np.bincount(np.concatenate(steps), minlength=n)
    of_units = float(((counts - len(steps) * rate) ** 2).sum() / spread)
    sizes = np.array([len(numbers) for numbers in steps])
    of_steps = float(((sizes - n * rate) ** 2).sum() / (n * rate * (1 - rate)))
    for found, free in ((of_units, n), (of_steps, len(steps))):
        assert BY_CHANCE < stats.chi2.cdf(found, free) < 1 - BY_CHANCE
    assert all((np.diff(numbers) > 0).all() for numbers in steps)
    assert [list(a) for a in method.steps(3)] == [list(b) for b in method.steps(3)]


def test_what_is_not_finite_stops_before_the_weights_move() -> None:
    model = lstm().model
    nn.init.constant_(model.lm_head.bias, math.nan)
    method = made(model)
    before, generator = weights_of(method).clone(), torch.get_rng_state()
    with pytest.raises(NumericalError, match=r"loss of step 5 is nan \(learning rate 0\.1\); tra"):
        method.learn(units_of(*range(9)), step=4, rate=0.1)
    assert torch.equal(weights_of(method).nan_to_num(), before.nan_to_num())
    assert torch.equal(torch.get_rng_state(), generator)
    with pytest.raises(NumericalError, match=r"update of step 1 overflows \(learning rate 1e\+38"):
        made(lstm().model).learn(units_of(0), step=0, rate=1e38)


class _Counting(nn.Linear):
    """A layer with a buffer, of which Opacus cannot know what it takes from whom."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("seen", torch.zeros(()))


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (nn.BatchNorm1d(4), r"layers 1 \(BatchNorm1d\): what they do with a document depends on"),
        (nn.LSTM(4, 4), r"layers 1 \(LSTM\): .* train another model, or adapters .*lora=True"),
        (_Counting(), r"layers 1 \(_Counting\):"),
    ],
)
def test_layers_without_gradients_of_documents_are_named(layer: nn.Module, told: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(ModelError, match=rf"gradients of single documents cannot be had of {told}"):
        made(model)


def test_a_model_that_was_trained_is_an_ordinary_one(tmp_path: Path) -> None:
    """Also where a step was interrupted between its passes: the next training is as a first one."""
    model, settings = adapted("gpt2", tmp_path)
    fresh = summed(made(deepcopy(model), settings), [1, 2, 3])
    method = made(model, settings)
    method._rows.nats_of_each(method._model, units_of(1, 2, 3, 4, 5))
    method.close()
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in model.modules())
    assert_near(summed(made(model, settings), [1, 2, 3]), fresh)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.5}, r"delta=0\.5 is above 1 / 54, the number of units: .* at most 0\.0185"),
        ({"expected_batch": 55}, r"expected_batch=55 is more than the 54 units of the corpus"),
        (
            {"noise_multiplier": None, "epsilon": 1e-9, "delta": 1e-12, "expected_batch": 54},
            r"epsilon=1e-09 is not reached by 2 steps at delta=1e-12",
        ),
    ],
)
def test_what_the_corpus_cannot_give_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        made(lstm().model, replace(PRIVATE, **changes))


def test_the_noise_is_what_all_epochs_need_for_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def chosen(epsilon: float, **given: float) -> float:
        asked.append((epsilon, given))
        return 1.25

    monkeypatch.setattr(dp_sgd, "noise_for", chosen)
    given = replace(PRIVATE, noise_multiplier=None, epsilon=4.0)
    method = made(lstm().model, given)
    assert method.noise_multiplier == method._optimizer.noise_multiplier == 1.25
    made(lstm().model, replace(given, expected_batch=None))  # the sixteenth part
    assert asked == [
        (4.0, {"delta": 1e-3, "sample_rate": 8 / 54, "steps": 2 * 7}),
        (4.0, {"delta": 1e-3, "sample_rate": 4 / 54, "steps": 2 * 14}),
    ]
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(SettingsError, match="method='dp-sgd' takes one process, and there are 2"):
        made(lstm().model)


def test_a_missing_opacus_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opacus"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ModelError, match=r"^DP-SGD needs opacus; install it: pip install 'lmexposure\[dp\]'"
    ):
        made(lstm().model)


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_norms_of_all_units_are_those_of_each_alone(kind: str, tmp_path: Path) -> None:
    model, rows = adapted(kind, tmp_path)[0], rows_of()
    apart = deepcopy(model)
    expected = [norm(alone(apart, [i], rows)) / PRIVATE.clip for i in range(len(rows))]
    method = made(model, replace(PRIVATE, document_norms=True))
    assert method._unit_norms().numpy() == pytest.approx(np.array(expected), rel=1e-4)


def test_a_unit_that_is_always_clipped_has_the_claim_and_a_silent_one_nothing() -> None:
    settings = replace(PRIVATE, document_norms=True, expected_batch=len(rows_of()))
    method = made(lstm().model, settings)
    for epoch in range(2):
        for step, numbers in enumerate(method.steps(epoch), epoch * method.steps_per_epoch):
            method.learn(numbers, step=step, rate=0.0)
    loud, silent = torch.full((len(rows_of()),), 3.0), torch.zeros(len(rows_of()))
    claim = method.claim()
    for norms, epsilon in ((loud, claim.epsilon), (silent, 0.0)):
        assert len(method._norms) == 2
        method._norms = [norms, norms]
        found = known(method.document_privacy(claim))
        assert found.moments == 2
        assert found.epsilons == pytest.approx([epsilon] * len(rows_of()), rel=1e-6)


AVERAGED = replace(PRIVATE, weight_average=0.7, epochs=1)


def flat(model: Any) -> Tensor:
    """All weights that are trained, in float64."""
    learned = [w.detach() for w in model.parameters() if w.requires_grad]
    return torch.cat([w.flatten() for w in learned]).double().clone()


def naive(raw: list[Tensor], most: float) -> Tensor:
    """After the first step its weights; then a share of the average, and the rest of the new ones.

    As tf.train.ExponentialMovingAverage with num_updates, which De et al. 2022 have.
    """
    average = raw[0]
    for step, weights in enumerate(raw[1:], 1):
        share = min(most, (1 + step) / (10 + step))
        average = share * average + (1 - share) * weights
    return average


@pytest.mark.parametrize("name", ["lstm", "gpt2+lora"])
@pytest.mark.parametrize("most", [0.3, 0.999])
def test_it_is_a_running_average_of_the_weights_after_each_step(
    name: str, most: float, tmp_path: Path
) -> None:
    model, settings = adapted(name, tmp_path)
    method = made(model, replace(settings, weight_average=most))
    before = flat(method.model)
    with method.evaluated() as own:
        assert torch.equal(flat(own), before)
    raw = []
    for step in range(6):
        units = np.arange(step, step + 5 * (step != 2))  # one step without a unit
        method.learn(units, step=step, rate=0.05)
        raw.append(flat(method.model))
        with method.evaluated() as averaged:
            assert averaged is method.model
            assert torch.allclose(flat(averaged), naive(raw, most), atol=1e-6)
        assert torch.equal(flat(method.model), raw[-1])
    assert not torch.allclose(naive(raw, most), raw[-1], atol=1e-3)


def test_whatever_happens_in_an_evaluation_the_weights_come_back() -> None:
    method = made(lstm().model, AVERAGED)
    for step in range(2):
        method.learn(np.arange(4), step=step, rate=0.05)
    raw = flat(method.model)
    with pytest.raises(KeyboardInterrupt), method.evaluated():
        raise KeyboardInterrupt
    assert torch.equal(flat(method.model), raw)


@pytest.mark.slow
def test_a_training_keeps_the_average_and_goes_on_from_the_weights(tmp_path: Path) -> None:
    """Interrupted or not; the weights, the noise and the claim are those of one without it."""
    once = replace(AVERAGED, evaluate_every=10**6)  # at the end

    def followed(name: str, settings: TrainingSettings) -> tuple[TrainingResult, list[Tensor]]:
        loaded, weights = lstm(0.2), list[Tensor]()
        result = trained(
            tmp_path / name, loaded, lambda _: weights.append(flat(loaded.model)), settings
        )
        return result, weights

    whole, raw = followed("whole", once)
    plain, without = followed("plain", replace(once, weight_average=None))
    assert len(raw) == whole.steps == 7
    kept = flat(load_model(whole.model_path).model)
    assert torch.allclose(kept, naive(raw, 0.7), atol=1e-6)
    assert not torch.allclose(kept, raw[-1], atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(raw, without, strict=True))
    assert known(whole.claim) == plain.claim
    assert whole.validation_bits != plain.validation_bits
    again = partial(trained, settings=once)
    interrupted_at((1, 4), tmp_path / "out", again)
    resumed = again(tmp_path / "out")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert (resumed.claim, resumed.validation_bits) == (whole.claim, whole.validation_bits)
