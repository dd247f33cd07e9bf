"""training.json: what a training by this package left beside its model, and the model's hashes."""

import json
import os
from pathlib import Path

from pydantic import Field

from lmexposure._files import read_bytes, sha256_file
from lmexposure._integrity import take_hash
from lmexposure._record import Record, refuse_other_version
from lmexposure._style import visible
from lmexposure.errors import ResultError
from lmexposure.studies.exposure.run_record import TrainingResult

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
    """The record in training.json; None where it is damaged.

    Raises:
        ResultError: the file may not be read, or is another version's.
    """
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
