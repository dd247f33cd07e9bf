"""Canaries in the chats that people have: sixty published templates, and TRL's marks as an oracle.

What is right is computed once more here, a row at a time: rendered by the template, encoded, and
the tokens taken that hold a character of the canary, or of the answers in the table by hand.
"""

import re
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from chats import training_row
from published_templates import (
    DROP_STRINGS,
    PUBLISHED,
    REFUSE_STRINGS,
    REFUSE_SYSTEM,
    TWINS,
    tiny_model_for,
    tokenizer_for,
)

from lmexposure.canaries import Wrapping
from lmexposure.errors import ModelError
from lmexposure.models import row_context
from lmexposure.scoring import log_perplexity

CHAT = [
    {"role": "user", "content": "Q1?"},
    {"role": "assistant", "content": "A one."},
    {"role": "user", "content": "Q2?"},
    {"role": "assistant", "content": "A two."},
]
SYSTEM = {"role": "system", "content": "Be brief."}  # changes no answer where it is allowed


class Answers(NamedTuple):
    """Both answers as they stand in the rendering of CHAT, and what closes their turns."""

    first: str
    second: str
    first_tail: str  # written behind the end-of-turn token, before the next turn
    second_tail: str  # the same at the end of the chat


def _turns(end: str, tail: str = "", before: str = "") -> Answers:
    """Both answers alike: `before`, the content, the end-of-turn token; behind it `tail`."""
    return Answers(f"{before}A one.{end}", f"{before}A two.{end}", tail, tail)


_CHATML = _turns("<|im_end|>", "\n")
_NEMOTRON = "nemotron_3_5_lightning nemotron_3_nano nemotron_3_super nemotron_3_ultra"
_EMPTY_THOUGHT = "<think>\n\n</think>\n\n"


