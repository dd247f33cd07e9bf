import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import (
    byte_level_bpe,
    characters,
    gpt2_like_bpe,
    sentence_piece_bpe,
    unigram,
    word_piece,
    word_split_bpe,
)
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmexposure.canaries import Format
from lmexposure.errors import FormatError, InputError, ModelError
from lmexposure.models import AnyContext, Context, character_tokenizer, encode_in_context
from lmexposure.scoring import TokenSpace, token_rules, token_space

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BY_THREE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FROM_THE_RIGHT = r"\d{1,3}(?=(\d{3})*\b)|\D+"
SINGLY = r"\d|\D+"

TOKENIZERS: dict[str, Callable[[], Any]] = {
    "bytes": byte_level_bpe,
    "gpt2": lambda: word_split_bpe(GPT2),
    "two line breaks": gpt2_like_bpe,
    "singly": lambda: word_split_bpe(SINGLY),
    "by three": lambda: word_split_bpe(BY_THREE),
    "from the right": lambda: word_split_bpe(FROM_THE_RIGHT),
    "sentence piece": sentence_piece_bpe,
}
FORMATS = {
    "pin": Format(name="pin", template="My PIN is {digits:3}"),
    "middle": Format(
        name="middle",
        template="number {choice:w} is {digits:1}.",
        lists={"w": ["1", "12", "28", "281", "PIN"]},
    ),
    "end": Format(
        name="end", template="number is {choice:w}", lists={"w": ["1", "12", "28", "2812", "PIN"]}
    ),
    "bare": Format(name="bare", template="{hex:3}"),
    "mixed": Format(name="mixed", template="id {alnum:1}{hex:1}-{digits:1}"),
    "signs": Format(name="signs", template="it's {printable:2}"),
    "spaces": Format(name="spaces", template="a  {digits:2} {digits:1}"),
    "check digit": Format(name="card", template="card {digits:1} {digits:2}{luhn}"),
    "other scripts": Format(
        name="words",
        template="naïve {choice:w}{digits:1}",
        lists={"w": ["é", "ê", "éa", "€", "日本", "日", "🙂"]},
    ),
}


def walked(space: TokenSpace) -> dict[tuple[int, ...], float]:
    """Every path of a space, and the probability that a draw by shares ends with it."""
    found: dict[tuple[int, ...], float] = {}

    def walk(state: int, path: list[int], share: float) -> None:
        after = space.continuations(state)
        assert space.count(state) == space.complete(state) + sum(map(space.count, after.states))
        assert list(after.tokens) == sorted(set(after.tokens))
        if space.complete(state):
            found[tuple(path)] = share * (1 - after.shares.sum())
        for k, (token, behind) in enumerate(zip(after.tokens, after.states, strict=True)):
            nothing = not len(space.continuations(int(behind)).tokens)
            assert after.ends[k] == space.complete(int(behind))
            assert after.leaf[k] == (after.ends[k] and nothing)
            walk(int(behind), [*path, int(token)], share * after.shares[k])

    walk(space.root, [], 1.0)
    return found


def encodings(tokenizer: Any, form: Format, context: AnyContext) -> list[tuple[int, ...]]:
    texts = [form.text(index) for index in range(form.size)]
    return [tuple(one.ids) for one in encode_in_context(tokenizer, texts, context=context)]


