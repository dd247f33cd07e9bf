"""Right DP-SGD loops, each written as people write them, under way for some steps."""

import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from models.dp_trainings import (
    BATCH,
    DOCUMENTS,
    Training,
    documents,
    loss_of_documents,
    model_of,
    one_turn,
    training_of,
)
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

Loop = Callable[[Any], None]
_MODELS = ("tokens", "tokens", "tied", "lstm", "lora", "gpt2")
_PART = 3  # documents that go through the model together, where a batch is split


def parts_of(batch: Any) -> list[Any]:
    """A batch split as for a small memory; at least one part, which may be empty."""
    rows = max(1, len(batch["input_ids"]))
    return [
        {name: values[first : first + _PART] for name, values in batch.items()}
        for first in range(0, rows, _PART)
    ]


def backward(training: Training, batch: Any, *, summed: bool = False) -> None:
    """The gradients of a batch; a mean over its documents, or with `summed` their sum."""
    rows = len(batch["input_ids"])
    if rows:
        loss = loss_of_documents(training.model, batch) * (rows if summed else 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return
    for p in training.optimizer.params:
        p.grad_sample = p.new_zeros((0, *p.shape))


def in_parts_by_opacus(training: Training) -> Loop:
    """As BatchMemoryManager does: each part is clipped and added, the last one steps."""

    def turn(batch: Any) -> None:
        parts = parts_of(batch)
        for place, part in enumerate(parts):
            training.optimizer.signal_skip_step(do_skip=place + 1 < len(parts))
            backward(training, part)
            training.optimizer.step()
            training.optimizer.zero_grad()

    return turn


def accumulating(training: Training) -> Loop:
    """Several backward passes of one Poisson sample, then a step that is told as one.

    Opacus' own hook takes each part for a sample, and tells a rate of as many times as much.
    """
    training.model.allow_grad_accumulation()
    tell = training.engine.accountant.step
    training.optimizer.attach_step_hook(
        lambda made: tell(noise_multiplier=made.noise_multiplier, sample_rate=BATCH / DOCUMENTS)
    )

    def turn(batch: Any) -> None:
        for part in parts_of(batch):
            backward(training, part, summed=True)
        training.optimizer.step()
        training.optimizer.zero_grad()

    return turn


def summed(training: Training) -> Loop:
    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        backward(training, batch, summed=True)
        training.optimizer.step()

    return turn


def by_a_closure(training: Training) -> Loop:
    def turn(batch: Any) -> None:
        def closure() -> None:
            training.optimizer.zero_grad()
            backward(training, batch)

        training.optimizer.step(closure)

    return turn


def averaging(training: Training) -> Loop:
    """A running average of the weights, and a look at held-out documents, beside each step."""
    kept = [p.detach().clone() for p in training.optimizer.params]
    whole, rows = one_turn(training), documents(4)
    held_out = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    def turn(batch: Any) -> None:
        whole(batch)
        with torch.no_grad():
            for average, p in zip(kept, training.optimizer.params, strict=True):
                average.lerp_(p, 0.1)
            training.model.eval()
            loss_of_documents(training.model, held_out)
            training.model.train()

    return turn


def _grouped(weights: Any, lr: float) -> Any:
    """No decay on biases, as of norms and embeddings in many a training."""
    weights = list(weights)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in weights if p.ndim > 1]},
        {"params": [p for p in weights if p.ndim < 2], "weight_decay": 0.0, "lr": lr / 2},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, weight_decay=0.1)


def with_epsilon(architecture: str, seed: int, *, optimizer: Any, lr: float, **more: Any) -> Any:
    """By `make_private_with_epsilon`, which finds the noise."""
    bare = model_of(architecture, seed)
    with warnings.catch_warnings(action="ignore"):
        engine = PrivacyEngine(accountant="rdp")
        model, made, loader = engine.make_private_with_epsilon(
            module=bare,
            optimizer=optimizer(bare.parameters(), lr=lr),
            data_loader=DataLoader(documents(), batch_size=BATCH),  # type: ignore[arg-type]
            target_epsilon=8.0,
            target_delta=1 / DOCUMENTS**2,
            epochs=3,
            max_grad_norm=more["max_grad_norm"],
        )
    return Training(model, made, loader, engine, bare)


def loss_summed(model: Any, batch: Any) -> Any:
    return loss_of_documents(model, batch) * max(1, len(batch["input_ids"]))


_SGD, _ADAM, _ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
_MOMENTUM = partial(_SGD, momentum=0.9)

# Of each: the optimizer, options of make_private, and the turn.
LOOPS: dict[str, tuple[Any, dict[str, Any], Callable[[Training], Loop]]] = {
    "SGD": (_SGD, {}, one_turn),
    "momentum": (_MOMENTUM, {}, one_turn),
    "Nesterov": (partial(_MOMENTUM, nesterov=True), {}, one_turn),
    "momentum, damped, with decay": (
        partial(_MOMENTUM, dampening=0.1, weight_decay=0.01),
        {},
        one_turn,
    ),
    "Adam": (_ADAM, {}, one_turn),
    "Adam, fused": (partial(_ADAM, fused=True, weight_decay=0.01), {}, one_turn),
    "AMSGrad": (partial(_ADAM, amsgrad=True, foreach=True), {}, one_turn),
    "AdamW": (partial(_ADAMW, weight_decay=0.1), {}, one_turn),
    "AdamW, groups": (_grouped, {}, one_turn),
    "with epsilon": (_ADAMW, {"by": with_epsilon}, one_turn),
    "with epsilon, momentum": (_MOMENTUM, {"by": with_epsilon}, by_a_closure),
    "parts, SGD": (_SGD, {}, in_parts_by_opacus),
    "parts, AdamW": (_ADAMW, {}, in_parts_by_opacus),
    "accumulation, momentum": (_MOMENTUM, {"loss_reduction": "sum"}, accumulating),
    "accumulation, Adam": (_ADAM, {"loss_reduction": "sum"}, accumulating),
    "summed loss": (_ADAMW, {"loss_reduction": "sum"}, summed),
    "a closure": (_SGD, {}, by_a_closure),
    "an average": (_ADAM, {}, averaging),
    "functorch": (_MOMENTUM, {"grad_sample_mode": "functorch"}, one_turn),
    "hooks": (_ADAMW, {"wrap_model": False}, one_turn),
}


def loop_of(kind: str, seed: int) -> tuple[Training, dict[str, Any]]:
    """A loop after up to four steps on real samples; and what the check is told of it."""
    optimizer, options, loop = LOOPS[kind]
    draw, options = random.Random(f"{kind} {seed}"), dict(options)
    make = options.pop("by", training_of)
    training = make(
        draw.choice(_MODELS),
        seed,
        optimizer=optimizer,
        lr=draw.choice([0.1, 1e-2, 1e-3]),
        max_grad_norm=draw.choice([0.1, 1.0, 5.0]),
        noise_multiplier=draw.choice([0.5, 1.0, 2.0]),
        **options,
    )
    if not options.get("wrap_model", True):
        training.model = training.bare  # hooks cannot be called
    turn = loop(training)
    for _, batch in zip(range(draw.choice([0, 1, 4])), training.loader, strict=False):
        turn(batch)
    more: dict[str, Any] = {"step": turn, "accountant": training.engine}
    if options.get("loss_reduction") == "sum":
        more["loss"] = loss_summed
    return training, more
