"""Canaries in chats in memory and in engines: all give what a list gives, and the way back."""

import logging
import pickle
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

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
    with pytest.raises(
        CorpusError, match=r"already holds secrets of this format: pin 1 times \(document 5\)"
    ):
        step(batch, range(SIZE))
    with pytest.raises(ManifestError, match=r"wrapping=.*but the manifest was made for"):
        InsertionStep.of(step.manifest, wrapping=STRINGS)
    spoilt = Wrapping(turn="assistant", other="My PIN is 004711.")
    with pytest.raises(CorpusError, match="hold a secret of format 'pin'"):
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


SPOKEN = Wrapping(turn="assistant", loss="assistant")
SPLIT = Wrapping(turn="assistant", loss="completion")


def chats(n: int = 10) -> list[dict[str, Any]]:
    talk = Wrapping(turn="user")
    return [{**talk.record(f"question {i}"), "source": i} for i in range(n)]


@pytest.mark.parametrize("kind", [list, Dataset.from_list, tuple])
def test_what_an_insertion_shows_of_itself_holds_no_secret(kind: Any) -> None:
    """A notebook keeps what a cell gives."""
    made = insert(kind([{"text": f"text {n}"} for n in range(30)]), PLAN)
    shown = repr(made)
    assert shown.startswith("<Inserted: 38 documents in a ")
    assert shown.endswith(", <Manifest of 30 documents: 4 canaries and 1 control of pin>>")
    assert not any(canary.text[-7:-1] in shown for canary in made.manifest.entries)
    documents, manifest = made
    assert (documents, manifest) == (made.documents, made.manifest)


def test_a_set_of_splits_is_not_counted() -> None:
    rows = Dataset.from_list([{"text": f"text {n}"} for n in range(30)])
    shown = repr(insert(DatasetDict(train=rows), PLAN))
    assert shown.startswith("<Inserted: a DatasetDict, <Manifest of 30")


def test_canaries_stand_before_their_documents() -> None:
    given = chats()
    records, manifest = insert(given, PLAN, wrapping=SPOKEN)
    assert len(records) == 10 + 2 * (1 + 3)
    assert [one for one in records if one in given] == given
    for canary in manifest.entries:
        own = SPOKEN.record(canary.text)["messages"]
        places = [i for i, one in enumerate(records) if one["messages"] == own]
        assert len(places) == canary.inserted
        followers = [records[i]["source"] for i in places]
        assert followers == list(canary.positions)[: canary.inserted]


def test_prompts_and_texts_go_in_as_well() -> None:
    records, _ = insert([SPLIT.record(f"t {i}") for i in range(5)], PLAN, wrapping=SPLIT)
    assert all(set(one) == {"prompt", "completion"} for one in records)
    plain, _ = insert([{"text": f"t {i}"} for i in range(5)], PLAN, wrapping=Wrapping())
    assert len(plain) == 5 + 8


def test_chats_of_a_data_set_keep_their_features() -> None:
    talk = [{"content": f"text {i}", "role": "user", "name": None} for i in range(10)]
    rows = Dataset.from_list([{"messages": [one, {**one, "name": "Al"}]} for one in talk])
    splits, manifest = insert(DatasetDict(train=rows, test=rows), PLAN, wrapping=SPOKEN)
    assert splits["train"].features == rows.features
    assert len(splits["train"]) == 18
    assert verify(splits, manifest).as_inserted
    assert list(remove(splits, manifest)["train"]) == list(rows)
    with pytest.raises(CorpusError, match="no column 'prompt'; there are messages"):
        insert(rows, PLAN, wrapping=SPLIT)
    texts = rows.map(lambda row: {"messages": row["messages"][0]["content"]})
    with pytest.raises(CorpusError, match="constant for column 'messages' is not of its type"):
        insert(texts, PLAN, wrapping=SPOKEN)


def test_strings_in_arrays_are_searched() -> None:
    """Parquet files give pandas an array where they have a list."""
    given = chats()
    given[4]["messages"] = np.array(given[4]["messages"])
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(
        CorpusError, match=r"already holds secrets of this format: pin 1 times \(record 5\)"
    ):
        insert(given, PLAN, wrapping=SPOKEN)


def test_what_is_read_later_is_not_restored() -> None:
    rows = Dataset.from_dict({"text": ["a", "b", "c"]})
    _, manifest = insert(rows, PLAN)
    with pytest.raises(CorpusError, match="read later are not in memory; give a Dataset"):
        remove(rows.to_iterable_dataset(), manifest)


def test_what_has_no_hash_is_restored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = Dataset.from_dict({"text": ["a", "b", "c"]})
    with caplog.at_level(logging.WARNING):
        inserted, manifest = insert(rows, PLAN)
        assert list(remove(inserted, manifest)) == list(rows)
        assert not caplog.records
        inserted, manifest = insert(rows.to_iterable_dataset(), PLAN, total=3)
        assert remove(list(inserted), manifest) == list(rows)
    assert "no hash of the documents before insertion" in caplog.text


def spoilt(wrapping: Wrapping, value: Any) -> list[Any]:
    """Records of which the third has this value in its last field."""
    rows = [wrapping.record(f"question {number}") for number in range(4)]
    rows[2][list(rows[0])[-1]] = value
    return rows


LETTERS = ["a", "b", "c"]
HELD = "Was it: My PIN is 004711.?"
REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([*chats(1), {"text": "t"}], {}, "record 2 has no field 'messages', which this wrapping"),
    ([*chats(1), "a chat"], {}, "record 2 is one text, and must be fields by name"),
    (LETTERS, {}, "a wrapping is for a list of records"),
    (LETTERS, {"wrapping": None, "fields": {"n": "x"}}, "texts have no fields; give records"),
    (LETTERS, {"wrapping": None, "id_column": "n"}, "id_column=n is for a stream; leave it out"),
    (
        spoilt(SPOKEN, SPOKEN.record(HELD)["messages"]),
        {},
        r"already holds secrets of this format: pin 1 .*cord 3\)",
    ),
    (
        chats(),
        {"wrapping": Wrapping(turn="assistant", other=HELD)},
        "hold a secret of format 'pin'",
    ),
    (
        chats(),
        {"fields": {"tools": [{}]}},
        "'tools' is given to the canaries' records, which the temp",
    ),
    (chats(), {"fields": {"messages": []}}, "must leave out 'messages': the canary goes there"),
    (chats(), {"fields": {"zz": 1}}, "record 1 has no field 'zz', for which fields gives a c"),
    *(
        (
            chats(),
            {"fields": fields},
            r"fields is of type \w+; give constants by name|a name in fie",
        )
        for fields in ([1], "abc", {1: 2}, [])
    ),
    *(
        (
            spoilt(wrapping, value),
            {"wrapping": wrapping},
            f"record 3: '{last}' is of type {type(value).__name__}, and must be a list of messages",
        )
        for wrapping, last in ((SPOKEN, "messages"), (SPLIT, "completion"))
        for value in ("a text", None, 3)
    ),
    (
        spoilt(Wrapping(), []),
        {"wrapping": Wrapping()},
        "record 3: 'text' is of type list, and must",
    ),
]


@pytest.mark.parametrize(("documents", "options", "message"), REFUSED)
def test_refused_chats(documents: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(documents, PLAN, **{"wrapping": SPOKEN, **options})
