"""Loops and steps that let documents past the noise: faults that two steps' second moments hide."""

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from models.dp_faults import FAULTS, all_to_the_bound, clipped_by, in_the_loop, noise_by
from models.dp_trainings import (
    BATCH,
    DOCUMENTS,
    LOOPS,
    Training,
    accumulating,
    backward,
    documents,
    loop_of,
    loss_of_documents,
    mostly_slow,
    one_turn,
    parts_of,
    training_of,
)
from torch.utils.data import DataLoader, WeightedRandomSampler

import lmexposure as lx
from lmexposure.errors import ModelError
from lmexposure.models import DpBatches

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
Planted = tuple[Training, dict[str, Any]]


def checked(planted: Planted) -> Any:
    training, more = planted
    more = {"loss": loss_of_documents, "accountant": training.engine, **more}
    return lx.dp_check(*training.given(), **more)


@pytest.mark.parametrize("name", mostly_slow(FAULTS))
def test_a_fault_is_found(name: str) -> None:
    """All but the one of which `not_covered` says that it is not looked for."""
    fault = FAULTS[name]
    found = checked(fault.plant())
    if not fault.where:
        assert found.passed, str(found)
        assert "documents that are in the corpus more than once" in found.not_covered
        return
    said = {finding.name: finding.message for finding in found.failed}
    assert fault.where in said, str(found)
    assert re.search(fault.words, said[fault.where]), said[fault.where]


def test_right_trainings_beside_the_faults_pass() -> None:
    for planted in (
        (training_of("tokens"), {}),
        (training_of("tied"), {}),
        clipped_by(all_to_the_bound)(),
    ):
        found = checked(planted)
        assert found.passed, str(found)


@pytest.mark.filterwarnings("ignore:In CPU autocast:UserWarning")  # of functorch in Opacus
@pytest.mark.parametrize("kind", mostly_slow(LOOPS))
def test_right_loops_pass(kind: str) -> None:
    """Twenty of a hundred that were tried."""
    training, more = loop_of(kind, list(LOOPS).index(kind))
    found = checked((training, more))
    assert found.passed, str(found)


@pytest.mark.parametrize("kind", ["Adafactor", "ASGD", "NAdam", "RMSprop"])
def test_other_optimizers_are_replayed(kind: str) -> None:
    training = training_of("tokens", optimizer=getattr(torch.optim, kind), lr=0.01)
    found = checked((training, {"step": one_turn(training)}))
    assert found.passed, str(found)


class Counting(torch.optim.SGD):
    """Keeps what it needs in attributes, and not in its state."""

    def __init__(self, weights: Any, lr: float) -> None:
        super().__init__(weights, lr=lr)
        self.steps, self.ahead = 0, [torch.zeros_like(p) for p in self.param_groups[0]["params"]]
        self.held = {"steps": torch.zeros(1)}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        self.held["steps"] = self.held["steps"] + 1
        for p, ahead in zip(self.param_groups[0]["params"], self.ahead, strict=True):
            ahead.mul_(0.9).add_(p.grad)
            p.data.sub_(ahead, alpha=0.1 / self.steps)


def test_an_optimizer_with_attributes_of_its_own_is_replayed_and_put_back() -> None:
    training = training_of("tokens", optimizer=Counting)
    inner, turn = training.optimizer.original_optimizer, one_turn(training)
    turn(training.loader.collate_fn(documents()[:3]))
    before = copy.deepcopy((inner.steps, inner.ahead, inner.held))
    found = checked((training, {"step": turn}))
    assert found.passed, str(found)
    assert str((inner.steps, inner.ahead, inner.held)) == str(before)


class Asking(torch.optim.SGD):
    """Takes more than gradients: the weights' names as the training has them."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=0.1 * p.scale)


_CLEAN: list[torch.Tensor] = []


class Remembering(torch.optim.SGD):
    """Takes clean sums from a list that is not its own, so that its replay does the same."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p, clean in zip(self.param_groups[0]["params"], _CLEAN, strict=True):
            p.grad.add_(clean, alpha=0.01)
        super().step()


def replayed_by_what_it_keeps() -> Planted:
    def keep(training: Training, batch: Any, loss: torch.Tensor) -> None:
        _CLEAN[:] = [p.grad_sample.sum(0) for p in training.optimizer.params]

    training, more = in_the_loop(keep, optimizer=Remembering)()
    _CLEAN[:] = [torch.zeros_like(p) for p in training.optimizer.params]
    return training, more


def moved_by(move: Callable[[Any, dict[str, Any]], torch.Tensor], **options: Any) -> Planted:
    """What the innermost optimizer does in place of its step, with a state of each weight."""
    training = training_of("tokens", optimizer=partial(torch.optim.SGD, **options))
    inner = training.optimizer.original_optimizer

    def step(*arguments: Any, **named: Any) -> None:
        with torch.no_grad():
            for p in training.optimizer.params:
                p -= 0.1 * move(p, inner.state[p])

    inner.step = step
    return training, {"step": one_turn(training)}


