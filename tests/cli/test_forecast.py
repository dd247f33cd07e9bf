import pytest

from lmexposure.audit import (
    Phase,
)
from lmexposure.cli.forecast import Forecast, in_words

PHASES = [
    Phase(what="scoring a", kind="scoring", work=1_000.0),
    Phase(what="scoring b", kind="scoring", work=3_000.0),
    Phase(what="a: drawing", kind="stepping", work=100.0, pace=0.1),
    Phase(what="a: best-first", kind="stepping", work=50.0, most=400.0, pace=0.1),
    Phase(what="estimating a", kind="statistics", work=2.0, pace=1.0),
]


def test_what_is_left_is_that_of_all_phases_at_the_paces_that_were_seen() -> None:
    forecast = Forecast(PHASES, 100.0)
    assert forecast.left(100.0) is None  # how long a text takes is not known
    forecast.update("scoring a", 20, 100, 102.0)  # a hundredth of a second for a unit of work
    left = forecast.left(102.0)
    assert left is not None
    assert left.expected == pytest.approx(8 + 30 + 10 + 5 + 2)
    assert left.most == pytest.approx(8 + 30 + 10 + 40 + 2)
    forecast.update("scoring a", 100, 100, 110.0)
    forecast.update("scoring b", 300, 300, 140.0)
    forecast.update("not planned", 1, 2, 140.0)
    forecast.update("a: drawing", 50, 100, 150.0)  # twice as slow as the trial said
    left = forecast.left(150.0)
    assert left is not None
    assert left.expected == pytest.approx(10 + 10 + 2)
    assert left.most == pytest.approx(10 + 80 + 2)
    forecast.update("a: best-first", 10, 400, 172.0)
    left = forecast.left(172.0)  # longer than was expected: the most still stands
    assert left is not None
    assert (left.expected, left.most) == pytest.approx((2.0, 80 - 22 + 2))
    forecast.update("estimating a", 1, 1, 175.0)
    assert forecast.left(175.0) == (0.0, 0.0)


def test_a_pace_that_is_not_known_follows_from_another_kind() -> None:
    training = Phase(what="training", kind="training", work=500.0, before=0.5)
    forecast = Forecast([training, Phase(what="s", kind="scoring", work=1_000.0)], 0.0)
    assert forecast.left(0.0) is None
    forecast.update("training", 60, 100, 10.0)  # 60 of 100 steps, 50 of which were done before
    left = forecast.left(10.0)
    assert left is not None
    assert left.expected == pytest.approx(40 + 1_000 * 0.1 / 4)


def test_a_limit_in_seconds_bounds_its_phase() -> None:
    forecast = Forecast([Phase(what="training", kind="training", work=500.0, seconds=30.0)], 0.0)
    forecast.update("training", 1, 100, 10.0)
    left = forecast.left(10.0)
    assert left is not None
    assert left.expected == pytest.approx(20.0)


def test_nothing_planned_says_nothing() -> None:
    forecast = Forecast([], 0.0)
    forecast.update("scoring a", 1, 2, 5.0)
    assert forecast.left(5.0) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (8.8, "9 s"), (22, "20 s"), (89, "90 s"), (91, "2 min"), (5390, "90 min")],
)
def test_durations_are_round(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
