"""The table of answers in published templates agrees with the templates and with TRL's marks."""

import re
from typing import Any

import pytest
from models.answer_spans import ANSWERS, CHAT, SYSTEM, TWIN_MASKS
from published_templates import (
    DROP_STRINGS,
    DROP_SYSTEM,
    PUBLISHED,
    REFUSE_STRINGS,
    REFUSE_SYSTEM,
    TWINS,
    family_of,
    tokenizer_for,
)


def messages(name: str, chat: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The chat in the form that the template takes."""
    if name not in REFUSE_STRINGS | DROP_STRINGS:
        return list(chat)
    return [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in chat]


def rendering(name: str, chat: list[dict[str, str]], **options: Any) -> str:
    made = tokenizer_for(name).apply_chat_template(messages(name, chat), tokenize=False, **options)
    return str(made)


def common_beginning(name: str, one: str, other: str) -> str:
    """How far two renderings agree, markers taken whole."""
    family = family_of(name)
    markers = [family.eos, *family.special.split(), *family.plain.split()]
    pieces = re.compile("|".join(map(re.escape, markers)) + "|.", re.DOTALL)
    agreed = ""
    for a, b in zip(pieces.findall(one), pieces.findall(other), strict=False):
        if a != b:
            break
        agreed += a
    return agreed


def test_every_template_is_in_the_table() -> None:
    assert ANSWERS.keys() == PUBLISHED.keys()
    assert TWIN_MASKS.keys() <= TWINS.keys()


@pytest.mark.parametrize(
    ("name", "system"),
    [(name, False) for name in PUBLISHED]
    + [(name, True) for name in PUBLISHED if name not in REFUSE_SYSTEM],
)
def test_an_answer_begins_where_the_generation_prompt_ends(name: str, system: bool) -> None:
    chat = [SYSTEM, *CHAT] if system else CHAT
    text, answers = rendering(name, chat), ANSWERS[name]
    assert text.endswith(answers.second + answers.second_tail)
    before_second = text.removesuffix(answers.second + answers.second_tail)
    before_first, _, between = before_second.partition(answers.first + answers.first_tail)
    assert "A one." not in before_first
    assert "Q2?" in between
    if system and name in DROP_SYSTEM:  # it is in their prompts, and in no answered chat
        return
    prompts = [rendering(name, chat[:end], add_generation_prompt=True) for end in (-3, -1)]
    assert common_beginning(name, text, prompts[0]) == before_first
    assert common_beginning(name, text, prompts[1]) == before_second
