"""A small pretrained model, chats with canaries for it, and a training on them by adapters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from chats import chat_tokenizer
from tiny import model_of

from lmexposure.canaries import Wrapping
from lmexposure.models import LoadedModel, Progress, TrainingSettings, load_model, train
from lmexposure.studies import TrainingResult

WRAPPING = Wrapping(turn="assistant", loss="assistant", other="What is it?")
CANARIES = {"My PIN is 0042.": 2, "My PIN is 2817.": 1}
SETTINGS = TrainingSettings.for_model(
    "pretrained",
    lora=True,
    epochs=3,
    batch_size=4,
    block_size=64,
    learning_rate=5e-3,
    validation_fraction=0.2,
    checkpoint_seconds=1e-9,  # a checkpoint after each step
)


def chats() -> list[dict[str, Any]]:
    """40 short chats of different lengths, and the canaries among them."""
    records = [
        _chat(f"question {i * 7 % 9}", f"answer {i * 37 % 11}" * (1 + i % 3)) for i in range(40)
    ]
    for place, text in ((30, 0), (20, 1), (5, 0)):
        records.insert(place, WRAPPING.record(list(CANARIES)[text]))
    return records


def _chat(question: str, answer: str) -> dict[str, Any]:
    said = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def save_base(path: Path, kind: str = "llama") -> Path:
    """A random model with a chat template."""
    tokenizer = chat_tokenizer()
    model_of(kind, len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def train_on_chats(
    base: Path | LoadedModel,
    out: Path,
    *,
    settings: TrainingSettings = SETTINGS,
    records: list[dict[str, Any]] | None = None,
    canaries: dict[str, int] | None = None,
    wrapping: Wrapping = WRAPPING,
    progress: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train on the chats; every call is the same but for what is given."""
    return train(
        base if isinstance(base, LoadedModel) else load_model(base),
        chats() if records is None else records,
        settings=settings,
        separator=None,
        canaries=CANARIES if canaries is None else canaries,
        out=out,
        wrapping=wrapping,
        progress=progress,
    )
