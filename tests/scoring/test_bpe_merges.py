from typing import Any

import numpy as np
import pytest
from tiny import byte_level_bpe, sentence_piece_bpe, word_split_bpe

from lmexposure.scoring import Vocabulary, bpe_merges
from lmexposure.scoring.bpe_merges import Merges, Neighbours, PairGraph, Places


def digit_tokens(tokenizer: Any) -> list[int]:
    surfaces = enumerate(Vocabulary(tokenizer).surfaces)
    return [token for token, surface in surfaces if surface and surface.isdigit()]


@pytest.mark.parametrize(
    "make", [byte_level_bpe, sentence_piece_bpe, lambda: word_split_bpe(r"\D|\d+")]
)
def test_neighbours_are_those_that_the_tokenizer_itself_writes(make: Any) -> None:
    tokenizer = make()
    merges = Merges.of(tokenizer)
    assert merges is not None
    found = {token: merges.spines(token, whole=False) for token in digit_tokens(tokenizer)}
    made = {token: spines for token, spines in found.items() if spines is not None}
    ids = sorted(made)
    rule = merges.neighbours([made[token] for token in ids])
    backend, surfaces = tokenizer.backend_tokenizer, Vocabulary(tokenizer).surfaces

    def alone(*pair: int) -> bool:
        text = b"x" + b"".join(surfaces[token] or b"" for token in pair)
        ids: list[int] = backend.encode(text.decode(), add_special_tokens=False).ids
        return ids[-len(pair) :] == [*pair]

    ids = [token for token in ids if alone(token)]
    assert len(ids) > 15
    places = np.searchsorted(sorted(made), ids)
    expected = [[alone(a, b) for b in ids] for a in ids]
    np.testing.assert_array_equal(rule.follows[rule.classes[places]][:, places], expected)
    assert 0.2 < np.mean(expected) < 0.99  # both kinds occur


def test_the_left_of_two_equal_merges_comes_first() -> None:
    """Of "aaa" the first two are joined: "aa" may come before "a", but not behind it."""
    merges = Merges({"a": 0, "aa": 1}, ["a a"])
    spines = [merges.spines(token, whole=False) for token in (0, 1)]
    rule = merges.neighbours([one for one in spines if one is not None])
    np.testing.assert_array_equal(rule.follows[rule.classes], [[False, False], [True, True]])


def layered(depth: int, tokens: int, seed: int) -> tuple[Places, Neighbours]:
    """Places 0 .. depth, each leading one or two places down, under a random rule."""
    rng = np.random.default_rng(seed)
    places: Places = []
    for place in range(depth + 1):
        fit = np.flatnonzero(rng.random(tokens) < 0.8) if place else np.empty(0, dtype=np.int64)
        there = np.maximum(0, place - rng.integers(1, 3, len(fit)))
        places.append((fit, there, rng.random(len(fit)) < 0.2))
    classes = rng.integers(0, 3, tokens)
    classes[:3] = np.arange(3)
    return places, Neighbours(classes=classes, follows=rng.random((3, tokens)) < 0.7)


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_a_walk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places, rule = layered(8, 6, seed)
    ids = np.arange(10, 16)
    complete = [place in {0, 2} for place in range(9)]
    if seed % 2:
        monkeypatch.setattr(bpe_merges, "_BLOCK", 2)  # in many blocks
    graph = PairGraph(places, complete, ids, rule, (8, 1), bits=20)

    def walked(place: int, last: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()] if complete[place] else []
        for token, there, free in zip(*places[place], strict=True):
            if free or rule.follows[rule.classes[last], token]:
                found += [(int(ids[token]), *rest) for rest in walked(int(there), int(token))]
        return found

    paths = walked(8, 1)
    assert graph.count(graph.root) == len(paths) > 10
    assert graph.longest(graph.root) == max(map(len, paths))
    tokens, states, shares, ends, leaf = graph.edges(graph.root)
    assert tokens.tolist() == sorted({path[0] for path in paths})
    for k, token in enumerate(tokens.tolist()):
        rests = [path[1:] for path in paths if path[0] == token]
        assert graph.count(int(states[k])) == len(rests)
        assert shares[k] == pytest.approx(len(rests) / len(paths))
        assert (ends[k], leaf[k]) == (() in rests, rests == [()])
        assert graph.step(graph.root, token) == states[k]
    assert graph.step(graph.root, 9) is None


def test_integers_beyond_the_range_of_floats_are_exact() -> None:
    depth = 120
    fit, none = np.arange(1000), np.empty(0, dtype=np.int64)
    places: Places = [(none, none, none.astype(bool))]
    places += [(fit, np.full(1000, p), np.zeros(1000, dtype=bool)) for p in range(depth)]
    rule = Neighbours(classes=np.zeros(1000, np.int64), follows=np.ones((1, 1000), dtype=bool))
    complete = [place == 0 for place in range(depth + 1)]
    graph = PairGraph(places, complete, fit, rule, (depth, 0), bits=(1000**depth).bit_length())
    assert graph.count(graph.root) == 1000**depth
    np.testing.assert_allclose(graph.edges(graph.root)[2], 1e-3, rtol=1e-12)
