from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from integrations.tiny_training import hidden
from tiny import byte_level_bpe, model_of

from lmexposure.integrations import paced
from lmexposure.integrations.budget import TimeBudget
from lmexposure.integrations.paced import PacedScoring, RoundCosts
from lmexposure.integrations.watched import Watched, watch
from lmexposure.scoring import score_encoded

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

        monkeypatch.setattr(paced, "score_encoded", score)
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
