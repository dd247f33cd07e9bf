"""rows.json: what it holds, who may read it, and what is refused."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lmexposure.errors import ManifestError
from lmexposure.studies import RowsClass, RowsRecord


def record(**changes: Any) -> RowsRecord:
    of_class = RowsClass(
        format="pin",
        repetitions=2,
        canaries=5,
        planned=10,
        whole=9,
        cut=1,
        missing=0,
        without_loss=1,
        otherwise=1,
    )
    values: dict[str, Any] = {
        "manifest_sha256": "a" * 64,
        "tokenizer_sha256": "b" * 64,
        "rows": 40,
        "found": 8,
        "agreeing": 7,
        "start": (1, 2),
        "before": "\n",
        "behind": "<|end|>",
        "unscored": 0,
        "loss": "assistant",
        "packed": False,
        "classes": (of_class,),
        "warnings": (),
    }
    return RowsRecord(**values | changes)


def test_it_is_read_as_it_was_written_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = RowsRecord.beside(tmp_path / "manifest.json")
    made = record()
    made.save(path)
    assert path == tmp_path / "rows.json"
    assert RowsRecord.read(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["schema"] == "lmexposure.rows/1"
    assert "<|end|>" not in repr(made)


def test_rows_are_as_planned_where_all_is_whole_with_loss_in_a_known_context() -> None:
    (lossy,) = record().classes
    whole = lossy.model_copy(update={"whole": 10, "cut": 0, "without_loss": 0})
    assert record(classes=(whole,)).as_planned
    for changes in ({"whole": 9}, {"whole": 11}, {"without_loss": 1}):
        assert not record(classes=(whole.model_copy(update=changes),)).as_planned
    unknown = record(classes=(whole,), start=None, agreeing=0, before="", behind="")
    assert not unknown.as_planned


def test_a_context_that_is_missing_says_why() -> None:
    with pytest.raises(ValidationError, match="agreeing=7 does not go with a context that is not"):
        record(start=None)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with pytest.raises(ManifestError, match=r"cannot read .*; give the rows.json of rows that"):
        RowsRecord.read(path)
    record().save(path)
    path.write_bytes(path.read_bytes().replace(b'"rows": 40', b'"rows": 41'))
    with pytest.raises(ManifestError, match=r"edited or damaged .* verify the rows again"):
        RowsRecord.read(path)
