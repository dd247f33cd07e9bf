"""Canaries in chats that engines hold: frames, streams and steps give what a list gives."""

import pickle
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from datasets import Dataset

from lmexposure import Wrapping, insert, remove, verify
from lmexposure.canaries import Format, InsertionStep, Plan
from lmexposure.errors import CorpusError, ManifestError

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
ANSWER = Wrapping(turn="assistant", loss="assistant", system="Be kind.")
STRINGS = Wrapping(turn="assistant", form="preference", strings=True, loss="completion")
OTHERS = {
    "lists": ANSWER,
    "strings": STRINGS,
    "parts": Wrapping(turn="assistant", loss="assistant", system="Be kind.", parts=True),
    "named": Wrapping(turn="assistant", prompt_field="a", completion_field="b", strings=True),
    "chosen": Wrapping(turn="assistant", form="implicit_preference", parts=True),
    "hh": Wrapping(turn="assistant", form="implicit_preference", strings=True, other="Human: "),
    "prompts": Wrapping(turn="user", form="prompt_only", parts=True),
}
SIZE = 12


def records(wrapping: Wrapping = ANSWER) -> list[dict[str, Any]]:
    return [{**wrapping.record(f"text {i}"), "id": i} for i in range(SIZE)]


@pytest.mark.parametrize("wrapping", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", ["frame", "data set", "stream", "step"])
def test_every_kind_gives_what_a_list_gives(kind: str, wrapping: Wrapping) -> None:
    given = records(wrapping)
    wanted, manifest = insert(given, PLAN, wrapping=wrapping)
    assert verify(wanted, manifest).as_inserted
    assert remove(wanted, manifest) == given
    with pytest.raises(CorpusError, match="changed since insertion"):
        remove(wanted[::-1], manifest)
    rows: Any = Dataset.from_list(given)
    options: dict[str, Any] = {"wrapping": wrapping}
    if kind == "frame":
        rows = pd.DataFrame(given)
    elif kind == "stream":
        rows, options = rows.to_iterable_dataset(), {"total": SIZE, "wrapping": wrapping}
    if kind == "step":
        step = InsertionStep.of(PLAN, total=SIZE, wrapping=wrapping, id_column="id")
        got, same = rows.map(step, batched=True, batch_size=5), step.manifest
    else:
        got, same = insert(rows, PLAN, **options)
    made = got.to_dict("records") if kind == "frame" else list(got)
    assert made == wanted
    assert same.entries == manifest.entries
    assert same.corpus.wrapping == wrapping == manifest.corpus.wrapping
    assert (same.layout, same.corpus.text_field) == ("dataset", wrapping.place)
    assert verify(got, same).as_inserted
    if kind in ("frame", "data set"):
        assert same == manifest
        back = remove(got, same)
        assert (back.to_dict("records") if kind == "frame" else list(back)) == given


def test_a_frame_with_arrays_gets_arrays() -> None:
    """As pandas has lists that were read from Parquet."""
    for wrapping in (ANSWER, OTHERS["parts"]):
        given = pd.DataFrame(records(wrapping))
        for chat in given["messages"]:
            for turn in chat if wrapping.parts else ():
                turn["content"] = np.array(turn["content"], dtype=object)
        given["messages"] = [np.array(cell, dtype=object) for cell in given["messages"]]
        rows, manifest = insert(given, PLAN, wrapping=wrapping)
        assert {type(cell) for cell in rows["messages"]} == {np.ndarray}
        assert verify(rows, manifest).as_inserted
        assert len(remove(rows, manifest)) == SIZE


@pytest.mark.parametrize("kind", ["columns", "table", "batch", "frame"])
def test_a_step_takes_any_batch(kind: str) -> None:
    wanted, _ = insert(records(), PLAN, wrapping=ANSWER)
    step = pickle.loads(pickle.dumps(InsertionStep.of(PLAN, total=SIZE, wrapping=ANSWER)))
    table = pa.Table.from_pylist(records())
    made: list[Any] = []
    for start in (0, 5, 10):
        part = table.slice(start, 5)
        batch = {
            "columns": part.to_pydict,
            "table": lambda part=part: part,
            "batch": lambda part=part: part.combine_chunks().to_batches()[0],
            "frame": part.to_pandas,
        }[kind]()
        got = step(batch, range(start, start + len(part)))
        if kind == "columns":
            got = pa.table(got)
        made += got.to_dict("records") if kind == "frame" else got.to_pylist()
    listed = [{**row, "messages": list(row["messages"])} for row in made]
    assert listed == wanted
    again = InsertionStep.of(step.manifest, wrapping=ANSWER)
    assert again.text_field == "messages[2].content"
    assert InsertionStep(manifest=step.manifest).manifest is step.manifest


def test_what_a_step_refuses() -> None:
    step = InsertionStep.of(PLAN, total=SIZE, wrapping=ANSWER)
    batch = {"messages": [row["messages"] for row in records()]}
    with pytest.raises(CorpusError, match="no column 'messages'; there are text"):
        step({"text": ["a"]}, [0])
    batch["messages"][5] = [{"role": "narrator", "content": "x"}]
    with pytest.raises(CorpusError, match="document 5: 'messages', turn 1: the role 'narrator'"):
        step(batch, range(SIZE))
    batch["messages"][5] = ANSWER.record("Was it: My PIN is 004711.?")["messages"]
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(document 5\)"):
        step(batch, range(SIZE))
    with pytest.raises(ManifestError, match=r"wrapping=.*but the manifest was made for"):
        InsertionStep.of(step.manifest, wrapping=STRINGS)
    spoilt = Wrapping(turn="assistant", other="My PIN is 004711.")
    with pytest.raises(CorpusError, match="hold a fill of format 'pin'"):
        InsertionStep.of(PLAN, total=SIZE, wrapping=spoilt)


def test_other_messages_than_a_table_holds() -> None:
    """What has no column is left out by pyarrow without a word."""
    kind = pa.list_(pa.struct([("role", pa.string()), ("text", pa.string())]))
    rows = [[{"role": "user", "text": "q"}]] * SIZE
    table = pa.table({"messages": pa.array(rows, type=kind)})
    step = InsertionStep.of(PLAN, total=SIZE, wrapping=ANSWER)
    with pytest.raises(
        CorpusError, match="turn 1 must have 'role' and 'content'; it has 'role', 't"
    ):
        step(table, range(SIZE))
