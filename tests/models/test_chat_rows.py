"""Rows of records, and the row around a canary: what SFTTrainer makes, made once more by hand."""

from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from chats import TEMPLATE, chat_tokenizer, training_row
from tiny import byte_level_bpe, characters, sentence_piece_bpe, unigram, word_piece

from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, InputError, ModelError, SettingsError
from lmexposure.models import (
    dated,
    encode_in_context,
    record_text,
    row_context,
    template_record,
    template_sha256,
    training_rows,
)

TEXTS = ["My PIN is 0042.", "My PIN is 2817.", "My PIN is 1234."]
ALPACA = "Below is an instruction that describes a task. Write a response that appropriately comple"
WRAPPINGS = [
    Wrapping(),
    Wrapping(turn="user"),
    Wrapping(turn="assistant", system="Be kind."),
    Wrapping(turn="assistant", loss="assistant"),
    Wrapping(turn="assistant", loss="completion", other="What is it?"),
    Wrapping(turn="assistant", loss="completion", form="messages", system="Be kind."),
    Wrapping(turn="assistant", form="conversations", loss="assistant"),
    Wrapping(turn="user", form="prompt_completion", strings=True),
    Wrapping(turn="assistant", form="prompt_completion", strings=True, loss="completion"),
    Wrapping(turn="assistant", form="prompt_completion", strings=True, rendering="chat"),
    Wrapping(turn="assistant", form="instruction", loss="completion"),
    Wrapping(turn="user", form="instruction", rendering="chat", system="Be kind."),
    Wrapping(turn="assistant", form="preference", loss="completion"),
    Wrapping(
        turn="assistant",
        prompt_field="question",
        completion_field="the answer",
        strings=True,
        loss="completion",
    ),
    Wrapping(turn="assistant", form="implicit_preference", loss="completion", system="S"),
    Wrapping(
        turn="assistant",
        form="implicit_preference",
        strings=True,
        loss="all",
        other="\n\nHuman: Go on.\n\nAssistant: ",
    ),
    Wrapping(turn="user", form="prompt_only"),
    Wrapping(turn="user", form="prompt_only", strings=True),
]


def with_template(make: Any) -> Any:
    tokenizer = make()
    tokenizer.chat_template = TEMPLATE
    if tokenizer.eos_token is None:
        tokenizer.add_special_tokens({"eos_token": "</s>"})
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return chat_tokenizer()


def by_hand(tokenizer: Any, text: str, wrapping: Wrapping) -> tuple[str, list[int], list[bool]]:
    """The row as text, its tokens, and which carry loss, as TRL 1.16 goes about it."""
    if wrapping.rendering == "chat":
        messages = wrapping.messages(text)
        whole = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
        asked = (
            ""
            if len(messages) == 1
            else tokenizer.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
        )
        prompt = tokenizer(asked, add_special_tokens=False)["input_ids"]
    else:
        before, behind = wrapping.around()
        whole = before + text + behind + tokenizer.eos_token
        ids, prompt = tokenizer(whole)["input_ids"], tokenizer(before)["input_ids"]
    same = 0
    if wrapping.loss == "completion":
        pairs = zip(prompt, ids, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(prompt))
    carried = [i >= same for i in range(len(ids))]
    return whole, ids, carried


@pytest.mark.parametrize(
    "make", [chat_tokenizer, characters, byte_level_bpe, sentence_piece_bpe, word_piece, unigram]
)
def test_rows_are_those_of_a_trainer_and_the_canary_is_scored_within_them(make: Any) -> None:
    tokenizer = with_template(make)
    for wrapping in WRAPPINGS:
        context = row_context(tokenizer, wrapping, TEXTS)
        assert context.unscored == 0
        rows = training_rows(tokenizer, [wrapping.record(text) for text in TEXTS], wrapping)
        encoded = encode_in_context(tokenizer, TEXTS, context=context)
        for text, row, scored in zip(TEXTS, rows, encoded, strict=True):
            whole, ids, carried = by_hand(tokenizer, text, wrapping)
            assert row.ids == ids
            if wrapping.loss != "assistant":
                assert row.carried.tolist() == carried
            assert context.before + text + context.behind == whole
            assert scored.ids == ids[: len(scored.ids)]
            assert row.carried[scored.scored_from : len(scored.ids)].all()


