"""Small DP-SGD trainings by Opacus over four architectures, as people write them."""

import copy
import json
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
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
    if architecture in ("tokens", "tied"):
        return Tokens(tied=architecture == "tied")
    if architecture == "llama":
        made = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=WIDTH,
                intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=16,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
    elif architecture == "lstm":
        made = private_lstm()
    else:
        made = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY,
                n_positions=16,
                n_embd=WIDTH,
                n_layer=2,
                n_head=2,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
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
