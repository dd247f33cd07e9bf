import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import byte_level_bpe, characters, sentence_piece_bpe, word_piece
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from lmexposure.canaries import Format
from lmexposure.scoring import (
    Vocabulary,
    bpe_merges,
    token_rules,
)
from lmexposure.scoring.bpe_merges import by_merges
from lmexposure.scoring.token_rules import (
    EncodedSample,
    ListedGraph,
    NotApplicable,
    TooCostly,
    by_enumeration,
    by_windows,
    sample_encodings,
)

NUMBER = Format(name="pin", template="number is {digits:3}")


def twenty_of(tokenizer: Any, context: str | None, form: Format = NUMBER) -> EncodedSample:
    vocabulary = Vocabulary(tokenizer)
    return sample_encodings(tokenizer, vocabulary, form, context=context, fills=20, seed=0)


@pytest.mark.parametrize(
    ("make", "context", "lead", "before"),
    [
        (characters, "\n", "\n", 0),
        (characters, None, "", 1),
        (byte_level_bpe, "\n", "\n", 0),
        (sentence_piece_bpe, None, " ", 1),  # the mark of a first word
        (word_piece, "random", " random", 0),
    ],
)
def test_what_stands_before_each_fill(
    make: Any, context: str | None, lead: str, before: int
) -> None:
    tokenizer = make()
    found = twenty_of(tokenizer, context)
    assert (found.lead, found.before) == (lead, before)
    spelled = found.vocabulary.spelled(found.ids[before:])
    assert spelled == (lead + NUMBER.prefix)[: found.begun].encode()
    assert all(row[: len(found.ids)] == found.ids for row in found.rows)
    assert len(found.rows) >= 20
    assert {found.index(found.encode([NUMBER.text(i)])[0]) for i in (0, 7, 999)} == {0, 7, 999}


def test_fills_that_the_tokens_do_not_spell_are_looked_up() -> None:
    form = Format(name="pin", template="My NUMBER is {digits:2}")
    found = twenty_of(word_piece(), "random", form)
    assert found.lead is None
    assert [found.index(found.encode([form.text(i)])[0]) for i in (0, 99)] == [0, 99]


def test_it_begins_at_the_end_of_a_character() -> None:
    form = Format(name="w", template="{choice:w}", lists={"w": ["éé1", "éê2", "éë3"]})
    found = twenty_of(byte_level_bpe(), "é", form)
    assert "éé"[: found.begun].encode() == found.vocabulary.spelled(found.ids[found.before :])


def test_dead_ends_are_left_out_and_equal_states_merged() -> None:
    #      0 -5-> 1 -7-> 3 (end)    2 -7-> 4 (end)    0 -9-> 5 (dead)
    moves: list[dict[int, int]] = [{6: 2, 5: 1, 9: 5}, {7: 3}, {7: 4, 8: 5}, {}, {}, {}]
    graph = ListedGraph(moves, [False, False, False, True, True, False])
    assert (graph.count(graph.root), graph.longest(graph.root)) == (2, 2)
    tokens, states, shares, ends, leaf = graph.edges(graph.root)
    assert tokens.tolist() == [5, 6]
    assert states[0] == states[1] != graph.root
    np.testing.assert_array_equal(shares, [0.5, 0.5])
    assert not ends.any()
    assert not leaf.any()
    assert graph.step(graph.root, 5) == states[0]
    assert graph.step(graph.root, 9) is None
    _, _, _, ends, leaf = graph.edges(int(states[0]))
    assert (ends.tolist(), leaf.tolist()) == ([True], [True])


def test_a_state_can_be_complete_and_go_on() -> None:
    graph = ListedGraph([{1: 1}, {2: 2}, {}], [False, True, True])
    assert graph.count(graph.root) == 2
    middle = graph.step(graph.root, 1)
    assert middle is not None
    assert graph.complete(middle)
    assert graph.edges(middle)[2].tolist() == [0.5]
    _, _, _, ends, leaf = graph.edges(graph.root)
    assert (ends.tolist(), leaf.tolist()) == ([True], [False])


def test_a_graph_without_fills_counts_none() -> None:
    graph = ListedGraph([{1: 1}, {}], [False, False])
    assert (graph.count(graph.root), len(graph.edges(graph.root)[0])) == (0, 0)


PIN = Format(name="pin", template="my pin is {digits:3}")


def sample_of(tokenizer: Any, form: Format = PIN, context: str | None = None) -> EncodedSample:
    vocabulary = Vocabulary(tokenizer)
    return sample_encodings(tokenizer, vocabulary, form, context=context, fills=64, seed=0)


def test_the_rules_agree() -> None:
    found = sample_of(byte_level_bpe())
    merges, windows, every = by_merges(found), by_windows(found, 1), by_enumeration(found)
    assert [one.rule for one in (merges, windows, every)] == ["merges", "windows", "enumerated"]
    graphs = [one.graph for one in (merges, windows, every)]
    assert {graph.count(graph.root) for graph in graphs} == {1000}


def test_one_token_is_too_little_memory_for_longest_matches() -> None:
    found = sample_of(word_piece(), context="random")
    counts = [g.count(g.root) for g in (by_windows(found, k).graph for k in (1, 2, 3))]
    assert counts[-1] == 1000


def test_merges_refuse_another_kind_of_tokenizer() -> None:
    with pytest.raises(NotApplicable, match="does not merge pairs of tokens"):
        by_merges(sample_of(word_piece(), context="random"))


def lowering() -> Any:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["normalizer"] = {"type": "Lowercase"}
    tokenizer = Tokenizer.from_str(json.dumps(settings))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    found = sample_of(lowering(), Format(name="w", template="{digits:1}{upper:2}"))
    assert found.lead is None
    with pytest.raises(NotApplicable, match="does not keep the text as it is"):
        by_merges(found)
    with pytest.raises(NotApplicable, match="does not keep the text as it is"):
        by_windows(found, 1)


def test_a_tokenizer_that_changes_a_few_fills_is_refused() -> None:
    """None of the sampled fills may show it; each cut is tried all the same."""
    form = Format(name="w", template="{choice:w}{digits:6}", lists={"w": ["ba", "Ba", "1c"]})
    found = sample_of(lowering(), form)
    found = replace(found, around=replace(found.around, lead=""))
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
    monkeypatch.setattr(bpe_merges, limit, 1)
    with pytest.raises(NotApplicable, match=reason):
        by_merges(sample_of(byte_level_bpe()))


def test_too_many_texts_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rules, "_MOST_ENCODINGS", 10)
    with pytest.raises(TooCostly, match="too many texts to ask it about"):
        by_windows(sample_of(byte_level_bpe()), 1)


def test_whole_words_that_no_merge_makes_are_refused() -> None:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["model"]["ignore_merges"] = True
    settings["model"]["vocab"]["Ġ777"] = len(settings["model"]["vocab"])

    def made() -> Any:
        tokenizer = Tokenizer.from_str(json.dumps(settings))
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")

    with pytest.raises(NotApplicable, match="tokens for whole words that no merge makes"):
        by_merges(sample_of(made()))
    del settings["model"]["vocab"]["Ġ777"]
    graph = by_merges(sample_of(made())).graph
    assert graph.count(graph.root) == 1000
