"""Pacing: the time budget, what rounds cost, and which texts are scored within it."""

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from integrations.tiny_training import hidden
from tiny import byte_level_bpe, model_of

from lmexposure.errors import SettingsError
from lmexposure.integrations import pacing
from lmexposure.integrations.pacing import PacedScoring, RoundCosts, TimeBudget
from lmexposure.integrations.watched import Watched, watch
from lmexposure.scoring import score_encoded


class SetClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_share_of_the_training_alone_and_what_was_spent_is_gone() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 50.0
    budget.begin()
    clock.now = 150.0
    assert budget.left() == pytest.approx(10)
    with budget.spending():
        assert budget.running() == 0
        clock.now = 154.0
        assert budget.running() == 4
        assert budget.left() == pytest.approx(6)
    clock.now = 204.0
    assert budget.left() == pytest.approx(0.1 * 150 - 4)
    assert budget.running() == 0


def test_too_much_is_held_against_the_next() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 10.0
    with budget.spending():
        clock.now = 15.0
    assert budget.left() == pytest.approx(-4)
    clock.now = 65.0
    assert budget.left() == pytest.approx(1)


def test_so_many_seconds_each_time() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, seconds=3, clock=clock)
    for start in (0.0, 10.0):
        clock.now = start
        with budget.spending():
            clock.now = start + 2
            assert budget.left() == pytest.approx(1)


def test_what_failed_is_paid_for() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, clock=clock)
    with pytest.raises(KeyError), budget.spending():
        clock.now = 2.0
        raise KeyError
    assert budget.spent == 2


def test_shares_and_seconds_out_of_range_are_refused() -> None:
    with pytest.raises(SettingsError, match="budget_share=0 must lie strictly between 0 and 1"):
        TimeBudget(share=0)
    with pytest.raises(SettingsError, match="budget_seconds=-1 must be a finite number above 0"):
        TimeBudget(share=0.1, seconds=-1)


def test_what_would_have_paid_is_said_rounded_up() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 110.0
    with budget.spending():
        clock.now = 120.0
        assert budget.wanted(2.34) == "budget_share=0.12 or budget_seconds=13"
        assert budget.wanted(2.34, before=20) == "budget_share=0.3 or budget_seconds=13"
        assert budget.wanted(200) == "budget_seconds=210"
    assert budget.wanted(0) == "budget_share=0.091 or budget_seconds=0"


def test_beside_seconds_for_each_no_share_is_named() -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.1, seconds=3, clock=clock)
    with budget.spending():
        clock.now = 2.0
        assert budget.wanted(0.011, before=5) == "budget_seconds=2.1"


@pytest.mark.parametrize("more", [0.2, 1.7, 40.0])
def test_the_share_named_suffices(more: float) -> None:
    clock = SetClock()
    budget = TimeBudget(share=0.001, clock=clock)
    clock.now = 77.0
    share = float(budget.wanted(more).split(" ")[0].removeprefix("budget_share="))
    assert more <= TimeBudget(share=share, clock=clock)._share * 77.0 <= 1.2 * more


READ = 1.0  # seconds that pass whenever somebody looks at the clock


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += READ
        return self.now


@pytest.fixture(scope="module")
def model() -> Any:
    return model_of("gpt2", len(byte_level_bpe()))


@pytest.fixture(scope="module")
def watched(model: Any) -> Watched:
    _, manifest = hidden()
    return watch(manifest, byte_level_bpe(), model.config, references=300)


def scored(model: Any, watched: Watched, seconds: float) -> int:
    budget = TimeBudget(share=0.1, seconds=seconds, clock=Clock())
    with budget.spending():
        return PacedScoring(watched, budget).score(model).size


def test_enough_time_scores_all_and_right(model: Any, watched: Watched) -> None:
    budget = TimeBudget(share=0.1, seconds=600)
    with budget.spending():
        found = PacedScoring(watched, budget).score(model)
    expected = score_encoded(model, watched.encoded).totals
    assert np.allclose(found, expected, rtol=0, atol=1e-3)


def test_too_little_time_scores_nothing_rather_than_too_few(model: Any, watched: Watched) -> None:
    # The first 15 texts take a second: the least, 67 texts, would take more than is left.
    assert scored(model, watched, 6) == 0


