"""Every way to score and to search, in rows: held against passes over whole rows, fill by fill."""

from typing import Any

import numpy as np
import pytest
from scoring.chat_rows import (
    CHATS,
    PIN,
    chat_model,
    made,
    naive_bits,
    naive_rows,
    space_of,
    token_bits,
)
from scoring.test_exact_search import assert_as_enumerated, search_of
from scoring.test_likeliest_fills import assert_right, search
from tiny import byte_level_bpe, characters, gpt2_like_bpe, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.errors import ModelError
from lmexposure.models import Context, encode_in_context
from lmexposure.scoring import (
    Budget,
    Extractor,
    TokenSpace,
    Vocabulary,
    details_of_encoded,
    log_perplexity,
    next_token_steps,
    token_space,
)

# Each architecture, and each kind of tokenizer.
PAIRS = [("characters", "lstm"), ("characters", "mistral"), ("uneven", "gpt2"), ("uneven", "mamba")]
PAIRS += [("sentence piece", "llama"), ("unigram", "gemma2"), ("word piece", "gpt2")]
PAIRS += [("added", "llama")]


def searched(name: str, kind: str) -> tuple[Any, Any, TokenSpace, np.ndarray]:
    """Model, tokenizer, space, and the bits of all fills behind its beginning, the slow way."""
    tokenizer, space = made(name)[1], space_of(name)
    model = chat_model(kind, len(tokenizer))
    return model, tokenizer, space, naive_bits(name, kind, skip=len(space.beginning))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_ranks_in_a_chat_are_those_of_the_enumeration(name: str, kind: str) -> None:
    model, _, space, bits = searched(name, kind)
    assert space.proof.rule == ("merges" if CHATS[name].merges else "enumerated")
    order = np.argsort(bits).tolist()
    wanted, planted = [*order[:12], *order[12:300:40]], order[3:8:2]
    found = search_of(model, space, excluded=planted).ranks(wanted, budget=Budget())
    assert_as_enumerated(found, wanted, bits, planted)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_log_perplexities_are_those_of_whole_rows(name: str, kind: str) -> None:
    chat, tokenizer, context = made(name)
    model, some = chat_model(kind, len(tokenizer)), [0, 7, 28, 281, 700, 991, *range(30, 60)]
    texts = [chat.form.text(i) for i in some]
    found = log_perplexity(model, tokenizer, texts, context=context)
    np.testing.assert_allclose(found, naive_bits(name, kind)[some], rtol=0, atol=1e-3)
    details = details_of_encoded(model, encode_in_context(tokenizer, texts[:3], context=context))
    np.testing.assert_allclose([bits.sum() for bits in details.bits], found[:3], rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", CHATS)
def test_paths_are_the_rows_up_to_the_last_character(name: str) -> None:
    space, rows = space_of(name), naive_rows(name)
    for index, (ids, places) in list(enumerate(rows))[::5]:
        assert space.beginning + space.path(index) == ids[: places[-1] + 1]
        assert space.index(space.path(index)) == index
    assert space.longest == max(places[-1] + 1 for _, places in rows) - len(space.beginning)


FOUND = [("uneven", "gpt2"), ("sentence piece", "mistral"), ("word piece", "lstm")]


@pytest.mark.parametrize(("name", "kind"), FOUND)
def test_the_likeliest_fills_of_a_chat(name: str, kind: str) -> None:
    model, _, space, bits = searched(name, kind)
    steps = next_token_steps(model, [*space.beginning, 1])
    assert_right(search(model, space, 30, steps=steps), bits, 30)


def spelled(vocabulary: Vocabulary, text: str, trail: str) -> list[list[int]]:
    """Every way to spell a text, where the last token may go on into what follows."""
    if not text:
        return [[]]
    found = []
    for token, surface in enumerate(vocabulary.surfaces):
        piece = (surface or b"").decode(errors="replace")
        if piece and text.startswith(piece):
            found += [[token, *rest] for rest in spelled(vocabulary, text[len(piece) :], trail)]
        elif len(piece) > len(text) and (text + trail).startswith(piece):
            found.append([token])
    return found


@pytest.mark.parametrize(("name", "kind"), [("uneven", "gpt2"), ("sentence piece", "llama")])
def test_a_wide_beam_finds_the_cheapest_spelling_and_its_end_may_be_shared(
    name: str, kind: str
) -> None:
    chat, tokenizer, context = made(name)
    model = chat_model(kind, len(tokenizer))
    space = space_of(name)
    begun = tokenizer.decode(space.beginning[-2:]).partition("My PIN")[2]
    extractor = Extractor(model, tokenizer, chat.form, context=context)
    found = extractor.search("My PIN is 28", width=400)
    assert {guess.text for guess in found} == {chat.form.text(i) for i in range(280, 290)}
    for guess in found[:1]:
        rest = guess.text.removeprefix("My PIN" + begun)
        ways = spelled(Vocabulary(tokenizer), rest, context.behind.split("4")[0])
        bits = token_bits(model, [space.beginning + way for way in ways])
        costs = [own[len(space.beginning) - 1 :].sum() for own in bits]
        assert guess.bits == pytest.approx(min(costs), abs=1e-3)


@pytest.mark.parametrize("make", [characters, byte_level_bpe, sentence_piece_bpe, gpt2_like_bpe])
def test_a_row_with_nothing_behind_it_is_a_left_context(make: Any) -> None:
    tokenizer = make()
    spaces = [token_space(tokenizer, PIN, context=c) for c in ("\n", Context(before="\n"))]
    assert spaces[0].beginning == spaces[1].beginning
    assert spaces[0].path(281) == spaces[1].path(281)
    model, texts = chat_model("gpt2", len(tokenizer)), [PIN.text(i) for i in range(30)]
    plain, row = (
        log_perplexity(model, tokenizer, texts, context=c) for c in ("\n", Context(before="\n"))
    )
    np.testing.assert_array_equal(plain, row)


def test_a_large_space_in_a_chat_is_counted_exactly() -> None:
    form = Format(name="card", template="My PIN is {digits:16}")
    for name in ("uneven", "sentence piece"):
        _, tokenizer, context = made(name)
        space = token_space(tokenizer, form, context=context)
        assert (space.count(space.root), space.proof.rule) == (10**16, "merges")
        for index in form.sample(50, seed=3):
            assert space.index(space.path(index)) == index


def test_the_last_few_word_pieces_tell_what_may_follow_into_the_row() -> None:
    form = Format(name="pin", template="my pin is {digits:5}")
    tokenizer, context = word_piece(), Context(before="random ", behind="28 is")
    space = token_space(tokenizer, form, context=context)
    assert (space.proof.rule, space.proof.counted) == ("windows", 10**5)
    some = form.sample(3000, seed=9)
    rows = encode_in_context(tokenizer, [form.text(i) for i in some], context=context)
    assert [space.index(row.ids[len(space.beginning) :]) for row in rows] == some
    alone = encode_in_context(
        tokenizer, [form.text(i) for i in some], context=Context(before="random ")
    )
    assert any(row.ids != bare.ids for row, bare in zip(rows, alone, strict=True))


NESTED = Format(name="nested", template="PIN {choice:w}", lists={"w": ["1", "12", "28", "281"]})


def test_fills_that_begin_others_are_enumerated_in_a_row() -> None:
    tokenizer = byte_level_bpe()
    bare = token_space(tokenizer, NESTED, context=Context(before="My "))
    assert bare.proof.rule == "merges"
    space = token_space(tokenizer, NESTED, context=Context(before="My ", behind="8 is"))
    assert space.proof.rule == "enumerated"
    assert [space.index(space.path(index)) for index in range(4)] == [0, 1, 2, 3]
    found = Extractor(
        chat_model("gpt2", len(tokenizer)), tokenizer, NESTED, context=Context(behind="8 is")
    ).search("", width=50)
    assert {guess.text for guess in found} == {NESTED.text(index) for index in range(4)}
    large = Format(name="l", template="{digits:6}{choice:w}", lists={"w": ["1", "12", "28", "281"]})
    with pytest.raises(ModelError, match="one secret may begin another, and text follows them"):
        token_space(tokenizer, large, context=Context(before="My ", behind="8 is"))


def test_two_fills_that_are_one_path_in_their_rows_are_refused() -> None:
    """Of "1" and "12" before "2" both may be read as far as "12"."""
    form = Format(name="n", template="a {choice:w}", lists={"w": ["28", "281"]})
    tokenizer = byte_level_bpe()
    assert "281" in tokenizer.decode(tokenizer("a 281")["input_ids"][-1:])
    with pytest.raises(ModelError, match="gives 1 paths for 2 secrets"):
        token_space(tokenizer, form, context=Context(before="a", behind="1"))


def test_a_search_refuses_what_carries_no_loss_within_the_secrets() -> None:
    tokenizer = characters()
    literal = Context(before="My ", behind="\n", unscored=5)
    assert token_space(tokenizer, PIN, context=literal).size == 1000
    within = Context(before="My ", behind="\n", unscored=len(PIN.prefix) + 1)
    with pytest.raises(ModelError, match="first tokens are not scored in their rows"):
        token_space(tokenizer, PIN, context=within)
    bare = Format(name="bare", template="{digits:3}")
    with pytest.raises(ModelError, match="first tokens are not scored in their rows"):
        token_space(byte_level_bpe(), bare, context=Context(before="number is "))


def test_a_secret_with_no_token_in_front_of_it() -> None:
    """The tokenizer has an EOS token, but the row does not begin with it."""
    tokenizer = byte_level_bpe()
    bare = Format(name="bare", template="{digits:3} is my PIN")
    with pytest.raises(ModelError, match="and no token is in front of it in its row, so the model"):
        token_space(tokenizer, bare, context=Context(start=()))
