"""Which form records have, and the wrapping that follows from the first of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.canaries import FORMS, Wrapping, WrappingChoice, read_records, recognise
from lmexposure.errors import CorpusError, SettingsError

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "Be kind."}
OF_EACH: Mapping[str, dict[str, Any]] = {
    "text": {"text": "t", "id": 1},
    "messages": {"messages": [SYSTEM, USER, ANSWER]},
    "conversations": {
        "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    },
    "prompt_completion": {"prompt": "q", "completion": "a"},
    "instruction": {"instruction": "q", "input": "", "output": "a"},
    "preference": {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER]},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_recognised_by_its_fields(form: str) -> None:
    assert recognise([OF_EACH[form]] * 3) == form
    assert recognise([{**OF_EACH[form], "messages": OF_EACH[form].get("messages")}]) == form
    made = WrappingChoice().wrapping([OF_EACH[form]] * 3)
    assert (made is None) == (form == "text")
    if made is not None:
        assert made.form == form
        assert set(made.record("x")) == set(OF_EACH[form])


def test_records_of_no_form_are_left_to_their_reader() -> None:
    assert recognise([]) == "text"
    assert recognise([{"body": "t"}]) == "text"
    assert recognise([{"body": "t"}], text_field="body") == "text"


def test_what_is_not_clear_is_asked() -> None:
    both = {**OF_EACH["instruction"], "text": "whole prompt"}
    with pytest.raises(CorpusError, match=r"form instruction or text: .*--form text") as failure:
        recognise([both])
    assert "whole prompt" not in str(failure.value)
    for form in ("instruction", "text"):
        made = WrappingChoice(form=form).wrapping([both])
        assert (made is None) == (form == "text")
    assert WrappingChoice(text_field="body").wrapping([OF_EACH["messages"]]) is None
    with pytest.raises(CorpusError, match=r"record 1 is of the form messages, and record 2 is con"):
        recognise([OF_EACH["messages"], OF_EACH["conversations"]])
    # What a record lacks is said by its reader, with its file and line.
    assert recognise([OF_EACH["messages"], OF_EACH["messages"], {"messages": None}]) == "messages"
    assert recognise([{"text": "a"}, {"body": "b"}]) == "text"


def test_a_system_prompt_is_that_of_all() -> None:
    chats = [OF_EACH["messages"]] * 3
    made = WrappingChoice().wrapping(chats)
    assert made == Wrapping(turn="assistant", loss="assistant", form="messages", system="Be kind.")
    other = {"messages": [{**SYSTEM, "content": "Be rude."}, USER, ANSWER]}
    lasts: list[dict[str, Any]] = [other, {"messages": [USER, ANSWER]}, {"messages": []}]
    for last in lasts:
        made = WrappingChoice().wrapping([*chats, last])
        assert made is not None
        assert made.system is None
    said = WrappingChoice(system="Be brief.").wrapping([*chats, other])
    assert said is not None
    assert said.system == "Be brief."
    shared = [{"from": "system", "value": "S"}, *OF_EACH["conversations"]["conversations"]]
    of_shared = WrappingChoice().wrapping([{"conversations": shared}])
    assert of_shared is not None
    assert (of_shared.system, of_shared.place) == ("S", "conversations[2].value")
    prompts = WrappingChoice().wrapping([{"prompt": [SYSTEM, USER], "completion": [ANSWER]}])
    assert prompts is not None
    assert (prompts.system, prompts.strings, prompts.rendering) == ("Be kind.", False, "chat")


def test_turn_and_loss_have_their_usual_values() -> None:
    for form, loss in (("messages", "assistant"), ("conversations", "assistant")):
        made = WrappingChoice().wrapping([OF_EACH[form]])
        assert made is not None
        assert (made.turn, made.loss) == ("assistant", loss)
    for form in ("prompt_completion", "instruction", "preference"):
        made = WrappingChoice().wrapping([OF_EACH[form]])
        assert made is not None
        assert (made.turn, made.loss) == ("assistant", "completion")
    asked = WrappingChoice(turn="user", other="Yes.").wrapping([OF_EACH["messages"]])
    assert asked is not None
    assert (asked.turn, asked.loss, asked.other) == ("user", "all", "Yes.")
    whole = WrappingChoice(loss="all", rendering="chat").wrapping([OF_EACH["instruction"]])
    assert whole is not None
    assert (whole.loss, whole.rendering) == ("all", "chat")


@pytest.mark.parametrize(
    "said", [{"turn": "user"}, {"loss": "all"}, {"other": "x"}, {"system": "x"}]
)
def test_what_is_said_of_chats_does_not_go_with_texts(said: dict[str, str]) -> None:
    name = next(iter(said))
    with pytest.raises(SettingsError, match=f"{name}=.* is of chats, and these documents are text"):
        WrappingChoice(**said).wrapping([OF_EACH["text"]])
    with pytest.raises(SettingsError, match="no token of the canary carries loss"):
        WrappingChoice(turn="user", loss="assistant").wrapping([OF_EACH["messages"]])
    with pytest.raises(SettingsError, match="form='mails' must be one of"):
        WrappingChoice(form="mails").wrapping([OF_EACH["messages"]])


def test_records_are_read_with_all_their_fields(tmp_path: Path) -> None:
    rows = [{**OF_EACH["messages"], "id": number} for number in range(5)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "a.jsonl").write_text(f"{lines}\n\n{json.dumps(rows[0])}\n")
    assert list(read_records(tmp_path / "a.jsonl")) == [*rows, rows[0]]
    (tmp_path / "b.json").write_text(lines)
    assert list(read_records([tmp_path / "b.json"], layout="jsonl")) == rows
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    assert list(read_records(tmp_path / "c.parquet")) == rows
    with pa.ipc.new_stream(tmp_path / "d.arrow", pa.Table.from_pylist(rows).schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows))
    assert list(read_records(tmp_path / "d.arrow")) == rows
    (tmp_path / "e.txt").write_text("text\n")
    with pytest.raises(CorpusError, match="layout 'lines' are texts; name the layout of the rec"):
        list(read_records(tmp_path / "e.txt"))
    (tmp_path / "f.jsonl").write_text("[1]\n")
    with pytest.raises(CorpusError, match=r"f.jsonl: line 1 is a JSON list, not an object"):
        list(read_records(tmp_path / "f.jsonl"))
