"""Loops and steps that let documents past the noise: faults that two steps' second moments hide."""

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.dp_trainings import Training, loss_of_documents, one_turn, training_of

import lmexposure as lx

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
Planted = tuple[Training, Any]


def noise_by(draw: Callable[[torch.Tensor, int], torch.Tensor]) -> Planted:
    """Noise of the claimed size 1 by a function of the sum and the number of the step."""
    training, step = training_of("lora"), [0]

    def add() -> None:
        step[0] += 1
        for p in training.optimizer.params:
            p.grad = (p.summed_grad + draw(p.summed_grad, step[0])).view_as(p)
            p.summed_grad._processed = True

    training.optimizer.add_noise = add
    return training, None


def halves(p: torch.Tensor, step: int) -> torch.Tensor:
    noise = torch.randn(p.shape)
    middle = p.shape[-1] // 2
    noise[..., middle : 2 * middle] = noise[..., :middle]
    return noise


def periodic(p: torch.Tensor, step: int) -> torch.Tensor:
    return torch.randn(p.shape, generator=torch.Generator().manual_seed(step % 10))


def coin(p: torch.Tensor, step: int) -> torch.Tensor:
    return torch.randn(p.shape).sign()


def uniform(p: torch.Tensor, step: int) -> torch.Tensor:
    return (torch.rand(p.shape) - 0.5) * 12**0.5


def fading(p: torch.Tensor, step: int) -> torch.Tensor:
    return torch.randn(p.shape) * (1.0 if step <= 10 else 0.1)


def clipped(over: Callable[[int, float], bool]) -> Planted:
    """Documents unclipped where it is so by the number of the step and the norm."""
    training, step = training_of("lora"), [0]

    def clip(self: Any) -> None:
        step[0] += 1
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in self.params]).norm(dim=0)
        factors = [1.0 if over(step[0], n) else min(1.0, 1 / max(n, 1e-6)) for n in norms.tolist()]
        for p in self.params:
            p.summed_grad = torch.einsum("i,i...", torch.tensor(factors), p.grad_sample)

    training.optimizer.clip_and_accumulate = types.MethodType(clip, training.optimizer)
    return training, None


def told_every_second_step() -> Planted:
    training, step = training_of("lora"), [0]
    tell = training.engine.accountant.get_optimizer_hook_fn(sample_rate=1 / 12)

    def hook(optimizer: Any) -> None:
        step[0] += 1
        if step[0] % 2:
            tell(optimizer)

    training.optimizer.attach_step_hook(hook)
    return training, None


def added_behind_the_noise() -> Planted:
    training = training_of("lora")
    inner = training.optimizer.original_optimizer
    move = inner.step

    def step(*arguments: Any, **named: Any) -> Any:
        for p in training.optimizer.params:
            p.grad = p.grad + 0.01 * p.summed_grad.view_as(p)
        return move(*arguments, **named)

    inner.step = step
    return training, None


def in_the_loop(change: Callable[[Training, Any, torch.Tensor], None]) -> Planted:
    """A loop in which something is done between backward pass and step."""
    training = training_of("lora")

    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        if not len(batch["input_ids"]):
            one_turn(training)(batch)
            return
        loss = loss_of_documents(training.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        change(training, batch, loss.detach())
        training.optimizer.step()

    return training, turn


def plain_update(training: Training, batch: Any, loss: torch.Tensor) -> None:
    with torch.no_grad():
        for p in training.optimizer.params:
            p -= 1e-3 * p.grad


def rate_by_loss(training: Training, batch: Any, loss: torch.Tensor) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.1 * float(loss)


def rate_by_size(training: Training, batch: Any, loss: torch.Tensor) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.8 / len(batch["input_ids"])


def divided_by_size(training: Training, batch: Any, loss: torch.Tensor) -> None:
    training.optimizer.expected_batch_size = len(batch["input_ids"])


def counting_buffer() -> Planted:
    training = training_of("lora")
    training.bare.register_buffer("seen", torch.zeros(50))

    def count(module: Any, arguments: Any, named: Any) -> None:
        module.seen = module.seen + torch.bincount(named["input_ids"].flatten(), minlength=50)

    training.bare.register_forward_pre_hook(count, with_kwargs=True)
    return training, None


def checked(planted: Planted) -> Any:
    training, turn = planted
    return lx.dp_check(
        *training.given(), loss=loss_of_documents, step=turn, accountant=training.engine
    )


@pytest.mark.parametrize(
    ("plant", "name", "message"),
    [
        (lambda: noise_by(halves), "noise", "coordinates share their noise"),
        (lambda: noise_by(periodic), "noise", "two steps have the same noise"),
        (lambda: noise_by(coin), "noise", "it is not normal"),
        (lambda: noise_by(uniform), "noise", "it is not normal"),
        (lambda: noise_by(fading), "noise", "of 24 it is 0.1"),
        (lambda: clipped(lambda step, norm: norm > 100), "clipping", "documents are not clipped"),
        (lambda: clipped(lambda step, norm: step > 10), "clipping", "documents are not clipped"),
        (told_every_second_step, "accountant", "was told of 12 steps where 24 were taken"),
        (added_behind_the_noise, "update", "documents get past the noise into"),
        (lambda: in_the_loop(plain_update), "update", "documents get past the noise into"),
        (lambda: in_the_loop(rate_by_loss), "update", "documents get past the noise into"),
        (lambda: in_the_loop(rate_by_size), "update", "documents get past the noise into"),
        (lambda: in_the_loop(divided_by_size), "update", "is divided by 4 in one step and by 8"),
        (counting_buffer, "update", "past the noise into the buffer seen"),
    ],
)
def test_a_fault_is_found(plant: Callable[[], Planted], name: str, message: str) -> None:
    found = checked(plant())
    said = {finding.name: finding.message for finding in found.failed}
    assert name in said, str(found)
    assert message in said[name], said[name]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_right_loops_pass(optimizer: Any) -> None:
    training = training_of("gpt2", optimizer=optimizer, lr=1e-3)
    found = checked((training, one_turn(training)))
    assert found.passed, str(found)


def test_a_schedule_within_the_loop_is_not_seen() -> None:
    steps = [0]

    def schedule(training: Training, batch: Any, loss: torch.Tensor) -> None:
        steps[0] += 1
        training.optimizer.param_groups[0]["lr"] = 0.1 / steps[0]

    found = checked(in_the_loop(schedule))
    assert [finding.name for finding in found.not_seen] == ["update"], str(found)
    assert not found.failed
