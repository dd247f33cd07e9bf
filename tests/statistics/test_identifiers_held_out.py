"""Identifiers beside those of a random split: a slow count, no signal, power, edges."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.statistics import beside_held_out

READ, HELD_OUT = 41, 60  # few enough for the exact distribution


def _p_values(read: NDArray[np.float64], held_out: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([beside_held_out(*rows).p_value for rows in zip(read, held_out, strict=True)])


def _ranks(rng: np.random.Generator, shape: tuple[int, int], power: float) -> NDArray[np.float64]:
    """Ranks of a source whose identifiers are no random draws: far too low, with many ties."""
    return np.floor(1000 * rng.random(shape) ** power) + 1


def test_it_is_a_slow_count_over_all_splits() -> None:
    read, held_out = [1, 4, 7, 12], [2, 9, 10, 13, 14]
    found = beside_held_out(read, held_out)
    everything = [*read, *held_out]

    def above(chosen: tuple[int, ...]) -> int:
        rest = [n for n in range(9) if n not in chosen]
        return sum(everything[i] < everything[j] for i in chosen for j in rest)

    splits = list(combinations(range(9), 4))
    seen = above((0, 1, 2, 3))
    assert found.area == seen / 20
    assert found.p_value == pytest.approx(
        sum(above(split) >= seen for split in splits) / len(splits)
    )


@pytest.mark.parametrize(("level", "times"), [(0.05, 2_000), (0.01, 20_000)])
def test_a_random_split_is_called_membership_at_most_as_often_as_the_level(
    level: float, times: int
) -> None:
    """Of a source whose identifiers lie far below fresh draws, with and without ties."""
    rng = np.random.default_rng(3)
    shape = (times, READ + HELD_OUT)
    for both in (rng.standard_t(3, shape) * 8 - 50, _ranks(rng, shape, 6.0)):
        found = _p_values(both[:, :READ], both[:, READ:])
        false = int((found <= level).sum())
        assert stats.binomtest(false, times, level, alternative="greater").pvalue >= 0.01


@pytest.mark.slow
def test_many_ranks_are_shuffled_at_the_same_level() -> None:
    rng = np.random.default_rng(4)
    both = _ranks(rng, (60, 300), 6.0)
    assert (_p_values(both[:, :160], both[:, 160:]) <= 0.05).sum() <= 7


def test_identifiers_that_were_read_are_found() -> None:
    """A third of those that were read are known, so that they rank first."""
    rng = np.random.default_rng(5)
    read, held_out = _ranks(rng, (300, READ), 1.0), _ranks(rng, (300, HELD_OUT), 1.0)
    read[rng.random(read.shape) < 1 / 3] = 1
    assert (_p_values(read, held_out) <= 0.05).mean() > 0.8


def test_the_wrong_direction_is_no_finding() -> None:
    found = beside_held_out([900] * 30, [1] * 30)
    assert (found.area, found.p_value, found.shows) == (0, 1, False)
    tied = beside_held_out([5] * 30, [5] * 30)
    assert (tied.area, tied.p_value) == (0.5, 1)
