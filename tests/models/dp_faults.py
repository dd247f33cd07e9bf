"""The 38 faults of DP-SGD trainings that an outside reader planted, on a small model of tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from models.dp_trainings import (
    BATCH,
    DOCUMENTS,
    Training,
    documents,
    loss_of_documents,
    one_turn,
    training_of,
)
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

Planted = tuple[Training, dict[str, Any]]
RATE = BATCH / DOCUMENTS


@dataclass(frozen=True)
class Fault:
    """What is planted, and the finding that is to fail with some words; "": none can see it."""

    plant: Callable[[], Planted]
    where: str
    words: str = ""


def planted(attribute: str, of: Callable[[Training], Callable[[], None]]) -> Callable[[], Planted]:
    """A training whose optimizer has something else in place of one of its methods."""

    def plant() -> Planted:
        training = training_of("tokens")
        setattr(training.optimizer, attribute, of(training))
        return training, {}

    return plant


def noise_by(draw: Callable[[int, int, torch.Size], Tensor]) -> Callable[[], Planted]:
    """Noise for a claim of 1, by a function of the step's number, the weight's, and its shape."""

    def of(training: Training) -> Callable[[], None]:
        steps = count(1)

        def add() -> None:
            step = next(steps)
            for place, p in enumerate(training.optimizer.params):
                p.grad = (p.summed_grad + draw(step, place, p.shape)).view_as(p)
                p.summed_grad._processed = True

        return add

    return planted("add_noise", of)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of_period(steps: int) -> Callable[[int, int, torch.Size], Tensor]:
    return lambda step, place, shape: torch.randn(
        shape, generator=seeded(99 * (step % steps) + place)
    )


def halves(step: int, place: int, shape: torch.Size) -> Tensor:
    noise = torch.randn(shape)
    noise[..., 8:16] = noise[..., :8]
    return noise


def clipped_by(clip: Callable[[int, list[Tensor]], list[Tensor]]) -> Callable[[], Planted]:
    """Sums by a function of the step's number and each weight's gradients of single documents."""

    def of(training: Training) -> Callable[[], None]:
        steps, weights = count(1), training.optimizer.params

        def put() -> None:
            sums = clip(next(steps), [p.grad_sample for p in weights])
            for p, total in zip(weights, sums, strict=True):
                p.summed_grad = total

        return put

    return planted("clip_and_accumulate", of)


def norms_of(gradients: Sequence[Tensor]) -> Tensor:
    """Of each document's gradient, shape (B,)."""
    norms: Tensor = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    return norms


