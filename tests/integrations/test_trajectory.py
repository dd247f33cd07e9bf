import json
from pathlib import Path
from typing import Any

import pytest

from lmexposure.errors import FileError, ResultError
from lmexposure.integrations.trajectory import read_rows, write_rows


def test_rows_up_to_the_step_come_back(tmp_path: Path) -> None:
    path = tmp_path / "exposure.jsonl"
    rows: list[dict[str, Any]] = [{"step": step, "exposure": {}} for step in (2, 4, 6)]
    write_rows(path, rows)
    assert read_rows(path, until=4) == rows[:2]
    assert read_rows(path, until=0) == []
    assert read_rows(tmp_path / "none.jsonl", until=4) == []


@pytest.mark.parametrize("text", ["not json", json.dumps([1]), json.dumps({"epoch": 1})])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exposure.jsonl"
    path.write_text(text)
    with pytest.raises(ResultError, match=r"cannot read .*; move it away"):
        read_rows(path, until=3)


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "exposure.jsonl").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        write_rows(tmp_path / "exposure.jsonl", [])