def assert_holds_all_fills_once(tokenizer: Any, form: Format, context: AnyContext) -> TokenSpace:
    """The paths of a space are the encodings of all fills, each once and equally likely."""
    space = token_space(tokenizer, form, context=context)
    paths, expected = walked(space), encodings(tokenizer, form, context)
    beginning = tuple(space.beginning)
    assert {beginning + path for path in paths} == set(expected)
    assert len(paths) == form.size == space.size == space.proof.counted
    np.testing.assert_allclose(list(paths.values()), 1 / form.size, rtol=1e-9)
    assert space.longest == max(map(len, paths))
    assert len(beginning) > 0
    shared = [len(set(column)) == 1 for column in zip(*expected, strict=False)]
    assert all(shared[: len(beginning)])
    shortest = min(map(len, expected))
    most = shared.index(False) if False in shared else len(shared)
    assert len(beginning) == min(most, shortest - 1)
    for index in {0, form.size // 2, form.size - 1}:
        assert beginning + tuple(space.path(index)) == expected[index]
        assert space.index(space.path(index)) == index
    return space


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_fill_is_one_path(name: str, form: Format) -> None:
    context = None if form.name in {"pin", "bare"} else "\n"
    space = assert_holds_all_fills_once(TOKENIZERS[name](), form, context)
    assert space.proof.looked_up >= min(256, form.size)
    # Choices of several widths at the end: where three digits are grouped depends on what comes.
    ahead = name == "from the right" and form.name == "end"
    assert space.proof.rule == ("enumerated" if ahead else "merges")


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_every_fill_is_one_path_of_characters(form: Format) -> None:
    tokenizer = character_tokenizer([form.characters + form.prefix], extra_characters="\n")
    assert_holds_all_fills_once(tokenizer, form, "\n")


def test_equal_states_of_a_character_tokenizer_are_one() -> None:
    form = Format(name="n", template="The random number is {digits:9}")
    space = token_space(characters(), form, context="\n")
    seen, todo = {space.root}, [space.root]
    while todo:
        for state in space.continuations(todo.pop()).states.tolist():
            if state not in seen:
                seen.add(state)
                todo.append(state)
    assert len(seen) == 10
    assert [space.count(s) for s in sorted(seen)] == [10**k for k in range(10)]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_large_spaces_are_counted_exactly(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    number = Format(name="n", template="The random number is {digits:9}")
    card = Format(name="c", template="card {digits:4} {digits:4} {digits:4} {digits:4}")
    for form in (number, card):
        space = token_space(tokenizer, form, context="\n")
        assert space.proof.rule == "merges"
        assert space.count(space.root) == form.size
        path = space.path(123_456_789)
        states = space.states(path)
        assert space.complete(states[-1])
        assert not any(map(space.complete, states[:-1]))
        counts = [space.count(state) for state in states]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == 1


def test_word_pieces_are_enumerated_or_asked_about_the_last_tokens() -> None:
    tokenizer = word_piece()
    small = Format(name="pin", template="my pin is {digits:3}")
    assert assert_holds_all_fills_once(tokenizer, small, "random").proof.rule == "enumerated"
    lowered = Format(name="pin", template="My PIN is {digits:2}")
    assert assert_holds_all_fills_once(tokenizer, lowered, "random").proof.rule == "enumerated"
    large = Format(name="pin", template="my pin is {digits:5}")
    space = token_space(tokenizer, large, context="random")
    assert (space.proof.rule, space.proof.counted) == ("windows", 10**5)
    some = large.sample(5000, seed=9)
    texts = [large.text(index) for index in some]
    rows = encode_in_context(tokenizer, texts, context="random")
    skip = len(space.beginning)
    assert [space.index(one.ids[skip:]) for one in rows] == some


def test_a_unigram_tokenizer_is_enumerated_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rules, "_MOST_ENCODINGS", 2000)
    tokenizer = unigram()
    small = Format(name="pin", template="My PIN is {digits:3}")
    assert assert_holds_all_fills_once(tokenizer, small, None).proof.rule == "enumerated"
    large = Format(name="long", template="My PIN is {digits:12}")
    with pytest.raises(ModelError, match="no rule tells which tokens spell the secrets of format"):
        token_space(tokenizer, large, context=None)


def test_digits_grouped_from_the_right_are_followed_where_their_number_is_fixed() -> None:
    tokenizer = TOKENIZERS["from the right"]()
    fixed = Format(name="fixed", template="{digits:7} and {digits:2}")
    assert token_space(tokenizer, fixed, context="\n").proof.rule == "merges"


def test_contractions_look_ahead_and_are_enumerated() -> None:
    """Whether "'l" belongs together depends on the next letter: "we'll" but not "we'lb"."""
    tokenizer = TOKENIZERS["gpt2"]()
    small = Format(name="w", template="we{choice:w}{choice:v}", lists=CONTRACTIONS)
    assert assert_holds_all_fills_once(tokenizer, small, "\n").proof.rule == "enumerated"


CONTRACTIONS = {"w": ["'l", "'s", "'r", "!'l", "a'"], "v": ["l", "e", "b", "'"]}


@pytest.mark.parametrize(
    ("make", "form", "context", "message"),
    [
        (
            word_piece,
            Format(name="case", template="my {choice:w}", lists={"w": ["PIN", "pin", "is"]}),
            "random",
            "gives 2 paths for 3 secrets",
        ),
        (
            lambda: character_tokenizer(["My PIN is abc"]),
            Format(name="pin", template="My PIN is {lower:2}"),
            None,
            "the tokenizer has no token for character",
        ),
        (
            TOKENIZERS["from the right"],
            Format(name="widths", template="{digits:9}{choice:w}", lists={"w": ["0", "00"]}),
            "\n",
            "depends on what comes later",
        ),
        (
            TOKENIZERS["gpt2"],
            Format(name="password", template="pass {printable:8}"),
            "\n",
            "depends on what comes later",
        ),
    ],
)
def test_formats_that_a_tokenizer_cannot_spell_are_refused(
    make: Callable[[], Any], form: Format, context: str | None, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        token_space(make(), form, context=context)


def test_refuses_to_begin_from_nothing() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="so the model has nothing to begin from"):
        token_space(tokenizer, FORMATS["bare"], context=None)
    literal = token_space(tokenizer, FORMATS["pin"], context=None)
    assert tokenizer.decode(literal.beginning) == "My PIN is"


def test_refuses_what_is_no_path() -> None:
    space = token_space(byte_level_bpe(), FORMATS["end"], context="\n")
    path = space.path(0)
    with pytest.raises(InputError, match=r"token 1 of 2 leads out of the secrets of format 'end'"):
        space.states([path[0], 0])
    with pytest.raises(InputError, match="the 0 tokens are no whole text of format 'end'"):
        space.index([])


ALPHABET = "ab01 '"


def merging(draw: st.DrawFn, byte_level: bool) -> Any:
    """A BPE tokenizer with merges that no training would give, in any order."""
    space = "Ġ" if byte_level else "▁"
    names = [character.replace(" ", space) for character in ALPHABET]
    chance = random.Random(draw(st.integers(0, 10**6)))
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 25))):
        pair = (chance.choice(names), chance.choice(names))
        if pair not in merges and len("".join(pair)) <= 6:
            merges.append(pair)
            names = [*names, "".join(pair)] if "".join(pair) not in names else names
    if draw(st.booleans()):
        chance.shuffle(merges)
    vocab = {name: place for place, name in enumerate(["<s>", *names])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if byte_level:
        pattern = draw(st.sampled_from([None, SINGLY, r"\d{1,3}|\D+", r" ?\p{L}+| ?\d+|'s?|\s"]))
        cut = [pre_tokenizers.Split(Regex(pattern), behavior="isolated")] if pattern else []
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, level])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        if draw(st.booleans()):
            tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
        tokenizer.decoder = decoders.Replace("▁", " ")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


