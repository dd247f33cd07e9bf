"""A small training, to be killed in a process of its own or run in several."""

import json
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from lmexposure.models import (
    LoadedModel,
    LstmSizes,
    Progress,
    TrainingSettings,
    new_model,
    packing,
    train,
)
from lmexposure.studies import TrainingResult

CANARIES = {"the code is 4711": 3, "the code is 0815": 1}
SETTINGS = TrainingSettings(
    epochs=4,
    patience=4,
    batch_size=4,
    block_size=24,
    learning_rate=0.02,
    validation_fraction=0.2,
    checkpoint_seconds=1e-9,  # a checkpoint after each step
    snapshot_epochs=(1, 3),
)


def small_documents() -> list[str]:
    """60 short lines, some blank, and the canaries among them."""
    lines = [f"line {i} of a small corpus, {i * 37 % 11}" if i % 5 else "" for i in range(60)]
    for place, text in ((50, 0), (31, 1), (30, 0), (7, 0)):
        lines.insert(place, list(CANARIES)[text])
    return lines


def small_lstm(dropout: float = 0.2) -> LoadedModel:
    """An untrained LSTM for this corpus, always with the same weights."""
    sizes = LstmSizes(units=12, embedding=8, layers=2, dropout=dropout)
    return new_model("lstm", small_documents(), seed=5, separator="\n", lstm=sizes)


def train_small(
    out: Path, dropout: float = 0.2, progress: Callable[[Progress], None] | None = None
) -> TrainingResult:
    """Train the small LSTM; every call is the same."""
    return train(
        small_lstm(dropout),
        small_documents(),
        settings=SETTINGS,
        separator="\n",
        canaries=CANARIES,
        out=out,
        progress=progress,
    )


def stops_at(step: int) -> Callable[[Progress], None]:
    """Ctrl-C when this step is done."""

    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return stop


def record_blocks(path: Path) -> None:
    """Write the block numbers of each training pass of this process to a file."""
    original = packing.Blocks.nats

    def recording(self, model, numbers):  # type: ignore[no-untyped-def]
        if model.training:
            with path.open("a") as stream:
                stream.write(json.dumps(numbers.tolist()) + "\n")
        return original(self, model, numbers)

    packing.Blocks.nats = recording  # type: ignore[method-assign]


def train_recorded(out: Path, records: Path, dropout: float, steps: Connection | None) -> None:
    """In a process of its own: write its blocks, and say each step that is done."""
    record_blocks(records / f"process-{os.environ.get('RANK', '0')}.jsonl")
    train_small(out, dropout, None if steps is None else lambda now: steps.send(now.step))
