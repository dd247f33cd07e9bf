"""run.json: what was run, with which settings, versions and device, how long it took, and when."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, model_validator

from lmexposure._record import (
    BigInteger,
    Count,
    FileRecord,
    NotNegative,
    Rate,
    Record,
    Rows,
    Utc,
)
from lmexposure.studies.dp import DpClaim
from lmexposure.studies.exposure.record import LEAST_GAIN, MeasureOptions

# Between the names of several files or patterns in `RunRecord.corpus`: no name can hold it.
SEVERAL = "\0"


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) else value


def _name(path: Path) -> str:
    return path.name


_Directory = Annotated[Path, BeforeValidator(_path), PlainSerializer(_name, when_used="json")]


class RunOptions(Record):
    """What was inserted and trained; a seed that was given is here, one of the coins never is."""

    model: str  # "lstm", "gpt2-tiny", or a path or hub name that was fine-tuned
    formats: Rows[str]  # names of shipped formats, or paths of format files
    kinds: Rows[str]  # of canaries; `formats` are those of uniform fills
    texts: str | None  # file of those of the kind "texts"; None: there was none
    partner: Literal["coin", "always"]  # of near-duplicates: "coin" or "always"
    canaries: Count | None  # per format and class of repetitions; None where coins decided
    # with which each candidate went in; None where a fixed number did
    inclusion_probability: Rate | None
    candidates: Count | None  # per format and class, where coins decided
    repetitions: Rows[Count]  # how often the canaries of each class were inserted
    controls: Count  # per format, never inserted
    witness: bool = False  # whether witnesses went in as well
    # of secrets, positions, initial weights and the order of training; None: drawn fresh, and in
    # the manifest alone
    seed: BigInteger | None
    layout: str | None  # what a document is, and what held them; None: found by the corpus's suffix
    text_field: str  # the field that holds the text, where a document has fields
    # prompt_field, completion_field: of records that are a prompt and its answer; None: not said
    prompt_field: str | None = None
    completion_field: str | None = None
    # form, turn, loss, rendering, other_turn, system, chat_template, chat_date: of records with
    # chats, what was asked for; None: as the corpus and the tokenizer have it
    form: str | None
    turn: str | None
    loss: str | None
    rendering: str | None
    other_turn: str | None
    system: str | None
    chat_template: str | None = None
    chat_date: str | None = None
    existing: Literal["refuse", "set_aside"]  # what became of fills that the corpus held already
    layers: Count  # of the LSTM
    units: Count  # of each of its layers
    # overrides of the model's training defaults, by name
    training: dict[str, bool | int | float | str | Rows[int | float | str] | None]
    device: str  # where the model was measured
    dtype: str  # the precision in which it was
    load_in: str | None  # "8bit" or "4bit" weights; None: as they were saved
    device_map: str | None  # "auto" where the model was spread over devices; else None
    offline: bool  # whether a hub name was looked up in the local cache alone
    revision: str | None  # of a hub name; None: its default branch


class TrainingResult(Record):
    """What a training came to."""

    model_path: _Directory  # of the model; a file has its name alone
    validation_bits: NotNegative  # loss of the kept checkpoint, bits per token, lower = more useful
    initial_validation_bits: NotNegative  # the same before training
    # best_step, best_epoch: when the kept checkpoint was made
    best_step: Count
    best_epoch: NotNegative
    # steps, epochs, tokens, seconds: of the whole training
    steps: Count
    epochs: NotNegative
    tokens: Count
    seconds: NotNegative
    stopped: str  # what ended it, such as "epochs" or "patience"
    processes: Count  # how many it ran on
    threads: Count | None  # of each process; None: not known
    reused: bool  # it had been finished before, and nothing was trained now
    claim: DpClaim | None = None  # what was promised of each document; None: nothing
    # of the validation text, by how often each token is in the training text, bits per token; None:
    # not known
    unigram_bits: NotNegative | None = None
    # copies of canaries that were read, each whole, in an epoch; None where it is not known
    delivered: Count | None = None

    @property
    def improved(self) -> bool:
        """Whether training lowered the validation loss by more than a rounding's worth."""
        return self.validation_bits < self.initial_validation_bits - LEAST_GAIN


class RunRecord(FileRecord):
    """run.json: written anew after each step of a run, and at the end of a measurement."""

    NAME: ClassVar[str] = "run.json"
    FAMILY: ClassVar[str] = "lmexposure.run"
    VERSION: ClassVar[int] = 3
    AGAIN: ClassVar[str] = "give the run's command again"
    ANEW: ClassVar[str] = "give its command with another directory"

    lmexposure: str  # the version that wrote it
    # of the directory that the command was called in; None where it is no checkout
    git_revision: str | None
    python: str  # the version of Python that it ran on
    platform: str  # the operating system and processor that it ran on
    versions: dict[str, str]  # of the packages that decide numbers, by name
    command: Literal["run", "measure"]  # "run", or "measure" of a model that was trained elsewhere
    # its path from the run's directory, or several paths or patterns with a NUL character between
    # them; None where it is not known
    corpus: str | None
    settings: RunOptions | None  # what was inserted and trained; None of a measurement alone
    measure: MeasureOptions  # what was asked of the measurement
    seconds: dict[str, NotNegative]  # how long each step took in the call that did it, by name
    # when the measuring ended, in UTC: "2026-11-22T06:30:00Z"; None before, and where no version
    # said
    measured: Utc | None
    device: str | None  # that the model was measured on; None before
    # what the training came to; None before, and of a measurement alone
    training: TrainingResult | None

    @model_validator(mode="after")
    def _a_run_has_settings(self) -> Self:
        if (self.settings is None) != (self.command == "measure"):
            raise ValueError(f"command={self.command!r} does not go with its settings")
        return self
