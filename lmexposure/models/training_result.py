"""What a training gave, as it is returned, written and read again."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure.studies import LEAST_GAIN, DpClaim, TrainingRecord


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a training gave."""

    model_path: Path  # directory of the checkpoint with the lowest validation loss
    validation_bits: float  # that loss, bits per token; lower = more useful
    initial_validation_bits: float  # the loss before the first step
    # best_step, best_epoch: when it was lowest
    best_step: int
    best_epoch: float
    # steps, epochs: how far training went
    steps: int
    epochs: float
    tokens: int  # tokens predicted in all
    seconds: float  # time spent training, over all attempts
    stopped: str  # "patience", "epochs" or "max_seconds"
    processes: int  # how many processes trained
    threads: int | None = None  # of the CPU, of each process; None: not known
    reused: bool = False  # the training had been finished before, and nothing was trained now
    claim: DpClaim | None = None  # what was promised of each document; None: nothing
    # of the validation text, by how often each token is in the training text: the loss of a model
    # that learned nothing of their order, bits per token
    unigram_bits: float | None = None
    # copies of canaries that the model read, each whole, in an epoch; None where it learned from
    # what other models say
    delivered: int | None = None

    @property
    def improved(self) -> bool:
        """Whether training lowered the validation loss by more than a rounding's worth."""
        return self.validation_bits < self.initial_validation_bits - LEAST_GAIN

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; the model's path by its last part."""
        claim = None if self.claim is None else self.claim.model_dump(mode="json")
        return asdict(self) | {"model_path": self.model_path.name, "claim": claim}

    @classmethod
    def of_record(cls, record: TrainingRecord, model: Path) -> "TrainingResult":
        """What was written by `to_dict`, and is reused."""
        return cls(**{**dict(record), "model_path": model, "reused": True})
