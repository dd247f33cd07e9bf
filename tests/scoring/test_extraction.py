from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Cramped, NanBehind
from slow_search import biased
from tiny import (
    byte_level_bpe,
    characters,
    model_of,
    model_with_tokenizer,
    one_by_one,
    sentence_piece_bpe,
    word_piece,
)

from lmexposure.canaries import Format
from lmexposure.errors import InputError, ModelError, NumericalError, SettingsError
from lmexposure.models import encode_in_context
from lmexposure.scoring import Extractor, SecretSearch, beam_width, extraction, log_perplexity
from lmexposure.scoring.beginnings import shared_tokens

PIN = Format(name="pin", template="My PIN is {digits:2}")
WORDS = Format(
    name="words",
    template="number {choice:w} is {digits:1}.",
    lists={"w": ["1", "12", "28", "281", "PIN"]},
)


@pytest.mark.parametrize("form", [PIN, WORDS], ids=["pin", "words"])
def test_a_wide_beam_over_characters_is_the_true_order(form: Format) -> None:
    model, tokenizer = model_with_tokenizer("lstm")
    texts = [form.text(i) for i in range(form.size)]
    bits = log_perplexity(model, tokenizer, texts, context="\n")
    guesses = Extractor(model, tokenizer, form, context="\n").search("", width=form.size)
    assert [g.text for g in guesses] == [texts[i] for i in np.argsort(bits, kind="stable")]
    differences = np.diff([g.bits for g in guesses])
    np.testing.assert_allclose(differences, np.diff(np.sort(bits)), atol=1e-3)


def spellings(tokenizer: Any, text: str) -> list[list[int]]:
    """Every way to spell a text in byte-level tokens, by brute force."""
    if not text:
        return [[]]
    whole = [tokenizer.decode([t]) for t in range(len(tokenizer))]
    return [
        [t, *rest]
        for t, surface in enumerate(whole)
        if surface and text.startswith(surface)
        for rest in spellings(tokenizer, text[len(surface) :])
    ]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_wide_beam_over_merged_tokens_finds_the_cheapest_spelling(kind: str) -> None:
    model, tokenizer = model_with_tokenizer(kind, byte_level_bpe)
    fills = [PIN.text(i) for i in range(PIN.size)]
    encoded = encode_in_context(tokenizer, fills, context="\n")
    start = shared_tokens([one.ids for one in encoded])
    tail = PIN.text(28)[len("My PIN is") :]
    assert tokenizer.decode(start) == "\nMy PIN is"  # the space merges into the secret
    with torch.inference_mode():
        expected = min(one_by_one(model, start + s, len(start)) for s in spellings(tokenizer, tail))
    found = {
        g.text: g.bits
        for g in Extractor(model, tokenizer, PIN, context="\n").search("", width=1000)
    }
    assert len(found) == PIN.size
    assert found[PIN.text(28)] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("make", [byte_level_bpe, sentence_piece_bpe])
def test_tokens_that_end_inside_a_character_are_followed(make: Any) -> None:
    form = Format(
        name="w", template="naïve {choice:w}{digits:1}", lists={"w": ["é", "ê", "€", "日本", "🙂"]}
    )
    extractor = Extractor(*model_with_tokenizer("gpt2", make), form, context="\n")
    fills = {form.text(index) for index in range(form.size)}
    assert {guess.text for guess in extractor.search("", width=60)} == fills
    known = extractor.search("naïve 日", width=60)
    assert {guess.text for guess in known} == {fill for fill in fills if "日" in fill}


def test_what_is_revealed_narrows_the_search() -> None:
    extractor = Extractor(*model_with_tokenizer("gpt2", byte_level_bpe), PIN, context="\n")
    assert {g.text for g in extractor.search("My PIN is 7", width=100)} == {
        f"My PIN is 7{d}" for d in range(10)
    }
    known = extractor.find(73, revealed=2, width=1)
    assert (known.found, known.place, known.method) == (True, 1, "greedy")


