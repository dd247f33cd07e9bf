"""Insertion into batches of numbered rows of any kind, however a corpus is cut into them."""

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_insertion import with_canaries

from lmexposure.canaries import (
    Format,
    InsertionStep,
    Plan,
)
from lmexposure.canaries.insertion import About, manifest_of
from lmexposure.canaries.plan import (
    draw,
)
from lmexposure.errors import CorpusError, ManifestError, PlanError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(12)]
STEP = InsertionStep.of(PLAN, total=12, id_column="id")
MANIFEST = STEP.manifest
WHOLE = with_canaries(TEXTS, MANIFEST)
COLUMNS: dict[str, Any] = {
    "text": TEXTS,
    "id": list(range(12)),
    "tags": [["a"], [], None] * 4,
    "when": [datetime(2026, 1, 1, tzinfo=UTC), None] * 6,
}
TABLE = pa.table(COLUMNS)
KINDS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda table: table.to_pydict(),
    "table": lambda table: table,
    "frame": lambda table: table.to_pandas(),
}


def texts_of(batch: Any) -> list[str]:
    return list(batch["text"].to_pylist() if isinstance(batch, pa.Table) else batch["text"])


def constant_step(**fields: Any) -> InsertionStep:
    return InsertionStep.of(PLAN, total=12, fields=fields, id_column="id")


@pytest.mark.parametrize("kind", KINDS)
@given(order=st.permutations(range(12)), cuts=st.lists(st.integers(0, 12), max_size=7))
def test_any_order_and_any_parts_give_the_same_documents(
    kind: str, order: list[int], cuts: list[int]
) -> None:
    table, texts = TABLE.take(order), []
    for start, stop in pairwise([0, *sorted(cuts), 12]):
        part = KINDS[kind](table.slice(start, stop - start))
        merged = STEP(part)
        assert type(merged) is type(part)
        if isinstance(part, pa.Table):
            assert merged.schema == part.schema
        texts += texts_of(merged)
    assert Counter(texts) == Counter(WHOLE)


@pytest.mark.parametrize("kind", KINDS)
@given(cuts=st.lists(st.integers(0, 12), max_size=7))
def test_in_order_it_is_insertion_into_texts(kind: str, cuts: list[int]) -> None:
    step, texts = InsertionStep.of(PLAN, total=12), []
    for start, stop in pairwise([0, *sorted(cuts), 12]):
        part = KINDS[kind](TABLE.slice(start, stop - start))
        texts += texts_of(step(part, range(start, stop)))
    assert texts == WHOLE
    assert step.manifest.entries == draw(PLAN, documents=12, set_aside={})


@pytest.mark.parametrize("kind", ["columns", "table"])
def test_canary_rows_copy_the_row_that_follows(kind: str) -> None:
    merged = STEP(KINDS[kind](TABLE))
    rows = merged if isinstance(merged, pa.Table) else pa.table(merged)
    following: dict[str, Any] = {}
    for row in reversed(rows.to_pylist()):
        if row["text"] not in TEXTS:
            assert {**row, "text": ""} == {**following, "text": ""}
        following = row
    assert [text for text in texts_of(rows) if text in TEXTS] == TEXTS


def test_other_columns_are_copied_or_constant() -> None:
    step = constant_step(source="canary")
    batch: dict[str, Any] = {"id": range(12), "source": ["web"] * 12, "text": TEXTS}
    merged = step(batch)
    following = None
    for number, source, text in reversed(list(zip(*merged.values(), strict=True))):
        assert source == ("web" if text in TEXTS else "canary")
        assert text in TEXTS or number == following
        following = number


def test_constants_take_the_types_of_their_columns() -> None:
    table = TABLE.append_column("weight", pa.array([0.5] * 12, type=pa.float32()))
    merged = constant_step(weight=2, tags=["canary"])(table)
    assert merged.schema == table.schema
    for row in merged.to_pylist():
        assert (row["weight"] == 2) == (row["tags"] == ["canary"]) == (row["text"] not in TEXTS)
    frame = pd.DataFrame({"text": TEXTS, "id": range(12), "weight": np.float32(0.5)})
    frame.index = range(100, 112)
    found = constant_step(weight=2)(frame)
    assert dict(found.dtypes) == dict(frame.dtypes)
    assert list(found.index) == list(range(20))
    assert ((found["weight"] == 2) == ~found["text"].isin(TEXTS)).all()


def test_columns_of_numpy_and_of_other_mappings() -> None:
    batch: dict[str, Any] = {"text": np.array(TEXTS, dtype=object), "id": np.arange(12)}
    assert STEP(batch)["text"] == WHOLE
    assert InsertionStep.of(PLAN, total=12)(batch, np.arange(12))["text"] == WHOLE  # type: ignore[arg-type]


