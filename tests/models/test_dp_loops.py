"""Loops and steps that let documents past the noise: faults that two steps' second moments hide."""

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from models.dp_faults import (
    FAULTS,
    all_to_the_bound,
    clipped_by,
    in_the_loop,
)
from models.dp_loops import LOOPS, accumulating, backward, loop_of, parts_of
from models.dp_trainings import (
    BATCH,
    Training,
    documents,
    loss_of_documents,
    one_turn,
    training_of,
)

import lmexposure as lx
from lmexposure.errors import ModelError

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
Planted = tuple[Training, dict[str, Any]]


def checked(planted: Planted) -> Any:
    training, more = planted
    more = {"loss": loss_of_documents, "accountant": training.engine, **more}
    return lx.dp_check(*training.given(), **more)


@pytest.mark.parametrize("name", FAULTS)
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
        clipped_by(all_to_the_bound),
    ):
        found = checked(planted)
        assert found.passed, str(found)


@pytest.mark.filterwarnings("ignore:In CPU autocast:UserWarning")  # of functorch in Opacus
@pytest.mark.parametrize("kind", LOOPS)
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


def test_an_optimizer_that_cannot_be_replayed_is_not_seen() -> None:
    training = training_of("tokens", optimizer=Asking)
    for p in training.optimizer.params:
        p.scale = 0.5
    found = checked((training, {"step": one_turn(training)}))
    assert not found.passed
    assert not found.failed
    with pytest.raises(
        ModelError,
        match=r"it is not known .* Not seen: update: Asking cannot be replayed on the noisy gradie",
    ):
        found.require()


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

    training = training_of("tokens", optimizer=Remembering)
    _CLEAN[:] = [torch.zeros_like(p) for p in training.optimizer.params]
    return in_the_loop(keep, training)


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


def decay_by_size(training: Training, batch: Any, loss: torch.Tensor) -> None:
    training.optimizer.param_groups[0]["weight_decay"] = 0.1 * len(batch["input_ids"])


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


def add_clean_sums(training: Training) -> None:
    for p in training.optimizer.params:
        p.grad += 0.001 * p.summed_grad.view_as(p)


def added_in_the_loop() -> Planted:
    """Between noise and step, where the optimizer is given the sum of both."""
    training = training_of("tokens")

    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        backward(training, batch)
        training.optimizer.pre_step()
        add_clean_sums(training)
        training.optimizer.original_optimizer.step()

    return training, {"step": turn}


def added_by_the_hook() -> Planted:
    training = training_of("tokens")
    tell = training.optimizer.step_hook

    def hook(optimizer: Any) -> None:
        tell(optimizer)
        add_clean_sums(training)

    training.optimizer.attach_step_hook(hook)
    return training, {"step": one_turn(training)}


@pytest.mark.parametrize(
    ("plant", "name", "message"),
    [
        (lambda: moved_by(noise_behind_momentum, momentum=0.9), "update", "get past the noise"),
        (lambda: moved_by(scaled_by_clean_squares), "update", "documents get past the noise into"),
        (replayed_by_what_it_keeps, "update", "documents get past the noise into"),
        (lambda: in_the_loop(decay_by_size), "update", "documents get past the noise into"),
        (divided_by_parts, "update", "the noisy sum is divided by 16 in one step and by 24 in ano"),
        (a_part_behind_the_noise, "accumulation", "a batch of 8 documents ended in steps of"),
        (added_in_the_loop, "update", "documents get past the noise into"),
        (added_by_the_hook, "update", "documents get past the noise into"),
    ],
)
def test_a_fault_of_an_optimizer_is_found(
    plant: Callable[[], Planted], name: str, message: str
) -> None:
    found = checked(plant())
    said = {finding.name: finding.message for finding in found.failed}
    assert name in said, str(found)
    assert message in said[name], said[name]


def test_a_loop_that_ends_before_batches_are_compared_is_not_seen() -> None:
    turns = [0]

    def end(training: Training, batch: Any, loss: torch.Tensor) -> None:
        turns[0] += 1
        if turns[0] > 12:
            raise StopIteration

    found = checked(in_the_loop(end))
    assert [f.name for f in found.not_seen] == ["update"], str(found)
    assert "a turn of the loop fails after the first twelve" in found.not_seen[0].message


def test_a_decay_of_the_loop_itself_is_not_seen() -> None:
    """It does not follow the batch, and the optimizer does not do it."""

    def decay(training: Training, batch: Any, loss: torch.Tensor) -> None:
        with torch.no_grad():
            for p in training.optimizer.params:
                p *= 0.99

    found = checked(in_the_loop(decay))
    assert not found.failed, str(found)
    assert "moved otherwise than SGD moves them" in found.not_seen[0].message


def test_a_schedule_within_the_loop_is_not_seen() -> None:
    steps = [0]

    def schedule(training: Training, batch: Any, loss: torch.Tensor) -> None:
        steps[0] += 1
        training.optimizer.param_groups[0]["lr"] = 0.1 / steps[0]

    found = checked(in_the_loop(schedule))
    assert [finding.name for finding in found.not_seen] == ["update"], str(found)
    assert not found.failed
