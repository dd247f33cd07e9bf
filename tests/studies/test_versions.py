"""What is no file, or one of another version, is refused in one sentence, whatever it is of."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_schemas import RECORDS

from lmexposure._files import content_hash
from lmexposure._integrity import CONTENT
from lmexposure._record import FileRecord
from lmexposure.canaries import Manifest
from lmexposure.canaries.manifest import ManifestFile
from lmexposure.errors import InputError
from lmexposure.studies import RunRecord
from lmexposure.sweeps.matrices import read_npz

READ: list[Callable[[Path], Any]] = [
    *(record.read for record in RECORDS),
    *(Manifest.read, lambda path: read_npz(path, "train again")),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("read", READ)
def test_a_pipe_or_a_directory_is_no_record(
    tmp_path: Path, read: Callable[[Path], Any], made: Callable[[Path], None]
) -> None:
    """And nobody waits for a pipe."""
    made(tmp_path / "record")
    with pytest.raises(InputError, match="record"):
        read(tmp_path / "record")


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("step", [-1, 1])
def test_a_file_of_another_version_is_refused(record: type[FileRecord], step: int) -> None:
    """With its version, ours, and the way out: it may be whole, and is no damaged one."""
    other = f"{record.FAMILY}/{record.VERSION + step}"
    values = {"schema": other, "canaries": []}
    for contents in (values, {**values, CONTENT: content_hash(values)}):
        with pytest.raises(record.ERROR) as refused:
            record.parse(json.dumps(contents).encode(), Path("home") / record.NAME)
        assert str(refused.value) == (
            f"home/{record.NAME} has schema {other!r}, and this version of lmexposure reads "
            f"{record.schema_name()!r} alone; use the version of lmexposure that wrote it; else "
            f"{record.ANEW or record.AGAIN}"
        )


@pytest.mark.parametrize(
    ("record", "way"),
    [
        (ManifestFile, "else insert again"),  # it is the one that insertion wrote
        (RunRecord, "else give its command with another directory"),  # in its own: refused again
    ],
)
def test_its_next_step_leads_somewhere(record: type[FileRecord], way: str) -> None:
    with pytest.raises(record.ERROR, match=f"version of lmexposure that wrote it; {way}$"):
        record.refuse_version({"schema": f"{record.FAMILY}/99"}, Path(record.NAME))
