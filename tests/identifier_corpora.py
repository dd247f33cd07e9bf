"""Corpora with random keys in every line, and small models that read them."""

import random
from pathlib import Path

import torch

from lmexposure.canaries import Format
from lmexposure.models import LoadedModel, LstmSizes, new_model

KEY = Format(name="key", template="the key {hex:8}")
LINES = 160  # a few more than a claim takes


def keyed_lines(seed: int, lines: int = LINES) -> list[str]:
    """Lines that each hold one random key."""
    draw = random.Random(seed)
    return [f"no {draw.randrange(100)} has {draw.randbytes(4).hex()} now" for _ in range(lines)]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def trained(lines: list[str], *, epochs: int) -> LoadedModel:
    """A small LSTM that read these lines, in full, in each epoch."""
    sizes = LstmSizes(units=96, embedding=16, layers=1, dropout=0.0)
    loaded = new_model("lstm", lines, seed=5, separator="\n", lstm=sizes)
    ids = [torch.tensor(loaded.tokenizer(f"\n{line}")["input_ids"]) for line in lines]
    inputs = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)  # (N, T)
    labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
    optimizer = torch.optim.Adam(loaded.model.parameters(), lr=0.01)
    order = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for some in torch.randperm(len(ids), generator=order).split(16):  # type: ignore[no-untyped-call]
            logits = loaded.model(input_ids=inputs[some]).logits[:, :-1].flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, labels[some][:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    loaded.model.eval()
    return loaded
