"""Wrapped canaries: the tokens that are scored, what their bits are, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from chats import TEMPLATE, chat_tokenizer
from tiny import model_of, sentence_piece_bpe, word_piece
from tokenizers.normalizers import Lowercase

from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.integrations import (
    Wrapping,
    wrapped_log_perplexity,
)
from lmexposure.integrations.wrapped_scoring import (
    encode_wrapped,
)
from lmexposure.scoring import log_perplexity

TEXTS = ["My PIN is 0042.", "My PIN is 2817.", "My PIN is 1234."]
CHATS = [
    Wrapping(turn="user"),
    Wrapping(turn="user", other="I see."),
    Wrapping(turn="assistant"),
    Wrapping(turn="assistant", loss="assistant"),
    Wrapping(turn="assistant", loss="completion", other="What is it?"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return chat_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return model_of("gpt2", len(tokenizer))


def slow_bits(model: Any, tokenizer: Any, text: str, wrapping: Wrapping) -> float:
    """The whole chat in one pass; every token that holds a character of the text."""
    messages = wrapping.messages(text)
    chat = tokenizer.apply_chat_template(messages, tokenize=False)
    row = tokenizer(chat, return_offsets_mapping=True, add_special_tokens=False)
    logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].detach().double()
    start, bits = chat.index(text), 0.0
    for i, (a, b) in enumerate(row["offset_mapping"]):
        if a < start + len(text) and b > start:
            p = torch.log_softmax(logits[i - 1], dim=-1)[row["input_ids"][i]]
            bits -= float(p) / math.log(2)
    return bits


@pytest.mark.parametrize("wrapping", CHATS)
def test_bits_are_those_of_the_text_within_the_whole_chat(
    model: Any, tokenizer: Any, wrapping: Wrapping
) -> None:
    bits = wrapped_log_perplexity(model, tokenizer, TEXTS, wrapping)
    assert bits.dtype == np.float64
    for text, found in zip(TEXTS, bits, strict=True):
        assert found == pytest.approx(slow_bits(model, tokenizer, text, wrapping), abs=1e-3)


@pytest.mark.parametrize("wrapping", CHATS)
def test_only_the_text_is_scored_and_nothing_behind_it_is_fed(
    tokenizer: Any, wrapping: Wrapping
) -> None:
    (one,) = encode_wrapped(tokenizer, TEXTS[:1], wrapping)
    scored = one.ids[one.scored_from :]
    assert tokenizer.decode(scored) == TEXTS[0]


@pytest.mark.parametrize("context", [None, "\n"])
def test_a_plain_text_is_scored_as_everywhere_else(
    model: Any, tokenizer: Any, context: str | None
) -> None:
    bits = wrapped_log_perplexity(model, tokenizer, TEXTS, Wrapping(context=context))
    assert bits.tolist() == log_perplexity(model, tokenizer, TEXTS, context=context).tolist()


@pytest.mark.parametrize("make", [chat_tokenizer, sentence_piece_bpe])
def test_a_row_of_its_own_begins_as_the_tokenizer_begins_it(make: Any) -> None:
    """As in SFTTrainer's rows: behind a token that training never put there it looks unknown."""
    tokenizer = make()
    for one, text in zip(encode_wrapped(tokenizer, TEXTS, Wrapping()), TEXTS, strict=True):
        assert one.ids == tokenizer(text)["input_ids"][: len(one.ids)]
        assert one.ids[-1] == tokenizer(text, add_special_tokens=False)["input_ids"][-1]
        begun = tokenizer("a")["input_ids"] != tokenizer("a", add_special_tokens=False)["input_ids"]
        assert one.first_unscored != begun
        assert one.scored_from == 1


def test_a_row_of_one_token_is_refused() -> None:
    tokenizer = chat_tokenizer()
    with pytest.raises(ModelError, match="a text of one token is all of its row, and nothing"):
        encode_wrapped(tokenizer, ["M"], Wrapping())


def test_bits_differ_with_the_wrapping(model: Any, tokenizer: Any) -> None:
    different = (Wrapping(), CHATS[0], CHATS[2])
    found = {float(wrapped_log_perplexity(model, tokenizer, TEXTS[:1], w)[0]) for w in different}
    assert len(found) == 3


