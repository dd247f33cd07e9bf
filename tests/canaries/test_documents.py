"""Canaries in chats: where they are, what is copied, what is refused, and the way back."""

import logging
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from lmexposure import Wrapping, insert, remove, verify
from lmexposure.canaries import Format, Plan
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
ANSWER = Wrapping(turn="assistant", loss="assistant")
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
    records, manifest = insert(given, PLAN, wrapping=ANSWER)
    assert len(records) == 10 + 2 * (1 + 3)
    assert [one for one in records if one in given] == given
    for canary in manifest.entries:
        own = ANSWER.record(canary.text)["messages"]
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
    splits, manifest = insert(DatasetDict(train=rows, test=rows), PLAN, wrapping=ANSWER)
    assert splits["train"].features == rows.features
    assert len(splits["train"]) == 18
    assert verify(splits, manifest).as_inserted
    assert list(remove(splits, manifest)["train"]) == list(rows)
    with pytest.raises(CorpusError, match="no column 'prompt'; there are messages"):
        insert(rows, PLAN, wrapping=SPLIT)
    texts = rows.map(lambda row: {"messages": row["messages"][0]["content"]})
    with pytest.raises(CorpusError, match="constant for column 'messages' is not of its type"):
        insert(texts, PLAN, wrapping=ANSWER)


def test_strings_in_arrays_are_searched() -> None:
    """Parquet files give pandas an array where they have a list."""
    given = chats()
    given[4]["messages"] = np.array(given[4]["messages"])
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(record 5\)"):
        insert(given, PLAN, wrapping=ANSWER)


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


TEXTS = ["a", "b", "c"]
HELD = "Was it: My PIN is 004711.?"
REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([*chats(1), {"text": "t"}], {}, "record 2 has no field 'messages', which this wrapping"),
    ([*chats(1), "a chat"], {}, "record 2 is one text, and must be fields by name"),
    (TEXTS, {}, "a wrapping is for a list of records"),
    (TEXTS, {"wrapping": None, "fields": {"n": "x"}}, "texts have no fields; give records"),
    (TEXTS, {"wrapping": None, "id_column": "n"}, "id_column=n is for a stream; leave it out"),
    (spoilt(ANSWER, ANSWER.record(HELD)["messages"]), {}, r"already holds fills: pin 1 .*cord 3\)"),
    (chats(), {"wrapping": Wrapping(turn="assistant", other=HELD)}, "hold a fill of format 'pin'"),
    (chats(), {"fields": {"tools": [{}]}}, "'tools' is given to the canaries' records, by which"),
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
        for wrapping, last in ((ANSWER, "messages"), (SPLIT, "completion"))
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
        insert(documents, PLAN, **{"wrapping": ANSWER, **options})