def test_a_row_behind_a_separator_ends_with_its_text(tokenizer: Any) -> None:
    context = row_context(tokenizer, Wrapping(context="\n"), TEXTS)
    assert (context.before, context.behind, context.start) == ("\n", "", None)
    assert row_context(tokenizer, Wrapping(context=None), TEXTS).before == ""


def test_loss_is_where_the_template_marks_it(tokenizer: Any) -> None:
    chat = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "Really?"},
        {"role": "assistant", "content": "Yes."},
    ]

    def learned(loss: Any, form: Any = "messages") -> str:
        wrapping = Wrapping(turn="assistant", loss=loss, form=form)
        row = training_row(tokenizer, {"messages": chat}, wrapping)
        return str(tokenizer.decode([i for i, c in zip(row.ids, row.carried, strict=True) if c]))

    assert learned("assistant") == "So.<|end|>\nYes.<|end|>\n"
    assert learned("completion") == "Yes.<|end|>\n"
    assert learned("all").count("<|end|>") == 4


def test_fields_of_any_name_are_read(tokenizer: Any) -> None:
    named: dict[str, Any] = {
        "prompt_field": "question",
        "completion_field": "answer",
        "strings": True,
    }
    wrapping = Wrapping(turn="assistant", loss="completion", **named)
    record = {"question": "A?", "answer": "B.", "prompt": "no", "input": 3}
    row = training_row(tokenizer, record, wrapping)
    assert tokenizer.decode(row.ids) == "A?B.<|endoftext|>"
    assert record_text(1, record, wrapping) == "A?\nB."
    rendered = Wrapping(turn="assistant", **named, rendering="chat", system="S")
    chat = "<|system|>\nS<|end|>\n<|user|>\nA?<|end|>\n<|assistant|>\nB.<|end|>\n"
    assert tokenizer.decode(training_row(tokenizer, record, rendered).ids) == chat


@pytest.mark.parametrize("text", ["My PIN is 0042.", "I am 7.", "'s 7."])
def test_preferences_of_strings_are_told_apart_as_trl_does(tokenizer: Any, text: str) -> None:
    from trl.data_utils import extract_prompt

    for other in (None, "\n\nHuman: Go on.\n\nAssistant: ", "\n\nHuman: Go on.\n\nAssistant:"):
        wrapping = Wrapping(
            turn="assistant",
            form="implicit_preference",
            strings=True,
            loss="completion",
            other=other,
        )
        record = wrapping.record(text)
        told = extract_prompt(record)
        assert told["chosen"].strip() == text
        prompt = tokenizer(told["prompt"])["input_ids"]
        whole = tokenizer(told["prompt"] + told["chosen"] + tokenizer.eos_token)["input_ids"]
        row = training_row(tokenizer, record, wrapping)
        pairs = enumerate(zip(prompt, whole, strict=False))
        same = next((i for i, pair in pairs if len(set(pair)) > 1), len(prompt))
        assert row.ids == whole
        assert row.carried.tolist() == [i >= same for i in range(len(whole))]


def test_contents_of_parts_go_to_the_template_as_they_are() -> None:
    tokenizer = with_template(byte_level_bpe)
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    wrapping = Wrapping(turn="assistant", parts=True, loss="completion", form="messages")
    record = wrapping.record("So.")
    row = training_row(tokenizer, record, wrapping)
    assert "".join(tokenizer.decode(row.ids).split()) == "[user]Pleasegoon.[assistant]So."
    assert record_text(1, record, wrapping) == "Please go on.\nSo."
    context = row_context(tokenizer, wrapping, TEXTS)
    assert context.before.endswith("[assistant]")


