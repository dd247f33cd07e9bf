"""The published templates are what their table says, and render what they say they render."""

import hashlib
import re
from typing import Any

import pytest
from jinja2 import TemplateError
from published_templates import (
    DROP_STRINGS,
    DROP_SYSTEM,
    FOLDER,
    ORIGINALS,
    OTHERS,
    PUBLISHED,
    REFUSE_STRINGS,
    REFUSE_SYSTEM,
    REFUSE_TWO_USERS,
    TWINS,
    family_of,
    tiny_model_for,
    tokenizer_for,
)

SYSTEM = {"role": "system", "content": "The system 1."}
USER = {"role": "user", "content": "The question 2?"}
SECOND = {"role": "user", "content": "The other question 3?"}
ANSWER = {"role": "assistant", "content": "The answer 4."}


def test_the_table_names_every_file_with_its_hash() -> None:
    rows = re.findall(
        r"^\| (\w+) \|.*`([0-9a-f]{64})` \|$", (FOLDER / "README.md").read_text(), re.M
    )
    files = {(p.stem, hashlib.sha256(p.read_bytes()).hexdigest()) for p in FOLDER.rglob("*.jinja")}
    assert sorted(rows) == sorted(files)
    assert (len(ORIGINALS), len(TWINS), len(OTHERS)) == (41, 31, 19)
    assert TWINS.keys() <= ORIGINALS.keys()


def outcome(name: str, chat: list[dict[str, Any]]) -> str:
    """ "refused", or the contents that the rendering lacks."""
    try:
        text = tokenizer_for(name).apply_chat_template(chat, tokenize=False)
    except (TemplateError, TypeError):
        return "refused"
    return " ".join(message["role"] for message in chat if message["content"] not in text)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_chat_is_rendered_whole_or_as_the_table_of_exceptions_says(name: str) -> None:
    if name in REFUSE_STRINGS:
        assert outcome(name, [USER, ANSWER]) == "refused"
    elif name in DROP_STRINGS:
        assert outcome(name, [USER, ANSWER]) == "user assistant"
    else:
        assert outcome(name, [USER, ANSWER]) == ""
        refused, dropped = name in REFUSE_SYSTEM, name in DROP_SYSTEM
        expected = "refused" if refused else "system" if dropped else ""
        assert outcome(name, [SYSTEM, USER, ANSWER]) == expected
        expected = "refused" if name in REFUSE_TWO_USERS else ""
        assert outcome(name, [USER, SECOND, ANSWER]) == expected


@pytest.mark.parametrize("name", sorted(REFUSE_STRINGS | DROP_STRINGS))
def test_what_takes_no_strings_takes_lists_of_parts(name: str) -> None:
    chat = [
        {"role": m["role"], "content": [{"type": "text", "text": m["content"]}]}
        for m in (USER, ANSWER)
    ]
    text = tokenizer_for(name).apply_chat_template(chat, tokenize=False)
    assert USER["content"] in text
    assert ANSWER["content"] in text


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_tokenizer_has_a_token_per_marker_and_digit_and_every_byte(name: str) -> None:
    tokenizer, family = tokenizer_for(name), family_of(name)
    markers = [family.eos, *family.special.split(), *family.plain.split()]
    ids = tokenizer("".join(markers), add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == markers
    assert tokenizer.tokenize("0427") == list("0427")
    text = "".join(map(chr, range(256))) + "\u4e2d\U0001f600"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_tiny_model_is_one_for_a_vocabulary_and_knows_every_token() -> None:
    tokenizer = tokenizer_for("qwen3")
    model = tiny_model_for(tokenizer)
    assert model is tiny_model_for(tokenizer_for("qwen2_5"))
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 32)
