"""Insertion into Arrow tables and pandas frames, however a corpus is cut into them."""

import pickle
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, insert_into_texts
from lmexposure.canaries.engine_tables import (
    hash_sum,
    id_sums,
    insert_into_pandas,
    insert_into_table,
    row_count,
    with_numbers,
)
from lmexposure.canaries.numbered_rows import InsertionStep, manifest_of_rows
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(12)]
MANIFEST = manifest_of_rows(PLAN, documents=12)
STEP = InsertionStep(manifest=MANIFEST, id_column="id")
WHOLE = Counter(insert_into_texts(TEXTS, PLAN)[0])
COLUMNS = {
    "text": TEXTS,
    "id": list(range(12)),
    "tags": [["a"], [], None] * 4,
    "when": [datetime(2026, 1, 1, tzinfo=UTC), None] * 6,
}


def constant_step(**fields: Any) -> InsertionStep:
    manifest = manifest_of_rows(PLAN, documents=12, fields=fields)
    return InsertionStep(manifest=manifest, id_column="id", fields=fields)


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=7))
def test_any_order_and_any_parts_give_the_same_documents(order: list[int], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    table = pa.table(COLUMNS).take(order)
    parts = [table.slice(a, b - a) for a, b in pairwise(edges)]
    tables = [insert_into_table(part, STEP) for part in parts]
    assert all(one.schema == table.schema for one in tables)
    assert Counter(pa.concat_tables(tables)["text"].to_pylist()) == WHOLE
    frames = insert_into_pandas((one.to_pandas() for one in parts), MANIFEST, id_column="id")
    assert Counter(text for frame in frames for text in frame["text"]) == WHOLE


def test_canary_rows_copy_the_row_that_follows() -> None:
    merged = insert_into_table(pa.table(COLUMNS), STEP)
    following: dict[str, Any] = {}
    for row in reversed(merged.to_pylist()):
        if row["text"] not in TEXTS:
            assert {**row, "text": ""} == {**following, "text": ""}
        following = row
    assert [t for t in merged["text"].to_pylist() if t in TEXTS] == TEXTS


def test_constants_take_the_types_of_their_columns() -> None:
    table = pa.table({**COLUMNS, "weight": pa.array([0.5] * 12, type=pa.float32())})
    merged = insert_into_table(table, constant_step(weight=2, tags=["canary"]))
    assert merged.schema == table.schema
    for row in merged.to_pylist():
        assert (row["weight"] == 2) == (row["tags"] == ["canary"]) == (row["text"] not in TEXTS)
    frame = pd.DataFrame({"text": TEXTS, "id": range(12), "weight": np.float32(0.5)})
    frame.index = range(100, 112)
    step = constant_step(weight=2)
    (found,) = insert_into_pandas([frame], step.manifest, id_column="id", fields={"weight": 2})
    assert dict(found.dtypes) == dict(frame.dtypes)
    assert ((found["weight"] == 2) == ~found["text"].isin(TEXTS)).all()


def test_batches_without_rows_or_canaries_stay_as_they_are() -> None:
    table = pa.table(COLUMNS)
    free = next(n for n in range(12) if not insert_into_table(table.slice(n, 1), STEP).num_rows - 1)
    assert insert_into_table(table.slice(free, 1), STEP).equals(table.slice(free, 1))
    assert insert_into_table(pa.table({}), STEP).num_rows == 0
    frames = [pd.DataFrame(), table.slice(free, 1).to_pandas()]
    assert [len(one) for one in insert_into_pandas(frames, MANIFEST, id_column="id")] == [0, 1]


def test_a_constant_of_another_type() -> None:
    step = constant_step(id="seven")
    with pytest.raises(CorpusError, match="constant for column 'id' is not of its type, int64"):
        insert_into_table(pa.table(COLUMNS), step)
    frame = pd.DataFrame({"text": TEXTS, "id": range(12)})
    with pytest.raises(CorpusError, match="constant for column 'id' is not of its type, int64"):
        list(insert_into_pandas([frame], step.manifest, id_column="id", fields={"id": "seven"}))


def test_types_that_do_not_keep_texts() -> None:
    """pandas would make missing values of canaries, and say nothing."""
    frame = pd.DataFrame({"text": pd.Categorical(TEXTS), "id": range(12)})
    with pytest.raises(CorpusError, match="column 'text' is not of its type, category; give"):
        list(insert_into_pandas([frame], MANIFEST, id_column="id"))
    for value, column in (("z", pd.Categorical(["a", "b"] * 6)), ("no", [True] * 12)):
        frame = pd.DataFrame({"text": TEXTS, "id": range(12), "kind": column})
        step = constant_step(kind=value)
        with pytest.raises(CorpusError, match="constant for column 'kind' is not of its type, "):
            list(insert_into_pandas([frame], step.manifest, id_column="id", fields=step.fields))
    frame = pd.DataFrame({"text": TEXTS, "id": range(12), "kind": ["a"] * 12})
    step = constant_step(kind=None)
    (found,) = insert_into_pandas([frame], step.manifest, id_column="id", fields=step.fields)
    assert (found["kind"].isna() == ~found["text"].isin(TEXTS)).all()
    views = pa.table({"text": pa.array(TEXTS, type=pa.string_view()), "id": range(12)})
    with pytest.raises(CorpusError, match=r"cannot rearrange rows of these types \(text: string_v"):
        insert_into_table(views, STEP)
    words = pa.table({"text": pa.array(TEXTS).dictionary_encode(), "id": range(12)})
    assert Counter(insert_into_table(words, STEP)["text"].to_pylist()) == WHOLE


def test_no_id_column() -> None:
    with pytest.raises(CorpusError, match=r"parts of a table keep no order.*name the id_column"):
        insert_into_table(pa.table(COLUMNS), InsertionStep(manifest=MANIFEST))
    with pytest.raises(CorpusError, match="no column 'number'; there are text, id"):
        list(insert_into_pandas([pd.DataFrame(COLUMNS)], MANIFEST, id_column="number"))


def mixed(number: int) -> int:
    """SplitMix64, in whole numbers of any size."""
    mask = 2**64 - 1
    z = number * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


@given(st.lists(st.integers(0, 2**63), max_size=9))
def test_sums_of_hashes(numbers: list[int]) -> None:
    expected = sum(map(mixed, numbers)) % 2**64
    assert hash_sum(np.array(numbers, dtype=np.uint64)) == expected


def test_sums_of_ids_tell_a_fault() -> None:
    found = id_sums(pa.table({"id": [2, 0, 1]}), id_column="id", documents=3)
    hashes = str(hash_sum(np.arange(3, dtype=np.uint64)))
    assert found == {"count": ["3"], "hashes": [hashes], "fault": [""]}
    found = id_sums(pa.table({"id": [2, 3]}), id_column="id", documents=3)
    assert found["fault"][0].startswith("there is a document 3")


def test_numbers_for_rows() -> None:
    table = pa.table({"text": ["a", "b"]})
    assert row_count(table) == 2
    assert with_numbers(table, 5, "n").to_pydict() == {"text": ["a", "b"], "n": [5, 6]}


def test_an_engine_s_worker_loads_neither_torch_nor_datasets() -> None:
    script = (
        "import pickle, sys; step = pickle.loads(sys.stdin.buffer.read())\n"
        "import lmexposure.canaries.engine_tables\n"
        "assert not {'torch', 'datasets', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], input=pickle.dumps(STEP), check=True)
