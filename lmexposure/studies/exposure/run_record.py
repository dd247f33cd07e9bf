"""run.json, what a training left beside its model, and rows.json: how its rows held the canaries.

What a trainer makes of a corpus (templates, truncation, packing, masks) is known best by its rows.
`lmexposure verify --rows` looks at them and leaves rows.json beside the manifest, where `measure`
finds it.
"""

import json
import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from lmexposure._files import PRIVATE, read_bytes, sha256_file
from lmexposure._integrity import take_hash
from lmexposure._record import (
    Count,
    FileRecord,
    NotNegative,
    Record,
    Rows,
    Sha256,
    Utc,
    refuse_other_version,
)
from lmexposure._style import visible
from lmexposure.errors import ManifestError, ResultError
from lmexposure.studies.dp import DpClaim
from lmexposure.studies.exposure.record import LEAST_GAIN
from lmexposure.studies.settings import MeasureSettings, RunSettings

# Between the names of several files or patterns in `RunRecord.corpus`: no name can hold it.
SEVERAL = "\0"


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) else value


def _name(path: Path) -> str:
    return path.name


_Directory = Annotated[Path, BeforeValidator(_path), PlainSerializer(_name, when_used="json")]


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
    # what was inserted and trained, with a seed that was given, but for that of the coins; None of
    # a measurement alone
    settings: RunSettings | None
    measure: MeasureSettings  # what was asked of the measurement
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


TRAINING_SCHEMA = "lmexposure.training/1"
_AGAIN = "train again into another directory, or copy the model elsewhere and measure it there"


class TrainingFile(Record):
    """The file but for its envelope."""

    inputs_sha256: str  # of all that decides the weights
    settings: dict[str, object] = Field(default={})  # of the training, by name
    manifest_sha256: str | None = None  # of the manifest of its corpus; None: it had none
    chat_date: str | None = None  # that its chats were rendered with; None: none
    result: TrainingResult  # what it came to
    model_files: dict[str, str]  # SHA-256 of each file of the model, by its path from there
    # SHA-256 of what is private of it and lies next to this file, by name: dp_report.json,
    # white_box.json
    beside: dict[str, str] = Field(default={})

    def refuse_strange(self, home: Path) -> tuple[str, ...]:
        """Refuse what is not as it was written beside this file; which of it has gone."""
        lost = []
        for name, sha256 in self.beside.items():
            path = home / name
            if not path.exists():
                lost.append(name)
            elif os.access(path, os.R_OK) and _hash(path) != sha256:  # for its owner alone
                raise ResultError(
                    f"{visible(path)} is not what the training wrote; put back the one that "
                    "belongs to it, or take it away"
                )
        return tuple(lost)


def _hash(path: Path) -> str | None:
    """Of a file; None of what is none, as a directory or a pipe."""
    try:
        return sha256_file(path)
    except OSError:
        return None


def read_training(path: Path) -> TrainingFile | None:
    """The record in training.json; None where it is damaged."""
    try:
        values = json.loads(read_bytes(path))
        refuse_other_version(values, path, TRAINING_SCHEMA, _AGAIN)
        whole = take_hash(values) and values.pop("schema") == TRAINING_SCHEMA
        return TrainingFile.model_validate(values) if whole else None
    except ResultError:
        raise
    except IsADirectoryError:
        return None
    except OSError as failure:
        reason = failure.strerror or failure
        raise ResultError(f"cannot read {visible(str(path))}: {reason}; {_AGAIN}") from failure
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class RowsClass(Record):
    """What became of the canaries of one class in one pass over the rows."""

    format: str  # of the class
    # how often each was inserted; 0: controls and candidates that were not inserted, which must not
    # be there
    repetitions: Count
    canaries: Count  # how many there are
    planned: Count  # how many occurrences there should be: canaries times repetitions
    whole: Count  # occurrences that are in a row as a whole
    cut: Count  # occurrences that a row's end cuts
    missing: Count  # planned occurrences that are neither
    without_loss: Count  # of `whole`, those of which some of the secret carries no loss
    otherwise: Count  # of `whole`, those with loss that are in another context than the record's


class RowsRecord(FileRecord):
    """rows.json: in which rows the canaries of a manifest were trained."""

    # What is next to a canary may be somebody's text.
    model_config = ConfigDict(hide_input_in_errors=True)

    NAME: ClassVar[str] = "rows.json"
    FAMILY: ClassVar[str] = "lmexposure.rows"
    VERSION: ClassVar[int] = 1
    ERROR = ManifestError
    AGAIN: ClassVar[str] = "verify the rows again, or remove the file"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256  # of the manifest whose canaries were looked for
    tokenizer_sha256: Sha256  # of the rows' tokenizer, as `models.tokenizer_sha256` gives it
    rows: Count  # how many rows were read
    found: Count  # occurrences of inserted canaries that are whole and carry loss
    agreeing: Count  # those of them that are in the row that the next four fields describe
    # numbers of the tokens in front of all; None: the rows agree with no single context
    start: Rows[Count] | None
    # text between these tokens and a canary, encoded together with it
    before: str = Field(repr=False)
    behind: str = Field(repr=False)  # text that follows a canary, up to the first special token
    unscored: Count  # how many of a canary's first tokens carry no loss
    # which tokens of these rows carry it: "all"; "completion", those from a place on; "assistant",
    # others
    loss: Literal["all", "assistant", "completion"]
    packed: bool  # whether other texts are in the same rows
    classes: Rows[RowsClass]  # occurrences class by class
    warnings: Rows[str]  # what is not as planned, a sentence each
    # whether these are all rows of a pass, and not those that there was time for
    whole: bool = True

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.start is None) != (self.agreeing == 0):
            raise ValueError(
                f"agreeing={self.agreeing} does not go with a context that is "
                f"{'not known' if self.start is None else 'known'}"
            )
        return self

    @property
    def as_planned(self) -> bool:
        """Whether each planned occurrence is whole and carries loss, and the context is known."""
        whole = all(each.whole == each.planned for each in self.classes)
        return self.start is not None and whole and not any(c.without_loss for c in self.classes)

    @property
    def lacking(self) -> int | None:
        """How many planned copies the rows lack, or hold cut or without loss."""
        without = sum(c.without_loss for c in self.classes)
        if not self.whole:
            return without or None
        return without + sum(c.missing + c.cut for c in self.classes)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a rows.json."""
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ManifestError(
                f"cannot read {path}: {failure.strerror}; give the rows.json of rows that were "
                "verified"
            ) from failure
        return cls.parse(content, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone."""
        self.write(Path(path), mode=PRIVATE)

    @classmethod
    def beside(cls, manifest: str | Path) -> Path:
        """Where the rows of this manifest are written down: in its directory."""
        manifest = Path(manifest)
        return manifest / cls.NAME if manifest.is_dir() else manifest.with_name(cls.NAME)
