"""Chances, tries, and what sampling leaves open, against slow and published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import ends, holds

from lmexposure.statistics import known_and_sampled, tries_for, unseen_passages


def chance_within(bits: float, tries: float) -> float:
    """That at least one of these tries gives a text."""
    return -math.expm1(tries * math.log1p(-(2**-bits))) if bits else 1.0


def test_the_published_value_of_a_tiny_probability() -> None:
    """Hayes et al. 2025 count so: p 1e-18 and 1e16 tries give .00995."""
    assert tries_for(-math.log2(1e-18), 0.00995)[0] == pytest.approx(1e16, rel=5e-4)
    assert tries_for(-math.log2(1e-18), -math.expm1(-0.01))[0] == pytest.approx(1e16, rel=1e-9)


@given(st.floats(0.001, 40), st.floats(0.01, 0.99))
def test_the_tries_are_the_fewest_that_do(bits: float, chance: float) -> None:
    tries = tries_for(bits, chance)[0]
    assert tries == int(tries)
    assert chance_within(bits, tries) >= chance * (1 - 1e-9)
    if tries > 1:
        assert chance_within(bits, tries - 1) < chance * (1 + 1e-9)


def test_what_cannot_come_out_never_does() -> None:
    assert tries_for([math.inf, 2000.0], 0.5).tolist() == [math.inf, math.inf]


def test_nothing_drawn_leaves_the_open_mass_open() -> None:
    found = known_and_sampled(0.2, 0.3)
    assert (found.low, found.high, found.level) == (0.2, 0.5, 1.0)
    assert known_and_sampled(0.2, 0.0, hits=0, draws=0).high == 0.2
    assert known_and_sampled(0.2, 0.3, unsampled=0.1).high == pytest.approx(0.6)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_the_sampled_part_covers_at_its_level(share: float) -> None:
    draws = np.random.default_rng(3).binomial(200, share, size=400)
    truth = 0.1 + 0.6 * share
    ends = [known_and_sampled(0.1, 0.6, hits=int(hits), draws=200) for hits in draws]
    assert np.mean([end.low <= truth + 1e-12 and truth <= end.high + 1e-12 for end in ends]) >= 0.94
    assert max(end.high - end.low for end in ends) < 0.6 * 0.15


def test_unseen_passages_by_hand() -> None:
    """f1 = 4, f2 = 1 of 10 samples: 0.9 * 4 * 3 / (2 * 2) = 2.7."""
    found = unseen_passages([1, 1, 1, 1, 2, 5], 10)
    assert (found.found, found.once, found.twice) == (6, 4, 1)
    assert found.unseen == pytest.approx(2.7)
    assert found.next_new == pytest.approx(0.4)
    assert holds(found, 2.7)
    assert ends(found)[0] > 0


def test_nothing_found_says_nothing_of_the_rest() -> None:
    found = unseen_passages([], 50)
    assert (found.found, found.unseen, found.low, found.high) == (0, 0.0, None, None)


def test_the_estimate_is_near_the_truth_and_mostly_below_its_upper_end() -> None:
    """Forty passages, equally likely: what is left is known."""
    draws = np.random.default_rng(5)
    errors, covered = [], []
    for _ in range(300):
        seen = draws.random((60, 40)) < 0.02
        counts = seen.sum(0)
        found = unseen_passages(counts[counts > 0], 60)
        left = int((counts == 0).sum())
        errors.append(found.unseen - left)
        covered.append(holds(found, left))
    assert abs(np.mean(errors)) < 1.5
    assert np.mean(covered) > 0.85
