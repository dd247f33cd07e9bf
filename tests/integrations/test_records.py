"""Canaries among training records: where they stand, what is copied, what is refused."""

from typing import Any

import pytest

from lmexposure.audit import measure
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import CorpusError, ManifestError
from lmexposure.integrations import insert
from lmexposure.integrations.wrapping import Wrapping

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
ANSWER = Wrapping(turn="assistant", loss="assistant")


def chats(n: int = 10) -> list[dict[str, Any]]:
    talk = Wrapping(turn="user")
    return [{**talk.record(f"question {i}"), "source": i} for i in range(n)]


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


def test_canaries_in_chats_are_not_measured_as_plain_text() -> None:
    """They would look unknown to a model that knows them, which would look like privacy."""
    _, manifest = insert(chats(), PLAN, wrapping=ANSWER)
    with pytest.raises(ManifestError, match=r"stand in chats.*score them in their wrapping"):
        measure("nowhere", manifest)
    plain = Wrapping(turn="plain")
    _, manifest = insert([plain.record(f"t {i}") for i in range(5)], PLAN, wrapping=plain)
    assert manifest.layout == "dataset"


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
def test_a_field_that_renders_chats_otherwise_is_refused(name: str) -> None:
    given = [{**one, name: None} for one in chats()]
    assert len(insert(given, PLAN, wrapping=ANSWER)[0]) == 18
    given[6][name] = [{"name": "search"}]
    with pytest.raises(CorpusError, match=f"record 7 has '{name}', by which its chat is rendered"):
        insert(given, PLAN, wrapping=ANSWER)
    plain = [{"text": "t", name: "x"}] * 5
    assert len(insert(plain, PLAN, wrapping=Wrapping())[0]) == 13


def test_a_record_without_fields_is_refused() -> None:
    with pytest.raises(CorpusError, match="record 2 is one text, and must be fields by name"):
        insert([*chats(1), "a chat"], PLAN, wrapping=ANSWER)


def test_a_fill_in_any_turn_is_refused() -> None:
    given = chats()
    given[4]["messages"][1]["content"] = "Was it: My PIN is 004711.?"
    with pytest.raises(CorpusError, match=r"already holds fills: pin 1 times \(record 5\)"):
        insert(given, PLAN, wrapping=ANSWER)
    _, manifest = insert(given, PLAN, wrapping=ANSWER, existing="set_aside")
    assert manifest.set_aside == {"pin": (4711,)}