def test_find_says_place_and_steps() -> None:
    model, tokenizer = model_with_tokenizer("lstm")
    extractor = Extractor(model, tokenizer, PIN, context="\n")
    order = [g.text for g in extractor.search("", width=100)]
    third = PIN.index(order[2])
    found = extractor.find(third, revealed=0, width=100)
    assert found.place == 3
    missed = extractor.find(PIN.index(order[-1]), revealed=0, width=1)
    assert (missed.found, missed.place) == (False, None)
    assert missed.steps == 1  # the prefix: from the first digit on it cannot be found any more
    assert extractor.find(PIN.index(order[0]), revealed=0, width=100).steps == 11


@pytest.mark.parametrize("make", [characters, byte_level_bpe])
def test_searches_side_by_side_find_what_each_finds_alone(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each against a search that goes on to its end, whose places are counted."""
    form = Format(name="n", template="number {digits:3}{choice:w}", lists={"w": ["P", "IN"]})
    extractor = Extractor(*model_with_tokenizer("gpt2", make), form, context="\n")
    searches = [
        SecretSearch(index=index, revealed=revealed, width=width)
        for index in form.sample(12, seed=3)
        for revealed in (0, 1, 2)
        for width in (1, 7, 40)
    ]
    monkeypatch.setattr("lmexposure.scoring.extraction._MOST_ROWS", 150)
    parts = list(extractor.find_all(searches))
    found = [one for part in parts for one in part]
    assert len(parts) > 2
    assert len(found) == len(searches)
    places = []
    for search in searches:
        guesses = extractor.search(form.revealed(search.index, search.revealed), width=search.width)
        texts = [guess.text for guess in guesses]
        text = form.text(search.index)
        places.append(1 + texts.index(text) if text in texts else None)
    assert [one.place for one in found] == places
    assert [one.found for one in found] == [place is not None for place in places]
    assert 5 < sum(one.found for one in found) < len(found) - 5
    assert [(one.revealed, one.width) for one in found] == [(w.revealed, w.width) for w in searches]


def test_where_memory_runs_out_fewer_searches_go_side_by_side() -> None:
    form = Format(name="n", template="number {digits:4}")
    extractor: Any = Extractor(*model_with_tokenizer("gpt2"), form, context="\n")
    secrets = (5, 1_300, 2_800, 2_800, 7_100, 9_042)
    searches = [SecretSearch(index=secret, revealed=1, width=8) for secret in secrets]
    alone = [extractor.find(**vars(search)) for search in searches]
    extractor._steps = cramped = Cramped(extractor._steps, most=10)
    assert [one for part in extractor.find_all(searches) for one in part] == alone
    assert cramped.refused > 0
    extractor._steps = Cramped(cramped.steps, most=0)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(extractor.find_all(searches))


@pytest.mark.parametrize("make", [characters, byte_level_bpe])
@pytest.mark.parametrize("lists", [["P", "IN"], ["P", "PI", "PIN"]])  # these begin one another
def test_what_costs_more_than_the_secret_changes_no_place(
    make: Any, lists: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Format(name="n", template="number {digits:4}{choice:w}", lists={"w": lists})
    model, tokenizer = model_with_tokenizer("gpt2", make)
    with torch.no_grad():
        model.lm_head.weight *= 5  # surer of what follows
    known = Extractor(model, tokenizer, form, context="\n").search("", width=60)[::4]
    searches = [
        SecretSearch(index=index, revealed=revealed, width=width)
        for index in (*form.sample(12, seed=5), *(form.index(guess.text) for guess in known))
        for revealed in (0, 1)
        for width in (8, 25, 60)
    ]
    assert_places_stay(model, tokenizer, form, searches, monkeypatch, fewer=1.0)


def test_what_costs_more_than_the_secret_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    form = Format(name="pin", template="My PIN is {digits:6}")
    model, _ = biased(form, {"7": 6.0})
    texts = [f"My PIN is {digits}" for digits in ("777777", "777177", "123456")]
    searches = [SecretSearch(index=form.index(text), revealed=1, width=60) for text in texts]
    assert_places_stay(model, characters(), form, searches, monkeypatch, fewer=0.75)


def test_a_fill_that_merges_with_what_others_begin_with_is_found_where_it_is() -> None:
    """Its own spelling does not begin where the beams do, and says nothing of theirs."""
    tokenizer = byte_level_bpe(["bx bx bx"], vocab_size=258)
    model = model_of("lstm", len(tokenizer))
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.bias.fill_(0.0)
        for character, nats in (("7", 12.0), ("x", 8.0)):
            model.lm_head.bias[tokenizer.convert_tokens_to_ids(character)] = nats
    entries = [*map(str, range(1000, 1300)), "x7"]
    form = Format(name="n", template="ab{choice:w}", lists={"w": entries})
    extractor = Extractor(model, tokenizer, form, context="\n")
    rare = form.index("abx7")
    assert [extractor.find(rare, revealed=0, width=w).place for w in (1, 8, 100)] == [1, 1, 1]
    assert extractor.search("", width=3)[0].text == "abx7"


def assert_places_stay(
    model: Any,
    tokenizer: Any,
    form: Format,
    searches: list[SecretSearch],
    monkeypatch: pytest.MonkeyPatch,
    *,
    fewer: float,
) -> None:
    """With and without the costs of the secrets: the same is found, in fewer steps."""
    found, steps = [], []
    for worth in (extraction._WORTH, 10**6):
        monkeypatch.setattr(extraction, "_WORTH", worth)
        extractor = Extractor(model, tokenizer, form, context="\n")
        rows = [extractor.find(**vars(search)) for search in searches]
        found.append([row.place for row in rows])
        steps.append(sum(row.steps for row in rows))
    assert found[0] == found[1]
    assert 0 < found[0].count(None) < len(searches)
    assert steps[0] < fewer * steps[1]


@pytest.mark.parametrize("width", [10, 100])
def test_nan_on_a_branch_is_no_secret_that_was_not_found(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN sorts behind every number: the secrets there would be missed, or found by their place."""
    model, tokenizer = model_with_tokenizer("lstm")
    extractor = Extractor(model, tokenizer, PIN, context="\n")
    steps = NanBehind(extractor._steps, tokenizer.convert_tokens_to_ids("7"))
    monkeypatch.setattr(extractor, "_steps", steps)
    with pytest.raises(NumericalError, match="NaN 1 tokens into the secrets"):
        extractor.find(71, revealed=0, width=width)
    assert extractor.find(31, revealed=1, width=width).found


def test_width_grows_with_the_canaries() -> None:
    assert (beam_width(3), beam_width(50), beam_width(80)) == (100, 100, 160)


def test_refuses_a_beginning_of_no_fill() -> None:
    extractor = Extractor(*model_with_tokenizer("lstm"), PIN, context="\n")
    with pytest.raises(InputError, match="no text of format 'pin' begins with the 11 characters"):
        extractor.search("My PIN is x", width=3)
    with pytest.raises(SettingsError, match="width=0"):
        extractor.search("", width=0)


def test_refuses_what_cannot_be_searched() -> None:
    model, tokenizer = model_with_tokenizer("gpt2", word_piece)
    shouted = Format(name="w", template="my {choice:w}", lists={"w": ["PIN", "NUMBER"]})
    with pytest.raises(ModelError, match="does not keep the text of format 'w'"):
        Extractor(model, tokenizer, shouted, context="\n")
    headless = byte_level_bpe()
    headless.eos_token = None
    bare = Format(name="bare", template="{digits:5}")
    with pytest.raises(ModelError, match="begins with its secret and no token is in front"):
        Extractor(model_of("gpt2", len(headless)), headless, bare, context=None)


def test_a_spelling_beyond_the_context_window_is_not_followed() -> None:
    """Spelled digit by digit these fills are longer than the model can read."""
    model, tokenizer = model_with_tokenizer("gpt2", byte_level_bpe)
    form = Format(
        name="n", template="number is {choice:c}", lists={"c": ["281265017", "1234567890"]}
    )
    fills = [form.text(i) for i in range(2)]
    longest = max(len(e.ids) for e in encode_in_context(tokenizer, fills, context="\n"))
    model.config.n_positions = longest
    model.transformer.wpe.weight.data = model.transformer.wpe.weight.data[:longest]
    guesses = Extractor(model, tokenizer, form, context="\n").search("", width=20)
    assert {guess.text for guess in guesses} == set(fills)
