"""What is no file where a record should be: a sentence at once, and no waiting for a pipe."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmexposure.canaries import Manifest
from lmexposure.errors import InputError
from lmexposure.studies import (
    Canife,
    NaturalIdentifiers,
    Result,
    RowsRecord,
    RunRecord,
    SweepPlan,
    SweepResult,
    VerbatimPassages,
    VerbatimRecord,
    WhiteBoxAudit,
)
from lmexposure.sweeps.matrices import read_npz

READ: list[Callable[[Path], Any]] = [
    *(record.read for record in (Canife, Result, RowsRecord, RunRecord, SweepPlan)),
    *(record.read for record in (SweepResult, VerbatimRecord, VerbatimPassages, WhiteBoxAudit)),
    *(NaturalIdentifiers.read, Manifest.read, lambda path: read_npz(path, "train again")),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("read", READ)
def test_a_pipe_or_a_directory_is_no_record(
    tmp_path: Path, read: Callable[[Path], Any], made: Callable[[Path], None]
) -> None:
    made(tmp_path / "record")
    with pytest.raises(InputError, match="record"):
        read(tmp_path / "record")
