import math

import pytest

from lmexposure.statistics.bounds.bound import largest_rejected


@pytest.mark.parametrize("root", [1e-3, 0.7, 12.0])
@pytest.mark.parametrize("above", [0.0, 0.5, 30.0])
def test_finds_the_root_from_either_side_and_stays_below(root: float, above: float) -> None:
    found = largest_rejected(lambda epsilon: math.tanh(epsilon - root), above)
    assert found == pytest.approx(root, abs=1e-8)
    assert found <= root


def test_nothing_rejected_gives_exactly_zero() -> None:
    assert largest_rejected(lambda epsilon: 0.3, 2.0) == 0.0


def test_an_epsilon_rejected_again_further_up_counts() -> None:
    # Rejected between 1 and 2 only: whoever keeps to less than 1 keeps to 2 as well.
    assert largest_rejected(lambda e: (e - 1) * (e - 2), 2.5) == pytest.approx(2, abs=1e-8)
