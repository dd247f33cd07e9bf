import json
from typing import Any

import pytest
from tiny import byte_level_bpe, word_piece
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from lmexposure.canaries import Format
from lmexposure.scoring import (
    Vocabulary,
)
from lmexposure.scoring.space import token_rules
from lmexposure.scoring.space.ground import Ground, survey
from lmexposure.scoring.space.token_rules import (
    NotApplicable,
    TooMuch,
    by_enumeration,
    by_merges,
    by_windows,
)

PIN = Format(name="pin", template="my pin is {digits:3}")


def ground(tokenizer: Any, form: Format = PIN, context: str | None = None) -> Ground:
    vocabulary = Vocabulary(tokenizer)
    return survey(tokenizer, vocabulary, form, context=context, sample=64, seed=0)


def test_the_rules_agree() -> None:
    found = ground(byte_level_bpe())
    merges, windows, every = by_merges(found), by_windows(found, 1), by_enumeration(found)
    assert [one.rule for one in (merges, windows, every)] == ["merges", "windows", "enumerated"]
    graphs = [one.graph for one in (merges, windows, every)]
    assert {graph.count(graph.root) for graph in graphs} == {1000}


def test_one_token_is_too_little_memory_for_longest_matches() -> None:
    found = ground(word_piece(), context="random")
    counts = [g.count(g.root) for g in (by_windows(found, k).graph for k in (1, 2, 3))]
    assert counts[-1] == 1000


def test_merges_refuse_another_kind_of_tokenizer() -> None:
    with pytest.raises(NotApplicable, match="does not merge pairs of tokens"):
        by_merges(ground(word_piece(), context="random"))


def lowering() -> Any:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["normalizer"] = {"type": "Lowercase"}
    tokenizer = Tokenizer.from_str(json.dumps(settings))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    found = ground(lowering(), Format(name="w", template="{digits:1}{upper:2}"))
    assert found.lead is None
    with pytest.raises(NotApplicable, match="does not keep the text as it is"):
        by_merges(found)
    with pytest.raises(NotApplicable, match="does not keep the text as it is"):
        by_windows(found, 1)


def test_a_tokenizer_that_changes_a_few_fills_is_refused() -> None:
    """None of the sampled fills may show it; each cut is tried all the same."""
    form = Format(name="w", template="{choice:w}{digits:6}", lists={"w": ["ba", "Ba", "1c"]})
    found = ground(lowering(), form)
    object.__setattr__(found, "lead", "")
    with pytest.raises(NotApplicable, match="does not keep the text"):
        by_merges(found)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("_MOST_TOKENS", "more than 1 of its tokens fit the format"),
        ("_MOST_CELLS", "its space has too many states to count"),
    ],
)
def test_too_large_a_space_is_refused(
    limit: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_rules, limit, 1)
    with pytest.raises(NotApplicable, match=reason):
        by_merges(ground(byte_level_bpe()))


def test_too_many_texts_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rules, "_MOST_ENCODINGS", 10)
    with pytest.raises(TooMuch, match="too many texts to ask it about"):
        by_windows(ground(byte_level_bpe()), 1)


def test_whole_words_that_no_merge_makes_are_refused() -> None:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["model"]["ignore_merges"] = True
    settings["model"]["vocab"]["Ġ777"] = len(settings["model"]["vocab"])

    def made() -> Any:
        tokenizer = Tokenizer.from_str(json.dumps(settings))
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")

    with pytest.raises(NotApplicable, match="tokens for whole words that no merge makes"):
        by_merges(ground(made()))
    del settings["model"]["vocab"]["Ġ777"]
    graph = by_merges(ground(made())).graph
    assert graph.count(graph.root) == 1000
