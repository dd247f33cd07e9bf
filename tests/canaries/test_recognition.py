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
    "implicit_preference": {"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
    "prompt_only": {"prompt": [USER], "answer": "a"},
}
# Rows as published data sets have them, with texts of our own.
DOLLY = {"instruction": "Name it.", "context": "", "response": "A lark.", "category": "open_qa"}
SQUAD = {
    "id": "1",
    "context": "Larks sing.",
    "question": "Who sings?",
    "answers": {"text": ["Larks"], "answer_start": [0]},
}
HH = {
    "chosen": "\n\nHuman: Who sings?\n\nAssistant: Larks do.",
    "rejected": "\n\nHuman: Who sings?\n\nAssistant: Go away.",
}
ULTRA = {
    "prompt": "Who sings?",
    "chosen": [{"role": "user", "content": "Who sings?"}, ANSWER],
    "rejected": [{"role": "user", "content": "Who sings?"}, {**ANSWER, "content": "b"}],
    "score_chosen": 7.5,
}
GSM8K = {"question": "What is 2 and 2?", "answer": "It is 4.\n#### 4"}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_recognised_by_its_fields(form: str) -> None:
    assert recognise([OF_EACH[form]] * 3) == form
    assert recognise([{**OF_EACH[form], "messages": OF_EACH[form].get("messages")}]) == form
    loss = "all" if form == "prompt_only" else None
    made = WrappingChoice(loss=loss).wrapping([OF_EACH[form]] * 3)
    assert (made is None) == (form == "text")
    if made is not None:
        assert made.form == form
        assert set(made.record("x")) == set(OF_EACH[form]) - {"answer"}


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


def test_fields_of_any_name_are_a_prompt_and_its_answer() -> None:
    named = WrappingChoice(prompt_field="question", completion_field="answer")
    made = named.wrapping([GSM8K] * 3)
    assert made is not None
    assert (made.form, made.strings, made.loss) == ("prompt_completion", True, "completion")
    assert (made.place, made.fields) == ("answer", ("question", "answer"))
    assert made.record("x") == {"question": "Please go on.", "answer": "x"}
    dolly = WrappingChoice(prompt_field="instruction", completion_field="response")
    of_dolly = dolly.wrapping([DOLLY])
    assert of_dolly is not None
    assert of_dolly.place == "response"
    chats = [{"asked": [SYSTEM, USER], "said in reply": [ANSWER]}]
    made = WrappingChoice(prompt_field="asked", completion_field="said in reply").wrapping(chats)
    assert made is not None
    assert (made.strings, made.system, made.place) == (
        False,
        "Be kind.",
        "said in reply[0].content",
    )


def test_named_fields_must_be_there_and_go_together() -> None:
    both = {"prompt_field": "question", "completion_field": "reply"}
    with pytest.raises(
        CorpusError,
        match=r"completion_field='reply': none of the first 2 records has such a field; they have "
        r"'question', 'answer': name one of these",
    ):
        WrappingChoice(**both).wrapping([GSM8K] * 2)
    for alone, other in (
        ("prompt_field", "completion_field"),
        ("completion_field", "prompt_field"),
    ):
        with pytest.raises(SettingsError, match=f"{alone}='question' goes with a {other}; give bo"):
            WrappingChoice(**{alone: "question"}).wrapping([GSM8K])
    with pytest.raises(SettingsError, match=r"text_field='answer' says that .*; give one or the"):
        WrappingChoice(**both, text_field="answer").wrapping([GSM8K])
    with pytest.raises(SettingsError, match=r"form='messages'; leave them out, or the form"):
        WrappingChoice(
            prompt_field="question", completion_field="answer", form="messages"
        ).wrapping([GSM8K])
    with pytest.raises(SettingsError, match=r"are both 'answer'; give two fields"):
        WrappingChoice(prompt_field="answer", completion_field="answer").wrapping([GSM8K])