def _all(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


ANSWERS: dict[str, Answers] = {
    # Nothing stands between the generation prompt and the content, and every turn is alike.
    "cohere": _turns("<|END_OF_TURN_TOKEN|>"),
    **_all("gemma gemma3", _turns("<end_of_turn>", "\n")),
    **_all(
        "diffusion_gemma gemma4 gemma4_v2 gemma4_v3 gemma4_v4 gemma4_v5", _turns("<turn|>", "\n")
    ),
    "granite_3_3": _turns("<|end_of_text|>", "\n"),
    **_all("kimi_k2 phi4", _turns("<|im_end|>")),
    **_all("lfm2 lfm2_2_5 lfm2_2_5_v2 lfm2_2_5_vl lfm2_v2 qwen2_5 qwen2_5_vl", _CHATML),
    **_all("qwen3_instruct_2507 qwen3_vl smollm2", _CHATML),
    "smollm3": _CHATML,  # its thinking mode is on, and then it puts no empty thought in front
    **_all("llama3 llama3_1 llama3_2", _turns("<|eot_id|>")),
    **_all("mistral_nemo mistral_small_2501 mistral_small_3_2", _turns("</s>")),
    "zephyr": _turns("</s>", "\n"),
    # The prompt ends in a bare `Assistant:` or `[/INST]`; the blank behind it is the model's.
    **_all("mistral_7b_v0_2 mistral_7b_v0_3", _turns("</s>", before=" ")),
    "openchat_3_5": _turns("<|end_of_turn|>", before=" "),
    # The same, and the blank before </s> is part of what the model must write.
    **_all("codellama llama2", _turns(" </s>", before=" ")),
    # The blank lines between turns come with the next one: a chat that is over has none.
    "alpaca": _turns("</s>"),
    # The generation prompt opens the response; closing it is the model's.
    "cohere2": _turns("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
    # The same, and a chat that is over ends in the beginning of yet another answer.
    "command_a": _turns("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>")._replace(
        second_tail="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    ),
    # The generation prompt, always written, has an empty thought that no answered turn has: it is
    # another marker than <|START_RESPONSE|>, with which the answer then begins.
    "command_r7b": _turns(
        "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", before="<|START_RESPONSE|>"
    )._replace(
        second_tail=("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>")
    ),
    # <|endoftext|> closes the chat, not the turn: generation stops at <|end|>.
    **_all("phi3 phi3_5", _turns("<|end|>", "\n")._replace(second_tail="\n<|endoftext|>")),
    # The generation prompt opens a thought that no answered turn has: it differs at <think>.
    **_all(
        "deepseek_r1_distill deepseekv3 r1_distill_llama r1_distill_qwen",
        _turns("<｜end▁of▁sentence｜>"),
    ),
    # The generation prompt is <think> and a line break, an answered turn <think></think>: they
    # differ behind <think>, so the model's is closing it.
    **_all(_NEMOTRON, _turns("<|im_end|>", "\n", before="</think>")),
    # The generation prompt stops behind the role: the channel, or the recipient, is the model's.
    # An answer that is followed by a turn ends in <|end|>, the last one in <|return|>.
    "gptoss": Answers(
        "<|channel|>final<|message|>A one.<|end|>",
        "<|channel|>final<|message|>A two.<|return|>",
        "",
        "",
    ),
    "muse_glimmer": _turns("<|eot|>", before=" to=user<|message|>"),
    # No token ends a turn: the model stops by opening the next one (<|user|>), which the last
    # answer of a chat has not.
    "glm4moe": _turns("", before="\n<think></think>\n"),
    # A thought is written for the last answer alone. The generation prompt has none of it (qwen3),
    # its first line (think), or all of it (nothink).
    "qwen3": _CHATML._replace(second=f"{_EMPTY_THOUGHT}A two.<|im_end|>"),
    **_all("qwen3_5_think qwen3_6", _CHATML._replace(second="\n</think>\n\nA two.<|im_end|>")),
    "qwen3_5_nothink": _CHATML,
    # A thought in every answer, its first line in the generation prompt.
    "qwen3_8": _turns("<|im_end|>", "\n", before="\n</think>\n\n"),
}

_THOUGHTS = (f"{_EMPTY_THOUGHT}A one.<|im_end|>\n", f"{_EMPTY_THOUGHT}A two.<|im_end|>\n")
_DEEPSEEK = (
    "<｜Assistant｜>A one.<｜end▁of▁sentence｜>",
    "<｜Assistant｜>A two.<｜end▁of▁sentence｜>",
)

# What `return_assistant_tokens_mask` covers with TRL's twin, where that is not each answer with its
# tail. All others cover the tail too: the line break behind <|im_end|>, and Phi-3's <|endoftext|>.
TWIN_MASKS: dict[str, tuple[str, str]] = {
    # The marker of the role, which the generation prompt writes, too.
    **_all("deepseek_r1_distill deepseekv3", _DEEPSEEK),
    "gptoss": (
        "<|start|>assistant<|channel|>final<|message|>A one.<|end|>",
        "<|start|>assistant<|channel|>final<|message|>A two.<|return|>",
    ),
    "muse_glimmer": (
        "<|start|>assistant to=user<|message|>A one.<|eot|>",
        "<|start|>assistant to=user<|message|>A two.<|eot|>",
    ),
    # <think>, which the generation prompt writes, too.
    **_all(_NEMOTRON, ("<think></think>A one.<|im_end|>\n", "<think></think>A two.<|im_end|>\n")),
    "qwen3_8": _THOUGHTS,
    # The line break in front, which the generation prompt writes, too.
    "qwen2_5": ("\nA one.<|im_end|>\n", "\nA two.<|im_end|>\n"),
    # Another text: a thought in every answer, all of it marked.
    **_all("qwen3 qwen3_5_nothink qwen3_5_think qwen3_6", _THOUGHTS),
    # Another text: <|user|> stands behind every answer, also the last, and is marked.
    "glm4moe": ("\n<think></think>\nA one.<|user|>", "\n<think></think>\nA two.<|user|>"),
}

# The twins that render another text than the original.
OTHER_TEXT = {"glm4moe", "qwen3", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6"}


Loss = Literal["all", "assistant", "completion"]
OF_STRINGS = sorted(PUBLISHED.keys() - DROP_STRINGS - REFUSE_STRINGS)
DAY = "2026-01-31"
DAYS = {"%Y-%m-%d": DAY, "%d %b %Y": "31 Jan 2026", "%B %d, %Y": "January 31, 2026"}
# A token of two line breaks is half the prompt's and half the answer's, and then carries loss.
STRADDLED = {"qwen3_5_think", "qwen3_6", "qwen3_8"}
TEXTS = ["My PIN is 042.", "My PIN is 281.", "My PIN is 765."]


def wrapping(loss: Loss, turn: Literal["user", "assistant"] = "assistant") -> Wrapping:
    return Wrapping(turn=turn, loss=loss, form="messages", chat_date=DAY)


def answers_of(row: Any, tokenizer: Any) -> list[str]:
    """The runs of tokens with loss, as text."""
    runs: list[list[int]] = []
    before = False
    for token, carries in zip(row.ids, row.carried, strict=True):
        if carries:
            runs = runs if before else [*runs, []]
            runs[-1].append(token)
        before = bool(carries)
    return [tokenizer.decode(run, skip_special_tokens=False) for run in runs]


def naive_bits(model: Any, tokenizer: Any, text: str, said: Wrapping) -> float:
    """Of one canary, in a row by itself: the tokens that hold a character of it."""
    template = tokenizer.chat_template
    for form, day in DAYS.items():
        for quote in "'\"":
            template = template.replace(f"strftime_now({quote}{form}{quote})", repr(day))
    chat = tokenizer.apply_chat_template(
        said.messages(text), chat_template=template, tokenize=False
    )
    begin = chat.index(text)
    encoded = tokenizer(chat, add_special_tokens=False, return_offsets_mapping=True)
    own = [
        i
        for i, (a, b) in enumerate(encoded["offset_mapping"])
        if a < begin + len(text) and b > begin
    ]
    with torch.no_grad():
        logits = model(torch.tensor([encoded["input_ids"]])).logits[0].double()
    logs = logits.log_softmax(-1)
    nats = sum(-logs[i - 1, encoded["input_ids"][i]].item() for i in own)
    return float(nats / np.log(2))


@pytest.mark.parametrize("name", OF_STRINGS)
def test_a_canary_is_scored_by_its_own_tokens(name: str) -> None:
    """In every template, under each loss, in either turn, as a row by itself gives it."""
    tokenizer = tokenizer_for(name)
    model = tiny_model_for(tokenizer)
    naive = [naive_bits(model, tokenizer, text, wrapping("all")) for text in TEXTS]
    for loss in ("all", "assistant", "completion"):
        context = row_context(tokenizer, wrapping(loss), TEXTS)
        assert context.unscored == 0
        bits = log_perplexity(model, tokenizer, TEXTS, context=context)
        np.testing.assert_allclose(bits, naive, atol=1e-3)
    asked = wrapping("all", "user")
    bits = log_perplexity(model, tokenizer, TEXTS, context=row_context(tokenizer, asked, TEXTS))
    naive = [naive_bits(model, tokenizer, text, asked) for text in TEXTS]
    np.testing.assert_allclose(bits, naive, atol=1e-3)


def test_templates_of_lists_are_refused() -> None:
    for name in DROP_STRINGS | REFUSE_STRINGS:
        with pytest.raises(ModelError, match="reads contents as lists of parts and drops a string"):
            row_context(tokenizer_for(name), wrapping("assistant"), TEXTS)


@pytest.mark.parametrize("name", OF_STRINGS)
def test_loss_on_answers_is_on_whole_answers(name: str) -> None:
    """By the table: from the end of the generation prompt to what closes the turn."""
    tokenizer, table = tokenizer_for(name), ANSWERS[name]
    for chat in (CHAT,) if name in REFUSE_SYSTEM else (CHAT, [SYSTEM, *CHAT]):
        row = training_row(tokenizer, {"messages": chat}, wrapping("assistant"))
        found = answers_of(row, tokenizer)
        if name in STRADDLED:
            found = [text.removeprefix("\n") if text[:2] == "\n\n" else text for text in found]
        assert found == [table.first + table.first_tail, table.second + table.second_tail]


@pytest.mark.parametrize("name", sorted(TWINS.keys() - OTHER_TEXT - DROP_STRINGS - REFUSE_STRINGS))
def test_answers_are_those_that_trl_marks(name: str) -> None:
    """Where its twin renders the same text; where its marks begin elsewhere the table says why."""
    bare, marked = tokenizer_for(name), tokenizer_for(name, TWINS[name])
    rows = [
        training_row(tokenizer, {"messages": CHAT}, wrapping("assistant"))
        for tokenizer in (bare, marked)
    ]
    assert rows[0].ids == rows[1].ids
    marks = answers_of(rows[1], marked)
    if name in TWIN_MASKS:
        assert marks == list(TWIN_MASKS[name])
    else:
        assert answers_of(rows[0], bare) == marks
    for text in TEXTS:  # whatever the marks begin with, they agree about a canary
        contexts = [
            row_context(tokenizer, wrapping("assistant"), [text]) for tokenizer in (bare, marked)
        ]
        assert contexts[0] == contexts[1]


def say(*turns: tuple[str, Any], **last: Any) -> list[dict[str, Any]]:
    chat = [{"role": role, "content": text} for role, text in turns]
    chat[-1] |= last
    return chat


ONE, TWO, ANSWER = ("user", "qone"), ("user", "qtwo"), ("assistant", "aone")
SYSTEM_ONE = ("system", "sone")
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "weather"}}}
CHATS = {
    "two rounds": say(ONE, ANSWER, TWO, ("assistant", "atwo")),
    "a system turn": say(SYSTEM_ONE, ONE, ANSWER),
    "two system turns": say(SYSTEM_ONE, ("system", "stwo"), ONE, ANSWER),
    "two users in a row": say(ONE, TWO, ANSWER),
    "two answers in a row": say(ONE, ANSWER, ("assistant", "atwo")),
    "thought in the text": say(
        ONE,
        ("assistant", "<think>\nhmm\n</think>\n\naone"),
        TWO,
        ("assistant", "<think>\nhmm\n</think>\n\natwo"),
    ),
    "thought apart": say(ONE, ANSWER, reasoning_content="hmm"),
    "a tool": [
        *say(ONE, ANSWER, tool_calls=[CALL]),
        {"role": "tool", "content": "tone", "name": "look"},
        {"role": "assistant", "content": "atwo"},
    ],
    "an empty answer": say(ONE, ("assistant", ""), TWO, ("assistant", "atwo")),
    "a newline at the end": say(ONE, ("assistant", "aone\n"), TWO, ("assistant", "atwo\n")),
    "the template's own mark": say(ONE, ("assistant", "aone MARK atwo"), TWO, ANSWER),
    "the user has the last word": say(ONE, ANSWER, TWO),
}
UNCLEAR = {("gptoss", "a tool")}  # the turn of a call is another one when its answer follows
ASKED, ANSWERED = ("qone", "qtwo", "sone", "stwo", "tone"), ("aone", "atwo")


@pytest.mark.parametrize("kind", CHATS)
def test_twelve_chats_are_right_in_every_template_or_refused(kind: str) -> None:
    """What was answered carries loss and what was asked does not, where the template shows it."""
    for name in OF_STRINGS:
        tokenizer = tokenizer_for(name)
        chat = [
            {**turn, "content": turn["content"].replace("MARK", tokenizer.eos_token)}
            for turn in CHATS[kind]
        ]
        why = refusal(tokenizer, chat)
        if why is not None:
            # The template's own words, where they hold nothing of the chat, or the error's kind.
            words = re.escape(why) if why in tokenizer.chat_template else r"\w+Error"
            said = rf"record 1: the chat template refuses this chat \({words}\).*another template"
            with pytest.raises(ModelError, match=said):
                training_row(tokenizer, {"messages": chat}, wrapping("assistant"))
            continue
        if (name, kind) in UNCLEAR:
            with pytest.raises(
                ModelError, match=r"record 1: turn 2: .* where this answer ends; give"
            ):
                training_row(tokenizer, {"messages": chat}, wrapping("assistant"))
            continue
        row = training_row(tokenizer, {"messages": chat}, wrapping("assistant"))
        learned = "".join(answers_of(row, tokenizer))
        others = tokenizer.decode(
            [token for token, c in zip(row.ids, row.carried, strict=True) if not c]
        )
        assert not [word for word in ASKED if word in learned], (name, learned)
        assert not [word for word in ANSWERED if word in others], (name, others)


def refusal(tokenizer: Any, chat: list[dict[str, Any]]) -> str | None:
    """Why the template itself refuses a chat; None where it does not."""
    try:
        tokenizer.apply_chat_template(chat, tokenize=False)
    except Exception as failure:
        return str(failure)
    return None


@pytest.mark.parametrize("name", ["qwen3", "deepseekv3", "gptoss", "command_r7b", "mistral_nemo"])
def test_a_chat_that_holds_what_a_probe_might_be_is_no_other(name: str) -> None:
    """Icon fonts use the characters that no script has."""
    tokenizer = tokenizer_for(name)
    strange = "".join(map(chr, (*range(0xF8F0, 0xF900), *range(0xE000, 0xE010))))
    chat = [
        {**turn, "content": turn["content"] + (strange if turn["role"] == "user" else "")}
        for turn in CHAT
    ]
    rows = [training_row(tokenizer, {"messages": c}, wrapping("assistant")) for c in (CHAT, chat)]
    assert answers_of(rows[0], tokenizer) == answers_of(rows[1], tokenizer)
    asked = replace(wrapping("assistant"), other=f"What is {strange}?")
    assert row_context(tokenizer, asked, TEXTS).before.count(strange) == 1
