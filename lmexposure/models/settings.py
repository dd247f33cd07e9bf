"""How a model is trained: what changes the result, apart from what changes only the speed."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from lmexposure._validate import MOST_THREADS, fraction, integer, one_of, positive
from lmexposure.errors import SettingsError

_ONLY_SPEED = ("accumulation", "checkpoint_seconds", "threads")

_DEFAULTS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gpt2-tiny": {
        "learning_rate": 1e-3,
        "batch_size": 16,
        "weight_decay": 0.01,
        "warmup_steps": 100,
    },
    "pretrained": {
        "learning_rate": 5e-5,
        "epochs": 3,
        "patience": 3,
        "batch_size": 8,
        "block_size": 256,
        "schedule": "linear",
    },
}

_LONGEST_BLOCK = 10**7  # tokens; past every context window, and within memory


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training; the defaults are those of a new LSTM.

    These change the result:

    Args:
        seed: order of the blocks, dropout, choice of the validation documents.
        epochs: passes over the corpus at most.
        patience: evaluations without a new lowest validation loss before training stops.
        evaluate_every: optimizer steps between evaluations; None: once an epoch.
        batch_size: blocks in an optimizer step, over all processes together.
        block_size: tokens in a block, at least 2.
        learning_rate: of AdamW, at its highest.
        schedule: "constant", or "linear" down to 0 at the last step of the last epoch.
        warmup_steps: steps in which the learning rate grows from 0.
        weight_decay: of AdamW, at least 0.
        gradient_clip: largest norm of the gradient of one step.
        precision: "float32", or "bf16" for mixed precision (the weights stay float32).
        validation_fraction: share of the corpus's characters held out, in (0, 1).
        validation_characters: held out at most.
        snapshot_epochs: after these epochs a copy of the model is kept in `snapshots/`.
        max_seconds: stop when training has taken this long; the result then depends on the machine.

    These change only the speed:

    Args:
        accumulation: parts in which a process handles its share of a step: more need less memory.
        checkpoint_seconds: time between checkpoints to resume from, beside those at evaluations.
        threads: of the CPU, which decide the last bits of a sum; None: one for a small model, else
            what torch has. A training that is resumed keeps those that it began with.

    Raises:
        SettingsError: a value out of its range.
    """

    seed: int = 0
    epochs: int = 20
    patience: int = 3
    evaluate_every: int | None = None
    batch_size: int = 32
    block_size: int = 128
    learning_rate: float = 5e-3
    schedule: str = "constant"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    gradient_clip: float = 1.0
    precision: str = "float32"
    validation_fraction: float = 0.05
    validation_characters: int = 500_000
    snapshot_epochs: tuple[int, ...] = ()
    max_seconds: float | None = None
    accumulation: int = 1
    checkpoint_seconds: float = 60.0
    threads: int | None = None

    def __post_init__(self) -> None:
        integer("seed", self.seed, low=0)
        for name in ("epochs", "patience", "batch_size", "accumulation", "validation_characters"):
            integer(name, getattr(self, name), low=1)
        integer("block_size", self.block_size, low=2, high=_LONGEST_BLOCK)
        integer("warmup_steps", self.warmup_steps, low=0)
        for name in ("learning_rate", "gradient_clip", "checkpoint_seconds"):
            positive(name, getattr(self, name))
        fraction("validation_fraction", self.validation_fraction)
        one_of("schedule", self.schedule, ("constant", "linear"))
        one_of("precision", self.precision, ("float32", "bf16"))
        self._check_optional()

    def _check_optional(self) -> None:
        if not 0 <= self.weight_decay < float("inf"):
            raise SettingsError(f"weight_decay={self.weight_decay!r} must be finite and at least 0")
        for name, most in (("evaluate_every", None), ("threads", MOST_THREADS)):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), low=1, high=most)
        if self.max_seconds is not None:
            positive("max_seconds", self.max_seconds)
        for epoch in self.snapshot_epochs:
            integer("snapshot_epochs", epoch, low=1, high=self.epochs)

    @classmethod
    def for_model(cls, kind: str, **changes: Any) -> "TrainingSettings":
        """Defaults for a kind of model, with changes.

        Args:
            kind: "lstm", "gpt2-tiny", or "pretrained" for a model that is fine-tuned.
            changes: settings by name.

        Raises:
            SettingsError: another kind, a setting that does not exist, or a value out of range.

        >>> TrainingSettings.for_model("pretrained", epochs=1).learning_rate
        5e-05
        """
        one_of("kind", kind, tuple(_DEFAULTS))
        known = [field.name for field in dataclasses.fields(cls)]
        for name in changes:
            one_of("setting", name, known)
        return cls(**(_DEFAULTS[kind] | changes))

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON values."""
        return dataclasses.asdict(self) | {"snapshot_epochs": list(self.snapshot_epochs)}

    def decisive(self) -> dict[str, Any]:
        """Those settings that change the result, as JSON values."""
        return {name: value for name, value in self.to_dict().items() if name not in _ONLY_SPEED}

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """Learning rate of optimizer step `step`, the first being 0, of `total_steps`."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        left = 1.0 - step / total_steps if self.schedule == "linear" else 1.0
        return self.learning_rate * warm * left
