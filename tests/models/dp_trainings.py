"""Small DP-SGD trainings by Opacus over four architectures, as people write them."""

import copy
import json
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmexposure.models import LstmConfig, LstmForCausalLM, dp_check

VOCABULARY, WIDTH, TOKENS, DOCUMENTS, BATCH = 50, 16, 7, 96, 8
ARCHITECTURES = ("gpt2", "llama", "lstm", "lora")


@dataclass
class Training:
    """A training that is ready for its first step."""

    model: Any
    optimizer: Any
    loader: Any
    engine: Any
    bare: nn.Module

    def given(self) -> tuple[Any, Any, Any]:
        return self.model, self.optimizer, self.loader


def documents(count: int = DOCUMENTS, *, positions: bool = True) -> list[dict[str, Tensor]]:
    """Random tokens; each document's end is padding, of which no loss is taken."""
    generator = torch.Generator().manual_seed(count)
    made = []
    for number in range(count):
        ids = torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)
        labels = ids.clone()
        if number % 2:
            labels[TOKENS - 2 :] = -100
        made.append({"input_ids": ids, "labels": labels})
        if positions:
            made[-1]["position_ids"] = torch.arange(TOKENS)
    return made


def loss_of_documents(model: Any, batch: Any) -> Tensor:
    """Each document's mean over its tokens; of an empty batch, a loss without documents."""
    empty = not len(batch["input_ids"])
    if empty:  # transformers' models take no batch of 0 rows
        batch = {name: rows.new_zeros((1, TOKENS)) for name, rows in batch.items()}
    inputs = {name: rows for name, rows in batch.items() if name != "labels"}
    logits, labels = model(**inputs).logits[:, :-1], batch["labels"][:, 1:]
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    mean: Tensor = (losses.sum(1) / (labels >= 0).sum(1)).mean()
    return mean * (0.0 if empty else 1.0)


class Tokens(nn.Module):
    """A model of the next token from the one before, small and quick."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Any:
        hidden = torch.tanh(self.hidden(self.embedding(input_ids)))
        return SimpleNamespace(logits=self.head(hidden))


def model_of(architecture: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    made: Any
    no_ends = {"bos_token_id": None, "eos_token_id": None}
    if architecture in ("tokens", "tied"):
        return Tokens(tied=architecture == "tied")
    if architecture == "llama":
        sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "max_position_embeddings": 16}
        layers = {"num_hidden_layers": 2, "num_attention_heads": 2}
        made = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, **layers, **no_ends))
    elif architecture == "lstm":
        made = private_lstm()
    else:
        sizes = {"n_positions": 16, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
        made = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, **no_ends))
    if architecture == "lora":
        config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.1)
        with warnings.catch_warnings(action="ignore"):
            made = get_peft_model(made, config)
    made.train()
    return made  # type: ignore[no-any-return]


def private_lstm() -> nn.Module:
    from opacus.layers import DPLSTM

    config = LstmConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, embedding_size=WIDTH)
    made = LstmForCausalLM(config)
    made.lstm = DPLSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
    return made


def training_of(
    architecture: str = "gpt2",
    seed: int = 0,
    *,
    data: Sequence[Any] | None = None,
    optimizer: Any = torch.optim.SGD,
    lr: float = 0.1,
    change: Callable[[Any], Any] = lambda model: None,
    spread: Callable[[Any], Any] = lambda model: model,
    **options: Any,
) -> Training:
    """By `make_private`, with `options` for it, of the bare model changed and then spread."""
    from opacus import PrivacyEngine

    bare = model_of(architecture, seed)
    made = optimizer(bare.parameters(), lr=lr)
    change(bare)
    rows: Any = documents() if data is None else data
    loader: Any = DataLoader(rows, batch_size=BATCH, shuffle=True)
    with warnings.catch_warnings(action="ignore"):  # that its random numbers are torch's
        engine = PrivacyEngine(accountant="rdp")
        asked = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options}
        model, made, loader = engine.make_private(
            module=spread(bare), optimizer=made, data_loader=loader, **asked
        )
    return Training(model, made, loader, engine, bare)


def mostly_slow(names: Iterable[str]) -> list[Any]:
    """Every fourth as it is, the others marked slow: a check takes a second or two."""
    return [
        pytest.param(name, marks=pytest.mark.slow if place % 4 else ())
        for place, name in enumerate(names)
    ]


def one_turn(training: Training) -> Any:
    """The training's loop for a batch."""

    def turn(batch: Any) -> None:
        training.optimizer.zero_grad()
        if len(batch["input_ids"]):
            loss_of_documents(training.model, batch).backward()  # type: ignore[no-untyped-call]
        else:
            for p in training.optimizer.params:
                p.grad_sample = p.new_zeros((0, *p.shape))
        training.optimizer.step()

    return turn


def everything(training: Training) -> list[Any]:
    """Copies of all that a check may not change."""
    private = training.optimizer
    weights = list(training.bare.parameters())
    return [
        [p.detach().clone() for p in weights],
        [None if p.grad is None else p.grad.clone() for p in weights],
        [copy.copy(vars(p)) for p in weights],
        copy.deepcopy(private.original_optimizer.state_dict()),
        copy.copy(vars(private)),
        sorted(vars(private.original_optimizer)),
        copy.deepcopy(training.engine.accountant.history),
        [*map(copy.deepcopy, (torch.get_rng_state(), random.getstate(), np.random.get_state()))],
        [(name, id(buffer), buffer.clone()) for name, buffer in training.bare.named_buffers()],
        [(sorted(vars(m)), m.training) for m in training.model.modules()],
        [m.p for m in training.model.modules() if isinstance(m, nn.Dropout)],
        training.loader.collate_fn.first_batch,
    ]


def check_in_a_process(out: Path, *, double: bool) -> None:
    """The check in one of several processes that train together; with `double`, each on all."""
    import torch.distributed as processes
    from opacus.data_loader import DPDataLoader
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

    processes.init_process_group("gloo")
    rank = processes.get_rank()
    training = training_of(spread=DifferentiallyPrivateDistributedDataParallel)
    if double:
        training.loader = DPDataLoader(documents(), sample_rate=BATCH / DOCUMENTS)
    torch.manual_seed(rank)
    before = everything(training)[:2]
    found = dp_check(*training.given(), loss=loss_of_documents)
    assert str(everything(training)[:2]) == str(before)
    (out / f"process-{rank}.json").write_text(json.dumps(found.to_dict()))
    processes.destroy_process_group()


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
