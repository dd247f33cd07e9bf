"""A file of another version is refused in one sentence, whichever record it is."""

import json
from pathlib import Path

import pytest
from test_schemas import RECORDS

from lmexposure._files import content_hash
from lmexposure._integrity import CONTENT
from lmexposure._record import FileRecord
from lmexposure.canaries.manifest import ManifestFile
from lmexposure.studies import RunRecord


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