def test_batches_without_rows_or_canaries_stay_as_they_are() -> None:
    free = next(n for n in range(12) if STEP(TABLE.slice(n, 1)).num_rows == 1)
    assert STEP(TABLE.slice(free, 1)).equals(TABLE.slice(free, 1))
    assert STEP(pa.table({})).num_rows == 0
    frames = [pd.DataFrame(), TABLE.slice(free, 1).to_pandas()]
    assert [len(frame) for frame in map(STEP, frames)] == [0, 1]
    assert STEP({"text": [], "id": []}) == {"text": [], "id": []}


def test_a_merged_table_is_pickled_without_what_it_was_cut_from() -> None:
    texts = [text + " " * 10_000 for text in TEXTS]
    size = len(pickle.dumps(STEP(TABLE.set_column(0, "text", pa.array(texts)))))
    assert size < 2 * 10_000 * len(TEXTS)


def test_a_constant_of_another_type() -> None:
    step = constant_step(id="seven")
    for batch in (TABLE, TABLE.to_pandas()):
        with pytest.raises(CorpusError, match="constant for column 'id' is not of its type, int64"):
            step(batch)
        with pytest.raises(CorpusError, match="constant for column 'id' is not of its type, int64"):
            constant_step(id=2**70)(batch)


def test_types_that_do_not_keep_texts() -> None:
    """pandas would make missing values of canaries, and say nothing."""
    frame = pd.DataFrame({"text": pd.Categorical(TEXTS), "id": range(12)})
    with pytest.raises(CorpusError, match="column 'text' is not of its type, category; give"):
        STEP(frame)
    for value, column in (("z", pd.Categorical(["a", "b"] * 6)), ("no", [True] * 12)):
        frame = pd.DataFrame({"text": TEXTS, "id": range(12), "kind": column})
        with pytest.raises(CorpusError, match="constant for column 'kind' is not of its type, "):
            constant_step(kind=value)(frame)
    frame = pd.DataFrame({"text": TEXTS, "id": range(12), "kind": ["a"] * 12})
    found = constant_step(kind=None)(frame)
    assert (found["kind"].isna() == ~found["text"].isin(TEXTS)).all()


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), "dictionary"])
def test_types_that_keep_texts(kind: Any) -> None:
    texts = pa.array(TEXTS)
    column = texts.dictionary_encode() if kind == "dictionary" else texts.cast(kind)
    table = pa.table({"text": column, "id": range(12)})
    merged = STEP(table)
    assert (merged.schema, texts_of(merged)) == (table.schema, WHOLE)


def test_a_pickled_step_does_the_same() -> None:
    assert pickle.loads(pickle.dumps(STEP))(COLUMNS) == STEP(COLUMNS)


def test_a_worker_of_an_engine_loads_neither_torch_nor_datasets() -> None:
    script = (
        "import pickle, sys; step = pickle.loads(sys.stdin.buffer.read())\n"
        "assert step({'id': [0], 'text': ['a']})['text'][-1] == 'a'\n"
        "heavy = {'torch', 'datasets', 'transformers', 'pandas', 'pyarrow', 'ray'}\n"
        "assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], input=pickle.dumps(STEP), check=True)


def test_fills_that_are_set_aside_may_be_there() -> None:
    about = About("dataset", text_field="text")
    aside = manifest_of(PLAN, about, documents=12, set_aside={"pin": [1234]})
    texts = ["My PIN is 1234", *TEXTS[1:]]
    step = InsertionStep(manifest=aside)
    assert len(step({"text": texts}, range(12))["text"]) == 20


def test_a_manifest_is_taken_as_it_is() -> None:
    assert InsertionStep.of(MANIFEST).manifest is MANIFEST
    assert InsertionStep.of(MANIFEST, total=12).manifest is MANIFEST


def test_the_manifest_says_what_the_rows_are() -> None:
    fields = {"b": 1, "a": 2}
    manifest = InsertionStep.of(PLAN, total=12, text_field="body", fields=fields).manifest
    corpus = manifest.corpus
    assert (corpus.layout, corpus.text_field, corpus.constant_fields) == (
        "dataset",
        "body",
        ("a", "b"),
    )
    assert (corpus.documents, corpus.name, corpus.separator, corpus.verified) == (
        12,
        "",
        None,
        True,
    )
    assert (corpus.sha256, corpus.sha256_inserted, manifest.set_aside) == ("", "", {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total": 13}, "total=13, but the manifest was made for 12"),
        ({"text_field": "body"}, "text_field='body', but the manifest was made for 'text'"),
        ({"fields": {"id": 1}}, r"fields=\['id'\], but the manifest was made for \[\]"),
    ],
)
def test_a_manifest_of_other_rows(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        InsertionStep.of(MANIFEST, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "count its rows and give total"),
        ({"total": 0}, "total=0 must be a whole number at least 1"),
        ({"total": 5, "fields": {"text": ""}}, "fields must leave out the text column 'text'"),
    ],
)
def test_what_a_plan_needs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        InsertionStep.of(PLAN, **options)