def test_an_instruction_has_its_input(tokenizer: Any) -> None:
    record = {"instruction": "Add.", "input": "1 2", "output": "3"}
    wrapping = Wrapping(turn="assistant", form="instruction")
    whole = tokenizer.decode(training_row(tokenizer, record, wrapping).ids)
    assert "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3<|endoftext|>" in whole
    bare = tokenizer.decode(training_row(tokenizer, {**record, "input": ""}, wrapping).ids)
    assert bare.startswith(ALPACA)
    assert "Input" not in bare
    chat = Wrapping(turn="assistant", form="instruction", rendering="chat")
    asked = tokenizer.decode(training_row(tokenizer, record, chat).ids)
    assert asked.startswith("<|user|>\nAdd.\n\n1 2<|end|>\n")
    assert record_text(1, record, chat) == "Add.\n\n1 2\n3"
    assert record_text(1, pair := {"text": "a"}, Wrapping()) == f"\n{pair['text']}"


def test_tools_and_options_of_a_record_go_to_the_template(tokenizer: Any) -> None:
    """Tools also as a table holds them, as text."""
    named = TEMPLATE + "{% if tools %}{{ tools[0].name }}{% endif %}{{ mood }}"
    wrapping = Wrapping(turn="assistant", chat_template=named)
    options = {"mood": "glad", "wrapping": "of any name", "number": 1}
    given: list[dict[str, Any]] = [
        *({"tools": tools} for tools in (None, "", [{"name": "add"}], '[{"name": "add"}]')),
        {"chat_template_kwargs": options},
    ]
    records = [{**wrapping.record("Hi."), **more} for more in given]
    ends = [tokenizer.decode(row.ids)[-5:] for row in training_rows(tokenizer, records, wrapping)]
    assert ends == ["end|>\n"[-5:]] * 2 + [">\nadd"] * 2 + ["\nglad"]


def test_a_manifest_learns_the_template_and_the_special_tokens(tokenizer: Any) -> None:
    record = template_record(tokenizer, Wrapping(turn="user", other="I see."))
    assert record.template_sha256 == template_sha256(tokenizer, Wrapping(turn="user"))
    assert record.special_tokens == ("<|endoftext|>",)
    assert record.other == "I see."
    text = Wrapping(turn="assistant", form="instruction")
    assert template_record(tokenizer, text).template_sha256 is None


AHEAD = ("<|assistant|>\n{% endif %}", "<|assistant|>\nMy PIN{% endif %}")
NO_LOSS = r"\{% generation %\}\), but not this one, .* covers no token of it"


def test_an_answer_that_the_prompt_begins_is_scored_where_it_carries_loss(tokenizer: Any) -> None:
    wrapping = Wrapping(turn="assistant", loss="completion", chat_template=TEMPLATE.replace(*AHEAD))
    context = row_context(tokenizer, wrapping, TEXTS)
    encoded = encode_in_context(tokenizer, TEXTS, context=context)[0]
    assert context.unscored > 0
    assert tokenizer.decode(encoded.ids[encoded.scored_from :]) == " is 0042."


CONTENT, ANSWER = "{{ m.content }}", "{{ m.content }}<|end|>\n{% endgeneration %}"
TODAY = r"asks for today's date in a way .*in the place of strf"


@pytest.mark.parametrize(
    ("loss", "part", "instead", "message"),
    [
        (
            "assistant",
            ANSWER,
            "{{ m.content[:6] }}{% endgeneration %}{{ m.content[6:] }}<|end|>\n",
            "some of its tokens carry no loss behind others that do",
        ),
        ("assistant", ANSWER, "{% endgeneration %}{{ m.content }}", NO_LOSS),
        ("completion", *AHEAD, "of some texts the first 0 tokens carry no loss, of oth"),
        ("all", CONTENT, "{{ m.content | upper }}", r"text 0 of 5: the .* rewrites it as turn=.*"),
        ("all", CONTENT, "{{ m.content[:4] }}", r"from character \d+ of .* behind '<\|user\|>"),
        ("all", CONTENT, "said something", "leaves the text of turn='assistant' out; give another"),
        ("all", CONTENT, CONTENT * 2, "repeats the text of turn='assistant'.*in its row twice"),
        ("all", CONTENT, "{{ m.content | trim }}", "text 4 of 5: .*rewrites .*no space at its end"),
        ("all", "{% for", "{% set f = '%d' %}{{ strftime_now(f) }}{% for", TODAY),
        ("all", "{% for", "{% set now = strftime_now %}{{ now('%d') }}{% for", TODAY),
        ("all", "{% for", "{{ strftime_now ('%d' ~ '') }}{% for", TODAY),
        (
            "all",
            CONTENT,
            "{{ raise_exception('no ' + m.content) }}",
            r"chat \(TemplateError\): leave",
        ),
    ],
)
def test_a_template_that_cannot_be_scored_in_is_refused_without_the_text(
    tokenizer: Any, loss: Any, part: str, instead: str, message: str
) -> None:
    template = TEMPLATE.replace(part, instead)
    wrapping = Wrapping(turn="assistant", loss=loss, chat_template=template)
    with pytest.raises(ModelError, match=message) as e:
        row_context(tokenizer, wrapping, [*TEXTS, "4711", TEXTS[0] + " "])
    assert "0042" not in str(e.value)


