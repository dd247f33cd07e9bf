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
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_insertion import with_canaries

from lmexposure.canaries import CorpusRecord, Format, InsertionStep, Plan
from lmexposure.canaries.insertion import manifest_of
from lmexposure.canaries.plan import draw
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
@settings(max_examples=30)
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
@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 12), max_size=7))
def test_in_order_it_is_insertion_into_texts(kind: str, cuts: list[int]) -> None:
    step, texts = InsertionStep.of(PLAN, total=12), []
    for start, stop in pairwise([0, *sorted(cuts), 12]):
        part = KINDS[kind](TABLE.slice(start, stop - start))
        texts += texts_of(step(part, range(start, stop)))
    assert texts == WHOLE
    assert step.manifest.entries == draw(PLAN, documents=12, set_aside={})


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
    gone = constant_step(kind=None)(pd.DataFrame({"text": TEXTS, "id": range(12), "kind": "a"}))
    assert (gone["kind"].isna() == ~gone["text"].isin(TEXTS)).all()


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
    about = CorpusRecord(layout="dataset", text_field="text")
    aside = manifest_of(PLAN, about, documents=12, set_aside={"pin": [1234]})
    texts = ["My PIN is 1234", *TEXTS[1:]]
    step = InsertionStep(manifest=aside)
    assert len(step({"text": texts}, range(12))["text"]) == 20


def test_a_manifest_is_taken_as_it_is() -> None:
    assert InsertionStep.of(MANIFEST).manifest is MANIFEST
    assert InsertionStep.of(MANIFEST, total=12).manifest is MANIFEST


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
        (
            ["a", "My PIN is 1234"],
            [3, 7],
            r"holds secrets of this format: pin 1 times \(document 7\), counted from",
        ),
    ],
)
def test_refused_rows(kind: str, texts: list[Any], ids: list[Any], message: str) -> None:
    columns: dict[str, Any] = {"text": texts, "id": ids}
    batch = pd.DataFrame(columns, dtype=object) if kind == "frame" else pa.table(columns)
    with pytest.raises(CorpusError, match=message) as failure:
        STEP(columns if kind == "columns" else batch)
    assert "1234" not in str(failure.value)


def test_a_record_batch_stays_one() -> None:
    batch = TABLE.to_batches()[0]
    inserted = STEP(batch)
    assert isinstance(inserted, pa.RecordBatch)
    assert inserted.schema.equals(batch.schema)
    assert inserted.to_pylist() == STEP(TABLE).to_pylist()
    assert len(STEP(batch.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (MANIFEST, {"total": 13}, "total=13, but the manifest was made for 12"),
        (MANIFEST, {"text_field": "body"}, "text_field='body', but the manifest was made for 'tex"),
        (MANIFEST, {"fields": {"id": 1}}, r"fields=\['id'\], but the manifest was made for \[\]"),
        (PLAN, {"total": None}, "count its rows and give total"),
        (PLAN, {"total": 0}, "total=0 must be a whole number at least 1"),
        (PLAN, {"fields": {"text": ""}}, "fields must leave out the text column 'text'"),
        (PLAN, {"total": 2}, "repetitions=3 need as many documents"),
        ("pin", {}, "plan is of type str; give a Plan or a Manifest"),
        *(
            (PLAN, {"fields": fields}, r"fields is of type \w+; give constants by name|a name")
            for fields in ([1], "abc", {1: 2}, [])
        ),
    ],
)
def test_refused_steps(plan: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((CorpusError, ManifestError, PlanError), match=message):
        InsertionStep.of(plan, **{"total": 12, **options})


TWICE = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "n", "n"])
PLAIN, NUMBERED = InsertionStep(manifest=MANIFEST), STEP
FRAME = TABLE.to_pandas().assign(kind=pd.Categorical(["a", "b"] * 6), flag=True)
BATCHES: list[tuple[InsertionStep, Any, Any, str]] = [
    *(
        (NUMBERED, batch, None, "no column 'id'; there are text")
        for batch in ({"text": ["a"]}, pa.table({"text": ["a"]}), pd.DataFrame({"text": ["a"]}))
    ),
    (PLAIN, {}, [], "no column 'text'; there are none"),
    (constant_step(source=1), {"text": ["a"], "id": [0]}, None, "no column 'source'; there are te"),
    (PLAIN, {"text": "a"}, 0, "this is one row, and the step takes batches; map with"),
    (PLAIN, {"text": ["a"], "n": 1}, [0], "this is one row, and the step takes batches"),
    (PLAIN, [["a"]], [0], "batch is of type list, .* map the data set with_form"),
    *(
        (PLAIN, batch, None, "no document numbers; map with with_indices=True, ")
        for batch in ({"text": ["a"]}, TABLE, FRAME)
    ),
    (PLAIN, {"text": ["a", "b", "c"]}, [0, 1], "has 3 rows and 2 numbers; give a number for each"),
    (PLAIN, {"text": ["a"]}, [0, 1], "has 1 rows and 2 numbers"),
    (PLAIN, {"text": ["a"]}, 3, "numbers is of type int; give a number for each row"),
    (PLAIN, {"text": ["a", "b"], "n": [1]}, [0, 1], "of unlike lengths: text 2, n 1; make them al"),
    (constant_step(n="x"), TWICE, [0], "there are two columns 'n'; rename one"),
    (constant_step(n="x"), TWICE.to_pandas(), [0], "there are two columns 'n'; rename one"),
    (PLAIN, TWICE.rename_columns(["text", "text", "n"]), [0], "there are two columns 'text'; ren"),
    *(
        (constant_step(id=value), batch, None, "constant for column 'id' is not of its type, int64")
        for batch in (TABLE, FRAME)
        for value in ("seven", 2**70)
    ),
    # pandas would make missing values of canaries, and say nothing.
    (
        STEP,
        FRAME.assign(text=pd.Categorical(TEXTS)),
        None,
        "'text' is not of its type, category; gi",
    ),
    (constant_step(kind="z"), FRAME, None, "constant for column 'kind' is not of its type, "),
    (constant_step(flag="no"), FRAME, None, "constant for column 'flag' is not of its type, "),
]


@pytest.mark.parametrize(("step", "batch", "numbers", "message"), BATCHES)
def test_refused_batches(step: InsertionStep, batch: Any, numbers: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        step(batch, numbers)
