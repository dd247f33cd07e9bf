"""The search comes to the target wherever it can, and says where it cannot."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.defences import Found, search


def _searched(ratio: Callable[[float], float], **changes: float) -> Found:
    asked = {"target": 1.05, "tolerance": 0.01, "tries": 5} | changes
    return search(ratio, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ratio",
    [
        lambda s: 1 + 0.1 * s,
        lambda s: 1 + 0.5 * s**4,
        lambda s: 0.9 + 0.4 * math.sqrt(s),
        lambda s: 1.04 + s / 50,
        lambda s: 1.0 if s < 0.5 else 1.3 * s + 0.4,
    ],
)
def test_a_loss_that_rises_is_brought_to_the_target(ratio: Callable[[float], float]) -> None:
    found = _searched(ratio, tries=8)
    assert found.why is None
    assert abs(ratio(found.strength) / 1.05 - 1) <= 0.01
    assert found.tried[-1].strength == found.strength


@given(
    st.floats(0.8, 1.04),
    st.floats(1.061, 4),
    st.floats(0.3, 5),
    st.integers(min_value=2, max_value=7),
)
def test_no_search_trains_more_often_or_beyond_its_range(
    weakest: float, strongest: float, bend: float, tries: int
) -> None:
    asked: list[float] = []

    def ratio(strength: float) -> float:
        asked.append(strength)
        return weakest + (strongest - weakest) * float(strength**bend)

    found = _searched(ratio, tries=tries)
    assert len(asked) == len(found.tried) <= tries
    assert all(0 <= strength <= 1 for strength in asked)
    assert len(set(asked)) == len(asked)
    assert 0 <= found.strength <= 1
    assert not found.useless
    # What is chosen lies between the nearest on both sides.
    below = [one.strength for one in found.tried if one.ratio < 1.05]
    above = [one.strength for one in found.tried if one.ratio >= 1.05]
    if found.why is not None and below and above:
        assert max(below) <= found.strength <= min(above)


def test_what_costs_too_much_at_its_weakest_is_useless_after_two_trainings() -> None:
    found = _searched(lambda s: 1.2 + s)
    assert found.useless
    assert [one.strength for one in found.tried] == [0.5, 0.0]
    assert "higher target" in str(found.why)


def test_what_is_useful_at_its_strongest_is_kept_so() -> None:
    found = _searched(lambda s: 1 + s / 100)
    assert (found.strength, found.useless) == (1.0, False)
    assert "nearer to 1" in str(found.why)


def test_a_training_that_diverges_is_too_strong() -> None:
    found = _searched(lambda s: math.inf if s > 0.2 else 1 + s, tries=12)
    assert found.why is None
    assert found.strength == pytest.approx(0.05, abs=0.011)


def test_a_strength_between_trainings_is_named_as_such() -> None:
    found = _searched(lambda s: 0.5 if s < 0.9 else 9.0, tries=3)
    assert "in between" in str(found.why)
    assert found.strength not in {one.strength for one in found.tried}