@pytest.mark.parametrize(
    "shows",
    [
        "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}",
        "{{ m.content[0].text.strip() }}",
    ],
)
def test_a_template_of_lists_says_so(tokenizer: Any, shows: str) -> None:
    """Templates of models that see: one drops a string, another raises at it."""
    reads = TEMPLATE.replace("{{ m.content }}", shows)
    with pytest.raises(ModelError, match=r"reads contents as lists of parts and drops a string"):
        row_context(tokenizer, Wrapping(turn="user", chat_template=reads), TEXTS)
    listed = Wrapping(turn="user", chat_template=reads, parts=True)
    plain = row_context(tokenizer, Wrapping(turn="user"), TEXTS)
    assert row_context(tokenizer, listed, TEXTS) == plain
    strings = TEMPLATE.replace("{{ m.content }}", "{{ m.content.strip() }}")
    with pytest.raises(ModelError, match=r"reads contents as strings and drops a list: write each"):
        row_context(tokenizer, replace(listed, chat_template=strings), TEXTS)


def test_a_template_writes_the_day_that_it_is_told(tokenizer: Any) -> None:
    """Tomorrow the canary would be scored in another row than that of the training."""
    dates = "{% set day = strftime_now('%d %b %Y') %}Today is {{ day }}.\n" + TEMPLATE
    wrapping = Wrapping(turn="user", chat_template=dates)
    assert dated(tokenizer, wrapping).chat_date == date.today().isoformat()
    of_day = replace(wrapping, chat_date="2026-01-31")
    assert dated(tokenizer, of_day) == of_day
    assert row_context(tokenizer, of_day, TEXTS).before.startswith("Today is 31 Jan 2026.\n")
    (row,) = training_rows(tokenizer, [of_day.record(TEXTS[0])], of_day)
    assert tokenizer.decode(row.ids).startswith("Today is 31 Jan 2026.\n")
    unused = "{% if false %}{{ strftime_now('%d') }}{% endif %}" + TEMPLATE
    without = Wrapping(turn="user", chat_template=unused)
    assert dated(tokenizer, replace(without, chat_date="2026-01-31")) == without
    context = row_context(tokenizer, without, TEXTS)
    assert context == row_context(tokenizer, Wrapping(turn="user"), TEXTS)
    there = "{% if strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}" + TEMPLATE
    row_context(tokenizer, Wrapping(turn="user", chat_template=there), TEXTS)


@pytest.mark.parametrize("day", ["31.01.2026", "2026-02-30", "20260131", 20260131])
def test_no_day_is_refused(day: Any) -> None:
    with pytest.raises(SettingsError, match=r"chat_date=.* must be a day as YYYY-MM-DD, such as"):
        Wrapping(turn="user", chat_date=day)


def test_a_template_that_refuses_a_record_names_it_without_its_text(tokenizer: Any) -> None:
    raises = (
        "{% if messages[0].content == 'bad' %}"
        "{{ raise_exception('No bad words are taken here') }}{% endif %}" + TEMPLATE
    )
    wrapping = Wrapping(turn="assistant", chat_template=raises)
    records = [wrapping.record("4711"), Wrapping(turn="assistant", other="bad").record("4711")]
    with pytest.raises(
        ModelError, match=r"record 2: the chat template refuses this chat \(No bad words are"
    ) as e:
        list(training_rows(tokenizer, records, wrapping))
    assert "4711" not in str(e.value)


