from typing import Any

import pytest
from tiny import byte_level_bpe, characters, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.models import encode_in_context
from lmexposure.scoring import (
    Beginning,
    Vocabulary,
    find_beginning,
)
from lmexposure.scoring.beginnings import shared_tokens
from lmexposure.scoring.spelling import (
    FALLBACK,
    ByteLanguage,
)


@pytest.mark.parametrize("make", [characters, byte_level_bpe])
def test_surfaces_spell_the_text(make: Any) -> None:
    tokenizer = make()
    text = "The random number is 281265017"
    assert Vocabulary(tokenizer).spelled(tokenizer.encode(text)) == text.encode()


def test_word_pieces_spell_the_lowered_text_behind_a_space() -> None:
    tokenizer = word_piece()
    ids = tokenizer.encode("My PIN is 0042", add_special_tokens=False)
    assert Vocabulary(tokenizer).spelled(ids) == b" my pin is 0042"


def test_special_tokens_have_no_surface() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.surfaces[tokenizer.eos_token_id] is None
    assert vocabulary.spelled([tokenizer.eos_token_id]) is None
    assert vocabulary.surface(tokenizer.eos_token_id) == b""


@pytest.mark.parametrize("make", [byte_level_bpe, sentence_piece_bpe])
def test_tokens_that_end_inside_a_character_have_their_bytes(make: Any) -> None:
    tokenizer = make()
    ids = tokenizer.encode("a é€🙂 �", add_special_tokens=False)
    assert (Vocabulary(tokenizer).spelled(ids) or b"").endswith("a é€🙂 �".encode())


def test_every_byte_of_a_byte_level_tokenizer_is_known() -> None:
    vocabulary = Vocabulary(byte_level_bpe())
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.surfaces)


def test_fallback_tokens_are_known_and_stand_apart_in_the_trie() -> None:
    tokenizer = sentence_piece_bpe()
    vocabulary = Vocabulary(tokenizer)
    names = tokenizer.convert_ids_to_tokens(sorted(vocabulary.fallback))
    assert names == [f"<0x{byte:02X}>" for byte in range(256)]
    apart = vocabulary.trie.children
    assert len(apart[ord("2")].tokens) == len(apart[FALLBACK + ord("2")].tokens) == 1
    assert not Vocabulary(byte_level_bpe()).fallback


def test_continuations_are_all_tokens_that_the_matcher_accepts() -> None:
    tokenizer = byte_level_bpe()
    vocabulary = Vocabulary(tokenizer)

    def digits(state: int, byte: int) -> int | None:
        return state + 1 if bytes([byte]).isdigit() and state < 3 else None

    expected = {
        (token, 1 + len(surface))
        for token, surface in enumerate(vocabulary.surfaces)
        if surface and surface.isdigit() and len(surface) <= 2
    }
    assert set(vocabulary.continuations(1, digits)) == expected
    assert len({state for _, state in expected}) == 2


WORDS = ["é", "ê", "é1", "€", "日本", "🙂"]
FORM = Format(name="w", template="a{choice:w}", lists={"w": WORDS})


def texts_of(language: ByteLanguage) -> set[bytes]:
    """Every complete text, by walking."""
    found, todo = set(), [(language.start, b"")]
    while todo:
        state, text = todo.pop()
        if language.complete(state):
            found.add(text)
        todo += [(there, text + bytes([b])) for b, there in language.moves(state).items()]
    return found


def test_all_fills_and_nothing_else_are_read() -> None:
    assert texts_of(ByteLanguage(FORM.language)) == {("a" + word).encode() for word in WORDS}


def test_a_known_text_stands_before_them() -> None:
    language = ByteLanguage(FORM.language, known="é\n".encode())
    assert texts_of(language) == {("é\na" + word).encode() for word in WORDS}


def test_what_no_fill_goes_on_with_is_none() -> None:
    language = ByteLanguage(FORM.language)
    begun = language.read(language.start, b"a\xc3")
    assert begun is not None
    assert not language.complete(begun)
    assert language.advance(begun, 0xA8) is None
    assert language.read(language.start, b"ab") is None


def test_what_follows_a_fill_is_read_where_none_goes_on() -> None:
    form = Format(name="w", template="a{choice:w}", lists={"w": ["b", "bé"]})
    language = ByteLanguage(form.language, trail="é!é".encode())
    whole = language.read(language.start, "abéé".encode())
    assert whole is not None
    assert (language.complete(whole), language.beyond(whole)) == (True, 2)
    assert language.read(whole, "!é".encode()) is not None
    assert language.read(whole, "!éa".encode()) is None
    # Of "ab" and what follows it, the beginning of "abé" is left.
    shorter = language.read(language.start, b"ab")
    assert shorter is not None
    assert (language.complete(shorter), language.beyond(shorter)) == (True, 0)
    assert language.read(shorter, "é!é!".encode()) is None


def beginning(tokenizer: Any, texts: list[str], literal: str, context: str | None) -> Beginning:
    encoded = encode_in_context(tokenizer, texts, context=context)
    vocabulary = Vocabulary(tokenizer)
    return find_beginning(tokenizer, vocabulary, texts, encoded, context=context, literal=literal)


def test_a_character_of_the_secret_that_all_share_by_chance_is_not_the_prefix() -> None:
    tokenizer = characters()
    found = beginning(tokenizer, ["My PIN is 2817", "My PIN is 2890"], "My PIN is ", "\n")
    assert tokenizer.decode(found.ids) == "\nMy PIN is "
    assert (found.characters, found.scored) == (11, True)


def test_a_space_that_merges_with_some_secrets_is_left_to_the_secret() -> None:
    tokenizer = byte_level_bpe()
    found = beginning(tokenizer, ["My PIN is 28", "My PIN is 90"], "My PIN is ", "\n")
    assert tokenizer.decode(found.ids) == "\nMy PIN is"
    assert found.characters == 10


def test_a_tokenizer_that_changes_the_text_is_found_out() -> None:
    found = beginning(word_piece(), ["my PIN", "my NUMBER"], "my ", "random")
    assert found.characters is None


def test_a_secret_that_begins_unscored_is_found_out() -> None:
    tokenizer = characters()
    tokenizer.eos_token = None
    assert not beginning(tokenizer, ["281", "042"], "", None).scored
    assert beginning(tokenizer, ["My 281", "My 042"], "My ", None).scored


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ([[1, 2, 3], [1, 2, 4]], [1, 2]),
        ([[1, 2, 3]], [1, 2]),
        ([[1, 2], [1, 2, 3]], [1]),
        ([[1, 2, 9], [1, 3, 0], [1, 2, 8]], [1]),
        ([[5], [6]], []),
    ],
)
def test_shared_tokens_leave_each_row_one(rows: list[list[int]], shared: list[int]) -> None:
    assert shared_tokens(rows) == shared
