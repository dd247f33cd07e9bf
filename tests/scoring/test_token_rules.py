import json
from dataclasses import replace
from typing import Any

import pytest
from tiny import byte_level_bpe, characters, from_settings, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.scoring import Vocabulary, bpe_merges, token_rules
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
PIN = Format(name="pin", template="my pin is {digits:3}")


def sample_of(tokenizer: Any, form: Format = PIN, context: str | None = None) -> EncodedSample:
    vocabulary = Vocabulary(tokenizer)
    return sample_encodings(tokenizer, vocabulary, form, context=context, fills=64, seed=0)


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
    found = sample_of(tokenizer, NUMBER, context)
    assert (found.around.lead, found.around.before) == (lead, before)
    spelled = found.vocabulary.spelled(found.ids[before:])
    assert spelled == (lead + NUMBER.prefix)[: found.begun].encode()
    assert all(row[: len(found.ids)] == found.ids for row in found.rows)
    assert len(found.rows) >= 64
    assert {found.index(found.encode([NUMBER.text(i)])[0]) for i in (0, 7, 999)} == {0, 7, 999}


def test_the_rules_agree() -> None:
    found = sample_of(byte_level_bpe())
    merges, windows, every = by_merges(found), by_windows(found, 1), by_enumeration(found)
    assert [one.rule for one in (merges, windows, every)] == ["merges", "windows", "enumerated"]
    graphs = [one.graph for one in (merges, windows, every)]
    assert {graph.count(graph.root) for graph in graphs} == {1000}


def lowering() -> Any:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["normalizer"] = {"type": "Lowercase"}
    return from_settings(settings)


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    found = sample_of(lowering(), Format(name="w", template="{digits:1}{upper:2}"))
    assert found.around.lead is None
    for rule in (by_merges, lambda found: by_windows(found, 1)):
        with pytest.raises(NotApplicable, match="does not keep the text as it is"):
            rule(found)
    with pytest.raises(NotApplicable, match="does not merge pairs of tokens"):
        by_merges(sample_of(word_piece(), context="random"))


def test_a_tokenizer_that_changes_a_few_fills_is_refused() -> None:
    """None of the sampled fills may show it; each cut is tried all the same."""
    form = Format(name="w", template="{choice:w}{digits:6}", lists={"w": ["ba", "Ba", "1c"]})
    found = sample_of(lowering(), form)
    found = replace(found, around=replace(found.around, lead=""))
    with pytest.raises(NotApplicable, match="does not keep the text"):
        by_merges(found)


@pytest.mark.parametrize(
    ("module", "limit", "most", "error", "reason"),
    [
        (bpe_merges, "_MOST_TOKENS", 1, NotApplicable, "more than 1 of its tokens fit the format"),
        (bpe_merges, "_MOST_CELLS", 1, NotApplicable, "its space has too many states to count"),
        (token_rules, "_MOST_ENCODINGS", 10, TooCostly, "too many texts to ask it about"),
    ],
)
def test_too_large_a_space_is_refused(
    module: Any,
    limit: str,
    most: int,
    error: type[Exception],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, limit, most)
    found = sample_of(byte_level_bpe())
    with pytest.raises(error, match=reason):
        by_merges(found) if module is bpe_merges else by_windows(found, 1)


def test_whole_words_that_no_merge_makes_are_refused() -> None:
    settings = json.loads(byte_level_bpe().backend_tokenizer.to_str())
    settings["model"]["ignore_merges"] = True
    settings["model"]["vocab"]["Ġ777"] = len(settings["model"]["vocab"])
    with pytest.raises(NotApplicable, match="tokens for whole words that no merge makes"):
        by_merges(sample_of(from_settings(settings)))
    del settings["model"]["vocab"]["Ġ777"]
    graph = by_merges(sample_of(from_settings(settings))).graph
    assert graph.count(graph.root) == 1000


def test_dead_ends_are_left_out_and_equal_states_merged() -> None:
    #      0 -5-> 1 -7-> 3 (end)    2 -7-> 4 (end)    0 -9-> 5 (dead)
    moves: list[dict[int, int]] = [{6: 2, 5: 1, 9: 5}, {7: 3}, {7: 4, 8: 5}, {}, {}, {}]
    graph = ListedGraph(moves, [False, False, False, True, True, False])
    assert (graph.count(graph.root), graph.longest(graph.root)) == (2, 2)
    tokens, states, shares, ends, leaf = graph.edges(graph.root)
    assert (tokens.tolist(), shares.tolist()) == ([5, 6], [0.5, 0.5])
    assert states[0] == states[1] != graph.root
    assert not ends.any()
    assert not leaf.any()
    assert (graph.step(graph.root, 5), graph.step(graph.root, 9)) == (states[0], None)
    nothing = ListedGraph([{1: 1}, {}], [False, False])
    assert (nothing.count(nothing.root), len(nothing.edges(nothing.root)[0])) == (0, 0)
