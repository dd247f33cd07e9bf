import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Off
from slow_search import (
    PIN,
    SMALL,
    TIE,
    Small,
    all_bits,
    biased,
    listed,
    make_twins,
    naive_places,
    steps_of,
)
from tiny import characters, model_of

from lmexposure.errors import SettingsError
from lmexposure.scoring import (
    Budget,
    Likeliest,
    Rescorer,
    TokenSpace,
    exact_search,
    likeliest_fills,
    next_token_steps,
)

MARGIN = 1e-3


def search(
    model: Any, space: TokenSpace, guesses: int, *, steps: Any = None, **given: Any
) -> Likeliest:
    steps = steps or steps_of(model, space)
    settings: dict[str, Any] = {"margin": MARGIN, "budget": Budget()} | given
    return likeliest_fills(space, steps, Rescorer(model, space), guesses=guesses, **settings)


def assert_right(found: Likeliest, bits: np.ndarray, guesses: int) -> None:
    """In the order of the enumeration; fills whose costs tie may change places."""
    k = min(guesses, len(bits))
    assert len(found.indices) == len(set(found.indices)) == len(found.bits) == found.proven == k
    ordered = np.sort(bits)[:k]
    listed_bits = bits[list(found.indices)]
    np.testing.assert_allclose(listed_bits, ordered, rtol=0, atol=TIE)
    np.testing.assert_allclose(found.bits, listed_bits, rtol=0, atol=MARGIN)
    assert (np.diff(found.bits) >= 0).all()


def assert_proven(found: Likeliest, bits: np.ndarray) -> None:
    """Never wrong, however short: these are the likeliest of all of R, in this order."""
    first = list(found.indices[: found.proven])
    np.testing.assert_allclose(bits[first], np.sort(bits)[: len(first)], rtol=0, atol=TIE)


def assert_right_within(found: Likeliest, bits: np.ndarray, guesses: int) -> None:
    assert len(found.indices) == found.proven == guesses
    assert_proven(found, bits)


@pytest.mark.parametrize("name", [*SMALL, "thousand"])
def test_the_order_is_that_of_the_enumeration(name: str) -> None:
    model, _, space, bits = listed(name)
    for guesses in (1, 2, 3, 10, space.size + 5):
        found = search(model, space, guesses)
        assert_right(found, bits, guesses)
        assert found.steps > 0