def test_what_is_no_plan() -> None:
    with pytest.raises(PlanError, match="plan is of type str; give a Plan or a Manifest"):
        InsertionStep.of("pin", total=12)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="repetitions=3 need as many documents"):
        InsertionStep.of(PLAN, total=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("texts", "ids", "message"),
    [
        (["a"], [12], "there is a document 12, but with total=12 the last one is 11"),
        (["a"], [-1], "there is a document -1"),
        (["a"], [1.0], "the number 1.0 of type float; documents are numbered by whole numbers"),
        (["a"], [None], "the number None of type NoneType"),
        (["a"], [True], "the number True of type bool"),
        (["a", "b"], [3, 3], "two rows are document 3"),
        (["a", None], [3, 7], "document 7 is of type NoneType, not a string"),
        (["a", "My PIN is 1234"], [3, 7], r"holds fills: pin 1 times \(document 7\), counted from"),
    ],
)
def test_refused_rows(kind: str, texts: list[Any], ids: list[Any], message: str) -> None:
    columns: dict[str, Any] = {"text": texts, "id": ids}
    batch = pd.DataFrame(columns, dtype=object) if kind == "frame" else pa.table(columns)
    with pytest.raises(CorpusError, match=message) as failure:
        STEP(columns if kind == "columns" else batch)
    assert "1234" not in str(failure.value)


def test_refused_columns() -> None:
    for batch in ({"text": ["a"]}, pa.table({"text": ["a"]}), pd.DataFrame({"text": ["a"]})):
        with pytest.raises(CorpusError, match="no column 'id'; there are text"):
            STEP(batch)
    with pytest.raises(CorpusError, match="no column 'text'; there are none"):
        InsertionStep(manifest=MANIFEST)({}, [])
    with pytest.raises(CorpusError, match="no column 'source'; there are text, id"):
        constant_step(source=1)({"text": ["a"], "id": [0]})


def test_what_is_no_batch() -> None:
    with pytest.raises(CorpusError, match="this is one row, and the step takes batches; map with"):
        InsertionStep(manifest=MANIFEST)({"text": "a"}, 0)  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match=r"batch is of type list, .* map the data set with_form"):
        InsertionStep(manifest=MANIFEST)([["a"]], [0])


def test_batches_without_numbers() -> None:
    for batch in ({"text": ["a"]}, TABLE, TABLE.to_pandas()):
        with pytest.raises(CorpusError, match=r"no document numbers; map with with_indices=True, "):
            InsertionStep(manifest=MANIFEST)(batch)


def test_a_record_batch_stays_one() -> None:
    batch = TABLE.to_batches()[0]
    inserted = STEP(batch)
    assert isinstance(inserted, pa.RecordBatch)
    assert inserted.schema.equals(batch.schema)
    assert inserted.to_pylist() == STEP(TABLE).to_pylist()
    assert len(STEP(batch.slice(0, 0))) == 0


TWICE = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "n", "n"])


@pytest.mark.parametrize(
    ("batch", "numbers", "message"),
    [
        ({"text": ["a", "b", "c"]}, [0, 1], "has 3 rows and 2 numbers; give a number for each row"),
        ({"text": ["a"]}, [0, 1], "has 1 rows and 2 numbers"),
        ({"text": ["a"]}, 3, "numbers is of type int; give a number for each row"),
        ({"text": ["a", "b"], "n": [1]}, [0, 1], "of unlike lengths: text 2, n 1; make them alike"),
        ({"text": ["a"], "n": 1}, [0], "this is one row, and the step takes batches"),
        (TWICE, [0], "there are two columns 'n'; rename one"),
        (TWICE.to_pandas(), [0], "there are two columns 'n'; rename one"),
        (TWICE.rename_columns(["text", "text", "n"]), [0], "there are two columns 'text'; rename"),
    ],
)
def test_batches_that_do_not_go_together(batch: Any, numbers: Any, message: str) -> None:
    known = {} if isinstance(batch, dict) else {"n": "x"}
    step = InsertionStep.of(PLAN, total=12, fields=known)
    with pytest.raises(CorpusError, match=message):
        step(batch, numbers)


@pytest.mark.parametrize("fields", [[1], "abc", {1: 2}, []])
def test_constants_that_are_none(fields: Any) -> None:
    with pytest.raises(CorpusError, match=r"fields is of type \w+; give constants by name|a name"):
        InsertionStep.of(PLAN, total=12, fields=fields)