def test_a_text_whose_end_carries_no_loss_is_refused(tokenizer: Any) -> None:
    partly = TEMPLATE.replace(
        "{{ m.content }}<|end|>\n{% endgeneration %}",
        "{{ m.content[:6] }}{% endgeneration %}{{ m.content[6:] }}<|end|>\n",
    )
    wrapping = Wrapping(turn="assistant", loss="assistant", chat_template=partly)
    with pytest.raises(ModelError, match="text 0 of 3: some of its tokens carry no loss behind ot"):
        encode_wrapped(tokenizer, TEXTS, wrapping)


def test_completion_begins_where_the_prompt_ends(tokenizer: Any) -> None:
    # The template shows the answer's beginning in the prompt already.
    ahead = TEMPLATE.replace("<|assistant|>\n{% endif %}", "<|assistant|>\nMy PIN{% endif %}")
    wrapping = Wrapping(turn="assistant", loss="completion", chat_template=ahead)
    (one,) = encode_wrapped(tokenizer, TEXTS[:1], wrapping)
    assert tokenizer.decode(one.ids[one.scored_from :]) == " is 0042."


def test_a_tokenizer_with_a_space_mark_keeps_the_text(model: Any) -> None:
    tokenizer = sentence_piece_bpe()
    tokenizer.chat_template = TEMPLATE
    (one,) = encode_wrapped(tokenizer, TEXTS[:1], Wrapping(turn="user"))
    assert TEXTS[0] in tokenizer.decode(one.ids[one.scored_from :])


def test_records_are_those_of_trl() -> None:
    assert Wrapping().record("x") == {"text": "x"}
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}]
    assert Wrapping(turn="assistant", other="q").record("x") == {"messages": chat}
    split = Wrapping(turn="assistant", loss="completion", other="q").record("x")
    assert split == {"prompt": chat[:1], "completion": chat[1:]}


def test_a_wrapping_is_checked_on_birth() -> None:
    with pytest.raises(SettingsError, match="turn='system' must be one of plain, user, assist"):
        Wrapping(turn="system")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="loss='none' must be one of all, assistant"):
        Wrapping(loss="none")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="other='' must be a string, and not an empty one"):
        Wrapping(turn="user", other="")
    with pytest.raises(SettingsError, match="context is for turn='plain'; before turn='user'"):
        Wrapping(turn="user", context="\n")
    with pytest.raises(SettingsError, match=r"turn='plain' has no messages; use record\(\)"):
        Wrapping().messages("x")


@pytest.mark.parametrize("loss", ["assistant", "completion"])
def test_a_canary_that_can_carry_no_loss_is_refused(loss: Any) -> None:
    with pytest.raises(SettingsError, match=r"turn='user' with loss=.*no token of the canary"):
        Wrapping(turn="user", loss=loss)


def test_two_texts_of_the_same_tokens_are_refused() -> None:
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.normalizer = Lowercase()
    with pytest.raises(ModelError, match="gives two different fills the same tokens; use a format"):
        encode_wrapped(tokenizer, ["My PIN is A.", "My PIN is a."], Wrapping(turn="user"))


@pytest.mark.parametrize("tokenizer", [None, "gpt2"])
def test_no_tokenizer_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ModelError, match=r"is no tokenizer of transformers; give that of the tr"):
        encode_wrapped(tokenizer, TEXTS, Wrapping())


def test_no_template_is_refused() -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="turn='user' needs a chat template and the tokenizer has"):
        encode_wrapped(tokenizer, TEXTS, Wrapping(turn="user"))


def test_a_tokenizer_without_places_is_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(ModelError, match="does not say at which characters its tokens begin"):
        encode_wrapped(tokenizer, TEXTS, Wrapping(turn="user"))


def test_a_chat_that_is_too_long_is_refused(tokenizer: Any) -> None:
    wrapping = Wrapping(turn="assistant", other="Why? " * 50)
    with pytest.raises(ModelError, match=r"text 0 of 3 ends at token \d+ of its row.*96"):
        encode_wrapped(tokenizer, TEXTS, wrapping, max_length=96)


def test_an_unknown_character_is_refused() -> None:
    tokenizer = word_piece()
    tokenizer.chat_template = TEMPLATE
    with pytest.raises(ModelError, match="text 1 of 2: the tokenizer has no token for character"):
        encode_wrapped(tokenizer, ["My PIN is 0042.", "My ж PIN."], Wrapping(turn="user"))


@pytest.mark.parametrize("texts", ["one", []])
def test_no_list_of_texts_is_refused(tokenizer: Any, texts: Any) -> None:
    with pytest.raises(InputError, match=r"texts must be a list of at least one text; give \[text"):
        encode_wrapped(tokenizer, texts, Wrapping())