def times(factors: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
    return [torch.einsum("i,i...", factors, g) for g in gradients]


def factors_of(norms: Tensor, bound: float = 1.0) -> Tensor:
    return (bound / (norms + 1e-6)).clamp(max=1.0)


def of_the_batch(step: int, gradients: list[Tensor]) -> list[Tensor]:
    sums = [g.sum(0) for g in gradients]
    norm = torch.stack([total.norm() for total in sums]).norm()
    return [total * min(1.0, len(gradients[0]) / max(float(norm), 1e-6)) for total in sums]


def of_each_weight(step: int, gradients: list[Tensor]) -> list[Tensor]:
    return [times(factors_of(norms_of([g])), [g])[0] for g in gradients]


def without_the_embedding(step: int, gradients: list[Tensor]) -> list[Tensor]:
    return times(factors_of(norms_of(gradients[1:])), gradients)


def ten_times_later(step: int, gradients: list[Tensor]) -> list[Tensor]:
    return times(factors_of(norms_of(gradients), 1.0 if step <= 10 else 10.0), gradients)


def only_below_100(step: int, gradients: list[Tensor]) -> list[Tensor]:
    norms = norms_of(gradients)
    return times(torch.where(norms > 100, 1.0, factors_of(norms)), gradients)


def all_to_the_bound(step: int, gradients: list[Tensor]) -> list[Tensor]:
    """No fault: nothing is above the bound."""
    return times(1 / (norms_of(gradients) + 1e-6), gradients)


class Batches(Sampler[list[int]]):
    """Twelve batches by a function that draws one."""

    def __init__(self, draw: Callable[[], Tensor]) -> None:
        self._draw = draw

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[list[int]]:
        return (self._draw().tolist() for _ in range(len(self)))


def sampled_by(of: Callable[[], Callable[[], Tensor]]) -> Callable[[], Planted]:
    """Batches by what draws one, made anew for each training."""

    def plant() -> Planted:
        training = training_of("tokens")
        training.loader = DataLoader(
            documents(),  # type: ignore[arg-type]
            batch_sampler=Batches(of()),
            collate_fn=training.loader.collate_fn,
        )
        return training, {}

    return plant


def coins(rate: float | Tensor = RATE) -> Tensor:
    return (torch.rand(DOCUMENTS) < rate).nonzero().flatten()


def some_twice_as_often() -> Tensor:
    rates = torch.full((DOCUMENTS,), RATE * DOCUMENTS / (DOCUMENTS + DOCUMENTS // 10))
    rates[: DOCUMENTS // 10] *= 2
    return coins(rates)


def sticky() -> Callable[[], Tensor]:
    """Each member of a batch stays for the next with probability a half."""
    held = [torch.rand(DOCUMENTS) < RATE]

    def draw() -> Tensor:
        fresh, stay = torch.rand(DOCUMENTS) < RATE, torch.rand(DOCUMENTS) < 0.5
        held[0] = torch.where(stay, held[0], fresh)
        return held[0].nonzero().flatten()

    return draw


def twice() -> Callable[[], Tensor]:
    waiting: list[Tensor] = []

    def draw() -> Tensor:
        if waiting:
            return waiting.pop()
        waiting.append(coins())
        return waiting[0]

    return draw


def half_the_rate_told() -> Planted:
    training = training_of("tokens")
    hook = training.engine.accountant.get_optimizer_hook_fn(sample_rate=RATE / 2)
    training.optimizer.attach_step_hook(hook)
    return training, {}


def every_second_step_told() -> Planted:
    training, steps = training_of("tokens"), count(1)
    tell = training.engine.accountant.get_optimizer_hook_fn(sample_rate=RATE)
    training.optimizer.attach_step_hook(lambda of: tell(of) if next(steps) % 2 else None)
    return training, {}


def in_the_loop(
    change: Callable[[Training, Any, Tensor], None], **options: Any
) -> Callable[[], Planted]:
    """A loop in which something is done between backward pass and step."""

    def plant() -> Planted:
        training = training_of("tokens", **options)

        def turn(batch: Any) -> None:
            training.optimizer.zero_grad()
            if not len(batch["input_ids"]):
                one_turn(training)(batch)
                return
            loss = loss_of_documents(training.model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            change(training, batch, loss.detach())
            training.optimizer.step()

        return training, {"step": turn}

    return plant


def plain_update(training: Training, batch: Any, loss: Tensor) -> None:
    with torch.no_grad():
        for p in training.optimizer.params:
            p -= 1e-3 * p.grad


def rate_by_loss(training: Training, batch: Any, loss: Tensor) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.1 * float(loss)


def rate_by_size(training: Training, batch: Any, loss: Tensor) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.8 / len(batch["input_ids"])


def divided_by_size(training: Training, batch: Any, loss: Tensor) -> None:
    training.optimizer.expected_batch_size = len(batch["input_ids"])


def divided(training: Training) -> Callable[[], None]:
    def scale() -> None:
        size = max(1, len(training.optimizer.params[0].grad_sample))
        for p in training.optimizer.params:
            p.grad /= size

    return scale


def two_batches_a_step() -> Planted:
    training, batches = training_of("tokens"), [0]
    training.model.allow_grad_accumulation()

    def turn(batch: Any) -> None:
        batches[0] += 1
        loss_of_documents(training.model, batch).backward()  # type: ignore[no-untyped-call]
        if batches[0] % 2 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()

    return training, {"step": turn}


def empty_batches_left_out() -> Planted:
    training = training_of("tokens")
    whole = one_turn(training)

    def turn(batch: Any) -> None:
        if len(batch["input_ids"]):
            whole(batch)

    return training, {"step": turn}


def clean_gradient_behind_the_noise() -> Planted:
    """In what the optimizer has inside."""
    training = training_of("tokens")
    inner = training.optimizer.original_optimizer
    move = inner.step

    def step(*arguments: Any, **named: Any) -> Any:
        for p in training.optimizer.params:
            p.grad = p.grad + 0.01 * p.summed_grad.view_as(p)
        return move(*arguments, **named)

    inner.step = step
    return training, {}


def embedding_left_out() -> Planted:
    return training_of("tokens", optimizer=_all_but_the_first), {}


def _all_but_the_first(weights: Any, lr: float) -> Any:
    return torch.optim.SGD(list(weights)[1:], lr=lr)


def embedding_by_a_plain_optimizer(clears: bool) -> Planted:
    training, _ = embedding_left_out()
    plain = torch.optim.SGD([next(training.model.parameters())], lr=0.1)

    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        plain.zero_grad()
        for p in training.model.parameters() if clears else ():
            p.grad_sample = None
        loss_of_documents(training.model, batch).backward()  # type: ignore[no-untyped-call]
        training.optimizer.step()
        plain.step()

    return training, {"step": turn}


def counting_buffer() -> Planted:
    training = training_of("tokens")
    training.bare.register_buffer("seen", torch.zeros(50))

    def count(module: Any, arguments: Any, named: Any) -> None:
        module.seen = module.seen + torch.bincount(named["input_ids"].flatten(), minlength=50)

    training.bare.register_forward_pre_hook(count, with_kwargs=True)
    return training, {}


_PAST = "documents get past the noise into"
_UNCLIPPED = r"clipping each to 1 gives .*at most 8; they differ by .*: documents are not cl"
_TWO_STEPS = "two steps have the same noise"
_SHARED = "coordinates share their noise"
_TOO_OFTEN = "some documents come too often"

FAULTS = {
    "noise / batch size": Fault(
        noise_by(lambda step, place, shape: torch.randn(shape) / BATCH),
        "noise",
        r"0\.12\d+ in \d+ coordinates, claimed 1 = 1 x 1: it is 0\.12\d+ times what is claimed",
    ),
    "no noise on one weight": Fault(
        noise_by(lambda step, place, shape: torch.randn(shape) * (place != 1)),
        "noise",
        r"but on hidden\.weight it is none: every weight needs the same noise",
    ),
    "the same noise each step": Fault(
        noise_by(lambda step, place, shape: torch.randn(shape, generator=seeded(place))),
        "noise",
        _TWO_STEPS,
    ),
    "noise of period 10": Fault(noise_by(of_period(10)), "noise", _TWO_STEPS),
    "noise of period 2": Fault(noise_by(of_period(2)), "noise", _TWO_STEPS),
    "one row of noise for all weights": Fault(
        noise_by(lambda step, place, shape: torch.randn(16, generator=seeded(step)).expand(shape)),
        "noise",
    ),
    "half of the noise repeated": Fault(noise_by(halves), "noise", _SHARED),
    "uniform noise": Fault(
        noise_by(lambda step, place, shape: (torch.rand(shape) - 0.5) * 12**0.5),
        "noise",
        "it is not normal",
    ),
    "noise of coins": Fault(
        noise_by(lambda step, place, shape: torch.randn(shape).sign()), "noise", "it is not normal"
    ),
    "a tenth of the noise from step 11 on": Fault(
        noise_by(lambda step, place, shape: torch.randn(shape) * (1.0 if step <= 10 else 0.1)),
        "noise",
        r"of 24 it is 0\.1",
    ),
    "clipping of the whole batch": Fault(clipped_by(of_the_batch), "clipping", _UNCLIPPED),
    "clipping of each weight to the bound": Fault(
        clipped_by(of_each_weight), "clipping", _UNCLIPPED
    ),
    "norms without the embedding": Fault(clipped_by(without_the_embedding), "clipping", _UNCLIPPED),
    "ten times the bound from step 11 on": Fault(
        clipped_by(ten_times_later), "clipping", _UNCLIPPED
    ),
    "norms above 100 left unclipped": Fault(clipped_by(only_below_100), "clipping", _UNCLIPPED),
    "shuffled batches": Fault(
        lambda: (training_of("tokens", poisson_sampling=False), {}),
        "sampling",
        "each document comes once an epoch; take.*P",
    ),
    "batches of a fixed size": Fault(
        sampled_by(lambda: lambda: torch.randperm(DOCUMENTS)[:BATCH]),
        "sampling",
        "sizes are constant",
    ),
    "batches cut at the mean": Fault(
        sampled_by(lambda: lambda: coins()[:BATCH]), "sampling", "no batch is larger than 8"
    ),
    "batches cut above the mean": Fault(
        sampled_by(lambda: lambda: coins()[: BATCH + 5]), "sampling", "no batch is larger than 13"
    ),
    "a tenth of the documents twice as often": Fault(
        sampled_by(lambda: some_twice_as_often), "sampling", _TOO_OFTEN
    ),
    "members that stay": Fault(sampled_by(sticky), "sampling", _TOO_OFTEN),
    "each batch twice": Fault(sampled_by(twice), "sampling", _TOO_OFTEN),
    "half of the rate told": Fault(
        half_the_rate_told, "rate", "0.0833333, accounted are 0.0416667"
    ),
    "half of the rate claimed": Fault(
        lambda: (training_of("tokens"), {"sample_rate": RATE / 2}),
        "accountant",
        "is told sample_rate 0.0833333, claimed 0.0416667",
    ),
    "every second step told": Fault(
        every_second_step_told, "accountant", "was told of 12 steps where 24 were taken"
    ),
    "two batches a step": Fault(
        two_batches_a_step, "accumulation", r"8 documents ended in steps of \[12\]. Over"
    ),
    "divided by the batch's size in the loop": Fault(
        in_the_loop(divided_by_size), "update", "is divided by 4 in one step and by 8"
    ),
    "divided by the batch's size in the optimizer": Fault(planted("scale_grad", divided), "noise"),
    "a learning rate by the batch's size": Fault(in_the_loop(rate_by_size), "update", _PAST),
    "a learning rate by the loss": Fault(in_the_loop(rate_by_loss), "update", _PAST),
    "empty batches left out": Fault(
        empty_batches_left_out, "empty batches", "the loop takes 0 steps for it. Its step must"
    ),
    "a second, plain update": Fault(in_the_loop(plain_update), "update", _PAST),
    "a clean gradient behind the noise": Fault(clean_gradient_behind_the_noise, "update", _PAST),
    "the embedding by a plain optimizer": Fault(
        lambda: embedding_by_a_plain_optimizer(clears=False), "weights", "are not in the optimizer"
    ),
    "the embedding by a plain optimizer, cleared": Fault(
        lambda: embedding_by_a_plain_optimizer(clears=True), "update", _PAST
    ),
    "the embedding left out": Fault(embedding_left_out, "weights", "embedding.weight are not in"),
    "a buffer that counts tokens": Fault(counting_buffer, "update", f"{_PAST} the buffer seen"),
    "every document twice in the corpus": Fault(
        lambda: (training_of("tokens", data=documents(DOCUMENTS // 2) * 2), {}), ""
    ),
}