@pytest.mark.parametrize("name", ["digits", "nested", "merged words"])
def test_places_are_those_among_all_fills(name: str) -> None:
    model, _, space, bits = listed(name)
    k = min(20, space.size - 1)
    found = search(model, space, k)
    places = naive_places(bits)
    for index in range(space.size):
        if index in found.indices:
            assert found.place(index) == places[index]
        else:
            assert found.place(index) is None
            assert places[index] > k


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch", [1, 64])
def test_what_a_budget_leaves_is_proven_as_far_as_it_says(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_search, "_NARROW", batch)
    model, _, space, bits = listed(name)
    guesses = min(space.size, 12 if batch > 12 else 5)
    full = search(model, space, guesses).steps
    some = 0
    for steps in {*range(1, 9), *range(9, full, max(1, full // 4)), full}:
        found = search(model, space, guesses, budget=Budget(steps=steps))
        assert found.steps <= steps
        assert 0 <= found.proven <= len(found.indices) <= guesses
        some += 0 < found.proven < guesses
        assert_proven(found, bits)
        for index in found.indices[found.proven :]:
            assert found.place(index) is None
    assert some or name not in ("merged words", "merged digits")


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_ties_are_all_found(kind: str) -> None:
    small = Small(kind, characters, PIN)
    model, tokenizer, space = small.made()
    make_twins(model, *tokenizer.convert_tokens_to_ids(["3", "7"]))
    bits = small.bits(model, tokenizer, space)
    for guesses in range(1, 101, 7):
        assert_right(search(model, space, guesses), bits, guesses)


def test_what_the_walk_confuses_is_put_in_order_again() -> None:
    """In bfloat16 the walk alone would give another order."""
    model, _, space, bits = listed("thousand")
    half = model_of("lstm", len(characters())).to(torch.bfloat16)
    steps = next_token_steps(half, [*space.beginning, *space.path(0)])
    found = search(model, space, 60, steps=steps, margin=0.5)
    assert_right_within(found, bits, 60)
    spent = search(model, space, 60, steps=steps, margin=0.5, budget=Budget(steps=600))
    assert (bits[list(spent.indices[: spent.proven])] <= np.sort(bits)[59] + TIE).all()


@pytest.mark.parametrize("times", [0.75, 1.5])
def test_errors_of_the_whole_margin_either_way_change_nothing(times: float) -> None:
    """The walk finds one fill too dear and the next one too cheap, and has them the wrong way."""
    model, _, space, bits = listed("digits")
    right = steps_of(model, space)
    order = np.argsort(bits).tolist()
    for k in (1, 2, 5, 20):
        last = order[k - 1]
        dear = space.path(last)[0]
        later = next(i for i in order[k:] if space.path(i)[0] != dear)
        by = times * float(bits[later] - bits[last])
        steps = Off(Off(right, by, dear), -by, space.path(later)[0])
        for guesses in (k, k + 1):
            found = search(model, space, guesses, steps=steps, margin=by + 1e-4)
            assert_right_within(found, bits, guesses)
        for index in (last, later):
            near = search(model, space, k + 1, steps=steps, margin=by + 1e-4, wanted=[index])
            assert near.place(index) == found.place(index)


def test_only_what_is_close_to_a_wanted_fill_is_scored_again() -> None:
    model, _, space, bits = listed("thousand")
    order, places = np.argsort(bits), naive_places(bits)
    for place in (1, 7, 40, 300):
        index = int(order[place - 1])
        rescorer, asked = Rescorer(model, space), MARGIN
        found = likeliest_fills(
            space,
            steps_of(model, space),
            rescorer,
            guesses=200,
            margin=asked,
            budget=Budget(),
            wanted=[index],
        )
        assert found.place(index) == (places[index] if place <= 200 else None)
        again = [i for i in order.tolist() if rescorer.known(space.path(i)) is not None]
        assert all(abs(bits[i] - bits[index]) <= 3 * asked for i in again)
        assert len(found.indices) == found.proven == 200


def test_a_search_that_saw_no_fill_gives_none() -> None:
    model, _, space, _ = listed("thousand")
    found = search(model, space, 5, budget=Budget(steps=1), wanted=[3, 4])
    assert (found.indices, found.proven, found.place(3)) == ((), 0, None)


def test_nothing_holds_the_model_when_a_search_is_over() -> None:
    """Without the garbage collector: a copy in float64 is as large as two models."""
    model, _, space, _ = listed("digits")
    rescorer = Rescorer(model, space)
    gone = weakref.ref(rescorer)
    gc.disable()
    try:
        for _ in range(2):
            rescorer.bits([space.path(7)])
            steps: Any = rescorer._steps
            copied = weakref.ref(steps.model)
            del steps
            likeliest_fills(
                space, steps_of(model, space), rescorer, guesses=5, margin=MARGIN, budget=Budget()
            )
            assert copied() is None
            assert rescorer.known(space.path(7)) is not None
            rescorer.bits([space.path(70)])
        del rescorer
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("bias", [3.0, 5.0, 7.0])
def test_nothing_is_proven_before_what_is_open_is_dearer(bias: float) -> None:
    """One digit costs hardly anything, so that an open node may hold fills as cheap as itself."""
    model, space = biased(PIN, {"7": bias})
    bits = all_bits(model, characters(), PIN, skip=len(space.beginning))
    right = steps_of(model, space)
    proven = 0
    for by in (1e-4, 0.3, 1.0):
        for token in [space.path(11 * d)[0] for d in range(10)]:
            steps = Off(right, -by, token)
            for n in (2, 3, 5, 8):
                found = search(
                    model, space, 12, steps=steps, margin=by + 1e-4, budget=Budget(steps=n)
                )
                assert_proven(found, bits)
                proven += found.proven
    assert proven


def test_a_fill_that_came_out_too_cheap_is_not_proven_by_that() -> None:
    """It is alone in the list, below all that is open, and truly costs more than that."""
    tokenizer, tried = characters(), 0
    digits = tokenizer.convert_tokens_to_ids(list("0123456789"))
    for seed in range(40):
        more = np.random.default_rng(seed).uniform(0, 4, 10) + 5 * (np.arange(10) == 7)
        model, space = biased(PIN, {str(d): own for d, own in enumerate(more.tolist())})
        bits = all_bits(model, tokenizer, PIN, skip=len(space.beginning))
        steps = steps_of(model, space)
        _, first = steps.start(space.beginning, np.array(digits))
        cheapest_open = float(np.delete(first, 7).min())
        second, third = np.sort(np.delete(bits[70:80], 7))[:2]
        by = 1.2 * float(second - cheapest_open)
        if not 0 < 2 * by < third - second - 1e-3 or second < np.sort(bits)[1] + TIE:
            continue
        tried += 1
        off = Off(steps, -by, digits[7])
        found = search(model, space, 12, steps=off, margin=by + 1e-4, budget=Budget(steps=2))
        assert_proven(found, bits)
    assert tried


def test_no_guesses_are_refused() -> None:
    model, _, space, _ = listed("digits")
    with pytest.raises(SettingsError, match="guesses=0"):
        search(model, space, 0)


def test_fills_without_probability_come_in_no_list() -> None:
    model, space = biased(PIN, {"3": -math.inf})
    dead = space.path(33)[0]
    alive = [index for index in range(100) if dead not in space.path(index)]
    assert len(alive) == 81
    for guesses in (10, 81, 95):
        found = search(model, space, guesses)
        assert set(found.indices) <= set(alive)
        assert len(found.indices) == found.proven == min(guesses, 81)
        assert np.isfinite(found.bits).all()
