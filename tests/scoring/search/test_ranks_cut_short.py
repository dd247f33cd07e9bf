"""What a search for ranks has proven when steps, seconds, memory or patience come to an end."""

from typing import Any

import numpy as np
import pytest
from faulty_steps import Cramped, Interrupted
from scoring.search.enumerated_ranks import assert_as_enumerated, assert_holds, search_of
from slow_search import SMALL, listed, steps_of

from lmexposure.errors import ModelError, SettingsError
from lmexposure.scoring import (
    Budget,
)

UNLIMITED = Budget()


@pytest.mark.parametrize("name", ["digits", "nested", "sentence piece"])
@pytest.mark.parametrize("spare", [0, 1, 5, 40])
def test_any_number_of_live_states_gives_the_same(name: str, spare: int) -> None:
    model, _, space, bits = listed(name)
    live = space.longest + 1 + spare
    search = search_of(model, space, live_states=live)
    indices = space.format.sample(min(30, space.size), seed=2)
    assert_as_enumerated(search.ranks(indices, budget=UNLIMITED), indices, bits)
    assert 1 <= search.most_live <= live


def test_the_most_live_states_and_the_steps_are_over_all_walks() -> None:
    model, _, space, bits = listed("sentence piece")
    search = search_of(model, space)
    search.ranks([int(bits.argmax())], budget=UNLIMITED)
    most, spent = search.most_live, search.spent
    search.ranks([int(bits.argmin())], budget=Budget(steps=2))
    assert (search.most_live, search.spent) == (most, spent + 2)


def test_too_few_live_states() -> None:
    model, _, space, _ = listed("check digit")
    for live in (space.longest, 0):
        with pytest.raises(SettingsError, match=f"live_states={live}"):
            search_of(model, space, live_states=live).ranks([1], budget=UNLIMITED)


@pytest.mark.parametrize("name", SMALL)
def test_every_budget_gives_bounds_that_hold(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    planted = order[1:6:2]
    search = search_of(model, space, excluded=planted, live_states=8 * (space.longest + 1))
    indices = [*order[:5], *order[5 :: max(1, len(order) // 5)], order[-1]]
    full = search_of(model, space)
    full.ranks(indices, budget=UNLIMITED)
    opened = False
    for steps in {*range(1, 9), *range(9, full.spent, max(1, full.spent // 5)), full.spent}:
        before = search.spent
        found = search.ranks(indices, budget=Budget(steps=steps))
        assert search.spent - before <= steps
        assert_holds(found, indices, bits, planted)
        opened = opened or not all(one.exact for one in found)
    assert opened
    assert_as_enumerated(found, indices, bits, planted) if steps == full.spent else None
    last = search.ranks(indices, budget=Budget(steps=full.spent))
    assert_as_enumerated(last, indices, bits, planted)


def test_bounds_tighten_on_the_whole() -> None:
    model, _, space, bits = listed("thousand")
    index = int(np.argsort(bits)[200])
    search = search_of(model, space, live_states=40)
    widths = [
        search.ranks([index], budget=Budget(steps=n))[0] for n in (1, 100, 300, 700, 1100, 1200)
    ]
    gaps = [one.high - one.low for one in widths]
    assert gaps[0] > gaps[2] > gaps[3] > gaps[-1] == 0


def test_seconds_are_a_budget_too() -> None:
    model, _, space, bits = listed("thousand")
    index = int(bits.argmax())
    search = search_of(model, space, live_states=8)
    (found,) = search.ranks([index], budget=Budget(seconds=1e-9))
    assert search.spent == 1
    assert_holds([found], [index], bits)
    assert not found.exact
    assert_as_enumerated(search.ranks([index], budget=Budget(seconds=600.0)), [index], bits)


def test_out_of_memory_halves_and_goes_on() -> None:
    model, _, space, bits = listed("thousand")
    indices = list(range(0, 1000, 50))
    for most in (2, 30):
        steps = Cramped(steps_of(model, space), 1000)
        search = search_of(model, space, steps)  # its margin is measured with memory to spare
        steps.most = most
        assert_as_enumerated(search.ranks(indices, budget=UNLIMITED), indices, bits)
        assert steps.refused
    steps.most = 0
    with pytest.raises(ModelError, match="one state at a time; use a smaller model"):
        search.ranks(indices, budget=UNLIMITED)


@pytest.mark.parametrize("name", ["thousand", "nested", "sentence piece"])
def test_an_interrupt_keeps_what_was_proven(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    planted, indices = order[2:5], order[:6]
    for after in (1, 2, 3, 5, 9):
        steps = Interrupted(steps_of(model, space), 0)
        search = search_of(model, space, steps, excluded=planted, live_states=4 * space.longest)
        steps.left = after
        found = search.ranks(indices, budget=UNLIMITED)
        assert search.interrupted == (steps.left <= 0)
        assert_holds(found, indices, bits, planted)


def test_an_interrupt_before_anything_was_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, space, bits = listed("digits")
    steps = steps_of(model, space)
    search = search_of(model, space, steps, excluded=[4, 5])

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "start", interrupted)
    (found,) = search.ranks([5], budget=UNLIMITED)
    assert search.interrupted
    assert_holds([found], [5], bits, [4, 5])
    assert (found.place_low, found.place_high) == (1, 100)


def test_interrupted_is_of_the_last_walk() -> None:
    model, _, space, _ = listed("digits")
    steps = Interrupted(steps_of(model, space), 0)
    search = search_of(model, space, steps)
    steps.left = 1
    search.ranks([5], budget=UNLIMITED)
    assert search.interrupted
    search.ranks([5], budget=UNLIMITED)
    assert not search.interrupted
