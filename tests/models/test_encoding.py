"""Texts in context: the same tokens for training and scoring, and clear refusals."""

from pathlib import Path

import pytest
from tiny import byte_level_bpe
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

from lmexposure.errors import ModelError
from lmexposure.models import (
    LstmConfig,
    character_tokenizer,
    context_window,
    encode_documents,
    encode_in_context,
    tokenizer_sha256,
)

CHARACTERS = character_tokenizer(["\nabcx0123456789"])  # eos, no bos


def _word_tokenizer(*, bos: bool = False, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Bytes with two merges: "\\n"+"a" and "b"+"c", so that a token can straddle the context."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "Ċa", "bc", "<s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "a"), ("b", "c")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
        )
    special = {"bos_token": "<s>"} if bos else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@pytest.mark.parametrize("context", [None, ""])
def test_without_context_the_end_of_text_token_stands_first(context: str | None) -> None:
    (encoded,) = encode_in_context(CHARACTERS, ["ab1"], context=context)
    assert encoded.ids[0] == CHARACTERS.eos_token_id
    assert CHARACTERS.decode(encoded.ids[encoded.scored_from :]) == "ab1"


def test_a_tokenizer_that_adds_bos_has_it_before_the_context() -> None:
    tokenizer = _word_tokenizer(bos=True, adds_bos=True)
    (encoded,) = encode_in_context(tokenizer, ["xy"], context="\n")
    assert encoded.ids == tokenizer("\nxy")["input_ids"]
    assert encoded.ids[0] == tokenizer.bos_token_id
    assert encoded.scored_from == 2


@pytest.mark.parametrize(("text", "context", "tokens"), [("xyz", None, 3), ("abc", "\n", 2)])
def test_where_no_token_is_before_it_the_first_one_goes_unscored(
    text: str, context: str | None, tokens: int
) -> None:
    """With neither context nor special tokens, or where it straddles the context."""
    (encoded,) = encode_in_context(_word_tokenizer(), [text], context=context)
    assert len(encoded.ids) == tokens
    assert encoded.scored_from == 1
    assert encoded.first_unscored


def test_a_straddling_token_is_scored_with_the_text() -> None:
    tokenizer = _word_tokenizer(bos=True, adds_bos=True)
    straddles, apart = encode_in_context(tokenizer, ["ab", "xb"], context="\n")
    assert tokenizer.convert_ids_to_tokens(straddles.ids) == ["<s>", "Ċa", "b"]
    assert straddles.scored_from == 1
    assert tokenizer.convert_ids_to_tokens(apart.ids) == ["<s>", "Ċ", "x", "b"]
    assert apart.scored_from == 2


def test_documents_and_texts_get_the_same_tokens() -> None:
    texts = ["ab1", "cx", "a" * 40, "0123456789"]
    for tokenizer in (CHARACTERS, _word_tokenizer(), _word_tokenizer(bos=True, adds_bos=True)):
        for context in ("\n", "\n\n", None):
            rows = encode_documents(tokenizer, texts, context=context)
            encoded = encode_in_context(tokenizer, texts, context=context)
            assert rows == [e.ids for e in encoded]


def test_a_context_that_gives_no_token_counts_as_none() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<s>": 1}, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")
    (encoded,) = encode_in_context(wrapped, ["a a"], context="\n")
    assert encoded.ids == [1, 0, 0]


def test_a_subclass_that_does_more_than_its_backend_is_obeyed() -> None:
    class Doubling(PreTrainedTokenizerFast):  # type: ignore[misc]
        def __call__(self, text: str | list[str], **options: object) -> dict[str, object]:
            single = isinstance(text, str)
            rows = super().__call__([text] if isinstance(text, str) else text, **options)
            doubled = [row * 2 for row in rows["input_ids"]]
            return {"input_ids": doubled[0] if single else doubled}

    tokenizer = Doubling(tokenizer_object=CHARACTERS.backend_tokenizer, unk_token="<unk>")
    assert encode_documents(tokenizer, ["ab"], context=None) == [CHARACTERS.encode("abab")]


def test_an_unknown_character_is_refused_without_showing_it() -> None:
    with pytest.raises(ModelError, match=r"text 1 of 2: .* character 3 of 9 .*category Lu") as e:
        encode_in_context(CHARACTERS, ["abc", "012X45678"], context="\n")
    assert "X" not in str(e.value)
    assert "012" not in str(e.value)


def test_an_unknown_token_made_of_several_characters_is_named_by_its_place() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "b": 2, "x": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", bos_token="x")
    with pytest.raises(ModelError, match=r"text 0 of 1: .* no token for token 1; use a format"):
        encode_in_context(wrapped, ["a ab"], context=None)


def test_an_end_of_text_token_that_doubles_as_unknown_is_no_reason_to_refuse() -> None:
    tokenizer = _word_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "<s>", "unk_token": "<s>"})
    (encoded,) = encode_in_context(tokenizer, ["xyz"], context=None)
    assert encoded.ids[0] == tokenizer.eos_token_id


def test_a_text_longer_than_the_window_is_refused() -> None:
    assert encode_in_context(CHARACTERS, ["a" * 4], context="\n", max_length=5)
    with pytest.raises(ModelError, match=r"text 1 of 2 has 6 tokens .* window holds 5; use"):
        encode_in_context(CHARACTERS, ["a", "abc12"], context="\n", max_length=5)


@pytest.mark.parametrize(("text", "context"), [("", "\n"), ("", None)])
def test_a_text_without_tokens_is_refused(text: str, context: str | None) -> None:
    with pytest.raises(ModelError, match="text 1 of 2 has no token to score; leave empty"):
        encode_in_context(CHARACTERS, ["a", text], context=context)


def test_one_token_with_nothing_before_it_is_refused() -> None:
    with pytest.raises(ModelError, match="neither a BOS nor an EOS"):
        encode_in_context(_word_tokenizer(), ["x"], context=None)


def test_context_windows() -> None:
    assert context_window(LstmConfig(vocab_size=5)) is None
    assert context_window(GPT2Config(n_positions=77)) == 77
    assert context_window(LlamaConfig(max_position_embeddings=99)) == 99


def test_a_tokenizer_that_drops_characters_without_a_word_is_refused() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    dropping = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    with pytest.raises(ModelError, match=r"drops a character of the texts .*category Nd"):
        encode_in_context(dropping, ["ab", "a7b"], context="a")


def test_a_tokenizers_name_is_that_of_its_tokens_and_their_numbers_alone(tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    name = tokenizer_sha256(tokenizer)
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer("a", truncation=True, max_length=3)
    assert tokenizer_sha256(tokenizer) == name
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_sha256(AutoTokenizer.from_pretrained(tmp_path)) == name
    tokenizer.add_tokens(["<|turn|>"])
    assert len({name, tokenizer_sha256(tokenizer), tokenizer_sha256(CHARACTERS)}) == 3
