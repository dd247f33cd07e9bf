"""Which form records have, and the wrapping that follows from the first of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known import known

from lmexposure.canaries import FORMS, Wrapping, read_records, recognise, wrapping_among
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
    made = wrapping_among([OF_EACH[form]] * 3, loss=loss)
    assert (made is None) == (form == "text")
    if made is not None:
        assert made.form == form
        assert set(made.record("x")) == set(OF_EACH[form]) - {"answer"}


def test_records_of_no_form_are_left_to_their_reader() -> None:
    assert recognise([]) == "text"
    assert recognise([{"body": "t"}]) == "text"
    assert recognise([{"body": "t"}], text_field="body") == "text"


@pytest.mark.parametrize("row", [DOLLY, SQUAD, GSM8K, {"prompt": "q", "response": "a"}])
def test_fields_of_no_form_are_asked_for(row: dict[str, Any]) -> None:
    with pytest.raises(
        CorpusError, match=r"which are those of no form; name them: prompt_field=... with comple"
    ) as failure:
        wrapping_among([row])
    said = str(failure.value)
    assert all(repr(name) in said for name in row)
    assert "preference has prompt, chosen, rejected" in said
    assert "text_field=... for" in said
    assert "Who sings?" not in said
    assert wrapping_among([row], text_field=next(iter(row))) is None
    assert recognise([row]) == "text"


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


def in_parts(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


CHAT, ASKED = OF_EACH["messages"], "\n\nHuman: Please go on.\n\nAssistant: "
RUDE = {"messages": [{**SYSTEM, "content": "Be rude."}, USER, ANSWER]}
SHARED = [{"from": "system", "value": "S"}, *OF_EACH["conversations"]["conversations"]]
PARTS = [{**turn, "content": in_parts(turn["content"])} for turn in (SYSTEM, USER, ANSWER)]
NAMED = {"prompt_field": "question", "completion_field": "answer"}
ANY_NAME = {"prompt_field": "asked", "completion_field": "said in reply"}
BOTH = {**OF_EACH["instruction"], "text": "whole prompt"}
ANSWERED = {"turn": "assistant", "loss": "completion"}
# What is said, the first records, and what the wrapping has.
MADE: list[tuple[dict[str, Any], list[Any], dict[str, Any]]] = [
    ({}, [CHAT] * 3, {"turn": "assistant", "loss": "assistant", "system": "Be kind."}),
    *(({}, [CHAT, CHAT, last], {"system": None}) for last in (RUDE, {"messages": [USER, ANSWER]})),
    ({}, [CHAT, {"messages": []}], {"system": None}),
    ({"system": "Be brief."}, [CHAT, RUDE], {"system": "Be brief."}),
    ({}, [{"conversations": SHARED}], {"system": "S", "place": "conversations[2].value"}),
    (
        {},
        [{"prompt": [SYSTEM, USER], "completion": [ANSWER]}],
        {"system": "Be kind.", "strings": False, "rendering": "chat"},
    ),
    ({}, [OF_EACH["conversations"]], {"turn": "assistant", "loss": "assistant"}),
    ({}, [OF_EACH["prompt_completion"]], ANSWERED),
    ({}, [OF_EACH["instruction"]], ANSWERED),
    ({}, [OF_EACH["preference"]], ANSWERED),
    ({"turn": "user", "other": "Yes."}, [CHAT], {"turn": "user", "loss": "all", "other": "Yes."}),
    (
        {"loss": "all", "rendering": "chat"},
        [OF_EACH["instruction"]],
        {"loss": "all", "rendering": "chat"},
    ),
    ({"form": "instruction"}, [BOTH], {"form": "instruction"}),
    (
        NAMED,
        [GSM8K] * 3,
        {
            "form": "prompt_completion",
            "strings": True,
            "loss": "completion",
            "place": "answer",
            "fields": ("question", "answer"),
        },
    ),
    (
        {"prompt_field": "instruction", "completion_field": "response"},
        [DOLLY],
        {"place": "response"},
    ),
    (
        ANY_NAME,
        [{"asked": [SYSTEM, USER], "said in reply": [ANSWER]}],
        {"strings": False, "system": "Be kind.", "place": "said in reply[0].content"},
    ),
    (
        {},
        [ULTRA] * 2,
        {"form": "implicit_preference", "strings": False, "place": "chosen[1].content"},
    ),
    (
        {},
        [HH] * 2,
        {"form": "implicit_preference", "strings": True, "place": "chosen", "rendering": "text"},
    ),
    (
        {"loss": "all"},
        [{"prompt": [SYSTEM, USER]}],
        {"form": "prompt_only", "turn": "user", "place": "prompt[1].content"},
    ),
    ({"loss": "all"}, [{"prompt": "q", "level": 3}], {"form": "prompt_only", "turn": "user"}),
    (
        {},
        [{"messages": PARTS}],
        {"parts": True, "system": "Be kind.", "place": "messages[2].content[0].text"},
    ),
    ({}, [{"prompt": PARTS[:2], "completion": PARTS[2:]}], {"parts": True}),
    ({}, [{"chosen": PARTS, "rejected": PARTS}], {"parts": True}),
]


@pytest.mark.parametrize(("said", "rows", "wanted"), MADE)
def test_a_wrapping_follows_from_records(
    said: dict[str, Any], rows: list[Any], wanted: dict[str, Any]
) -> None:
    made = known(wrapping_among(rows, **said))
    assert {name: getattr(made, name) for name in wanted} == wanted


def test_records_are_made_as_the_first_ones_are() -> None:
    def record(row: dict[str, Any], text: str = "x", **said: Any) -> dict[str, Any]:
        return known(wrapping_among([row], **said)).record(text)

    assert record(GSM8K, **NAMED) == {"question": "Please go on.", "answer": "x"}
    made = record(ULTRA)
    assert made["chosen"][:-1] == made["rejected"][:-1] == [{**USER, "content": "Please go on."}]
    assert made["chosen"][-1]["content"] == "x"
    assert record(HH) == {"chosen": f"{ASKED}x", "rejected": f"{ASKED}I cannot say."}
    # What both begin with is the prompt, so that they must not begin alike.
    assert record(HH, "I am 7.")["rejected"] == f"{ASKED}No answer."
    bare = {"chosen": "Larks.", "rejected": "Go away."}
    assert record(bare) == {"chosen": "x", "rejected": "I cannot say."}
    assert record({"prompt": [SYSTEM, USER]}, loss="all") == {
        "prompt": [SYSTEM, {**USER, "content": "x"}]
    }
    last = {"role": "assistant", "content": in_parts("x")}
    assert record({"messages": PARTS})["messages"][-1] == last


def test_texts_are_texts_where_that_is_said() -> None:
    assert wrapping_among([BOTH], form="text") is None
    assert wrapping_among([CHAT], text_field="body") is None
    # What a record lacks is said by its reader, with its file and line.
    assert recognise([CHAT, CHAT, {"messages": None}]) == "messages"
    assert recognise([{"text": "a"}, {"body": "b"}]) == "text"


ALONE = "on which GRPO and online DPO have no loss, .* say loss='all'"
REFUSED: list[tuple[dict[str, Any], list[Any], str]] = [
    ({}, [BOTH], r"form instruction or text: .*say which: form='text'"),
    ({}, [CHAT, OF_EACH["conversations"]], "record 1 is of the form messages, and record 2 is con"),
    (
        NAMED | {"completion_field": "reply"},
        [GSM8K] * 2,
        r"completion_field='reply': none of the first 2 records has such a field; they have "
        r"'question', 'answer': name one of these",
    ),
    (
        {"prompt_field": "question"},
        [GSM8K],
        "prompt_field='question' goes with a completion_field; give bo",
    ),
    (
        {"completion_field": "question"},
        [GSM8K],
        "completion_field='question' goes with a prompt_field; give bo",
    ),
    (NAMED | {"text_field": "answer"}, [GSM8K], "text_field='answer' says that .*; give one or th"),
    (NAMED | {"form": "messages"}, [GSM8K], "form='messages'; leave them out, or the form"),
    (NAMED | {"prompt_field": "answer"}, [GSM8K], "are both 'answer'; give two fields"),
    ({"turn": "user"}, [HH], "turn='user' does not go with form='implicit_prefer"),
    ({"rendering": "chat"}, [HH], "which hold the prompt as text; leave rendering out"),
    ({}, [{"prompt": [SYSTEM, USER]}], ALONE),
    ({}, [{"prompt": "q", "level": 3}], ALONE),
    (
        {"loss": "all", "turn": "assistant"},
        [{"prompt": "q"}],
        "turn='assistant' does not go with form='prompt_on",
    ),
    (
        {"loss": "all", "other": "Yes."},
        [{"prompt": "q"}],
        "form='prompt_only' has no other turn; leave it out",
    ),
    *(
        ({name: value}, [OF_EACH["text"]], f"{name}=.* is of chats, and these documents are text")
        for name, value in {"turn": "user", "loss": "all", "other": "x", "system": "x"}.items()
    ),
    ({"turn": "user", "loss": "assistant"}, [CHAT], "no token of the canary carries loss"),
    ({"form": "mails"}, [CHAT], "form='mails' must be one of"),
]


@pytest.mark.parametrize(("said", "rows", "message"), REFUSED)
def test_refused_choices(said: dict[str, Any], rows: list[Any], message: str) -> None:
    with pytest.raises((CorpusError, SettingsError), match=message) as failure:
        wrapping_among(rows, **said)
    assert "whole prompt" not in str(failure.value)


def test_parts_are_of_messages() -> None:
    with pytest.raises(SettingsError, match="parts=True is for lists of messages with a content"):
        Wrapping(turn="assistant", form="conversations", parts=True)
