import re
from typing import Any

import pytest
from tiny import byte_level_bpe, characters, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.models import AnyContext, Context, encode_in_context
from lmexposure.scoring import Beginning, Vocabulary, find_beginning, spelling
from lmexposure.scoring.beginnings import shared_tokens
from lmexposure.scoring.spelling import (
    FALLBACK,
    ByteLanguage,
    CutsDepend,
    Pieces,
    Texts,
    completion,
)


def test_word_pieces_spell_the_lowered_text_behind_a_space() -> None:
    tokenizer = word_piece()
    ids = tokenizer.encode("My PIN is 0042", add_special_tokens=False)
    assert Vocabulary(tokenizer).spelled(ids) == b" my pin is 0042"
    for context in ("random", Context(before="random ", behind="28 is")):
        assert beginning(tokenizer, ["my PIN", "my NUMBER"], "my ", context).characters is None


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


def test_fallback_tokens_are_known_and_stand_apart_in_the_trie() -> None:
    tokenizer = sentence_piece_bpe()
    vocabulary = Vocabulary(tokenizer)
    names = tokenizer.convert_ids_to_tokens(sorted(vocabulary.fallback))
    assert names == [f"<0x{byte:02X}>" for byte in range(256)]
    apart = vocabulary.trie.children
    assert len(apart[ord("2")].tokens) == len(apart[FALLBACK + ord("2")].tokens) == 1
    assert not Vocabulary(byte_level_bpe()).fallback


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


def beginning(tokenizer: Any, texts: list[str], literal: str, context: AnyContext) -> Beginning:
    encoded = encode_in_context(tokenizer, texts, context=context)
    vocabulary = Vocabulary(tokenizer)
    return find_beginning(tokenizer, vocabulary, texts, encoded, context=context, literal=literal)


@pytest.mark.parametrize(
    ("make", "begun"), [(characters, "\nMy PIN is "), (byte_level_bpe, "\nMy PIN is")]
)
def test_what_all_secrets_share_by_chance_or_merge_with_is_not_the_prefix(
    make: Any, begun: str
) -> None:
    tokenizer = make()
    found = beginning(tokenizer, ["My PIN is 2817", "My PIN is 2890"], "My PIN is ", "\n")
    assert tokenizer.decode(found.ids) == begun
    assert (found.characters, found.scored) == (len(begun), True)


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


def texts(form: Format, pattern: str, *, lead: str = "", begun: int = 0) -> Texts:
    """Texts that are cut where a match of the pattern begins."""

    def cuts(fill: str) -> frozenset[int]:
        places = [match.start() for match in re.finditer(pattern, lead + fill)]
        return frozenset(len((lead + fill)[:place].encode()) for place in places)

    return Texts(format=form, lead=lead, begun=begun, unknown=frozenset(), cuts=cuts)


def spelled(pieces: Pieces) -> set[tuple[bytes, tuple[int, ...]]]:
    """Every text of the automaton with its cuts, by walking."""
    found = set()
    todo: list[tuple[int, bytes, tuple[int, ...]]] = [(pieces.start, b"", ())]
    while todo:
        state, text, cuts = todo.pop()
        if pieces.complete[state]:
            found.add((text, cuts))
        for symbol, (there, cut) in pieces.moves[state].items():
            assert there < state
            behind = (*cuts, len(text)) if cut else cuts
            todo.append((there, text + bytes([symbol % FALLBACK]), behind))
    return found


@pytest.mark.parametrize("pattern", [r"\d{1,3}|\D+", r"[a-f]?\d+|."])
def test_every_fill_stands_there_with_its_cuts(pattern: str) -> None:
    form = Format(name="x", template="{hex:3}")
    asked = texts(form, pattern)
    fills = [form.text(index) for index in range(form.size)]
    expected = {(fill.encode(), tuple(sorted(asked.cuts(fill)))) for fill in fills}
    assert spelled(Pieces.of(asked)) == expected


def test_refuses_a_cut_within_characters_that_begin_alike() -> None:
    form = Format(name="x", template="a{choice:w}", lists={"w": ["Å", "×"]})
    with pytest.raises(CutsDepend, match="begin with one byte are cut differently"):
        Pieces.of(texts(form, r"\w+|\W"))


def test_refuses_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "_MOST_STATES", 3)
    form = Format(name="x", template="{hex:3}")
    with pytest.raises(CutsDepend, match="too many different beginnings"):
        Pieces.of(texts(form, "."))


def test_completions_are_ends_of_fills() -> None:
    form = Format(name="x", template="a {choice:w}{luhn}", lists={"w": ["12", "1234"]})
    known: dict[int, str] = {}
    for begun in ("", "a", "a 1", "a 12", "a 123", "a 1234"):
        state = form.language.advance(form.language.start, begun)
        assert state is not None
        assert form.complete(begun + completion(form, state, known))
