"""Canaries found in tokens: whole and cut, for every kind of tokenizer, against plain text."""

from typing import Any

import numpy as np
import pytest
from chats import chat_tokenizer
from tiny import byte_level_bpe, characters, gpt2_like_bpe, sentence_piece_bpe, unigram, word_piece
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from lmexposure.errors import ModelError
from lmexposure.integrations.token_search import Hit, TokenSearch

KINDS = [byte_level_bpe, characters, gpt2_like_bpe, sentence_piece_bpe, unigram, word_piece]
CANARIES = {"a": "My PIN is 0042.", "b": "My PIN is 2817.", "c": "My PIN is 2801."}
OTHERS = [f"My PIN is {i:04d}." for i in (1234, 5678, 9012, 3456)]


def search_of(tokenizer: Any, canaries: dict[str, str] = CANARIES) -> TokenSearch:
    return TokenSearch(tokenizer, {"pin": canaries}, {"pin": OTHERS})


def tokens(tokenizer: Any, text: str) -> Any:
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)


def kinds(hits: list[Hit]) -> list[tuple[str, str]]:
    return [(hit.id, hit.kind) for hit in hits]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "row", ["{}", "{} ", " {}", "is 28 {} 0042.", "My {} My PIN", "number 2817 PIN {}", "{}{}"]
)
def test_whole_canaries_are_found_in_any_context(make: Any, row: str) -> None:
    tokenizer = make()
    search = search_of(tokenizer)
    for name, text in CANARIES.items():
        ids = tokens(tokenizer, row.replace("{}", text))
        whole = [hit for hit in search.hits(ids) if hit.kind == "whole"]
        assert [hit.id for hit in whole] == [name] * row.count("{}")
        for hit in whole:
            secret = tokenizer.decode(ids[hit.secret : hit.end]).replace(" ", "")
            assert text[-5:-1] in secret
            assert "PIN" not in secret


@pytest.mark.parametrize("make", KINDS)
def test_other_fills_and_other_text_are_not_canaries(make: Any) -> None:
    tokenizer = make()
    search = search_of(tokenizer)
    for text in [*OTHERS, "My PIN is", "random number is 0042.", "My PIN is 0043. ok"]:
        whole = [hit for hit in search.hits(tokens(tokenizer, text)) if hit.id != "pin"]
        assert whole == []


def test_every_cut_of_a_row_is_told_apart() -> None:
    tokenizer = characters()
    search = search_of(tokenizer)
    row = f"number is {CANARIES['b']}"
    start = row.index("My")
    for end in range(start + 1, len(row)):
        seen = row[start:end]
        found = kinds(search.hits(tokens(tokenizer, row[:end])))
        if len(seen) < len("My PIN is "):
            assert found == []  # anything may begin like that
        elif len(seen) <= len("My PIN is 28"):
            assert found == [("pin", "head")]  # b or c
        else:
            assert found == [("b", "head")]


def test_a_row_that_begins_within_a_canary() -> None:
    tokenizer = characters()
    search = search_of(tokenizer)
    row = f"{CANARIES['b']} number is"
    for begin in range(1, len(CANARIES["b"])):
        left = len(CANARIES["b"]) - begin
        found = kinds(search.hits(tokens(tokenizer, row[begin:])))
        assert found == ([("b", "tail")] if left >= 4 else [])


def test_a_format_without_a_beginning_is_found_as_well() -> None:
    tokenizer = characters()
    canaries = {"a": "281265", "b": "004217"}
    search = TokenSearch(tokenizer, {"pin": canaries}, {"pin": ["571826", "960714"]})
    assert kinds(search.hits(tokens(tokenizer, "is 281265 is"))) == [("a", "whole")]
    assert kinds(search.hits(tokens(tokenizer, "is 00421"))) == [("b", "head")]
    assert kinds(search.hits(tokens(tokenizer, "81265 is"))) == [("a", "tail")]
    assert kinds(search.hits(tokens(tokenizer, "is 0042"))) == [("b", "head")]
    assert kinds(search.hits(tokens(tokenizer, "is 004"))) == []


def test_the_longer_of_two_canaries_counts() -> None:
    tokenizer = characters()
    search = TokenSearch(tokenizer, {"n": {"a": "PIN 28", "b": "PIN 2812"}}, {"n": ["PIN 5"]})
    assert kinds(search.hits(tokens(tokenizer, "is PIN 2812 is"))) == [("b", "whole")]
    assert kinds(search.hits(tokens(tokenizer, "is PIN 28 is"))) == [("a", "whole")]


def test_special_tokens_at_the_ends_are_no_part_of_the_row() -> None:
    tokenizer = chat_tokenizer()
    search = search_of(tokenizer)
    end = [tokenizer.eos_token_id] * 3
    cut = tokens(tokenizer, CANARIES["a"])[:-2]
    (hit,) = search.hits(np.array([*end, *cut, *end]))
    assert (hit.id, hit.kind, hit.end) == ("a", "head", 3 + len(cut))
    assert search.hits(np.array(end)) == []


def test_numbers_without_a_token_break_a_canary() -> None:
    tokenizer = chat_tokenizer()
    search = search_of(tokenizer)
    ids = tokens(tokenizer, CANARIES["a"]).tolist()
    assert kinds(search.hits(np.array([10**6, -1, *ids, 10**6]))) == [("a", "whole")]


def test_an_unknown_character_is_refused() -> None:
    with pytest.raises(ModelError, match="the tokenizer has no token for character 3"):
        search_of(word_piece(), {"a": "My ж."})


def test_a_tokenizer_that_writes_texts_otherwise_elsewhere_is_refused() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace(Regex("^My"), "Your")
    with pytest.raises(ModelError, match="writes a canary of format 'pin' otherwise in another"):
        search_of(tokenizer)


def test_no_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match="NoneType is no tokenizer of transformers; give that of"):
        TokenSearch(None, {"pin": {"a": "My PIN is 4711."}}, {"pin": []})


def test_canaries_that_are_written_alike_are_refused() -> None:
    """The one would be counted for the other."""
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(ModelError, match="two canaries of format 'pin' alike, so that they cannot"):
        TokenSearch(tokenizer, {"pin": {"a": "My PIN is A.", "b": "My PIN is a."}}, {"pin": []})


def test_a_vocabulary_with_gaps_is_read_to_its_end() -> None:
    letters = ["[UNK]", *sorted(set("".join([*CANARIES.values(), *OTHERS])))]
    numbers = {letter: 3 * number for number, letter in enumerate(letters)}
    inner = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    assert max(tokenizer.get_vocab().values()) > len(tokenizer)
    (hit,) = search_of(tokenizer).hits(tokens(tokenizer, CANARIES["b"]))
    assert (hit.id, hit.kind) == ("b", "whole")
