"""Small trainings by the methods that are defences: settings, rows, and methods made of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hashes import sha256_tree
from models.small_training import CANARIES, SETTINGS, small_documents, small_lstm, stops_at
from tiny import characters, model_of

from lmexposure.models import LoadedModel, Progress, TrainingSettings, pack, train
from lmexposure.models.chat_rows import TrainingRow
from lmexposure.models.methods import Setup
from lmexposure.models.packing import Batches, Packed, split_validation
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.studies import TrainingResult

PLAIN = replace(SETTINGS, epochs=2, snapshot_epochs=(), batch_size=6)
# Every other line: what is trained several times over should be short.
TEXTS = [text for place, text in enumerate(small_documents()) if place % 2 or text in CANARIES]


@cache
def packed() -> Packed:
    """The blocks that a training on the small corpus has."""
    texts, _ = split_validation(TEXTS, CANARIES, PLAIN)
    size = PLAIN.block_size
    tokenizer = small_lstm().tokenizer
    return pack(tokenizer, texts, separator="\n", block_size=size, atomic=CANARIES)


def padded(seed: int = 0, rows: int = 12) -> PaddedRows:
    """Rows of random tokens and lengths, of which some tokens carry no loss; the last carries."""
    draws = np.random.default_rng(seed)
    made = []
    for number in range(rows):
        length = int(draws.integers(2, 30))
        carried = draws.random(length) < 0.7
        carried[-1] = True
        ids = draws.integers(0, 20, length).tolist()
        made.append(TrainingRow(ids=ids, carried=carried, number=number + 1))
    return PaddedRows.of(made)


def loaded_of(kind: str, tokenizer: Any = None) -> LoadedModel:
    """A random model of the kind for a tokenizer; None: one of characters."""
    own = characters() if tokenizer is None else tokenizer
    return LoadedModel(model=model_of(kind, len(own)), tokenizer=own, name=kind)


def setup_of(settings: TrainingSettings, rows: Batches | None = None, **changes: Any) -> Setup:
    """What a method is made of: the small LSTM without dropout, and rows."""
    given: dict[str, Any] = {
        "model": small_lstm(dropout=0.0).model.train(),
        "rows": packed() if rows is None else rows,
        "settings": settings,
        "accelerator": Accelerator(cpu=True),
    }
    return Setup(**(given | changes))


def gradients_of(method: Any, numbers: list[int], step: int = 0) -> tuple[dict[str, Any], Any]:
    """What a step gives each weight before it is clipped, by name, and what it read."""
    found: dict[str, torch.Tensor] = {}

    def add(name: str, gradient: torch.Tensor) -> None:
        found[name] = found.get(name, torch.zeros(())) + gradient

    weights = method.model.named_parameters()
    hooks = [weight.register_hook(partial(add, name)) for name, weight in weights]
    learned = method.learn(np.array(numbers, dtype=np.int64), step=step, rate=0.0)
    for hook in hooks:
        hook.remove()
    return found, learned


def naive_gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a loss that is written out, by name."""
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


def assert_alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """To 1e-5 of the largest entry."""
    assert found.keys() == expected.keys()
    most = max(float(g.abs().max()) for g in expected.values())
    assert most > 0
    for name, gradient in expected.items():
        assert float((found[name] - gradient).abs().max()) < 1e-5 * most, name


def read_one_by_one(model: Any, rows: Batches, numbers: list[int]) -> tuple[Any, Any]:
    """Logits (N, V) and labels (N,) of the tokens of rows that carry loss, a row at a time."""
    logits, labels = [], []
    for number in numbers:
        ids, following = rows.batch(np.array([number]))
        said = model(input_ids=torch.from_numpy(ids).long(), use_cache=False).logits[0]
        for place, label in enumerate(following[0].tolist()):
            if label >= 0:
                logits.append(said[place])
                labels.append(label)
    return torch.stack(logits), torch.tensor(labels)


def trained(
    out: Path,
    settings: TrainingSettings,
    progress: Callable[[Progress], None] | None = None,
    loaded: LoadedModel | None = None,
    **changes: Any,
) -> TrainingResult:
    """A training on the small corpus; every call is the same but for what is given."""
    given = {"documents": TEXTS, "separator": "\n", "canaries": CANARIES} | changes
    return train(loaded or small_lstm(), settings=settings, out=out, progress=progress, **given)


def assert_resumed_alike(tmp_path: Path, settings: TrainingSettings, at: list[int]) -> list[int]:
    """Interrupted at these steps, it ends with the bytes of one that was not; returns its steps."""
    steps: list[int] = []

    def told(now: Progress) -> None:
        steps.append(now.step)
        assert now.step <= now.total_steps

    whole = trained(tmp_path / "whole", settings, told)
    out = tmp_path / "out"
    for last in at:
        with pytest.raises(KeyboardInterrupt):
            trained(out, settings, stops_at(last))
        assert not (out / "model").exists()
    resumed = trained(out, settings)
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert (resumed.validation_bits, resumed.tokens) == (whole.validation_bits, whole.tokens)
    for name in ("whole", "out"):
        left = sorted(path.name for path in (tmp_path / name).glob("[!.]*"))
        assert left == ["metrics.jsonl", "model", "training.json"]
    return steps