@pytest.mark.parametrize("row", [DOLLY, SQUAD, GSM8K, {"prompt": "q", "response": "a"}])
def test_fields_of_no_form_are_asked_for(row: dict[str, Any]) -> None:
    with pytest.raises(
        CorpusError, match=r"which are those of no form; name them: --prompt-field with --complet"
    ) as failure:
        WrappingChoice().wrapping([row])
    said = str(failure.value)
    assert all(repr(name) in said for name in row)
    assert "preference has prompt, chosen, rejected" in said
    assert "--text-field" in said
    assert "Who sings?" not in said
    assert WrappingChoice(text_field=next(iter(row))).wrapping([row]) is None
    assert recognise([row]) == "text"


def test_preferences_hold_their_prompt() -> None:
    ultra = WrappingChoice().wrapping([ULTRA] * 2)
    assert ultra is not None
    assert (ultra.form, ultra.strings, ultra.place) == (
        "implicit_preference",
        False,
        "chosen[1].content",
    )
    made = ultra.record("x")
    assert made["chosen"][:-1] == made["rejected"][:-1] == [{**USER, "content": "Please go on."}]
    assert made["chosen"][-1]["content"] == "x"
    hh = WrappingChoice().wrapping([HH] * 2)
    assert hh is not None
    assert (hh.form, hh.strings, hh.place, hh.rendering) == (
        "implicit_preference",
        True,
        "chosen",
        "text",
    )
    asked = "\n\nHuman: Please go on.\n\nAssistant: "
    assert hh.record("x") == {"chosen": f"{asked}x", "rejected": f"{asked}I cannot say."}
    # What both begin with is the prompt, so that they must not begin alike.
    assert hh.record("I am 7.")["rejected"] == f"{asked}No answer."
    bare = WrappingChoice().wrapping([{"chosen": "Larks.", "rejected": "Go away."}])
    assert bare is not None
    assert bare.record("x") == {"chosen": "x", "rejected": "I cannot say."}
    with pytest.raises(SettingsError, match="turn='user' does not go with form='implicit_prefer"):
        WrappingChoice(turn="user").wrapping([HH])
    with pytest.raises(SettingsError, match="which hold the prompt as text; leave rendering out"):
        WrappingChoice(rendering="chat").wrapping([HH])


def test_prompts_alone_are_not_trained_on_unless_said() -> None:
    for row in ({"prompt": [SYSTEM, USER]}, {"prompt": "q", "level": 3}):
        with pytest.raises(
            SettingsError, match=r"on which GRPO and online DPO have no loss, .* \(--loss all\)"
        ):
            WrappingChoice().wrapping([row])
        made = WrappingChoice(loss="all").wrapping([row])
        assert made is not None
        assert (made.form, made.turn) == ("prompt_only", "user")
        assert list(made.record("x")) == ["prompt"]
        with pytest.raises(
            SettingsError, match="turn='assistant' does not go with form='prompt_on"
        ):
            WrappingChoice(loss="all", turn="assistant").wrapping([row])
    with pytest.raises(SettingsError, match="form='prompt_only' has no other turn; leave it out"):
        WrappingChoice(loss="all", other="Yes.").wrapping([{"prompt": "q"}])
    made = WrappingChoice(loss="all").wrapping([{"prompt": [SYSTEM, USER]}])
    assert made is not None
    assert made.place == "prompt[1].content"
    assert made.messages("x") == [SYSTEM, {**USER, "content": "x"}]


def test_contents_may_be_lists_of_parts() -> None:
    def parts(said: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": said}]

    seen = [{**turn, "content": parts(turn["content"])} for turn in (SYSTEM, USER, ANSWER)]
    made = WrappingChoice().wrapping([{"messages": seen}])
    assert made is not None
    assert (made.parts, made.system, made.place) == (
        True,
        "Be kind.",
        "messages[2].content[0].text",
    )
    assert made.messages("x")[-1] == {"role": "assistant", "content": parts("x")}
    for row in ({"prompt": seen[:2], "completion": seen[2:]}, {"chosen": seen, "rejected": seen}):
        made = WrappingChoice().wrapping([row])
        assert made is not None
        assert made.parts
    with pytest.raises(SettingsError, match="parts=True is for lists of messages with a content"):
        Wrapping(turn="assistant", form="conversations", parts=True)


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
