import math
from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import NanBehind
from scoring.search.enumerated_ranks import assert_as_enumerated, assert_holds, search_of
from slow_search import PIN, SMALL, all_bits, listed, make_twins, naive_places, steps_of
from tiny import byte_level_bpe, characters, model_of

from lmexposure.canaries import Format
from lmexposure.errors import FormatError, NumericalError
from lmexposure.scoring import (
    Budget,
    token_space,
)

UNLIMITED = Budget()
ALL = [*SMALL, "thousand"]


@pytest.mark.parametrize("name", ALL)
def test_every_rank_is_that_of_the_enumeration(name: str) -> None:
    model, _, space, bits = listed(name)
    search = search_of(model, space)
    assert not search.margin.empirical
    assert search.margin.bits == 1e-3
    assert search.margin.measured < 2.5e-4
    assert search.margin.sample == min(64, space.size)
    indices = list(range(space.size))
    found = search.ranks(indices, budget=UNLIMITED)
    assert_as_enumerated(found, indices, bits)
    assert all(one.low == one.place_low for one in found)  # nothing is planted
    assert not search.interrupted


@pytest.mark.parametrize("name", SMALL)
def test_one_at_a_time_is_the_same(name: str) -> None:
    model, _, space, bits = listed(name)
    search = search_of(model, space)
    spent = 0
    for index in [0, *space.format.sample(4, seed=1), space.size - 1, int(bits.argmin())]:
        assert_as_enumerated(search.ranks([index], budget=UNLIMITED), [index], bits)
        assert search.spent > spent
        spent = search.spent
    twice = [2, 2, 0, 2]
    assert_as_enumerated(search.ranks(twice, budget=UNLIMITED), twice, bits)
    assert search.ranks([], budget=UNLIMITED) == []


def test_a_memorised_canary_costs_few_steps() -> None:
    model, _, space, bits = listed("merged words")
    best, worst = int(bits.argmin()), int(bits.argmax())
    cheap, dear = search_of(model, space), search_of(model, space)
    cheap.ranks([best], budget=UNLIMITED)
    dear.ranks([worst], budget=UNLIMITED)
    assert cheap.spent < 0.5 * dear.spent


@pytest.mark.parametrize("name", ["thousand", "merged words", "nested", "nested and merged"])
def test_planted_siblings_are_set_aside(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    for planted in (order[:4], order[-3:], order[1:7:2], [order[0]] * 3):
        search = search_of(model, space, excluded=planted)
        indices = [*order[:8], order[-1], order[len(order) // 2]]
        found = search.ranks(indices, budget=UNLIMITED)
        assert_as_enumerated(found, indices, bits, planted)
        for budget in (1, 3, 10):
            part = search.ranks(indices, budget=Budget(steps=budget))
            assert_holds(part, indices, bits, planted)


@pytest.mark.parametrize("kind", ["lstm", "gpt2", "llama", "mistral"])
def test_ties_count_against_the_canary(kind: str) -> None:
    tokenizer = characters()
    model = model_of(kind, len(tokenizer))
    for one, other in ("37", "04", "05"):
        make_twins(model, *tokenizer.convert_tokens_to_ids([one, other]))
    space = token_space(tokenizer, PIN, context=None)
    bits = all_bits(model, tokenizer, PIN, skip=len(space.beginning))
    planted = [33, 40]
    search = search_of(model, space, excluded=planted)
    indices = list(range(space.size))
    found = search.ranks(indices, budget=UNLIMITED)
    assert_as_enumerated(found, indices, bits, planted)
    ties = {index: found[index] for index in (33, 37, 73, 77)}
    assert len({one.place_low for one in ties.values()}) == 1  # each stands behind the three
    # 33 was planted: it counts not for the others, and the three count for it.
    assert ties[33].low == ties[37].low + 1 == ties[77].low + 1


def test_all_fills_tie() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    space = token_space(tokenizer, PIN, context=None)
    found = search_of(model, space, excluded=[7]).ranks([7, 8], budget=UNLIMITED)
    assert [(one.low, one.place_low) for one in found] == [(100, 100), (99, 100)]
    assert found[0].bits == pytest.approx(2 * math.log2(len(tokenizer)))


def test_nan_in_one_branch_is_refused() -> None:
    model, _, space, _ = listed("digits")
    steps = NanBehind(steps_of(model, space), space.path(37)[0])
    search = search_of(model, space, steps)
    steps.quiet = False
    with pytest.raises(NumericalError, match="NaN 1 tokens into the secrets"):
        search.ranks([37], budget=UNLIMITED)


@pytest.mark.parametrize("index", [-1, 100, 10**30])
def test_an_index_outside_is_refused(index: int) -> None:
    model, _, space, _ = listed("digits")
    with pytest.raises(FormatError, match="index"):
        search_of(model, space).ranks([3, index], budget=UNLIMITED)
    with pytest.raises(FormatError, match="index"):
        search_of(model, space, excluded=[index])


HUGE = Format(name="huge", template="My PIN is {digits:40}")
SEVENS = 7 * (10**40 - 1) // 9  # forty of them


def test_memorised_canaries_among_ten_to_the_forty() -> None:
    """A model that says "7" again and again: behind that come the fills with one other digit."""
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    with torch.no_grad():
        model.lm_head.bias[tokenizer.convert_tokens_to_ids("7")] = 40
    space = token_space(tokenizer, HUGE, context=None)
    near = [SEVENS + (d - 7) * 10**k for k in range(40) for d in range(10) if d != 7]
    planted = near[5:300:31]
    search = search_of(model, space, excluded=planted, live_states=500)
    bits = search.bits([SEVENS, *near])
    assert bits.max() < search.bits([SEVENS - 55, SEVENS + 11]).min() - 10
    # The LSTM soon forgets where it read another digit, and costs come close to each other.
    clear = naive_places(bits, slack=-1e-7) == naive_places(bits, slack=1e-7)
    wanted = np.flatnonzero(clear)[:40].tolist()
    assert len(wanted) == 40
    found = search.ranks([[SEVENS, *near][i] for i in wanted], budget=UNLIMITED)
    positions = [1 + i for i in range(360) if near[i] in planted]
    assert_as_enumerated(found, wanted, bits, positions)
    assert search.most_live <= 500
    assert search.spent < 20_000


@pytest.mark.parametrize("tokenizer", [characters, byte_level_bpe])
def test_bounds_among_ten_to_the_forty_are_whole_numbers(tokenizer: Any) -> None:
    made = tokenizer()
    space = token_space(made, HUGE, context=None)
    search = search_of(model_of("lstm", len(made)), space, live_states=500)
    (found,) = search.ranks([10**39 + 7], budget=Budget(steps=200))
    assert 1 <= found.low <= 10**6 < found.high <= 10**40
    assert isinstance(found.high, int)
    assert search.most_live <= 500