def momentum(gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    before = state.get("momentum_buffer", torch.zeros_like(gradient))
    state["momentum_buffer"] = gradient + 0.9 * before
    return state["momentum_buffer"]  # type: ignore[no-any-return]


def noise_of(p: Any) -> torch.Tensor:
    return p.grad - p.summed_grad.view_as(p) / BATCH  # type: ignore[no-any-return]


def noise_behind_momentum(p: Any, state: dict[str, Any]) -> torch.Tensor:
    return momentum(p.summed_grad.view_as(p) / BATCH, state) + noise_of(p)


def scaled_by_clean_squares(p: Any, state: dict[str, Any]) -> torch.Tensor:
    squares = momentum(p.summed_grad.view_as(p).square(), state)
    return p.grad / (squares.sqrt() + 1)  # type: ignore[no-any-return]


def divided_by_parts() -> Planted:
    training = training_of("tokens")
    return training, {"step": accumulating(training)}


def a_part_behind_the_noise() -> Planted:
    """Of a split batch only the first part is clipped and gets noise."""
    training = training_of("tokens")

    def turn(batch: Any) -> None:
        first, *rest = parts_of(batch)
        training.optimizer.zero_grad()
        backward(training, first)
        training.optimizer.pre_step()
        noisy = [p.grad.clone() for p in training.optimizer.params]
        for part in rest:
            training.optimizer.zero_grad()
            backward(training, part)
            for total, p in zip(noisy, training.optimizer.params, strict=True):
                total += p.grad_sample.sum(0) / BATCH
        for total, p in zip(noisy, training.optimizer.params, strict=True):
            p.grad = total
        training.optimizer.original_optimizer.step()

    return training, {"step": turn}


def added_in_the_loop() -> Planted:
    """Between noise and step, where the optimizer is given the sum of both."""
    training = training_of("tokens")

    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        backward(training, batch)
        training.optimizer.pre_step()
        for p in training.optimizer.params:
            p.grad += 0.001 * p.summed_grad.view_as(p)
        training.optimizer.original_optimizer.step()

    return training, {"step": turn}


def weighted() -> Planted:
    training = training_of("tokens")
    sampler = WeightedRandomSampler(torch.ones(DOCUMENTS).tolist(), DOCUMENTS)
    training.loader = DataLoader(documents(), batch_size=BATCH, sampler=sampler)  # type: ignore[arg-type]
    return training, {}


def wrong_rate_of_a_sampler() -> Planted:
    training, rows = training_of("tokens"), documents()
    collate, generator = training.loader.collate_fn, np.random.default_rng(1)

    def batch(numbers: Sequence[int]) -> Any:
        return collate([rows[number] for number in numbers])

    def sample() -> Any:
        return np.flatnonzero(generator.random(DOCUMENTS) < 1.6 * BATCH / DOCUMENTS)

    training.loader = DpBatches(count=DOCUMENTS, batch=batch, sample=sample, generators=[generator])
    return training, {}


def frozen() -> Planted:
    return training_of(change=lambda m: m.transformer.h[0].mlp.requires_grad_(False)), {}


def adapters_left_behind() -> Planted:
    training = training_of("lora")
    training.model = training_of("lora", seed=1).model
    return training, {}


def accumulation_by_accelerate() -> Planted:
    training = training_of("tokens")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    training.model, training.optimizer, training.loader = accelerator.prepare(*training.given())
    return training, {}


def optimizer_with(architecture: str, **changes: Any) -> Training:
    training = training_of(architecture)
    vars(training.optimizer).update(changes)
    return training


def accumulation_allowed() -> Planted:
    training = training_of("tokens")
    training.model.allow_grad_accumulation()
    return training, {}


def accountant_not_told() -> Planted:
    training = optimizer_with("lora", step_hook=lambda optimizer: None)
    return training, {"sample_rate": BATCH / DOCUMENTS}


def loss_of_the_sum(model: Any, batch: Any) -> torch.Tensor:
    return loss_of_documents(model, batch) * len(batch["input_ids"])


@pytest.mark.parametrize(
    ("plant", "messages"),
    [
        (
            lambda: moved_by(noise_behind_momentum, momentum=0.9),
            {"update": "documents get past the noise into"},
        ),
        (lambda: moved_by(scaled_by_clean_squares), {"update": "documents get past the noise"}),
        (replayed_by_what_it_keeps, {"update": "documents get past the noise into"}),
        (divided_by_parts, {"update": "noisy sum is divided by 16 in one step and by 24 in ano"}),
        (a_part_behind_the_noise, {"accumulation": "a batch of 8 documents ended in steps of"}),
        (added_in_the_loop, {"update": "documents get past the noise into"}),
        (weighted, {"sampling": "batches hold a document twice and sizes are constant"}),
        (wrong_rate_of_a_sampler, {"rate": r"expected at rate 0.08\d+, p = .*rate is about 0.13"}),
        (
            noise_by(lambda step, place, shape: torch.zeros(shape)),
            {"noise": "standard deviation 0 in .* coo.*claimed 1 = 1 x 1: no noise is ad"},
        ),
        (
            lambda: (training_of("llama", noise_multiplier=0.5), {"noise_multiplier": 1.0}),
            {"accountant": "told noise_multiplier 0.5, claimed 1"},
        ),
        (
            lambda: (training_of("lstm", max_grad_norm=10.0), {"max_grad_norm": 1.0}),
            {"clipping": "documents are not clipped to 1, and the noise hides less"},
        ),
        (frozen, {"weights": r"4 of 28 weights .*: transformer.h.0.mlp.*bias are frozen \(requi"}),
        (
            adapters_left_behind,
            {
                "gradients": "no document has a gradient in the optimizer's weights",
                "weights": r"are not in the optimizer.*optimizer holds \d+ weights",
            },
        ),
        (
            lambda: (training_of("llama", lr=0.0), {}),
            {"weights": "21 of 21 .*and 17 more stay where they are; is their learn"},
        ),
        (
            lambda: (training_of(data=documents(positions=False)), {}),
            {
                "position ids": "transformer.wpe.weight has gradients of 1 documents in a batch of "
                "8: .*give position_ids of shape",
                "clipping": "since the optimizer's step fails: stack",
            },
        ),
        (
            lambda: (training_of("tokens"), {"processes": 2}),
            {"batch size": "each of 2 processes draws from all documents.* 8 are accoun"},
        ),
        (
            accumulation_allowed,
            {"accumulation": "several backward passes before a step without a w"},
        ),
        (accumulation_by_accelerate, {"accumulation": "accelerate gathers 2 batches for a step"}),
        (
            lambda: (optimizer_with("tokens", step_hook=None), {"accountant": None}),
            {"accountant": "no accountant is told of steps: attach one with optimizer"},
        ),
        (accountant_not_told, {"accountant": "the accountant was not told of a step: attach acc"}),
        (
            lambda: (training_of("tokens", noise_multiplier=0.0), {}),
            {"noise": "the claim is a noise multiplier of 0: no epsilon is"},
        ),
        (
            lambda: (optimizer_with("lora", pre_step=lambda closure=None: False), {}),
            {
                "clipping": "the optimizer took no step after a batch: it waits for mor",
                "empty batches": "no step is taken for it",
                "weights": "4 of 4 weights that are to learn did not move",
            },
        ),
        (
            lambda: (optimizer_with("lora", expected_batch_size=3 * BATCH), {}),
            {"batch size": "is divided by 24: expected_batch_size must be 8"},
        ),
        (
            lambda: (training_of("llama"), {"loss": None}),
            {"gradients": "document .* times its norm alone.* must not depend on th"},
        ),
        (
            lambda: (training_of("tokens"), {"loss": loss_of_the_sum}),
            {"gradients": "of 8 times its norm alone.*the loss is a sum over documents"},
        ),
        (
            lambda: (training_of(), {"loss": None}),
            {"empty batches": "probability 2.4e-04 a step, and it fails: .*grad_sample"},
        ),
        (
            lambda: (training_of("tokens", rand_on_empty=True), {}),
            {"empty batches": "its sum has norm .* and must be 0: what is read in"},
        ),
    ],
)
def test_faults_as_people_make_them_are_found(
    plant: Callable[[], Planted], messages: dict[str, str]
) -> None:
    found = checked(plant())
    assert not found.passed
    said = {finding.name: finding.message for finding in found.failed}
    for name, message in messages.items():
        assert re.search(message, said[name]), str(found)


def ends_early() -> Planted:
    turns = count()

    def end(training: Training, batch: Any, loss: torch.Tensor) -> None:
        if next(turns) == 12:
            raise StopIteration

    return in_the_loop(end)()


def decay(training: Training, batch: Any, loss: torch.Tensor) -> None:
    """It does not follow the batch, and the optimizer does not do it."""
    with torch.no_grad():
        for p in training.optimizer.params:
            p *= 0.99


def has_a_schedule() -> Planted:
    steps = count(1)

    def schedule(training: Training, batch: Any, loss: torch.Tensor) -> None:
        training.optimizer.param_groups[0]["lr"] = 0.1 / next(steps)

    return in_the_loop(schedule)()


def asks_for_names() -> Planted:
    training = training_of("tokens", optimizer=Asking)
    for p in training.optimizer.params:
        p.scale = 0.5
    return training, {"step": one_turn(training)}


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (ends_early, "a turn of the loop fails after the first twelve"),
        (in_the_loop(decay), "moved otherwise than SGD moves them"),
        (has_a_schedule, ""),
        (asks_for_names, "Asking cannot be replayed on the noisy gradie"),
    ],
)
def test_an_update_that_cannot_be_followed_is_not_seen(
    plant: Callable[[], Planted], message: str
) -> None:
    found = checked(plant())
    assert not found.failed, str(found)
    assert [finding.name for finding in found.not_seen] == ["update"]
    with pytest.raises(ModelError, match=rf"it is not known .* Not seen: update: .*{message}"):
        found.require()