@st.composite
def tokenizers_and_formats(draw: st.DrawFn) -> tuple[Any, Format]:
    entries = st.text(ALPHABET, min_size=1, max_size=4)
    lists = {
        name: draw(st.lists(entries, min_size=2, max_size=6, unique=True)) for name in ("v", "w")
    }
    literals = [draw(st.text(ALPHABET, max_size=4)) for _ in range(3)]
    template = f"{literals[0]}{{choice:v}}{literals[1]}{{choice:w}}{literals[2]}"
    try:
        form = Format(name="any", template=template, lists=lists)
    except FormatError:  # two fills give one text
        form = Format(name="any", template="a{choice:v}", lists={"v": ["a", "0", "01"]})
    return merging(draw, draw(st.booleans())), form


@pytest.mark.slow
@settings(max_examples=150)
@given(tokenizers_and_formats())
def test_random_formats_under_random_merges(case: tuple[Any, Format]) -> None:
    tokenizer, form = case
    space = assert_holds_all_fills_once(tokenizer, form, None)
    assert space.proof.rule in {"merges", "enumerated"}


@st.composite
def rows_around(draw: st.DrawFn) -> Context:
    part, mark = st.text(ALPHABET, max_size=5), st.sampled_from(["", "<|x|>", "<y>"])
    before, behind = (draw(part) + draw(mark) + draw(part) for _ in range(2))
    return Context(before=before, behind=behind)


@pytest.mark.slow
@settings(max_examples=100)
@given(tokenizers_and_formats(), rows_around())
def test_random_formats_in_random_rows(case: tuple[Any, Format], row: Context) -> None:
    tokenizer, form = case
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|x|>"]})
    tokenizer.add_tokens(["<y>"])
    paths, refusal = set(encodings(tokenizer, form, row)), ""
    try:
        space = assert_holds_all_fills_once(tokenizer, form, row)
    except ModelError as failure:
        refusal = str(failure)
    if not refusal:
        assert space.proof.rule in {"merges", "enumerated"}
        assert space.proof.rule == "merges" or form.may_nest or "'" in form.template
        return
    alike = len(paths) < form.size and form.may_nest
    reasons = {
        f"gives {len(paths)} paths for {form.size} secrets": alike,
        "first tokens are not scored in their rows": not form.prefix,
        "nothing to begin from": not form.prefix and not row.before,
    }
    assert any(holds and reason in refusal for reason, holds in reasons.items())