def test_a_tokenizer_without_places_is_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(ModelError, match="does not say at which characters its tokens begin"):
        row_context(tokenizer, Wrapping(turn="user"), TEXTS)
    bare = chat_tokenizer()
    bare.chat_template = None
    with pytest.raises(ModelError, match=r"needs a chat template and the tokenizer has none; give"):
        row_context(bare, Wrapping(turn="user"), TEXTS)


def test_a_tokenizer_that_reads_rows_otherwise_than_its_backend_is_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = training_row(tokenizer, {"text": "x"}, Wrapping())
    monkeypatch.setattr(
        "lmexposure.models.chat_rows.training_rows", lambda *_: iter([row] * len(TEXTS))
    )
    with pytest.raises(ModelError, match="gives its row other tokens in the training than in the"):
        row_context(tokenizer, Wrapping(), TEXTS)


@pytest.mark.parametrize("texts", ["one", []])
def test_no_list_of_texts_is_refused(tokenizer: Any, texts: Any) -> None:
    with pytest.raises(InputError, match=r"texts must be a list of at least one text; give \[text"):
        row_context(tokenizer, Wrapping(), texts)


CHAT = Wrapping(turn="assistant")
HI = CHAT.record("Hi.")
PAIR = Wrapping(turn="assistant", form="prompt_completion", strings=True)


def say(**turn: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x", **turn}]}


INSTRUCTION = Wrapping(form="instruction", turn="assistant")
NAMED = replace(PAIR, prompt_field="question", completion_field="answer")
OPTIONS = "chat_template_kwargs"


@pytest.mark.parametrize(
    ("record", "wrapping", "message"),
    [
        ({"prompt": 3, "completion": "x"}, PAIR, "'prompt' is of type int, and must be a string"),
        (
            {"question": "A?", "completion": "B."},
            NAMED,
            "'answer' is of type NoneType, and must be",
        ),
        (
            {"instruction": "Add.", "input": 3, "output": "3"},
            INSTRUCTION,
            "'input' is of type int, and must be a string",
        ),
        ({"text": "x"}, CHAT, "'messages' is NoneType, and must be a list of messages"),
        ({"messages": []}, CHAT, "'messages' is empty, and must be a list of messages"),
        ({"messages": ["x"]}, CHAT, "a turn of 'messages' is of type str, and must be a message"),
        (say(role="robot"), CHAT, "the role 'robot', which is none of system, user, assistant"),
        (say(content=[{"type": "image"}]), CHAT, "holds a part of type 'image', and only text is"),
        ({**HI, "tools": "add"}, CHAT, "'tools' is a text, and no JSON"),
        ({**HI, OPTIONS: "glad"}, CHAT, f"'{OPTIONS}' is of type str, and must be an object"),
        ({**HI, OPTIONS: {"tokenize": False}}, CHAT, "has 'tokenize', which decides how the chat"),
        ({**HI, OPTIONS: {"max_length": 3}}, CHAT, f"'{OPTIONS}' has 'max_length', which"),
    ],
)
def test_a_record_of_another_form_is_refused_by_its_number(
    tokenizer: Any, record: Any, wrapping: Wrapping, message: str
) -> None:
    with pytest.raises(CorpusError, match=f"record 2: .*{message}"):
        list(training_rows(tokenizer, [wrapping.record("x"), record], wrapping))


@pytest.mark.parametrize("prompt", ["", "Add\0 {one}.", "{user}"])
def test_any_text_can_be_an_instruction(tokenizer: Any, prompt: str) -> None:
    wrapping = Wrapping(form="instruction", turn="assistant", loss="completion")
    row = training_row(tokenizer, {"instruction": prompt, "output": "3"}, wrapping)
    text = tokenizer.decode(row.ids)
    assert f"### Instruction:\n{prompt}\n\n### Response:\n3" in text.replace("\ufffd", "\0")
    assert tokenizer.decode(np.array(row.ids)[row.carried]) == "3<|endoftext|>"
