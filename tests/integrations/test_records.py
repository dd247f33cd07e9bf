"""Canaries among training records: where they stand, what is copied, what is refused."""

from typing import Any

import pytest

from lmexposure.audit import measure
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import CorpusError, ManifestError
from lmexposure.integrations.records import insert_into_records
from lmexposure.integrations.wrapping import Wrapping

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
ANSWER = Wrapping(turn="assistant", loss="assistant")


def chats(n: int = 10) -> list[dict[str, Any]]:
    talk = Wrapping(turn="user")
    return [{**talk.record(f"question {i}"), "source": i} for i in range(n)]


def test_canaries_stand_before_their_documents() -> None:
    given = chats()
    records, manifest = insert_into_records(given, PLAN, ANSWER)
    assert len(records) == 10 + 2 * (1 + 3)
    assert [one for one in records if one in given] == given
    for canary in manifest.entries:
        own = ANSWER.record(canary.text)["messages"]
        places = [i for i, one in enumerate(records) if one["messages"] == own]
        assert len(places) == canary.inserted
        followers = [records[i]["source"] for i in places]
        assert followers == list(canary.positions)[: canary.inserted]


def test_the_manifest_is_whole(tmp_path: Any) -> None:
    _, manifest = insert_into_records(chats(), PLAN, ANSWER)
    manifest.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json").sha256 == manifest.sha256
    assert manifest.corpus.text_field == "messages[1].content"
    assert manifest.corpus.documents == 10


def test_canaries_in_chats_are_not_measured_as_plain_text() -> None:
    """They would look unknown to a model that knows them, which would look like privacy."""
    _, manifest = insert_into_records(chats(), PLAN, ANSWER)
    with pytest.raises(ManifestError, match=r"stand in chats.*score them in their wrapping"):
        measure("nowhere", manifest)
    plain = Wrapping(turn="plain")
    _, manifest = insert_into_records([plain.record(f"t {i}") for i in range(5)], PLAN, plain)
    assert manifest.layout == "dataset"


def test_prompts_and_texts_go_in_as_well() -> None:
    split = Wrapping(turn="assistant", loss="completion")
    records, _ = insert_into_records([split.record(f"t {i}") for i in range(5)], PLAN, split)
    assert all(set(one) == {"prompt", "completion"} for one in records)
    plain, _ = insert_into_records([{"text": f"t {i}"} for i in range(5)], PLAN, Wrapping())
    assert len(plain) == 5 + 8


def test_a_record_without_the_field_is_refused() -> None:
    with pytest.raises(CorpusError, match="record 2 has no field 'messages', which this wrapping"):
        insert_into_records([*chats(1), {"text": "t"}], PLAN, ANSWER)


@pytest.mark.parametrize("name", ["tools", "chat_template_kwargs"])
def test_a_field_that_renders_chats_otherwise_is_refused(name: str) -> None:
    given = [{**one, name: None} for one in chats()]
    assert len(insert_into_records(given, PLAN, ANSWER)[0]) == 18
    given[6][name] = [{"name": "search"}]
    with pytest.raises(CorpusError, match=f"record 7 has '{name}', by which its chat is rendered"):
        insert_into_records(given, PLAN, ANSWER)
    plain = [{"text": "t", name: "x"}] * 5
    assert len(insert_into_records(plain, PLAN, Wrapping())[0]) == 13


def test_a_record_without_fields_is_refused() -> None:
    with pytest.raises(CorpusError, match="record 1 is of type str, and must be fields by name"):
        insert_into_records(["a chat"], PLAN, ANSWER)  # type: ignore[list-item]


def test_a_fill_in_any_turn_is_refused() -> None:
    given = chats()
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(record 5\)"):
        insert_into_records(given, PLAN, ANSWER)
    _, manifest = insert_into_records(given, PLAN, ANSWER, existing="set_aside")
    assert manifest.set_aside == {"pin": (4711,)}
