"""Several models over the same documents: in one table, or refused."""

from pathlib import Path
from typing import Any

import pytest
from made_looks import group, look

from lmexposure.errors import ResultError
from lmexposure.reporting import several_finding, several_looks, several_section, write_several
from lmexposure.studies import VerbatimFiles, VerbatimModel


def files(parameters: int, run: int, **changes: Any) -> VerbatimFiles:
    model = VerbatimModel(name=f"of-{parameters}", weights_sha256="ab" * 32, parameters=parameters)
    record = look(model=model, corpus=group(longest_run=run), **changes)
    return VerbatimFiles(result=record, result_path=Path(f"of-{parameters}/verbatim.json"))


def test_models_are_ordered_by_their_size(tmp_path: Path) -> None:
    records = several_looks([files(9_000, 200), files(100, 20), files(1_000, 60)])
    section = several_section(records)
    assert [row[0] for row in section.rows] == ["of-100", "of-1000", "of-9000"]
    assert [row[4] for row in section.rows] == ["20", "60", "200"]
    assert "of-9000 gives the longest run: 200 characters" in several_finding(records)
    page, text = write_several(records, tmp_path)
    assert "of-1000" in page.read_text("utf-8")
    assert "of-1000" in text.read_text("utf-8")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ResultError, match="1 look to compare"):
        several_looks([files(1, 1)])
    with pytest.raises(ResultError, match="is of other documents"):
        several_looks([files(1, 1), files(2, 1, corpus_sha256="00" * 32)])
    rule = files(1, 1).result.rule.model_copy(update={"tries": 5})
    other = files(2, 1).result.model_copy(update={"rule": rule})
    with pytest.raises(ResultError, match="asked for its windows otherwise"):
        several_looks([files(1, 1), VerbatimFiles(result=other, result_path=None)])
