"""Small private trainings: their corpus, settings and models, and DP-SGD made of them."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hashes import sha256_tree
from known import known
from models.small_training import stops_at
from numpy.typing import NDArray
from tiny import model_of
from torch import Tensor

from lmexposure.models import (
    LoadedModel,
    LstmSizes,
    Progress,
    TrainingSettings,
    new_model,
    save_model,
    train,
)
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.methods import Setup
from lmexposure.models.new_models import with_new_adapter
from lmexposure.models.packing import Blocks
from lmexposure.models.padded_rows import PaddedRows, rows_of_documents
from lmexposure.studies import DpClaim, TrainingResult

CANARIES = {"code 4711": 3, "code 0815": 1}
DOCUMENTS = [
    *(f"line {i} of {'all ' * (i % 4)}{i * 37 % 11}" for i in range(60)),
    *("code 4711" for _ in range(3)),
    "code 0815",
]
PRIVATE = TrainingSettings(
    method="dp-sgd",
    noise_multiplier=0.8,
    delta=1e-3,
    clip=0.5,
    noise_seed=3,
    epochs=2,
    patience=9,
    expected_batch=8,
    batch_size=5,
    block_size=32,
    validation_fraction=0.2,
    checkpoint_seconds=1e-9,
)
ARCHITECTURES = ("lstm", "gpt2", "llama", "gpt2+lora", "llama+lora")


@cache
def _lstm(dropout: float) -> LoadedModel:
    sizes = LstmSizes(units=12, embedding=8, layers=2, dropout=dropout)
    return new_model("lstm", DOCUMENTS, seed=5, separator="\n", lstm=sizes)


def lstm(dropout: float = 0.0) -> LoadedModel:
    """An untrained LSTM for this corpus, always with the same weights."""
    made = _lstm(dropout)
    return replace(made, model=deepcopy(made.model))


def base(kind: str, directory: Path) -> LoadedModel:
    """A random model of the kind without dropout, saved in the directory that it is named by."""
    loaded = lstm()
    if kind == "lstm":
        return loaded
    model = model_of(kind, len(loaded.tokenizer))
    model.config.pad_token_id = None
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    save_model(model, loaded.tokenizer, directory)
    return LoadedModel(model=model, tokenizer=loaded.tokenizer, name=str(directory))


def adapted(name: str, directory: Path) -> tuple[Any, TrainingSettings]:
    """A model by its name in ARCHITECTURES; an adapter that is no longer as it began."""
    kind, _, lora = name.partition("+")
    loaded = base(kind, directory)
    if not lora:
        return loaded.model, PRIVATE
    settings = replace(PRIVATE, lora=True, lora_rank=2)
    model = with_new_adapter(loaded, settings)
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return model, settings


def trained(
    out: Path,
    loaded: LoadedModel | None = None,
    progress: Callable[[Progress], None] | None = None,
    settings: TrainingSettings = PRIVATE,
    **arguments: Any,
) -> TrainingResult:
    """On the small corpus; every call is the same but for what is given."""
    given = {"documents": DOCUMENTS, "separator": "\n", "canaries": CANARIES} | arguments
    return train(loaded or lstm(0.2), settings=settings, out=out, progress=progress, **given)


def interrupted_at(steps: Iterable[int], out: Path, again: Callable[..., Any] = trained) -> None:
    """Once at each of these steps, one after the other."""
    for step in steps:
        with pytest.raises(KeyboardInterrupt):
            again(out, progress=stops_at(step))
        assert not (out / "model").exists()


def resumed_alike(
    tmp_path: Path, again: Callable[..., Any], at: Callable[[int], Iterable[int]]
) -> tuple[TrainingResult, DpClaim]:
    """A training, to whose bytes and claim one comes that is interrupted at some of its steps."""
    whole = again(tmp_path / "whole")
    interrupted_at(at(whole.steps), tmp_path / "stopped", again)
    resumed = again(tmp_path / "stopped")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert resumed.claim == whole.claim
    return whole, known(whole.claim)


def rows_of(
    settings: TrainingSettings = PRIVATE, owners: list[str | None] | None = None
) -> PaddedRows:
    return rows_of_documents(
        lstm().tokenizer,
        DOCUMENTS,
        separator="\n",
        canaries=CANARIES,
        settings=settings,
        units=owners,
    )[0]


def blocks_of(rows: PaddedRows) -> Blocks:
    return Blocks(rows, device=torch.device("cpu"), precision="float32")


def made(
    model: Any, settings: TrainingSettings = PRIVATE, owners: list[str | None] | None = None
) -> DpSgd:
    """DP-SGD of a model on the corpus."""
    setup = Setup(
        model=model,
        rows=rows_of(settings, owners),
        settings=settings,
        accelerator=Accelerator(cpu=True),
    )
    return DpSgd(setup)


def units_of(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def names_of(model: Any) -> dict[int, str]:
    """By their addresses, the weights' names in the plain model; of a tied one the last."""
    return {
        weight.data_ptr(): f"{child}.{name}"
        for child, layer in model.named_children()
        for name, weight in layer.state_dict().items()
    }


def named(method: DpSgd, of_each: list[Tensor]) -> dict[str, Tensor]:
    """What the optimizer has of each weight, by its name."""
    names = names_of(method.model)
    found = [names[weight.data_ptr()] for weight in method._optimizer.params]
    return dict(zip(found, of_each, strict=True))


def alone(model: Any, row: int | list[int], rows: PaddedRows) -> dict[str, Tensor]:
    """The gradient of the mean loss of all tokens of some rows, each read by itself."""
    chosen = [row] if isinstance(row, int) else row
    model.zero_grad()
    for number in chosen:
        ids = torch.from_numpy(rows.ids[rows.starts[number] : rows.starts[number + 1]]).long()
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0]
        nats = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum")
        nats.backward()  # type: ignore[no-untyped-call]
    tokens = int(rows.predicted[chosen].sum())
    names = names_of(model)
    return {
        names[weight.data_ptr()]: weight.grad / tokens
        for weight in model.parameters()
        if weight.grad is not None
    }


def norm(gradients: dict[str, Tensor]) -> float:
    """Of all weights together."""
    return float(torch.cat([g.flatten() for g in gradients.values()]).double().norm())
