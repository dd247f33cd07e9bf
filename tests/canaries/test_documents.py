"""Canaries in chats: where they are, what is copied, what is refused, and the way back."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from lmexposure import Wrapping, insert, remove, verify
from lmexposure.canaries import Format, Manifest, Plan, insert_files
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
ANSWER = Wrapping(turn="assistant", loss="assistant")


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
    records, manifest = insert(given, PLAN, wrapping=ANSWER)
    assert len(records) == 10 + 2 * (1 + 3)
    assert [one for one in records if one in given] == given
    for canary in manifest.entries:
        own = ANSWER.record(canary.text)["messages"]
        places = [i for i, one in enumerate(records) if one["messages"] == own]
        assert len(places) == canary.inserted
        followers = [records[i]["source"] for i in places]
        assert followers == list(canary.positions)[: canary.inserted]


def test_the_manifest_is_whole(tmp_path: Any) -> None:
    _, manifest = insert(chats(), PLAN, wrapping=ANSWER)
    manifest.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json").sha256 == manifest.sha256
    assert manifest.corpus.text_field == "messages[1].content"
    assert manifest.corpus.documents == 10


def test_prompts_and_texts_go_in_as_well() -> None:
    split = Wrapping(turn="assistant", loss="completion")
    records, _ = insert([split.record(f"t {i}") for i in range(5)], PLAN, wrapping=split)
    assert all(set(one) == {"prompt", "completion"} for one in records)
    plain, _ = insert([{"text": f"t {i}"} for i in range(5)], PLAN, wrapping=Wrapping())
    assert len(plain) == 5 + 8


def test_a_record_without_the_field_is_refused() -> None:
    with pytest.raises(CorpusError, match="record 2 has no field 'messages', which this wrapping"):
        insert([*chats(1), {"text": "t"}], PLAN, wrapping=ANSWER)


@pytest.mark.parametrize("name", ["tools", "chat_template_kwargs"])
def test_a_field_that_renders_chats_otherwise_is_empty_in_those_of_canaries(name: str) -> None:
    given = [{**one, name: [{"name": "search"}]} for one in chats()]
    texts, manifest = insert(given, PLAN, wrapping=ANSWER)
    assert len(texts) == 18
    inserted = sum(entry.inserted for entry in manifest.entries)
    assert sum(record[name] is None for record in texts) == inserted
    plain = [{"text": "t", name: "x"}] * 5
    assert len(insert(plain, PLAN, wrapping=Wrapping())[0]) == 13


def test_a_record_without_fields_is_refused() -> None:
    mixed: list[Any] = [*chats(1), "a chat"]
    with pytest.raises(CorpusError, match="record 2 is one text, and must be fields by name"):
        insert(mixed, PLAN, wrapping=ANSWER)
    with pytest.raises(CorpusError, match="a wrapping is for a list of records"):
        insert(["a chat"], PLAN, wrapping=ANSWER)


def test_a_fill_in_any_turn_is_refused() -> None:
    given = chats()
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(record 5\)"):
        insert(given, PLAN, wrapping=ANSWER)
    _, manifest = insert(given, PLAN, wrapping=ANSWER, existing="set_aside")
    assert manifest.set_aside == {"pin": (4711,)}


def test_a_fill_of_the_wrapping_itself_is_refused() -> None:
    spoilt = Wrapping(turn="assistant", other="Was it: My PIN is 004711.?")
    with pytest.raises(CorpusError, match="hold a fill of format 'pin', which would go in with ea"):
        insert(chats(), PLAN, wrapping=spoilt)


WRAPPINGS = [
    Wrapping(),
    Wrapping(turn="user", other="Yes."),
    ANSWER,
    Wrapping(turn="assistant", loss="completion"),
]


@pytest.mark.parametrize("wrapping", WRAPPINGS, ids=lambda wrapping: wrapping.place)
def test_there_and_back(wrapping: Wrapping) -> None:
    given = [{**wrapping.record(f"text {i}"), "source": "web"} for i in range(10)]
    inserted, manifest = insert(given, PLAN, wrapping=wrapping, fields={"source": "canary"})
    assert verify(inserted, manifest).as_inserted
    assert [one["source"] for one in inserted].count("canary") == 8
    assert manifest.corpus.constant_fields == ("source",)
    assert remove(inserted, manifest) == given
    with pytest.raises(CorpusError, match="changed since insertion"):
        remove(inserted[::-1], manifest)
    rows, same = insert(
        Dataset.from_list(given), PLAN, wrapping=wrapping, fields={"source": "canary"}
    )
    assert list(rows) == inserted
    assert same == manifest
    assert verify(rows, manifest).as_inserted
    assert list(remove(rows, manifest)) == given


def test_chats_of_a_data_set_keep_their_features() -> None:
    talk = [{"content": f"text {i}", "role": "user", "name": None} for i in range(10)]
    rows = Dataset.from_list([{"messages": [one, {**one, "name": "Al"}]} for one in talk])
    splits, manifest = insert(DatasetDict(train=rows, test=rows), PLAN, wrapping=ANSWER)
    assert splits["train"].features == rows.features
    assert len(splits["train"]) == 18
    assert verify(splits, manifest).as_inserted
    assert list(remove(splits, manifest)["train"]) == list(rows)
    with pytest.raises(CorpusError, match="no column 'prompt'; there are messages"):
        insert(rows, PLAN, wrapping=WRAPPINGS[3])
    texts = rows.map(lambda row: {"messages": row["messages"][0]["content"]})
    with pytest.raises(CorpusError, match="constant for column 'messages' is not of its type"):
        insert(texts, PLAN, wrapping=ANSWER)


def test_constants_may_not_change_how_chats_are_rendered() -> None:
    with pytest.raises(CorpusError, match="'tools' is given to the canaries' records, by which"):
        insert(chats(), PLAN, wrapping=ANSWER, fields={"tools": [{"name": "search"}]})
    with pytest.raises(
        CorpusError, match="fields must leave out 'messages': the canary goes there"
    ):
        insert(chats(), PLAN, wrapping=ANSWER, fields={"messages": []})


def test_strings_in_arrays_are_searched() -> None:
    """Parquet files give pandas an array where they have a list."""
    given = chats()
    given[4]["messages"] = np.array(given[4]["messages"])
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(record 5\)"):
        insert(given, PLAN, wrapping=ANSWER)


def test_texts_have_no_fields() -> None:
    with pytest.raises(CorpusError, match="texts have no fields; give records"):
        insert(["a", "b", "c"], PLAN, fields={"source": "x"})
    with pytest.raises(CorpusError, match="id_column=n is for a stream; leave it out"):
        insert(["a", "b", "c"], PLAN, id_column="n")


def test_what_is_read_later_is_not_restored() -> None:
    rows = Dataset.from_dict({"text": ["a", "b", "c"]})
    _, manifest = insert(rows, PLAN)
    with pytest.raises(CorpusError, match="read later are not in memory; give a Dataset"):
        remove(rows.to_iterable_dataset(), manifest)


@pytest.mark.parametrize("fields", [[1], "abc", {1: 2}, []])
def test_constants_that_are_none(fields: Any, tmp_path: Path) -> None:
    refusal = r"fields is of type \w+; give constants by name|a name in fields is of type int"
    with pytest.raises(CorpusError, match=refusal):
        insert([{"text": "a"}] * 3, PLAN, fields=fields)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(CorpusError, match=refusal):
        insert_files(tmp_path / "a.jsonl", tmp_path / "out", PLAN, fields=fields)


@pytest.mark.parametrize("value", ["a text", None, 3])
@pytest.mark.parametrize("wrapping", [ANSWER, Wrapping(turn="assistant", loss="completion")])
def test_chats_that_are_no_lists(value: Any, wrapping: Wrapping) -> None:
    rows = [wrapping.record(f"question {number}") for number in range(4)]
    last = list(rows[0])[-1]
    rows[2][last] = value
    kind = type(value).__name__
    expected = f"record 3: '{last}' is of type {kind}, and must be a list of messages"
    with pytest.raises(CorpusError, match=expected):
        insert(rows, PLAN, wrapping=wrapping)
    with pytest.raises(CorpusError, match="record 1: 'text' is of type list, and must be a string"):
        insert([{"text": [{"role": "user", "content": "a"}]}] * 4, PLAN, wrapping=Wrapping())
    with pytest.raises(CorpusError, match="record 1 has no field 'zz', for which fields gives a c"):
        insert(chats(), PLAN, wrapping=ANSWER, fields={"zz": 1})


def test_what_has_no_hash_is_restored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = Dataset.from_dict({"text": ["a", "b", "c"]})
    with caplog.at_level(logging.WARNING):
        inserted, manifest = insert(rows, PLAN)
        assert list(remove(inserted, manifest)) == list(rows)
        assert not caplog.records
        inserted, manifest = insert(rows.to_iterable_dataset(), PLAN, total=3)
        assert remove(list(inserted), manifest) == list(rows)
    assert "no hash of the documents before insertion" in caplog.text
