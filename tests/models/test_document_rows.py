"""Documents as rows: whole canaries, cut ends, whose each row is, what is held out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from models.small_private import CANARIES, DOCUMENTS, PRIVATE, lstm

from lmexposure.errors import ModelError
from lmexposure.models import TrainingSettings
from lmexposure.models.padded_rows import PaddedRows, rows_of_documents


def rows(
    documents: list[str] = DOCUMENTS, separator: str | None = "\n", **arguments: Any
) -> tuple[PaddedRows, PaddedRows]:
    given: dict[str, Any] = {"canaries": CANARIES, "settings": PRIVATE} | arguments
    return rows_of_documents(lstm().tokenizer, documents, separator=separator, **given)


def texts(made: PaddedRows) -> list[str]:
    tokenizer = lstm().tokenizer
    ends = list(zip(made.starts[:-1], made.starts[1:], strict=True))
    return [tokenizer.decode(made.ids[start:end]) for start, end in ends]


def test_each_document_is_a_row_behind_its_separator() -> None:
    kept, held = rows()
    assert set(texts(kept)) | set(texts(held)) == {"\n" + text for text in DOCUMENTS}
    assert len(kept) + len(held) == len(DOCUMENTS)
    assert kept.carried.all()
    assert (kept.predicted == np.diff(kept.starts) - 1).all()


def test_documents_to_validate_on_may_be_given_and_empty_ones_are_no_rows() -> None:
    kept, held = rows(["line 1", "", "all"], canaries={}, validation=["line 1", "all"])
    assert texts(kept) == texts(held) == ["\nline 1", "\nall"]


def test_a_row_is_its_own_unit_or_its_owners() -> None:
    given = ["anne", None, "bert", "anne", None]
    kept, held = rows(
        [f"line {i}" for i in range(5)], canaries={}, validation=["all", "all"], units=given
    )
    assert kept.units.tolist() == [0, 1, 2, 0, 3]
    assert held.units.tolist() == [0, 1]
    assert len(kept.parts) == len(held.parts) + 1  # whose they are decides what is learned
    assert rows()[0].units.tolist() == list(range(len(rows()[0])))


def test_a_row_keeps_its_owner_where_others_are_held_out_or_empty() -> None:
    documents = [*DOCUMENTS, *([""] * 3), "line 99"]
    owners = [f"of {text}" for text in documents]
    kept, _ = rows(documents, units=owners)
    of_rows = [f"of {text.removeprefix(chr(10))}" for text in texts(kept)]
    numbers: dict[str, int] = {}
    assert kept.units.tolist() == [numbers.setdefault(name, len(numbers)) for name in of_rows]


AS_PLANNED = "1 of 2 canaries would not reach the model as planned: canary 0 is"
SHORT = replace(PRIVATE, block_size=9)


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        (DOCUMENTS, SHORT, "canary 0 of 2 has 10 tokens with .*block_size=9; .* raise block_size"),
        (DOCUMENTS[:-1], PRIVATE, f"{AS_PLANNED} 0 documents instead of 1; train on the doc"),
        ([*DOCUMENTS, "code 0815"], PRIVATE, f"{AS_PLANNED} 2 documents instead of 1"),
        ([*DOCUMENTS[:-1], "line code 0815"], PRIVATE, f"{AS_PLANNED} 0 documents instead"),
    ],
)
def test_a_canary_that_is_not_there_as_planned_is_refused(
    documents: list[str], settings: TrainingSettings, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        rows(documents, settings=settings)


def test_long_documents_are_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    kept, held = rows(settings=replace(PRIVATE, block_size=14))
    long = sum(len(text) + 1 > 14 for text in DOCUMENTS)
    said = [record.getMessage() for record in caplog.records]
    assert all("are longer than block_size=14 tokens, and are cut there" in text for text in said)
    assert sum(int(text.split()[0]) for text in said) == long > 0
    assert np.diff(kept.starts).max() == 14
    assert len(kept) + len(held) == len(DOCUMENTS)