def test_time_for_some_scores_a_beginning(model: Any, watched: Watched) -> None:
    assert watched.least <= scored(model, watched, 11) < len(watched.owners)


def test_no_time_at_all_scores_nothing(model: Any, watched: Watched) -> None:
    assert scored(model, watched, 0.5) == 0


def test_what_is_lacking_is_named_once_a_text_was_timed(model: Any, watched: Watched) -> None:
    budget = TimeBudget(share=0.1, seconds=6, clock=Clock())
    pacing = PacedScoring(watched, budget)
    assert pacing.lacking(0) == inf
    with budget.spending():
        assert pacing.score(model).size == 0
    # The clock says a second for 15 texts.
    assert pacing.lacking(0) == pytest.approx(watched.least / 15 / 0.8)
    assert pacing.lacking(100) == pytest.approx((len(watched.owners) - 100) / 15 / 0.8)


class TestAllTexts:
    """A machine on which a round takes half a second, and each text a hundredth."""

    @pytest.fixture
    def budget(self, monkeypatch: pytest.MonkeyPatch) -> TimeBudget:
        now = [0.0]

        def score(model: Any, texts: Any) -> Any:
            now[0] += 0.5 + 0.01 * len(texts)
            return SimpleNamespace(bits=[np.ones(len(one.ids) - one.scored_from) for one in texts])

        monkeypatch.setattr(pacing, "score_encoded", score)
        return TimeBudget(share=0.1, seconds=1.5, clock=lambda: now[0])

    @pytest.mark.parametrize("evaluations", [0, 1, 4])
    def test_what_it_takes_is_told_before(
        self, watched: Watched, budget: TimeBudget, evaluations: int
    ) -> None:
        pacing, told = PacedScoring(watched, budget), list[tuple[float, float]]()
        for _ in range(evaluations):
            with budget.spending():
                assert pacing.score(None).size < len(watched.owners)
        began = budget.clock()
        bits = pacing.score_all(None, lambda seconds: told.append((budget.clock(), seconds)))
        took = budget.clock() - began
        ((when, seconds),) = told
        assert bits.size == len(watched.owners)
        assert took / 2 < seconds < took * 2
        assert budget.clock() - when > took / 2

    def test_what_all_would_take_is_known_from_rounds_only(
        self, watched: Watched, budget: TimeBudget
    ) -> None:
        pacing = PacedScoring(watched, budget)
        assert pacing.seconds == inf
        pacing.score_all(None, lambda seconds: None)
        texts = len(watched.owners)
        assert pacing.seconds == pytest.approx(0.5 + 0.01 * texts, rel=0.5)


class TestRoundCosts:
    def test_nothing_is_known_at_first_and_then_a_bound(self) -> None:
        costs = RoundCosts()
        assert (costs.known, costs.seconds(1), costs.texts(9)) == (False, inf, 0)
        costs.bound(0.5)
        assert (costs.known, costs.seconds(4), costs.texts(9)) == (True, 2, 18)

    def test_one_round_tells_no_more_than_a_price_for_each(self) -> None:
        costs = RoundCosts()
        costs.add(100, 2)
        assert costs.seconds(50) == pytest.approx(1)
        assert costs.texts(3) == 150

    def test_several_tell_what_a_round_costs_by_itself(self) -> None:
        costs = RoundCosts()
        for texts in (100, 300, 700):
            costs.add(texts, 4 + 0.01 * texts)
        assert costs.seconds(500) == pytest.approx(9)
        assert costs.texts(9.001) == 500
        assert costs.texts(3.9) == 0

    def test_no_round_is_twice_as_large_as_any_before(self) -> None:
        costs = RoundCosts()
        costs.add(100, 2)
        assert costs.texts(1000) == 200

    def test_noise_makes_neither_part_negative(self) -> None:
        costs = RoundCosts()
        costs.add(100, 3)
        costs.add(200, 2)  # as if larger rounds took less
        assert costs.seconds(0) >= 0
        assert costs.texts(1.0) == 0
        assert costs.texts(4.0) == 400

    def test_long_ago_is_forgotten(self) -> None:
        costs = RoundCosts()
        for seconds in [1] * 8 + [4] * 8:
            costs.add(100, seconds)
        assert costs.seconds(100) == pytest.approx(4)
