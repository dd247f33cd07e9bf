"""A file of another version is refused in one sentence, whichever record it is."""

import json
from pathlib import Path

import pytest
from test_schemas import RECORDS

from lmexposure._files import content_hash
from lmexposure._integrity import CONTENT
from lmexposure._record import FileRecord


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("step", [-1, 1])
def test_a_file_of_another_version_is_refused(record: type[FileRecord], step: int) -> None:
    """With its version, ours, and how to make it again: it may be whole, and is no damaged one."""
    other = f"{record.FAMILY}/{record.VERSION + step}"
    values = {"schema": other, "canaries": []}
    for contents in (values, {**values, CONTENT: content_hash(values)}):
        with pytest.raises(record.ERROR) as refused:
            record.parse(json.dumps(contents).encode(), Path("home") / record.NAME)
        assert str(refused.value) == (
            f"home/{record.NAME} has schema {other!r}, and this version of lmexposure reads "
            f"{record.schema_name()!r} alone; {record.AGAIN}"
        )
